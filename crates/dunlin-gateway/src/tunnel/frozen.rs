//! Associations that survive a restart of the tunnel.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::crypto::CryptoProvider;
use dunlin::{DtlsConnection, Path};
use dunlin_tokio::{DtlsEndpoint, addresses};
use zeroize::Zeroizing;

use super::ListenerState;
use crate::clock::now;
use crate::config::{Fault, FrozenConfig};
use crate::frozen::{FrozenPlace, NotThawed};

/// An association from the file, and where its socket and its program were.
pub(crate) struct Thawed {
    /// The program, and the address of the tunnel that it has asked.
    pub(crate) from: Path,
    /// The port of the socket to the server. With the same port, the server need not notice anything.
    pub(crate) port: u16,
    pub(crate) connection: Box<DtlsConnection>,
}

/// The file of frozen associations, and those that wait to be written.
pub(crate) struct Freezer {
    place: FrozenPlace,
    frozen: Mutex<Vec<Zeroizing<Vec<u8>>>>,
}

impl Freezer {
    /// Opens the file's key and store of IDs.
    pub(crate) fn open(config: &FrozenConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Fault> {
        Ok(Self { place: FrozenPlace::open(config, provider)?, frozen: Mutex::default() })
    }

    /// Gives the associations of the file to these listeners. If the file cannot be thawed, the tunnel starts
    /// without it.
    pub(crate) fn thaw(&self, listeners: &[Arc<ListenerState>]) {
        let now = now();
        let thawed = self.place.thaw(|bytes| {
            let (header, association) = split(bytes).ok_or("not written by a tunnel")?;
            let (live, from, port) =
                header.find(listeners).ok_or("no listener has its name, server and kind of associations")?;
            let server = live.config.server.clone();
            let connection = DtlsConnection::thaw_client(&live.tls, server, association, now);
            let connection = Box::new(connection?);
            Ok::<_, NotThawed>((live, Thawed { from, port, connection }))
        });
        for (live, thawed) in thawed {
            live.thawed.lock().unwrap_or_else(PoisonError::into_inner).push(thawed);
        }
    }

    /// Freezes the association of an endpoint, for the program of the path `from`. Returns whether that worked;
    /// otherwise the association goes on.
    pub(crate) fn freeze(&self, live: &ListenerState, endpoint: &DtlsEndpoint, from: Path) -> bool {
        let shared = live.config.datagrams.shared;
        let port = endpoint.local_addr().port();
        let asked = from.source.map(|asked| format!(",{asked}")).unwrap_or_default();
        let peer = from.peer;
        let to = &live.config.to.value;
        let name = &live.config.name;
        let header = format!("{shared} {peer}{asked} {port} {to} {name}");
        let Ok(len) = u16::try_from(header.len()) else { return false };
        let mut frozen = vec![];
        let done = endpoint.freeze(|association| {
            let head = [&len.to_be_bytes()[..], header.as_bytes()].concat();
            let mut bytes = Zeroizing::new(Vec::with_capacity(head.len() + association.len()));
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(association);
            frozen.push(bytes);
            Ok(())
        });
        let is_frozen = done.is_ok() && !frozen.is_empty();
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner).append(&mut frozen);
        is_frozen
    }

    /// Writes the frozen associations, if there are any.
    pub(crate) fn write(&self) {
        let frozen = std::mem::take(&mut *self.frozen.lock().unwrap_or_else(PoisonError::into_inner));
        if frozen.is_empty() {
            return;
        }
        let written = self.place.create().and_then(|mut writer| {
            frozen.iter().try_for_each(|association| writer.push(association))?;
            writer.finish()
        });
        match written {
            Ok(written) => tracing::info!(associations = written.associations, "frozen"),
            Err(error) => tracing::error!(%error, advice = error.advice(), "the associations are lost"),
        }
    }
}

/// The header that the tunnel writes before an association.
struct Header<'a> {
    shared: bool,
    /// The program's address and, after a comma, the one that it has asked, if the listener has several.
    from: Path,
    port: u16,
    /// The server's host and port in the configuration.
    to: &'a str,
    listener: &'a str,
}

impl Header<'_> {
    /// The listener of the association, if it still has the same server and kind of associations. The engine
    /// checks the server's name and the key.
    fn find(&self, listeners: &[Arc<ListenerState>]) -> Option<(Arc<ListenerState>, Path, u16)> {
        let live = listeners.iter().find(|live| live.config.name == self.listener)?;
        let is_same = live.config.datagrams.shared == self.shared && live.config.to.value == self.to;
        let fits = live.is_datagram() && is_same;
        fits.then(|| (live.clone(), self.from, self.port))
    }
}

/// Reads the header.
fn split(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (header, association) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let mut words = std::str::from_utf8(header).ok()?.splitn(5, ' ');
    let mut word = || words.next();
    let header = Header {
        shared: word()?.parse().ok()?,
        from: path(word()?)?,
        port: word()?.parse().ok()?,
        to: word()?,
        listener: word()?,
    };
    Some((header, association))
}

/// Reads the path of a program.
fn path(word: &str) -> Option<Path> {
    let (peer, asked) = match word.split_once(',') {
        Some((peer, asked)) => (peer, Some(asked.parse::<IpAddr>().ok()?)),
        None => (word, None),
    };
    Some(Path { source: asked, ..addresses::plain(peer.parse::<SocketAddr>().ok()?).into() })
}
