//! The table `[nodes]`: the gateways that serve the same clients.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;

use super::{ADDRESS, Fault, Field, FileField, Kind, Place, Section, single};

/// The number of a gateway, which has 2 bytes in connection IDs.
const NUMBER: Kind =
    Kind { name: "a number from 0 to 65535", allowed: "write a number without quotation marks" };

/// A gateway that serves the same clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its number.
    pub number: u16,
    /// The address at which it receives the datagrams of other gateways.
    pub address: SocketAddr,
}

/// The table `[nodes]`.
#[derive(Clone, Debug)]
pub struct NodesConfig {
    /// The number of this gateway.
    pub own: u16,
    /// The address at which this gateway receives the datagrams of others.
    pub listen: Field<SocketAddr>,
    /// The file with the key that all gateways share.
    pub key: FileField,
    /// The other gateways.
    pub others: Vec<NodeConfig>,
    /// The place of the table.
    pub place: Place,
}

impl NodesConfig {
    /// Reads the table of all files.
    pub(super) fn read(sections: &mut [Section<'_>], faults: &RefCell<Vec<Fault>>) -> Option<Self> {
        let mut section = single(sections, "nodes")?;
        let place = section.place().clone();
        let own = number(&mut section, "own");
        let listen = section.read("listen", ADDRESS, |value| value.as_str()?.parse::<SocketAddr>().ok());
        let key = section.file("key");
        for (name, what) in [
            ("own", "write the number of this gateway, which is in one of the tables [[nodes.node]]"),
            ("key", "name a file with 32 random bytes, which all gateways have"),
            ("node", "add a table [[nodes.node]] for each gateway, also for this one"),
        ] {
            if !section.has(name) {
                section.missing(name, what);
            }
        }
        let mut nodes = vec![];
        let mut numbers = HashMap::new();
        for table in section.tables("node") {
            let place = table.place().clone();
            let Some(node) = node(table) else { continue };
            if let Some(first) = numbers.insert(node.number, place.clone()) {
                let what = format!("duplicate number {}, first used at {first}", node.number);
                faults.borrow_mut().push(place.fault(what, "give each gateway a number of its own"));
            }
            nodes.push((node, place));
        }
        let at = own.as_ref().and_then(|own| nodes.iter().position(|(node, _)| node.number == own.value));
        if let (Some(own), None) = (&own, at) {
            let what = format!("no table [[nodes.node]] has the number {}", own.value);
            section.fault(own.place.fault(what, "add one, or correct the number"));
        }
        section.end();
        let (itself, itself_at) = nodes.remove(at?);
        let others = nodes.into_iter().map(|(node, _)| node).collect();
        let listen = listen.unwrap_or(Field { value: itself.address, place: itself_at });
        Some(Self { own: own?.value, listen, key: key?, others, place })
    }

    /// Whether both say the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.own, self.listen.value, &self.key.value, &self.others)
            == (other.own, other.listen.value, &other.key.value, &other.others)
    }
}

fn number<'a>(section: &mut Section<'a>, key: &'a str) -> Option<Field<u16>> {
    let number = section.integer(key, NUMBER, 0..=u16::MAX.into())?;
    Some(Field { value: number.value.try_into().ok()?, place: number.place })
}

fn node(mut section: Section<'_>) -> Option<NodeConfig> {
    let number = number(&mut section, "number");
    let address = section.read("address", ADDRESS, |value| {
        let address = value.as_str()?.parse::<SocketAddr>().ok()?;
        (!address.ip().is_unspecified()).then_some(address)
    });
    for (name, what) in [("number", NUMBER.allowed), ("address", ADDRESS.allowed)] {
        if !section.has(name) {
            section.missing(name, what);
        }
    }
    section.end();
    Some(NodeConfig { number: number?.value, address: address?.value })
}
