//! Checks of listeners against each other: names, addresses and files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{
    AcmeChallenge, AcmeConfig, AdminConfig, Fault, Field, ListenerConfig, OwnFiles, Place, TransportKind,
};

/// Checks the names and addresses of listeners against each other.
pub(super) fn check_together(
    listeners: &[ListenerConfig],
    admin: Option<&AdminConfig>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut addresses = of_admin(admin);
    for redirect in listeners.iter().filter_map(|listener| listener.redirect.as_ref()) {
        check_address(&redirect.listen, false, &mut addresses, faults);
    }
    let sockets = listeners.iter().map(|listener| {
        (&listener.listen, listener.transport == TransportKind::Dtls, &*listener.name, &listener.place)
    });
    check_unique(sockets, addresses, faults);
    check_acme(listeners, faults);
    let mut files = HashMap::new();
    for frozen in listeners.iter().filter_map(|listener| listener.frozen.as_ref()) {
        if let Some(first) = files.insert(&frozen.file.value, &frozen.place) {
            let what = format!("{} is also the file of {first}", frozen.file.value.display());
            faults.borrow_mut().push(frozen.file.place.fault(what, "give each listener a file of its own"));
        }
    }
    for listener in listeners {
        let mut names = HashMap::new();
        for route in &listener.routes {
            if let Some(first) = names.insert(&route.name, &route.place) {
                let what = format!("duplicate name {:?}, first used at {first}", route.name);
                faults.borrow_mut().push(route.place.fault(what, "give each route a name of its own"));
            }
        }
    }
}

/// The addresses of sockets, whether they are for datagrams, and their places.
pub(crate) type Addresses<'a> = Vec<(SocketAddr, bool, &'a Place)>;

/// The address of the administrative listener.
pub(crate) fn of_admin(admin: Option<&AdminConfig>) -> Addresses<'_> {
    admin.map(|admin| (admin.listen.value, false, &admin.listen.place)).into_iter().collect()
}

/// Checks that each listener has a name of its own, and an address of its own that is not among `addresses`.
/// A listener is its address, whether it receives datagrams, its name, and the place of its table.
pub(crate) fn check_unique<'a>(
    listeners: impl Iterator<Item = (&'a Field<SocketAddr>, bool, &'a str, &'a Place)>,
    mut addresses: Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut names = HashMap::new();
    for (address, is_datagram, name, table) in listeners {
        check_address(address, is_datagram, &mut addresses, faults);
        if let Some(first) = names.insert(name, table) {
            let what = format!("duplicate name {name:?}, first used at {first}");
            faults.borrow_mut().push(table.fault(what, "give each listener a name of its own"));
        }
    }
}

fn check_address<'a>(
    Field { value: address, place }: &'a Field<SocketAddr>,
    is_datagram: bool,
    addresses: &mut Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    // The kernel lets one socket of a family have a port on all addresses, and then none on a single one.
    let is_taken = |other: &SocketAddr| {
        let is_covered = other == address || [other, address].iter().any(|of| of.ip().is_unspecified());
        other.port() == address.port() && other.is_ipv4() == address.is_ipv4() && is_covered
    };
    let first = addresses.iter().find(|(other, kind, _)| *kind == is_datagram && is_taken(other));
    if let Some((other, _, first)) = first.filter(|_| address.port() != 0) {
        let what = match other == address {
            true => format!("{address} is also the address of {first}"),
            false => format!("{address} has the port of {other}, the address of {first}"),
        };
        faults.borrow_mut().push(place.fault(what, "give each listener an address of its own"));
    }
    addresses.push((*address, is_datagram, place));
}

/// Checks that the listeners meet the requirements of certificates by ACME.
fn check_acme(listeners: &[ListenerConfig], faults: &RefCell<Vec<Fault>>) {
    let mut files: HashMap<PathBuf, &AcmeConfig> = HashMap::new();
    let has_tls = listeners.iter().any(|listener| listener.transport == TransportKind::Tls);
    let has_http = listeners.iter().any(|listener| listener.redirect.is_some());
    let all = listeners.iter().flat_map(|listener| {
        let acme = listener.certificates.iter().filter_map(OwnFiles::acme);
        acme.map(move |acme| (listener, acme))
    });
    for (listener, acme) in all {
        let fault = |what: String, advice: &str| faults.borrow_mut().push(acme.place.fault(what, advice));
        if listener.raw_public_key {
            let what = "each renewal changes the key, but raw_public_key is for clients that know the key";
            fault(what.to_owned(), "leave raw_public_key out, or give chain and key instead of acme");
        }
        let (is_possible, needs) = match acme.challenge {
            AcmeChallenge::TlsAlpn01 => (has_tls, "a listener with transport = \"tls\""),
            AcmeChallenge::Http01 => (has_http, "a listener with a table [listener.redirect]"),
        };
        if !is_possible {
            let what = format!("the authority's challenge {} needs {needs}", acme.challenge.name());
            fault(what, "add one, or change challenge");
        }
        match files.insert(acme.file(), acme) {
            Some(other) if other.names != acme.names => {
                let what = format!("{} also names this certificate first, with other names", other.place);
                fault(what, "give the two stores of their own, or the same names");
            }
            _ => {}
        }
    }
}
