//! The measured cases: the client's scheme, the server's rule, the path, and the changes of the client's
//! address.

use std::time::Duration;

use dunlin::PortScheme;
use dunlin_sim::NatKind;

use crate::report::Row;

named! {
    /// How a client goes on after its address has changed.
    pub(super) enum Scheme {
        /// A new full handshake, after the application's timeout.
        Standard = "standard",
        /// A resumption by session ID, after the same timeout.
        SessionId = "session_id",
        /// A resumption by ticket, after the same timeout.
        Ticket = "ticket",
        /// Implicit port communication: the server answers from a port of its own for the association.
        Ipc = "ipc",
        /// Temporary connected socket: the server announces such a port by an extension.
        Tcs = "tcs",
        /// The same, announced by a message as in the paper.
        TcsMessage = "tcs_message",
        /// [`Self::Tcs`] with two interfaces, which go down in turns. The client goes over to the other one.
        TcsMultihomed = "tcs_multihomed",
        /// Connection IDs in DTLS 1.2, with return routability checks.
        Cid12 = "cid12",
        /// Connection IDs in DTLS 1.3, with return routability checks.
        Cid13 = "cid13",
        /// The same with two interfaces, which go down in turns. The connection repeats over the other one what
        /// may be lost.
        CidMultihomed = "cid_multihomed",
        /// The same, and each record leaves over both interfaces at once.
        CidMultihomedDuplicates = "cid_multihomed_duplicates",
    }
}

impl Scheme {
    pub(super) const fn protocol(self) -> &'static str {
        match self {
            Self::Cid13 | Self::CidMultihomed | Self::CidMultihomedDuplicates => "dtls1.3",
            _ => "dtls1.2",
        }
    }

    /// Whether the association survives a change of the client's address. Otherwise the application notices
    /// by its timeout that the connection is gone.
    pub(super) const fn is_mobile(self) -> bool {
        !matches!(self, Self::Standard | Self::SessionId | Self::Ticket)
    }

    /// The number of the client's interfaces.
    pub(super) const fn interfaces(self) -> usize {
        match self {
            Self::TcsMultihomed | Self::CidMultihomed | Self::CidMultihomedDuplicates => 2,
            _ => 1,
        }
    }

    /// The rule by which an association gets a port of its own at the server.
    pub(super) const fn ports(self) -> Option<PortScheme> {
        match self {
            Self::Ipc => Some(PortScheme::Ipc),
            Self::Tcs | Self::TcsMultihomed => Some(PortScheme::Tcs),
            Self::TcsMessage => Some(PortScheme::TcsMessage),
            _ => None,
        }
    }

    /// Whether the connection itself uses several interfaces. Otherwise the client chooses one.
    pub(super) const fn is_multihomed(self) -> bool {
        matches!(self, Self::CidMultihomed | Self::CidMultihomedDuplicates)
    }

    /// The rules of the server under which the scheme is measured. A server whose socket is connected to one
    /// client cannot receive from the client's next address, so the schemes that survive the change have the
    /// first rule only.
    pub(super) const fn servers(self) -> &'static [ServerKind] {
        if self.is_mobile() { &[ServerKind::Listening] } else { &[ServerKind::Listening, ServerKind::Single] }
    }
}

named! {
    /// When a server accepts a new client.
    pub(super) enum ServerKind {
        /// At any time.
        Listening = "listening",
        /// It has one association, and accepts another client after a silence of [`SILENCE`].
        Single = "single",
    }
}

/// The silence after which a server with one association frees it.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// The application's timeout, after which a client connects again.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// The limit of a handshake, after which a client connects again.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(3);
/// The length of messages and of their acknowledgements, in bytes.
pub(super) const MESSAGE_BYTES: usize = 32;
/// The pause between an acknowledgement and the next message.
pub(super) const PACE: Duration = Duration::from_millis(100);
/// The workload of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Talk {
    /// The number of messages.
    pub(super) messages: u32,
    /// The time between two changes of an interface's address.
    pub(super) period: Duration,
}

impl Talk {
    /// When the change with this number comes, counted from 1, and to which of the interfaces. Several
    /// interfaces take turns.
    pub(super) fn change(self, number: u32, interfaces: usize) -> (Duration, usize) {
        let before = number.saturating_sub(1);
        (self.period + self.period * before / interfaces as u32, before as usize % interfaces)
    }
}

/// The talk of the experiment.
pub(super) const TALK: Talk = Talk { messages: 600, period: Duration::from_secs(10) };
/// A handshake alone, with the messages that both sides send after it of their own accord.
pub(super) const HANDSHAKE: Talk = Talk { messages: 0, ..TALK };

/// The path between client and server, and its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Path {
    /// The delay of each direction.
    pub(super) delay: Duration,
    /// The loss in each direction.
    pub(super) loss_percent: u32,
    /// The NAT in front of the client.
    pub(super) nat: Option<NatKind>,
    /// How long the client's interface is down before it gets its next address. `None`: its address never
    /// changes.
    pub(super) downtime: Option<Duration>,
}

/// A scheme on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Case {
    pub(super) scheme: Scheme,
    pub(super) server: ServerKind,
    pub(super) path: Path,
}

impl Case {
    /// The same without changes of the address and, since a NAT then changes nothing, without a NAT. Without
    /// losses, there is nothing that a server with one association or a session would change.
    pub(super) const fn undisturbed(self) -> Self {
        let path = Path { downtime: None, nat: None, ..self.path };
        if self.path.loss_percent == 0 && !self.scheme.is_mobile() {
            Self { scheme: Scheme::Standard, server: ServerKind::Listening, path }
        } else {
            Self { path, ..self }
        }
    }

    /// The case whose first handshake is also that of this one: losses would only blur it.
    pub(super) const fn handshake(self) -> Self {
        let path = Path { downtime: None, nat: None, loss_percent: 0, ..self.path };
        Self { server: ServerKind::Listening, path, ..self }
    }

    /// A new handshake after each change, with the server nearest to the paper: the reference of its Table I.
    pub(super) const fn reference(self) -> Self {
        Self { scheme: Scheme::Standard, server: ServerKind::Single, ..self }
    }

    pub(super) fn name(&self) -> String {
        let Path { delay, loss_percent, downtime, .. } = self.path;
        let scheme = self.scheme.name();
        let server = self.server.name();
        let nat = self.nat();
        let delay = delay.as_millis();
        let downtime = downtime.map_or(0, |downtime| downtime.as_millis());
        format!("{scheme} ({server}), {delay} ms, NAT {nat}, {loss_percent} % loss, {downtime} ms off")
    }

    fn nat(&self) -> &'static str {
        self.path.nat.map_or("none", NatKind::name)
    }

    /// Makes a row for the case.
    pub(super) fn row(&self, stack: &str) -> Row {
        let Path { delay, loss_percent, downtime, .. } = self.path;
        Row::new()
            .with("stack", stack)
            .with("scheme", self.scheme.name())
            .with("protocol", self.scheme.protocol())
            .with("server", self.server.name())
            .with("nat", self.nat())
            .with("delay_ms", delay.as_millis() as u64)
            .with("loss_percent", loss_percent)
            .with("downtime_ms", downtime.map_or(0, |downtime| downtime.as_millis() as u64))
    }

    /// The paper's Table I: the time that a client with as many interfaces saves against standard DTLS by the
    /// paper's own scheme (TCS), in percent. The paper has neither NATs nor losses.
    pub(super) fn paper_saved_percent(&self) -> Option<f64> {
        let of_interfaces = match self.scheme.interfaces() {
            1 => [8.35, 13.63, 15.22],
            _ => [16.61, 17.48, 23.42],
        };
        let is_like_the_papers =
            self.scheme.is_mobile() && self.path.nat.is_none() && self.path.loss_percent == 0;
        let delays = [5, 30, 100].map(Duration::from_millis);
        let delay = delays.iter().position(|delay| *delay == self.path.delay).filter(|_| is_like_the_papers);
        of_interfaces.get(delay?).copied()
    }
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// The time from the first datagram to the last acknowledgement; `None` if it never came.
    pub(super) wall_clock: Option<Duration>,
    /// The time until the client may send its first message.
    pub(super) first_handshake: Option<Duration>,
    /// The changes of address until then.
    pub(super) handovers: u32,
    /// How long an interface was really down each time, if that can differ from the case's downtime.
    pub(super) downtime: Option<Duration>,
    /// The acknowledged messages.
    pub(super) acknowledged: u32,
    /// The messages that the receiver lacks.
    pub(super) missing: u32,
    /// The copies of messages that the client has sent again.
    pub(super) resent: u32,
    /// The complete handshakes, and those of them that resumed a session.
    pub(super) handshakes: u32,
    pub(super) resumed: u32,
    /// The IP packets of both directions.
    pub(super) packets: u64,
    /// The bytes of these packets, with their headers.
    pub(super) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_interfaces_change_in_turns() {
        let seconds = |interfaces| {
            [1, 2, 3].map(|number| {
                let (at, interface) = TALK.change(number, interfaces);
                (at.as_secs(), interface)
            })
        };
        assert_eq!(seconds(1), [(10, 0), (20, 0), (30, 0)]);
        assert_eq!(seconds(2), [(10, 0), (15, 1), (20, 0)]);
    }

    #[test]
    fn schemes_have_unique_names() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::ALL.iter().filter(|other| other.name() == scheme.name()).count(), 1);
        }
    }
}
