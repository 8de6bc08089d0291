//! A client and a server that exchange streams over TCP.
//!
//! The TCP is smoltcp's, but it acknowledges when Linux would, because that changes the number of packets. At
//! first Linux acknowledges every segment at once, in a packet of its own ("quick"). Later it acknowledges
//! when the application has read. Once the application has answered within a short time, the acknowledgement
//! waits for the next answer.

use std::collections::VecDeque;
use std::time::Duration;

use dunlin::{Now, Side};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::pair::{Path, settle};
use crate::{Link, Sent, Simulation, Unsettled};

/// One end of a stream.
pub trait StreamEndpoint {
    /// Receives bytes. The endpoint keeps errors, for the caller to ask.
    fn receive(&mut self, now: Now, bytes: &[u8]);

    /// Learns that the peer has ended its stream.
    fn receive_end(&mut self, now: Now);

    /// The next bytes to send, if there are any.
    fn poll_transmit(&mut self, now: Now) -> Option<Vec<u8>>;

    /// Whether the endpoint will send nothing more. Called when [`StreamEndpoint::poll_transmit`] has
    /// returned `None`.
    fn has_ended(&self) -> bool;
}

/// The options of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The largest IP packet in bytes.
    pub mtu: usize,
    /// Whether segments carry timestamps (RFC 7323), as on Linux.
    pub timestamps: bool,
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
    /// The client's port.
    pub client_port: u16,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { mtu: 1500, timestamps: true, ipv6: false, client_port: 50_000 }
    }
}

impl TcpOptions {
    /// The payload of a full segment, in bytes.
    const fn segment(self) -> usize {
        let headers = if self.ipv6 { 40 } else { 20 } + if self.timestamps { 32 } else { 20 };
        self.mtu.saturating_sub(headers)
    }
}

/// The bytes that a socket buffers in each direction; Linux's initial value.
const BUFFER: usize = 65_536;
/// Data sent within this time counts as an answer, and an acknowledgement waits this long for one: Linux's
/// TCP_ATO_MIN.
const ANSWER: Duration = Duration::from_millis(40);
/// How many segments are acknowledged quickly: Linux's TCP_MAX_QUICKACKS.
const QUICK: u32 = 16;
/// The initial congestion window, in full segments (RFC 6928 §2).
const INITIAL_WINDOW: usize = 10;
const SERVER_PORT: u16 = 4433;

/// A client and a server that exchange streams over TCP. A link in each direction carries their IP packets.
pub struct TcpPair<C, S> {
    client: Host<C>,
    server: Host<S>,
    /// All IP packets sent so far, in order.
    pub sent: Vec<Sent>,
    path: Path<()>,
}

impl<C: StreamEndpoint, S: StreamEndpoint> TcpPair<C, S> {
    /// Joins the endpoints; the client connects at once.
    pub fn new(
        client: C,
        server: S,
        now: Now,
        options: TcpOptions,
        to_client: Box<dyn Link>,
        to_server: Box<dyn Link>,
    ) -> Self {
        Self {
            client: Host::new(client, Side::Client, options),
            server: Host::new(server, Side::Server, options),
            sent: Vec::new(),
            path: Path::new(now, to_client, to_server),
        }
    }

    /// The client.
    pub const fn client(&mut self) -> &mut C {
        &mut self.client.endpoint
    }

    /// The server.
    pub const fn server(&mut self) -> &mut S {
        &mut self.server.endpoint
    }

    /// The current time of both endpoints.
    pub fn now(&self) -> Now {
        self.path.now()
    }

    /// Carries packets until there are no more events.
    ///
    /// # Errors
    /// [`Unsettled`] if the events do not end.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        settle(self)
    }

    /// Hands the packets of both hosts to the links.
    fn collect(&mut self) {
        let Self { client, server, sent, path, .. } = self;
        let after = path.clock;
        let now = path.now();
        client.work(after, now);
        server.work(after, now);
        let client = client.device.sent.drain(..).map(|packet| Sent { after, by: Side::Client, packet });
        let server = server.device.sent.drain(..).map(|packet| Sent { after, by: Side::Server, packet });
        for packet in client.chain(server) {
            path.send(packet.by, (), packet.packet.clone());
            sent.push(packet);
        }
    }
}

impl<C: StreamEndpoint, S: StreamEndpoint> Simulation for TcpPair<C, S> {
    fn next(&mut self) -> Option<Duration> {
        self.collect();
        let clock = self.path.clock;
        let timers = [self.client.timer(clock), self.server.timer(clock)];
        timers.into_iter().chain([self.path.next()]).flatten().min()
    }

    fn step(&mut self) {
        let Some(at) = self.next() else { return };
        if self.path.next() != Some(at) {
            // The event is a timer; the next `collect` handles it.
            self.path.clock = at;
            return;
        }
        // Packets of the same moment all arrive before an application is woken.
        while self.path.next() == Some(at) {
            match self.path.arrival() {
                Some((Side::Client, (), packet)) => self.client.receive(at, packet),
                Some((Side::Server, (), packet)) => self.server.receive(at, packet),
                None => {}
            }
        }
    }
}

/// An endpoint and its TCP.
struct Host<E> {
    endpoint: E,
    device: Packets,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    /// Data that the socket has no room for yet.
    waiting: VecDeque<u8>,
    /// The congestion window in bytes. It only grows, as in slow start, which is enough for a handshake; a
    /// loss does not shrink it.
    window: usize,
    /// How many more acknowledgements are quick.
    quick: u32,
    data_came_at: Option<Duration>,
    end_reported: bool,
}

impl<E: StreamEndpoint> Host<E> {
    fn new(endpoint: E, side: Side, options: TcpOptions) -> Self {
        let mut device = Packets { mtu: options.mtu, received: VecDeque::new(), sent: Vec::new() };
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, instant(Duration::ZERO));
        let address = |host| {
            if options.ipv6 {
                IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, host)
            } else {
                IpAddress::v4(10, 0, 0, host as u8)
            }
        };
        let (own, peer) = match side {
            Side::Client => (address(1), address(2)),
            Side::Server => (address(2), address(1)),
        };
        interface.update_ip_addrs(|addresses| {
            // The list has room for one address.
            let _ = addresses.push(IpCidr::new(own, 24));
        });
        let mut socket = Socket::new(SocketBuffer::new(vec![0; BUFFER]), SocketBuffer::new(vec![0; BUFFER]));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        if options.timestamps {
            // Only the option's 12 bytes matter here, not its value.
            socket.set_tsval_generator(Some(|| 1));
        }
        // Neither can fail: the socket is new, and the addresses and ports are given.
        let _ = match side {
            Side::Client => {
                let connected = socket.connect(interface.context(), (peer, SERVER_PORT), options.client_port);
                connected.is_ok()
            }
            Side::Server => socket.listen(SERVER_PORT).is_ok(),
        };
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Self {
            endpoint,
            device,
            interface,
            sockets,
            socket,
            waiting: VecDeque::new(),
            window: INITIAL_WINDOW * options.segment(),
            quick: QUICK,
            data_came_at: None,
            end_reported: false,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// When the next timer expires.
    fn timer(&mut self, clock: Duration) -> Option<Duration> {
        let at = self.interface.poll_at(instant(clock), &self.sockets)?;
        Some(Duration::from_micros(at.total_micros().unsigned_abs()).max(clock))
    }

    /// Receives a packet. A quick acknowledgement goes out before the application is woken.
    fn receive(&mut self, at: Duration, packet: Vec<u8>) {
        let before = (self.socket().recv_queue(), self.socket().send_queue());
        self.device.received.push_back(packet);
        let Self { interface, device, sockets, .. } = self;
        while interface.poll_ingress_single(instant(at), device, sockets) != PollIngressSingleResult::None {}
        let has_data = self.socket().recv_queue() > before.0;
        self.window += before.1.saturating_sub(self.socket().send_queue());
        if has_data {
            self.data_came_at = Some(at);
        }
        if self.quick > 0 {
            self.send(at);
            self.slow_down(self.quick - u32::from(has_data));
        }
    }

    /// Sets how many more acknowledgements are quick.
    fn slow_down(&mut self, quick: u32) {
        self.quick = quick;
        if quick == 0 {
            self.socket().set_ack_delay(Some(time::Duration::from_micros(ANSWER.as_micros() as u64)));
        }
    }

    fn send(&mut self, at: Duration) {
        let Self { interface, device, sockets, .. } = self;
        interface.poll_egress(instant(at), device, sockets);
    }

    /// Moves data between the socket and the application, and sends.
    fn work(&mut self, at: Duration, now: Now) {
        let mut received = vec![];
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while let Ok(1..) = socket.recv(|data| {
            received.extend_from_slice(data);
            (data.len(), data.len())
        }) {}
        let ended =
            matches!(socket.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        if !received.is_empty() {
            // Reading acknowledges the data, before the application answers.
            self.send(at);
            self.endpoint.receive(now, &received);
        }
        if ended && !std::mem::replace(&mut self.end_reported, true) {
            self.endpoint.receive_end(now);
        }
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        if socket.may_send() {
            while let Some(bytes) = self.endpoint.poll_transmit(now) {
                self.waiting.extend(bytes);
            }
            let room = self.window.saturating_sub(socket.send_queue()).min(self.waiting.len());
            let sent = socket.send_slice(&self.waiting.make_contiguous()[..room]).unwrap_or(0);
            self.waiting.drain(..sent);
            if sent > 0 && self.data_came_at.is_some_and(|came| at - came < ANSWER) {
                self.slow_down(0);
            }
            if self.waiting.is_empty() && self.endpoint.has_ended() {
                self.socket().close();
                // No more data follows, so acknowledgements need not wait for it.
                self.socket().set_ack_delay(None);
            }
        }
        self.send(at);
    }
}

const fn instant(at: Duration) -> time::Instant {
    time::Instant::from_micros_const(at.as_micros() as i64)
}

/// A network device that queues IP packets.
struct Packets {
    mtu: usize,
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

impl Device for Packets {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: time::Instant) -> Option<(Received, Sending<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Received(packet), Sending(&mut self.sent)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

struct Received(Vec<u8>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Sending<'a>(&'a mut Vec<Vec<u8>>);

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push(packet);
        result
    }
}
