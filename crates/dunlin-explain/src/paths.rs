//! The paths of a DTLS association: it begins between two ends, and goes on between others when one of them
//! moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use dunlin::Side;

use crate::dtls::{self, Direction};
use crate::flow::{Content, Flow};

/// The most flows that are compared with one association. Each of them costs an attempt to decrypt.
const MAX_COMPARED: usize = 1024;

/// The flows of a capture, and those that belong to an earlier one.
pub(crate) struct Paths<'f, 'a> {
    pub(crate) flows: &'f [Flow<'a>],
    pub(crate) joined: BTreeSet<usize>,
}

impl<'f, 'a> Paths<'f, 'a> {
    pub(crate) const fn new(flows: &'f [Flow<'a>]) -> Self {
        Self { flows, joined: BTreeSet::new() }
    }

    /// Whether a flow belongs to an earlier one.
    pub(crate) fn is_joined(&self, index: usize) -> bool {
        self.joined.contains(&index)
    }

    /// The first flow after this one in which the server answers its ClientHello from another port of its
    /// address, as a server with ports for associations does. Returns its index, and which of its ends is the
    /// client's.
    pub(crate) fn answer(&self, index: usize, client: usize) -> Option<(usize, usize)> {
        let ends = self.flows.get(index)?.ends;
        let later = self.flows.iter().enumerate().skip(index + 1).take(MAX_COMPARED);
        let mut later = later.filter(|(other, flow)| flow.may_continue_another() && !self.is_joined(*other));
        later.find_map(|(other, flow)| {
            let own = flow.ends.iter().position(|end| *end == ends[client])?;
            let is_server = flow.ends[1 - own].ip() == ends[1 - client].ip();
            let Content::Udp(datagrams) = &flow.content else { return None };
            let (_, first) = datagrams.first()?;
            (is_server && dtls::is_server_hello(first)).then_some((other, own))
        })
    }

    /// The datagrams of a flow and, with `others`, of those after it that may belong to the same association,
    /// in the order of the capture: each with its flow and its place there.
    pub(crate) fn datagrams(&self, index: usize, others: bool) -> Vec<(usize, usize, &'f [u8])> {
        let later = self
            .flows
            .iter()
            .enumerate()
            .skip(index + 1)
            .filter(|(other, flow)| others && flow.may_continue_another() && !self.is_joined(*other));
        let own = self.flows.iter().enumerate().skip(index).take(1);
        let mut all = Vec::new();
        for (of_flow, flow) in own.chain(later.take(MAX_COMPARED)) {
            let Content::Udp(datagrams) = &flow.content else { continue };
            for (place, bytes) in datagrams {
                let frame = flow.packets.get(*place).map_or(0, |packet| packet.frame);
                all.push((frame, of_flow, *place, *bytes));
            }
        }
        all.sort_by_key(|(frame, ..)| *frame);
        all.into_iter().map(|(_, of_flow, place, bytes)| (of_flow, place, bytes)).collect()
    }
}

/// The flows of one association.
pub(crate) struct Joined {
    /// Each flow that was compared, in the order of their first datagrams: which of its ends is the client's,
    /// or `None` if the flow does not belong to the association.
    pub(crate) paths: Vec<(usize, Option<usize>)>,
    known: BTreeMap<usize, Option<usize>>,
    /// The addresses of the client and the server so far.
    ends: [BTreeSet<SocketAddr>; 2],
}

impl Joined {
    /// An association that begins with this flow.
    pub(crate) fn new(index: usize, client: usize, flow: &Flow<'_>) -> Self {
        let mut joined = Self { paths: Vec::new(), known: BTreeMap::new(), ends: Default::default() };
        joined.decide(index, Some(client), flow);
        joined
    }

    /// Decides whether a flow belongs to the association, and which of its ends is then the client's.
    pub(crate) fn decide(&mut self, index: usize, client: Option<usize>, flow: &Flow<'_>) {
        self.paths.push((index, client));
        self.known.insert(index, client);
        if let Some(client) = client {
            self.ends[0].insert(flow.ends[client]);
            self.ends[1].insert(flow.ends[1 - client]);
        }
    }

    /// The side that sent a datagram of the association; `None` for one of another flow. The first datagram
    /// of a flow decides: it must come from or go to an address of the association, and belong to one of its
    /// directions.
    pub(crate) fn side(
        &mut self,
        index: usize,
        flow: &Flow<'_>,
        place: usize,
        datagram: &[u8],
        directions: &mut [Direction<'_>; 2],
    ) -> Option<Side> {
        let from = flow.packets.get(place).map_or(0, |packet| packet.from);
        let side = |client: usize| if from == client { Side::Client } else { Side::Server };
        if !self.known.contains_key(&index) {
            let of = |side: usize| flow.ends.iter().position(|end| self.ends[side].contains(end));
            let client = of(0).or_else(|| of(1).map(|server| 1 - server));
            let client = client.filter(|client| directions[side(*client) as usize].owns(datagram));
            self.decide(index, client, flow);
        }
        self.known.get(&index).copied().flatten().map(side)
    }
}
