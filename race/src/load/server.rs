//! The servers. Each echoes the data of every record, and serves until it is killed.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::auth::PskTable;
use dunlin::{Endpoint, EndpointEvent, EndpointLimits, Now, PskSource, ServerConfig};
use dunlin_tokio::{DtlsEndpoint, now};

use super::wire::Wire;
use super::{ids, profile, psk};

/// Serves with this stack.
pub(crate) fn serve(kind: &str, has_ids: bool) {
    match kind {
        #[cfg(feature = "openssl")]
        "openssl" => run(OpenSsl::new()),
        "dunlin-tokio" => tokio(config(has_ids)),
        _ => run(Dunlin::new(has_ids)),
    }
}

fn config(has_ids: bool) -> Arc<ServerConfig> {
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let config = ServerConfig::psk_only(profile(), keys).unwrap();
    Arc::new(if has_ids { config.with_connection_ids(ids()) } else { config })
}

/// Datagrams to send.
pub(super) type Out = Vec<(SocketAddr, Vec<u8>)>;

/// A server without its socket.
pub(super) trait Echo {
    /// Handles a datagram, and adds the answers to `out`.
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8], out: &mut Out);

    /// Handles the timers.
    fn tick(&mut self, _now: Now, _out: &mut Out) {}
}

/// Runs a server on a socket. The answers to a batch of datagrams leave together.
fn run(mut server: impl Echo) {
    let mut wire = Wire::new("127.0.0.1:0");
    println!("listening {}", wire.socket.local_addr().unwrap().port());
    let mut out = Vec::new();
    loop {
        let now = now();
        wire.receive(|from, _, datagram| server.receive(now, from, datagram, &mut out));
        server.tick(now, &mut out);
        wire.send(&out);
        out.clear();
    }
}

/// An `Endpoint`.
pub(super) struct Dunlin(Endpoint);

impl Dunlin {
    pub(super) fn new(has_ids: bool) -> Self {
        let mut endpoint = Endpoint::new(EndpointLimits::default());
        endpoint.set_server(Some(config(has_ids)));
        Self(endpoint)
    }

    fn transmit(&mut self, now: Now, out: &mut Out) {
        while let Some(transmit) = self.0.poll_transmit(now) {
            out.push((transmit.to, transmit.datagram));
        }
    }
}

impl Echo for Dunlin {
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8], out: &mut Out) {
        self.0.receive(now, from, datagram);
        while let Some(event) = self.0.poll_event() {
            let EndpointEvent::Changed(id) = event else { continue };
            self.0.update(id, |association| {
                while association.poll_event().is_some() {}
                while let Some(data) = association.read() {
                    association.send(&data).unwrap();
                }
            });
        }
        self.transmit(now, out);
    }

    fn tick(&mut self, now: Now, out: &mut Out) {
        if self.0.poll_timeout().is_some_and(|deadline| deadline <= now.monotonic) {
            self.0.handle_timeout(now);
            self.transmit(now, out);
        }
    }
}

/// Has a task for each association, as an application would.
fn tokio(config: Arc<ServerConfig>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = DtlsEndpoint::new(socket, EndpointLimits::default()).unwrap();
        endpoint.set_server(Some(config));
        println!("listening {}", endpoint.local_addr().port());
        loop {
            let incoming = endpoint.accept().await;
            tokio::spawn(async move {
                let Ok(association) = incoming.accept().await else { return };
                while let Ok(Some(data)) = association.recv().await {
                    if association.send(&data).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// The datagrams of the association at work.
#[cfg(feature = "openssl")]
#[derive(Clone, Default)]
struct Memory(std::rc::Rc<std::cell::RefCell<Datagrams>>);

#[cfg(feature = "openssl")]
#[derive(Default)]
struct Datagrams {
    /// It is empty once it was read.
    received: Vec<u8>,
    sent: Vec<Vec<u8>>,
}

#[cfg(feature = "openssl")]
impl std::io::Read for Memory {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let received = &mut self.0.borrow_mut().received;
        if received.is_empty() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let len = std::io::Read::read(&mut &received[..], buf);
        received.clear();
        len
    }
}

#[cfg(feature = "openssl")]
impl std::io::Write for Memory {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().sent.push(buf.to_vec());
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An `SSL` for each address.
#[cfg(feature = "openssl")]
pub(super) struct OpenSsl {
    context: openssl::ssl::SslContext,
    memory: Memory,
    associations: std::collections::HashMap<SocketAddr, openssl::ssl::SslStream<Memory>>,
    data: [u8; 2048],
}

#[cfg(feature = "openssl")]
impl OpenSsl {
    pub(super) fn new() -> Self {
        use openssl::ssl::{SslContext, SslMethod, SslMode, SslVersion};

        use crate::handshake::{PSK, PSK_IDENTITY};

        let mut builder = SslContext::builder(SslMethod::dtls()).unwrap();
        builder.set_min_proto_version(Some(SslVersion::DTLS1_2)).unwrap();
        builder.set_cipher_list("PSK-AES128-GCM-SHA256").unwrap();
        builder.set_mode(SslMode::RELEASE_BUFFERS);
        builder.set_psk_server_callback(|_, identity, key| {
            if identity != Some(PSK_IDENTITY.as_bytes()) {
                return Ok(0);
            }
            key[..PSK.len()].copy_from_slice(&PSK);
            Ok(PSK.len())
        });
        let context = builder.build();
        Self { context, memory: Memory::default(), associations: Default::default(), data: [0; 2048] }
    }
}

#[cfg(feature = "openssl")]
impl Echo for OpenSsl {
    /// The client sends one record in each datagram, so there is one read for each.
    fn receive(&mut self, _now: Now, from: SocketAddr, datagram: &[u8], out: &mut Out) {
        let Self { context, memory, associations, data } = self;
        let stream = associations.entry(from).or_insert_with(|| {
            let mut ssl = openssl::ssl::Ssl::new(context).unwrap();
            ssl.set_accept_state();
            ssl.set_mtu(1400).unwrap();
            openssl::ssl::SslStream::new(ssl, memory.clone()).unwrap()
        });
        {
            let received = &mut memory.0.borrow_mut().received;
            received.clear();
            received.extend_from_slice(datagram);
        }
        if !stream.ssl().is_init_finished() {
            let _ = stream.do_handshake();
        } else if let Ok(len) = stream.ssl_read(data) {
            stream.ssl_write(&data[..len]).unwrap();
        }
        out.extend(memory.0.borrow_mut().sent.drain(..).map(|datagram| (from, datagram)));
    }
}
