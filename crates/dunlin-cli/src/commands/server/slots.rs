//! The places of clients over TCP, and the log of refused clients.

use std::net::IpAddr;
use std::sync::Arc;

use dunlin::places::{GivesWay, HandshakeLimit, PlaceLimit, PlaceLimits};
use dunlin::{Ended, PeerIdentity};
use dunlin_command::error::{Explanation, count};
use dunlin_tokio::places::{HandshakePlace, Places, Seated};
use dunlin_tokio::{AssociationEnded, HandshakeError};

/// The places of --max-connections and its kin.
pub(super) struct Slots {
    places: Arc<Places>,
    limits: PlaceLimits,
}

impl Slots {
    pub(super) fn new(limits: PlaceLimits) -> Self {
        Self { places: Arc::default(), limits }
    }

    /// Gives a place to a handshake with this host.
    pub(super) fn handshake(&self, from: IpAddr) -> Result<HandshakePlace, Limit> {
        let PlaceLimits { all, per_host, .. } = self.limits;
        self.places.handshake(from, per_host, all).map_err(Limit::Handshakes)
    }

    /// Gives a place to a client that has completed its handshake.
    pub(super) fn settle(&self, from: IpAddr, peer: Option<&PeerIdentity>) -> Result<Seated, Limit> {
        self.places.settle(from, peer, &self.limits).map_err(Limit::Places)
    }

    /// Lets a handshake end for lack of open files.
    pub(super) fn relieve(&self) {
        self.places.relieve();
    }
}

/// A limit that has kept a client out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Places(PlaceLimit),
    Handshakes(HandshakeLimit),
    OpenFiles,
}

impl Limit {
    /// The limit behind the end of a handshake.
    pub(super) fn of(error: &HandshakeError) -> Option<Self> {
        match error {
            HandshakeError::Io(error) => match AssociationEnded::of(error)? {
                Ended::Refused(limit) => Some(Self::Places(limit)),
                Ended::Displaced(limit) => Some(Self::Handshakes(limit)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The option with the limit, and the cause.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Places(PlaceLimit::All) => "the limit --max-connections was reached",
            Self::Places(PlaceLimit::PerHost) => "the limit --max-connections-per-host was reached",
            Self::Places(PlaceLimit::PerNetwork) => "the limit --max-connections-per-network was reached",
            Self::Handshakes(HandshakeLimit::All) => "handshakes in progress reached --max-connections",
            Self::Handshakes(HandshakeLimit::PerHost) => {
                "handshakes in progress reached --max-connections-per-host"
            }
            Self::OpenFiles => "a connection was not accepted",
        }
    }

    /// Advice for the operator.
    const fn advice(self) -> &'static str {
        match self {
            Self::Places(PlaceLimit::All) => {
                "raise --max-connections, or wait until other clients have ended"
            }
            Self::Places(PlaceLimit::PerHost) => {
                "raise --max-connections-per-host, or wait until other clients have ended"
            }
            Self::Places(PlaceLimit::PerNetwork) => {
                "raise --max-connections-per-network, or wait until other clients have ended"
            }
            Self::Handshakes(HandshakeLimit::All) => "raise --max-connections, or lower --timeout",
            Self::Handshakes(HandshakeLimit::PerHost) => {
                "raise --max-connections-per-host, or lower --timeout"
            }
            Self::OpenFiles => "free file descriptors or memory",
        }
    }

    /// Explains why a client was refused. The log has no line about `left_out` earlier ones.
    pub(super) fn explain(self, left_out: Option<u64>) -> Explanation {
        let before =
            left_out.map(|n| format!(", as for {} before it", count(n, "client"))).unwrap_or_default();
        Explanation::new(format!("{}{before}", self.name()), self.advice())
    }
}

/// Explains why a client has to go that had a place.
pub(super) fn gave_way(why: GivesWay) -> Explanation {
    let why = format!("it gave way to another client ({}) at a limit on connections", why.name());
    Explanation::new(why, "raise --max-connections or the limits for hosts and networks")
}

#[cfg(test)]
mod tests {
    use dunlin::Now;
    use dunlin_tokio::throttle::Throttle;

    use super::*;

    const LIMITS: PlaceLimits = PlaceLimits { all: 4, per_host: 2, per_network: 3, silence: None };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A site has up to 65,536 hosts. It leaves places to others, and each of its hosts to its others.
    #[test]
    fn a_host_and_a_site_leave_places_to_others() {
        let slots = Slots::new(LIMITS);
        let settle = |from| slots.settle(ip(from), None);
        let taken = ["2001:db8::1", "2001:db8::2"].map(|from| settle(from).unwrap());
        assert_eq!(settle("2001:db8::3").err(), Some(Limit::Places(PlaceLimit::PerHost)));
        let beside = settle("2001:db8:0:9::1").unwrap();
        assert_eq!(settle("2001:db8:0:8::1").err(), Some(Limit::Places(PlaceLimit::PerNetwork)));
        let other = settle("192.0.2.1").unwrap();
        // The site has more than its share.
        let second = settle("192.0.2.2").unwrap();
        assert_eq!(taken[0].gives_way(), Some(GivesWay::Share));
        assert!([&taken[1], &beside, &other, &second].iter().all(|seated| seated.gives_way().is_none()));
    }

    #[test]
    fn a_host_has_handshakes_as_it_has_connections() {
        let slots = Slots::new(LIMITS);
        let handshake = |from| slots.handshake(ip(from));
        let taken = ["2001:db8::1", "2001:db8::2", "2001:db8:0:9::1"].map(|from| handshake(from).unwrap());
        assert_eq!(handshake("2001:db8::3").err(), Some(Limit::Handshakes(HandshakeLimit::PerHost)));
        let others = ["192.0.2.1", "192.0.2.2"].map(|from| handshake(from).unwrap());
        assert!(taken[0].is_displaced() && !others[0].is_displaced());
    }

    #[test]
    fn the_log_tells_of_a_limit_once_a_minute() {
        let refusals = Throttle::default();
        let note = |limit: Limit, ms| {
            let line = refusals.limit("", limit.name(), Now::from_unix_ms(ms));
            line.map(|line| line.left_out.unwrap_or(0))
        };
        let [all, per_host] = [PlaceLimit::All, PlaceLimit::PerHost].map(Limit::Places);
        assert_eq!(note(all, 0), Some(0));
        assert_eq!(note(all, 0), None);
        assert_eq!(note(per_host, 0), Some(0));
        assert_eq!(note(Limit::Handshakes(HandshakeLimit::All), 0), Some(0));
        assert_eq!(note(all, 59_999), None);
        assert_eq!(note(all, 60_000), Some(2));
        assert!(
            all.explain(Some(2)).why.ends_with("--max-connections was reached, as for 2 clients before it")
        );
    }
}
