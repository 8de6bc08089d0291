//! A client's sessions. One of them can be stored in a file for the next run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin::resume::{ClientSession, ClientSessions, SessionKey};
use dunlin::{Now, TransportKind};
use dunlin_command::error::{Error, printable};
use dunlin_command::files::{self, Access, Existing};
use dunlin_store::MemoryClientSessions;
use zeroize::Zeroizing;

/// The first line of the file.
const MAGIC: &[u8] = b"dunlin session 3\n";

/// The tickets of this run, and one of an earlier run.
#[derive(Debug)]
pub(crate) struct ClientTickets {
    memory: MemoryClientSessions,
    out: Option<PathBuf>,
    from: Option<PathBuf>,
    /// The session from the file, until it is used.
    loaded: Mutex<Option<(SessionKey, ClientSession)>>,
    /// Whether a ticket for `out` has arrived.
    came: AtomicBool,
    /// The ticket that this run has written to `out`.
    written: Mutex<Vec<u8>>,
    /// Whether the session from the file was offered, with unknown result.
    offered: AtomicBool,
}

impl ClientTickets {
    /// Uses the session in the file `from`, and writes the last new one to the file `out`.
    pub(crate) fn new(from: Option<&Path>, out: Option<&Path>) -> Result<Self, Error> {
        let loaded = from.map(load).transpose()?;
        out.map(files::check_writable).transpose()?;
        Ok(Self {
            memory: MemoryClientSessions::new(1, 8),
            out: out.map(Path::to_owned),
            from: from.map(Path::to_owned),
            loaded: Mutex::new(loaded),
            came: AtomicBool::new(false),
            written: Mutex::default(),
            offered: AtomicBool::new(false),
        })
    }

    /// Reports that the server did not resume the session from the file.
    pub(crate) fn declined(&self) {
        if self.offered.swap(false, Ordering::Relaxed) {
            self.not_used("the server declined it and made a full handshake");
        }
    }

    /// Reports at the end that no session was stored.
    pub(crate) fn ended(&self) {
        if let Some(out) = &self.out
            && !self.came.load(Ordering::Relaxed)
        {
            let file = printable(&out.display().to_string());
            anstream::eprintln!(
                "dunlin: {file}: no session was stored: the server sent no ticket or session ID for resumption"
            );
        }
    }

    fn written(&self) -> MutexGuard<'_, Vec<u8>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn not_used(&self, why: &str) {
        let file = self.from.as_deref().unwrap_or(Path::new("")).display().to_string();
        anstream::eprintln!("dunlin: {}: the session is not used: {why}", printable(&file));
    }
}

impl ClientSessions for ClientTickets {
    fn put(&self, key: SessionKey, session: ClientSession) {
        self.came.store(true, Ordering::Relaxed);
        if let Some(out) = &self.out {
            match store(out, &key, &session) {
                Ok(()) => *self.written() = session.ticket().to_vec(),
                // A failed write must not end the connection.
                Err(error) => error.report(),
            }
        }
        self.memory.put(key, session);
    }

    fn take(&self, key: &SessionKey, now: Now) -> Option<ClientSession> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((made_for, session)) = loaded else { return self.memory.take(key, now) };
        // The port may differ: the same server may listen on another one.
        let unusable = if made_for.name != key.name || made_for.transport != key.transport {
            Some(format!("it is for {}", made_for.name))
        } else if made_for.settings != key.settings {
            Some("it was made with other settings".to_owned())
        } else if !session.is_fresh(now) {
            Some("it has expired".to_owned())
        } else {
            None
        };
        if let Some(why) = &unusable {
            self.not_used(why);
        }
        self.offered.store(unusable.is_none(), Ordering::Relaxed);
        unusable.is_none().then_some(session)
    }

    fn forget(&self, key: &SessionKey, ticket: &[u8]) {
        self.memory.forget(key, ticket);
        let mut written = self.written();
        if let Some(out) = self.out.as_deref().filter(|_| *written == ticket) {
            written.clear();
            match files::remove(out) {
                Ok(()) => anstream::eprintln!(
                    "dunlin: {}: removed, because the session's connection failed",
                    printable(&out.display().to_string())
                ),
                Err(error) => error.report(),
            }
        }
    }
}

fn load(path: &Path) -> Result<(SessionKey, ClientSession), Error> {
    read(&files::read(path)?).ok_or_else(|| {
        Error::failed(path.display(), "not a session file of dunlin", "give a file that --sess-out wrote")
    })
}

fn read(file: &[u8]) -> Option<(SessionKey, ClientSession)> {
    let (transport, rest) = file.strip_prefix(MAGIC)?.split_first()?;
    let transport = match transport {
        0 => TransportKind::Stream,
        1 => TransportKind::Datagram,
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk()?;
    let (settings, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first()?;
    let (name, session) = rest.split_at_checked(usize::from(*len))?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    let key = SessionKey { transport, name, port: u16::from_be_bytes(*port), settings: *settings };
    Some((key, ClientSession::from_bytes(session).ok()?))
}

fn store(path: &Path, key: &SessionKey, session: &ClientSession) -> Result<(), Error> {
    let failed = || Error::failed(path.display(), "the session is too large", "leave out --sess-out");
    let session = session.to_bytes().map_err(|_| failed())?;
    let len = u8::try_from(key.name.len()).map_err(|_| failed())?;
    let mut file = Zeroizing::new(Vec::with_capacity(MAGIC.len() + 36 + key.name.len() + session.len()));
    file.extend_from_slice(MAGIC);
    file.push(match key.transport {
        TransportKind::Stream => 0,
        TransportKind::Datagram => 1,
    });
    file.extend_from_slice(&key.port.to_be_bytes());
    file.extend_from_slice(&key.settings);
    file.push(len);
    file.extend_from_slice(key.name.as_bytes());
    file.extend_from_slice(&session);
    files::write(path, &file, Access::Secret, Existing::Replace)
}
