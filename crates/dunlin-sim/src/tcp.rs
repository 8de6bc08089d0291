//! Two endpoints that exchange streams over TCP.
//!
//! The TCP is smoltcp's. What Linux does otherwise is when it acknowledges, and that is seen in the count of packets: at
//! first every segment at once and alone ("quick"), later when the application has read, and with the next data once it
//! has shown that it answers.

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
    /// Takes bytes. What goes wrong is for the endpoint to keep, and for its owner to ask.
    fn receive(&mut self, now: Now, bytes: &[u8]);

    /// The peer will send nothing more.
    fn receive_end(&mut self, now: Now);

    /// The next bytes to send.
    fn poll_transmit(&mut self, now: Now) -> Option<Vec<u8>>;

    /// Whether it will send nothing more, either; asked when [`StreamEndpoint::poll_transmit`] has nothing.
    fn has_ended(&self) -> bool;
}

/// How TCP is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The largest IP packet in bytes.
    pub mtu: usize,
    /// Whether segments carry timestamps (RFC 7323), as those of Linux do.
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
    /// What a full segment carries.
    const fn segment(self) -> usize {
        let headers = if self.ipv6 { 40 } else { 20 } + if self.timestamps { 32 } else { 20 };
        self.mtu.saturating_sub(headers)
    }
}

/// What a socket buffers in each direction, as Linux at first.
const BUFFER: usize = 65_536;
/// Within this time data counts as an answer, and so long an acknowledgement waits for one: Linux's TCP_ATO_MIN.
const ANSWER: Duration = Duration::from_millis(40);
/// So many segments are acknowledged quickly: Linux's TCP_MAX_QUICKACKS.
const QUICK: u32 = 16;
/// So many full segments may be on their way at first (RFC 6928 §2).
const INITIAL_WINDOW: usize = 10;
const SERVER_PORT: u16 = 4433;

/// A client and a server that exchange streams over TCP, joined by a link in each direction that carries IP packets.
pub struct TcpPair<C, S> {
    client: Host<C>,
    server: Host<S>,
    /// All IP packets that were sent so far, in order.
    pub sent: Vec<Sent>,
    path: Path,
}

impl<C: StreamEndpoint, S: StreamEndpoint> TcpPair<C, S> {
    /// The client connects at once.
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

    /// The time that both are told.
    pub fn now(&self) -> Now {
        self.path.now()
    }

    /// Carries packets until nothing happens any more.
    ///
    /// # Errors
    /// That never happens.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        settle(self)
    }

    /// Gives what the hosts send to the links.
    fn collect(&mut self) {
        let Self { client, server, sent, path, .. } = self;
        let (after, now) = (path.clock, path.now());
        client.work(after, now);
        server.work(after, now);
        let client = client.device.sent.drain(..).map(|packet| Sent { after, by: Side::Client, packet });
        let server = server.device.sent.drain(..).map(|packet| Sent { after, by: Side::Server, packet });
        for packet in client.chain(server) {
            path.send(packet.by, packet.packet.clone());
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
            // A timer: `collect` lets the hosts work.
            self.path.clock = at;
            return;
        }
        // What comes at once has come before an application is woken.
        while self.path.next() == Some(at) {
            match self.path.arrival() {
                Some((Side::Client, packet)) => self.client.receive(at, packet),
                Some((Side::Server, packet)) => self.server.receive(at, packet),
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
    /// What the socket has no room for yet.
    waiting: VecDeque<u8>,
    /// How many bytes may be on their way: the congestion window in slow start, where a handshake is. A loss does not
    /// shrink it.
    window: usize,
    /// So many more acknowledgements go out at once.
    quick: u32,
    data_came_at: Option<Duration>,
    end_told: bool,
}

impl<E: StreamEndpoint> Host<E> {
    fn new(endpoint: E, side: Side, options: TcpOptions) -> Self {
        let mut device = Packets { mtu: options.mtu, received: VecDeque::new(), sent: Vec::new() };
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, instant(Duration::ZERO));
        let address = |host| match options.ipv6 {
            true => IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, host),
            false => IpAddress::v4(10, 0, 0, host as u8),
        };
        let (own, peer) = match side {
            Side::Client => (address(1), address(2)),
            Side::Server => (address(2), address(1)),
        };
        interface.update_ip_addrs(|addresses| {
            // There is room for one.
            let _ = addresses.push(IpCidr::new(own, 24));
        });
        let mut socket = Socket::new(SocketBuffer::new(vec![0; BUFFER]), SocketBuffer::new(vec![0; BUFFER]));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        if options.timestamps {
            // The value means nothing here, its 12 bytes do.
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
            end_told: false,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// When it has something to do by itself.
    fn timer(&mut self, clock: Duration) -> Option<Duration> {
        let at = self.interface.poll_at(instant(clock), &self.sockets)?;
        Some(Duration::from_micros(at.total_micros().unsigned_abs()).max(clock))
    }

    /// Takes a packet; a quick acknowledgement goes out before the application hears of it.
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

    /// From now on so many acknowledgements are quick.
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
            // More than a segment is acknowledged when it is read, whatever the application has to say.
            self.send(at);
            self.endpoint.receive(now, &received);
        }
        if ended && !std::mem::replace(&mut self.end_told, true) {
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
                // Nothing follows that an acknowledgement could wait for.
                self.socket().set_ack_delay(None);
            }
        }
        self.send(at);
    }
}

const fn instant(at: Duration) -> time::Instant {
    time::Instant::from_micros_const(at.as_micros() as i64)
}

/// A device for IP packets.
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
