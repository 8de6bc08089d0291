//! How a client uses several local interfaces.

use core::time::Duration;

use crate::error::{Error, Misuse};

/// The most interfaces of one connection. The peer keeps a connection ID for each of them, beside spare ones.
pub const MAX_INTERFACES: usize = 4;

/// Whether observers may link what a connection sends over its interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linking {
    /// Each interface has a connection ID of its own, and nothing is sent over two of them.
    Unlinkable,
    /// All interfaces have the same connection ID, or none.
    Linkable,
    /// The same, and each record leaves over all interfaces at once.
    Duplicated,
}

/// How a client over datagrams uses several local interfaces ([`crate::ClientConfig::with_multihoming`]).
///
/// [`crate::DtlsConnection::set_interfaces`] names the interfaces, the best first. The connection sends over
/// the best one on which the server has answered. It leaves an interface that the caller removes from the
/// list, or on which the server does not answer a probe: a challenge of RFC 9853, which both sides must
/// support. It then sends at once a record that tells the server of its new address.
/// [`crate::Event::PathChanged`] reports the change. The client probes an interface that has failed again
/// after 30 s, when data leaves, and then after pauses that double up to an hour; an answer that is only late
/// makes it valid again. So the best interface that works is in use again after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multihoming {
    pub(crate) linking: Linking,
    pub(crate) timeout: Duration,
}

impl Multihoming {
    /// The timeout of RFC 9853 §5.5 if the round-trip time is unknown.
    const TIMEOUT: Duration = Duration::from_secs(1);

    const fn new(linking: Linking) -> Self {
        Self { linking, timeout: Self::TIMEOUT }
    }

    /// Each interface has a connection ID of its own, so that observers cannot link what leaves over them.
    /// The connection repeats no data over another interface; [`crate::Event::PathChanged`] tells how many
    /// records may be lost. This needs DTLS 1.3.
    ///
    /// The connection always asks the server for four IDs beside the present one, for its other interfaces
    /// and for new addresses. Without a spare ID it stays where it is while its present interface works. If
    /// that one fails, goes, or changes its address, the connection goes on under the present ID, so
    /// observers can link the two paths, and [`crate::PathChange::is_linked`] says so. A client should not do
    /// that (RFC 9147 §9), but would otherwise lose its connection. A server that gives no spare IDs, or an
    /// attacker who stops its answers, can cause it.
    ///
    /// The IDs in the server's records are the client's. A server of this implementation answers a probe
    /// under an ID of its own for that path, and uses it when the client goes over to it. But while it checks
    /// the new address, it sends its data there under the previous ID, and an enhanced check
    /// ([`crate::PathCheck::Enhanced`]) sends the same bytes over both paths. So an observer of both
    /// interfaces can link them at the time of a change.
    pub const fn unlinkable() -> Self {
        Self::new(Linking::Unlinkable)
    }

    /// All interfaces have the same connection ID, or none, so observers can link what leaves over them. The
    /// connection keeps the latest 32 records of data while the server has sent nothing that confirms them,
    /// and sends the same records again over the next interface. The server's replay window removes those
    /// that had arrived. A later record of the server counts as confirmation, although it does not show that
    /// the data has arrived. So the connection also probes its interface after 32 records of data without an
    /// answer to a probe.
    pub const fn linkable() -> Self {
        Self::new(Linking::Linkable)
    }

    /// Like [`Self::linkable`], and each record leaves over all interfaces at once. A server of this
    /// implementation sends its own records over all of them, too, once the client has answered its
    /// challenges there. No data is lost when one of them fails, but the traffic of both directions
    /// multiplies.
    pub const fn duplicated() -> Self {
        Self::new(Linking::Duplicated)
    }

    /// Sets the time without an answer after which an interface has failed, by default one second. Once the
    /// connection knows the round-trip time, it waits for three of them (RFC 9853 §5.5), and at most
    /// `timeout`.
    ///
    /// # Errors
    /// [`Misuse::Config`], unless 10 ms ≤ `timeout` ≤ 60 s.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&timeout) {
            return Err(Misuse::Config(alloc::format!(
                "the timeout of a probe must be 10 ms to 60 s, not {timeout:?}"
            ))
            .into());
        }
        self.timeout = timeout;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_timeout_out_of_range() {
        let with = |ms| Multihoming::linkable().with_timeout(Duration::from_millis(ms));
        assert!(with(10).is_ok() && with(60_000).is_ok());
        assert!(with(9).is_err() && with(60_001).is_err());
    }
}
