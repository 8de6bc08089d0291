//! The client: it sends its messages one at a time, and goes on after a change of its address as its scheme
//! says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dunlin::{
    AssociationId, ClientConfig, DtlsConnection, Endpoint, EndpointLimits, Event, Instant, Local, Now, Path,
    ServerAddress, Transmit,
};
use dunlin_sim::Host;

use super::super::keys::SERVER_NAME;
use super::case::{Figures, HANDSHAKE_LIMIT, MESSAGE_BYTES, PACE, Scheme, TIMEOUT};

/// The port of the first connection. Each further connection has a socket of its own.
const FIRST_PORT: u16 = 40_000;
/// Longer than any outage from which a client recovers.
const HOPELESS: Duration = Duration::from_secs(60);
/// The time without a datagram after which a client that is done is at rest: longer than the pauses of both
/// sides.
const REST: Duration = Duration::from_millis(1500);
/// The least time beyond the round trip after which a message counts as lost.
const MARGIN: Duration = Duration::from_millis(20);

/// Why a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// For the first time.
    First,
    /// Again, on another path or in another connection.
    Moved,
    /// Again, because no acknowledgement came.
    Lost,
}

/// The event that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An address, to connect from.
    Address,
    /// The end of a handshake, which has a limit.
    Handshake { until: Instant },
    /// An acknowledgement. `sent_at`: when the message was sent, if it was sent once.
    Acknowledgement { sent_at: Option<Instant>, until: Instant },
    /// The end of the pause before the next message.
    Pause { until: Instant },
    /// Nothing.
    Nothing,
}

/// A client on sockets, or in virtual time.
pub(super) struct Client {
    config: Arc<ClientConfig>,
    scheme: Scheme,
    server: SocketAddr,
    /// The number of messages to send.
    messages: u32,
    endpoint: Endpoint,
    association: Option<AssociationId>,
    port: u16,
    /// The addresses of the interfaces.
    addresses: Vec<Option<IpAddr>>,
    /// The interface in use, of a client that chooses it itself.
    present: usize,
    /// The address of the connection's socket, which a scheme without mobility keeps.
    bound: Option<IpAddr>,
    state: State,
    round_trips: RoundTrips,
    began_at: Option<Instant>,
    /// When the latest acknowledgement came.
    heard_at: Option<Instant>,
    /// When the latest datagram came or left.
    active_at: Option<Instant>,
    figures: Figures,
}

impl Client {
    /// A client that connects to `server` as soon as it has an address, and sends `messages` messages.
    pub(super) fn new(config: Arc<ClientConfig>, scheme: Scheme, server: SocketAddr, messages: u32) -> Self {
        Self {
            config,
            scheme,
            server,
            messages,
            endpoint: Endpoint::new(EndpointLimits::default()),
            association: None,
            port: FIRST_PORT - 1,
            addresses: Vec::new(),
            present: 0,
            bound: None,
            state: State::Address,
            round_trips: RoundTrips::default(),
            began_at: None,
            heard_at: None,
            active_at: None,
            figures: Figures::default(),
        }
    }

    /// Whether all messages are acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Nothing
    }

    /// Whether the client is done, and nothing follows what it was to do.
    pub(super) fn is_at_rest(&self, now: Now) -> bool {
        self.is_done() && self.active_at.is_none_or(|at| now.monotonic.since(at) > REST)
    }

    /// Whether the client will never be done, because its scheme does not work here: nothing was acknowledged
    /// for too long.
    pub(super) fn is_hopeless(&self, now: Now) -> bool {
        self.heard_at.or(self.began_at).is_some_and(|at| now.monotonic.since(at) > HOPELESS)
    }

    /// The results of this side so far.
    pub(super) const fn figures(&self) -> &Figures {
        &self.figures
    }

    fn connection(&self) -> Option<&DtlsConnection> {
        self.endpoint.association(self.association?).map(|association| association.connection())
    }

    /// The next data from the server.
    fn read(&mut self) -> Option<Vec<u8>> {
        let resent = &mut self.figures.resent;
        self.endpoint.update(self.association?, |connection| {
            while let Some(event) = connection.poll_event() {
                if let Event::PathChanged(change) = event {
                    *resent += change.repeated as u32;
                }
            }
            connection.read()
        })?
    }

    /// The address from which the client sends; with several interfaces that the connection uses, one of
    /// them.
    fn address(&self) -> Option<IpAddr> {
        if self.scheme.is_multihomed() {
            self.addresses.iter().flatten().next().copied()
        } else {
            self.addresses.get(self.present).copied().flatten()
        }
    }

    /// The interfaces that are up.
    fn interfaces(&self) -> Vec<Local> {
        let up = self.addresses.iter().enumerate().filter(|(_, address)| address.is_some());
        up.map(|(number, _)| Local(number as u32)).collect()
    }

    /// Tells the connection which interfaces are up.
    fn set_interfaces(&mut self, now: Now) {
        let interfaces = self.interfaces();
        if let Some(id) = self.association.filter(|_| self.scheme.is_multihomed()) {
            // The connection keeps its error.
            let _ = self.endpoint.update(id, |connection| connection.set_interfaces(now, &interfaces));
        }
    }

    /// Connects from a new socket. The previous one is closed without a word.
    fn connect(&mut self, now: Now) {
        self.state = State::Address;
        self.endpoint = Endpoint::new(EndpointLimits::default());
        self.association = None;
        self.bound = self.address();
        if self.bound.is_none() {
            return;
        }
        self.began_at.get_or_insert(now.monotonic);
        self.port += 1;
        self.state = State::Handshake { until: now.monotonic + HANDSHAKE_LIMIT };
        // The name is valid. Without randomness the client tries again at the limit.
        let name = ServerAddress::parse(SERVER_NAME, self.server.port());
        let made = name.and_then(|name| self.endpoint.connect(&self.config, name, self.server, now));
        self.association = made.ok();
    }

    /// Sends the current message.
    fn send(&mut self, now: Now, copy: Copy) {
        let number = self.figures.acknowledged;
        self.figures.resent += u32::from(copy != Copy::First);
        if let Some(id) = self.association {
            // A failed connection is replaced at the timeout.
            let _ = self.endpoint.update(id, |connection| connection.send(&message(number)));
        }
        match copy {
            Copy::First => {}
            Copy::Moved => self.round_trips.begin_again(),
            Copy::Lost => self.round_trips.back_off(),
        }
        let timeout = if self.scheme.is_mobile() { self.round_trips.timeout() } else { TIMEOUT };
        let sent_at = (copy == Copy::First).then_some(now.monotonic);
        self.state = State::Acknowledgement { sent_at, until: now.monotonic + timeout };
    }

    /// Sends the first message, or the one that the previous connection has lost.
    fn begin(&mut self, now: Now, is_resumed: bool) {
        let since = |began: Instant| now.monotonic.since(began);
        self.figures.handshakes += 1;
        self.figures.resumed += u32::from(is_resumed);
        self.set_interfaces(now);
        let is_initial = self.figures.first_handshake.is_none();
        if is_initial {
            self.figures.first_handshake = self.began_at.map(since);
        }
        match self.messages {
            0 => self.state = State::Nothing,
            _ => self.send(now, if is_initial { Copy::First } else { Copy::Moved }),
        }
    }

    /// Takes the acknowledgement of the current message.
    fn acknowledged(&mut self, now: Now, sent_at: Option<Instant>) {
        if let Some(sent_at) = sent_at {
            self.round_trips.measured(now.monotonic.since(sent_at));
        }
        self.figures.acknowledged += 1;
        self.heard_at = Some(now.monotonic);
        self.state = State::Pause { until: now.monotonic + PACE };
        if self.figures.acknowledged == self.messages {
            self.figures.wall_clock = self.began_at.map(|began| now.monotonic.since(began));
            self.state = State::Nothing;
        }
    }

    /// Goes on after an event.
    fn go_on(&mut self, now: Now) {
        while self.endpoint.poll_event().is_some() {}
        while let Some(data) = self.read() {
            if let State::Acknowledgement { sent_at, .. } = self.state
                && data == message(self.figures.acknowledged)
            {
                self.acknowledged(now, sent_at);
            }
        }
        let is_due = |until: Instant| until <= now.monotonic;
        let has_failed = self.connection().is_none_or(|connection| connection.error().is_some());
        match self.state {
            State::Address if self.address().is_some() => self.connect(now),
            State::Handshake { until } => {
                let negotiated = self.connection().and_then(|connection| connection.negotiated());
                match negotiated.map(dunlin::Negotiated::is_resumed) {
                    Some(is_resumed) if !has_failed => self.begin(now, is_resumed),
                    _ if is_due(until) => self.connect(now),
                    _ => {}
                }
            }
            State::Acknowledgement { until, .. } if is_due(until) => {
                match self.scheme.is_mobile() && !has_failed {
                    // Without a network the client waits for one.
                    true if self.address().is_none() => {}
                    true => self.send(now, Copy::Lost),
                    false => self.connect(now),
                }
            }
            State::Pause { until } if is_due(until) => self.send(now, Copy::First),
            _ => {}
        }
    }

    /// When the state ends.
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Address | State::Nothing => None,
            State::Acknowledgement { .. } if self.scheme.is_mobile() && self.address().is_none() => None,
            State::Handshake { until } | State::Acknowledgement { until, .. } | State::Pause { until } => {
                Some(until)
            }
        }
    }

    /// The address of the socket in use on an interface; a connection without mobility has its first one.
    fn source(&self, local: Local) -> Option<SocketAddr> {
        let address = match self.scheme.interfaces() {
            1 => self.address().filter(|address| self.scheme.is_mobile() || self.bound == Some(*address)),
            _ => self.addresses.get(local.0 as usize).copied().flatten(),
        };
        Some(SocketAddr::new(address?, self.port))
    }
}

/// The message with this number, which is also its acknowledgement.
pub(super) fn message(number: u32) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message.resize(MESSAGE_BYTES, 0);
    message
}

impl Host for Client {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        self.active_at = Some(now.monotonic);
        let local = self.interfaces().into_iter().find(|local| self.source(*local) == Some(at));
        if let Some(local) = local {
            let local = if self.scheme.interfaces() > 1 { local } else { Local::default() };
            self.endpoint.receive(now, Path { local, ..from.into() }, datagram);
            self.go_on(now);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        loop {
            let transmit = self.endpoint.poll_transmit(now)?;
            // Without its address, the socket sends nothing.
            if let Some(source) = self.source(transmit.local) {
                self.active_at = Some(now.monotonic);
                return Some((source, transmit));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout().into_iter().chain(self.deadline()).min()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.endpoint.handle_timeout(now);
        self.go_on(now);
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        let before = self.address();
        self.addresses = addresses.to_vec();
        if self.scheme.is_multihomed() {
            // The connection itself sends again what may be lost.
            self.set_interfaces(now);
            self.go_on(now);
            return;
        }
        if let (None, Some(other)) = (self.address(), self.addresses.iter().position(Option::is_some)) {
            self.present = other;
            if let Some(id) = self.association {
                let local = Local(other as u32);
                self.endpoint.update(id, |connection| connection.set_local(local));
            }
        }
        if self.address().is_none() || self.address() == before {
            return;
        }
        match self.state {
            // The message, or its acknowledgement, may have been lost with the previous address.
            State::Acknowledgement { .. } if self.scheme.is_mobile() => self.send(now, Copy::Moved),
            _ => self.go_on(now),
        }
    }
}

/// The timeout of messages (RFC 6298), for schemes that keep their association.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrips {
    /// The smoothed round trip and its variation, in milliseconds.
    smoothed: Option<(f64, f64)>,
    /// How often the timeout has doubled.
    doubled: u32,
}

impl RoundTrips {
    /// Takes note of a round trip of a message that was sent once.
    fn measured(&mut self, trip: Duration) {
        let trip = trip.as_secs_f64() * 1e3;
        self.smoothed = Some(match self.smoothed {
            None => (trip, trip / 2.0),
            // RFC 6298 §2.3.
            Some((mean, variation)) => {
                (mean + (trip - mean) / 8.0, variation + ((mean - trip).abs() - variation) / 4.0)
            }
        });
        self.doubled = 0;
    }

    fn back_off(&mut self) {
        self.doubled += 1;
    }

    /// The first copy on another path is no sign of congestion.
    fn begin_again(&mut self) {
        self.doubled = 0;
    }

    /// The time after which a message counts as lost, at most that of other schemes.
    fn timeout(&self) -> Duration {
        let Some((mean, variation)) = self.smoothed else { return TIMEOUT };
        let first =
            Duration::from_secs_f64(mean / 1e3) + MARGIN.max(Duration::from_secs_f64(variation * 4e-3));
        first.saturating_mul(1_u32.checked_shl(self.doubled).unwrap_or(u32::MAX)).min(TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_round_trip() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.timeout(), TIMEOUT);
        trips.measured(Duration::from_millis(60));
        // RFC 6298 §2.2: three round trips after the first one.
        assert_eq!(trips.timeout(), Duration::from_millis(180));
        (0..40).for_each(|_| trips.measured(Duration::from_millis(60)));
        assert_eq!(trips.timeout(), Duration::from_millis(80));
        trips.back_off();
        assert_eq!(trips.timeout(), Duration::from_millis(160));
        (0..60).for_each(|_| trips.back_off());
        assert_eq!(trips.timeout(), TIMEOUT);
        trips.begin_again();
        assert_eq!(trips.timeout(), Duration::from_millis(80));
    }

    #[test]
    fn messages_differ_and_have_their_length() {
        assert_eq!(message(7).len(), MESSAGE_BYTES);
        assert_ne!(message(7), message(8));
    }
}
