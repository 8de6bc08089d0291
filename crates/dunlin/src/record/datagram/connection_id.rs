//! The connection IDs of both sides (RFC 9146, RFC 9147 §9).

use crate::sync::Arc;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::seldom::Seldom;
use crate::error::{Error, PeerMisbehaved};
use crate::message::connection_ids::Usage;
use crate::settings::{ConnectionIds, MAX_INTERFACES};
use crate::wire::{Field, HandshakeType};

/// The most IDs of this side that are valid at one time, besides one that the peer must use at once: one for
/// each interface, as many spare ones, and some that the peer has left. An ID that the peer left long ago
/// makes room for a further one.
pub(super) const MAX_OWN_IDS: usize = 12;
/// The most spare IDs of the peer that this side keeps.
pub(super) const MAX_SPARE_IDS: usize = 8;
/// The most IDs of the peer that this side keeps for other addresses of the peer.
pub(super) const MAX_KEPT_IDS: usize = MAX_INTERFACES - 1;

/// The IDs that this side receives.
#[derive(Default)]
pub(super) struct OwnIds {
    issuer: Option<Arc<dyn ConnectionIds>>,
    len: usize,
    /// How many there have been.
    issued: u32,
    ids: VecDeque<Vec<u8>>,
    /// The ID in the latest authentic record.
    latest: Vec<u8>,
    /// The IDs that were in earlier records, the least recent first.
    left: Vec<Vec<u8>>,
}

impl OwnIds {
    pub(super) fn new(issuer: Option<Arc<dyn ConnectionIds>>, first: Vec<u8>) -> Self {
        let len = first.len();
        let latest = first.clone();
        let mut ids: VecDeque<_> = [first].into_iter().filter(|id| !id.is_empty()).collect();
        ids.shrink_to_fit();
        Self { issuer, len, issued: u32::from(!ids.is_empty()), ids, latest, left: Vec::new() }
    }

    /// Before the peer has agreed to use IDs of this length: none is valid yet.
    pub(super) fn offered(len: usize) -> Self {
        Self { len, ..Self::default() }
    }

    /// How many IDs there have been.
    pub(super) const fn issued(&self) -> u32 {
        self.issued
    }

    /// The IDs of a frozen association.
    pub(super) fn thawed(
        issuer: Option<Arc<dyn ConnectionIds>>,
        len: usize,
        ids: VecDeque<Vec<u8>>,
        latest: Vec<u8>,
        left: Vec<Vec<u8>>,
    ) -> Self {
        let issued = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        Self { issuer, len, ids, latest, issued, left }
    }

    /// The places in [`Self::iter`] of the IDs that the peer has left, the least recent first.
    pub(super) fn left(&self) -> impl Iterator<Item = usize> {
        let left = self.left.iter().filter(|left| **left != self.latest);
        left.filter_map(|left| self.ids.iter().position(|id| id == left))
    }

    /// Lets this issue further IDs, if they have the length of those before.
    pub(super) fn set_issuer(&mut self, issuer: Arc<dyn ConnectionIds>) {
        if self.are_used() && issuer.id_len() == self.len {
            self.issuer = Some(issuer);
        }
    }

    /// The ID in the latest authentic record.
    pub(super) fn latest(&self) -> &[u8] {
        &self.latest
    }

    /// The length of an ID in a record that has one, in bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the peer's records carry one of them.
    pub(super) fn are_used(&self) -> bool {
        !self.ids.is_empty()
    }

    /// The valid IDs, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ids.iter().map(|id| &**id)
    }

    /// Whether a record with this ID, or an empty one without, is for this connection.
    pub(super) fn fit(&self, id: &[u8]) -> bool {
        if self.are_used() { self.ids.iter().any(|own| own == id) } else { id.is_empty() }
    }

    /// Notes the ID of an authentic record.
    pub(super) fn received(&mut self, id: &[u8]) {
        if self.latest != id {
            let before = core::mem::replace(&mut self.latest, id.to_vec());
            self.left.retain(|left| left != id && self.ids.contains(left));
            self.left.push(before);
        }
    }

    /// How many of them the peer has not used yet.
    pub(super) fn unused(&self) -> usize {
        self.ids.iter().filter(|id| **id != self.latest && !self.left.contains(id)).count()
    }

    /// Drops an ID that the peer probably uses no more: the one that it has left first, or else the oldest
    /// unused one that is older than the one in use. The latest [`MAX_KEPT_IDS`] that it has left stay,
    /// because it may keep them for other addresses and return to them. `false` if there is none.
    fn make_room(&mut self) -> bool {
        let mut left = self.left.iter().filter(|left| **left != self.latest && self.ids.contains(left));
        let at = match left.next() {
            Some(first) if left.count() >= MAX_KEPT_IDS => self.ids.iter().position(|id| id == first),
            _ => {
                let mut older = self.ids.iter().take_while(|id| **id != self.latest);
                older.position(|id| !self.left.contains(id))
            }
        };
        at.and_then(|at| self.ids.remove(at)).is_some()
    }

    /// Issues new ones. An ID that the peer left long ago makes room. Without room it issues fewer, since the
    /// peer may still use each of the others (RFC 9147 §9). There is room for one that it must use at once,
    /// unless it has not used the previous one of this kind yet.
    pub(super) fn issue(&mut self, count: u8, usage: Usage) -> Result<Vec<Vec<u8>>, Error> {
        let Some(issuer) = self.issuer.clone().filter(|_| self.are_used()) else { return Ok(Vec::new()) };
        let most = MAX_OWN_IDS + usize::from(usage == Usage::Immediate);
        let mut new = Vec::new();
        for _ in 0..count {
            while self.ids.len() >= MAX_OWN_IDS && self.make_room() {}
            if self.ids.len() >= most {
                break;
            }
            let id = issuer.issue()?;
            self.ids.push_back(id.clone());
            self.issued = self.issued.wrapping_add(1);
            new.push(id);
        }
        Ok(new)
    }
}

/// The IDs that this side sends.
#[derive(Default)]
pub(super) struct PeerIds {
    present: Vec<u8>,
    /// The one before it, for the path that this side has left.
    previous: Option<Vec<u8>>,
    spare: VecDeque<Vec<u8>>,
    /// The IDs for other addresses of the peer, from which it has probed them.
    kept: Seldom<(SocketAddr, Vec<u8>)>,
}

impl PeerIds {
    pub(super) const fn new(first: Vec<u8>) -> Self {
        Self { present: first, previous: None, spare: VecDeque::new(), kept: Seldom::new() }
    }

    /// The IDs of a frozen association.
    pub(super) fn thawed(present: Vec<u8>, spare: Vec<Vec<u8>>) -> Self {
        Self { present, previous: None, spare: spare.into(), kept: Seldom::new() }
    }

    /// The IDs that this side can use next.
    pub(super) fn spare(&self) -> impl Iterator<Item = &[u8]> {
        self.spare.iter().map(|id| &**id)
    }

    /// The ID of the next record; empty if records carry none.
    pub(super) fn present(&self) -> &[u8] {
        &self.present
    }

    /// The ID before it.
    pub(super) fn previous(&self) -> Option<&[u8]> {
        self.previous.as_deref()
    }

    /// The ID for another address of the peer: the one that is kept for it, or a spare one.
    pub(super) fn of(&self, peer: SocketAddr) -> Option<&[u8]> {
        let kept = self.kept.iter().find(|(of, _)| *of == peer).map(|(_, id)| id);
        kept.or_else(|| self.spare.front()).map(|id| &**id)
    }

    /// Keeps the ID of [`Self::of`] for this address.
    pub(super) fn keep(&mut self, peer: SocketAddr) {
        if self.kept.iter().any(|(of, _)| *of == peer) {
            return;
        }
        if let Some(id) = self.spare.pop_front() {
            if self.kept.len() >= MAX_KEPT_IDS {
                self.kept.remove(0);
            }
            self.kept.push((peer, id));
        }
    }

    /// The peer is at this address now. Uses the ID of the address, or a spare one.
    pub(super) fn move_to(&mut self, peer: SocketAddr) {
        let at = self.kept.iter().position(|(of, _)| *of == peer);
        match at.and_then(|at| self.kept.remove(at)) {
            Some((_, id)) => {
                self.replace(id);
            }
            None => {
                self.advance();
            }
        }
    }

    /// Takes a spare ID for another path.
    pub(super) fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop_front()
    }

    /// Uses this ID from now on, and returns the one before it.
    pub(super) fn replace(&mut self, id: Vec<u8>) -> Vec<u8> {
        let before = core::mem::replace(&mut self.present, id);
        self.previous = Some(before.clone());
        before
    }

    /// Takes new IDs. `longest` is the length of the longest one that leaves room for data.
    pub(super) fn take(&mut self, ids: Vec<Vec<u8>>, usage: Usage, longest: usize) -> Result<(), Error> {
        // RFC 9147 §9: a peer that receives IDs receives them in every record.
        if ids.iter().any(|id| id.is_empty() || id.len() > longest) {
            let what = Field::Message(HandshakeType::NEW_CONNECTION_ID);
            return Err(PeerMisbehaved::IllegalParameter(what).into());
        }
        if usage == Usage::Immediate && !ids.is_empty() {
            self.spare.clear();
            self.kept.clear();
        }
        self.spare.extend(ids);
        self.spare.truncate(MAX_SPARE_IDS);
        if usage == Usage::Immediate {
            self.advance();
        }
        Ok(())
    }

    /// Uses a spare ID from now on. `false` if there is none.
    pub(super) fn advance(&mut self) -> bool {
        match self.spare.pop_front() {
            Some(id) => {
                self.previous = Some(core::mem::replace(&mut self.present, id));
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reader, Writer};
    use alloc::vec;

    #[derive(Debug)]
    struct Counter(core::sync::atomic::AtomicU8);

    impl ConnectionIds for Counter {
        fn id_len(&self) -> usize {
            1
        }

        fn issue(&self) -> Result<Vec<u8>, Error> {
            Ok(vec![self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed)])
        }
    }

    #[test]
    fn issues_a_bounded_number_and_forgets_the_oldest() {
        let mut own = OwnIds::new(Some(Arc::new(Counter(1.into()))), vec![0]);
        assert_eq!(own.issue(2, Usage::Spare).unwrap(), [[1], [2]]);
        assert!(own.fit(&[0]) && own.fit(&[2]) && !own.fit(&[3]) && !own.fit(&[]));
        // The peer still uses the first one, which stays.
        assert_eq!(own.issue(255, Usage::Spare).unwrap().len(), MAX_OWN_IDS - 3);
        assert!(own.issue(1, Usage::Spare).unwrap().is_empty() && own.fit(&[0]));
        // RFC 9147 §9: the peer may still use every spare one.
        assert_eq!(own.issue(1, Usage::Immediate).unwrap(), [[12]]);
        assert!((0..=12).all(|id| own.fit(&[id])));
        assert!(own.issue(1, Usage::Immediate).unwrap().is_empty());
        // The peer uses the newest one, so unused ones before it make room. It may return to the first one.
        own.received(&[12]);
        assert_eq!(own.issue(255, Usage::Spare).unwrap().len(), MAX_OWN_IDS - 2);
        assert!(own.fit(&[0]) && own.fit(&[12]) && own.iter().count() == MAX_OWN_IDS);
        let mut none = OwnIds::new(Some(Arc::new(Counter(1.into()))), vec![]);
        assert!(none.issue(1, Usage::Spare).unwrap().is_empty() && none.fit(&[]) && !none.fit(&[1]));
    }

    /// A peer with a quiet path, whose ID is the oldest, and one that often changes its ID.
    #[test]
    fn an_id_that_the_peer_left_long_ago_makes_room() {
        let mut own = OwnIds::new(Some(Arc::new(Counter(1.into()))), vec![0]);
        assert_eq!(own.issue(255, Usage::Spare).unwrap().len(), MAX_OWN_IDS - 1);
        for id in [1, 2, 3, 0] {
            own.received(&[id]);
        }
        // The peer may keep these three for other addresses.
        assert!(own.issue(1, Usage::Spare).unwrap().is_empty());
        for id in [4, 5, 0] {
            own.received(&[id]);
        }
        assert_eq!(own.issue(255, Usage::Spare).unwrap().len(), 2);
        assert!(!own.fit(&[1]) && !own.fit(&[2]) && [0, 3, 4, 5, 6].iter().all(|id| own.fit(&[*id])));
        assert!(own.iter().count() == MAX_OWN_IDS);
        assert!(own.left.len() <= MAX_OWN_IDS);
    }

    /// Otherwise the IDs that the peer leaves after the thaw would go first, and it may keep them for another
    /// interface.
    #[test]
    fn a_thawed_side_drops_the_ids_first_that_the_peer_has_left() {
        let issuer = |first: u8| Some(Arc::new(Counter(first.into())) as Arc<dyn ConnectionIds>);
        let mut own = OwnIds::new(issuer(100), vec![0]);
        assert_eq!(own.issue(255, Usage::Spare).unwrap().len(), MAX_OWN_IDS - 1);
        for id in [100, 101, 102, 0, 103] {
            own.received(&[id]);
        }
        let mut w = Writer::default();
        own.freeze(&mut w);
        let bytes = w.finish().unwrap();
        let thaw =
            |bytes: &[u8]| OwnIds::thaw(&mut Reader::new(bytes, Field::FrozenAssociation), issuer(200));
        let mut thawed = thaw(&bytes).unwrap();
        thawed.received(&[104]);
        assert_eq!(thawed.issue(4, Usage::Spare).unwrap().len(), 2);
        assert!(!thawed.fit(&[100]) && !thawed.fit(&[101]));
        assert!(thawed.fit(&[0]) && (102..111).all(|id| thawed.fit(&[id])));
        let end = bytes.len() - 1;
        let bad = [&bytes[..end], &[MAX_OWN_IDS as u8]].concat();
        assert!(thaw(&bad).is_err());
    }

    #[test]
    fn takes_spare_and_immediate_ids() {
        let mut peer = PeerIds::new(vec![0]);
        assert!(!peer.advance());
        peer.take(vec![vec![1], vec![2]], Usage::Spare, 1).unwrap();
        assert_eq!(peer.present(), [0]);
        assert!(peer.advance());
        assert_eq!(peer.present(), [1]);
        peer.take(vec![vec![3], vec![4]], Usage::Immediate, 1).unwrap();
        assert_eq!(peer.present(), [3]);
        assert!(peer.advance() && !peer.advance());
        peer.take((0..20).map(|i| vec![i]).collect(), Usage::Spare, 1).unwrap();
        assert_eq!((0..20).filter(|_| peer.advance()).count(), MAX_SPARE_IDS);
        assert!(peer.take(vec![vec![]], Usage::Spare, 1).is_err());
        assert!(peer.take(vec![vec![1, 2]], Usage::Spare, 1).is_err());
    }
}
