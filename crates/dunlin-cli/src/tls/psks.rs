//! The pre-shared keys of a server: their source, and explanations of refused keys.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin::Now;
use dunlin::auth::{FindPsk, Psk};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::Explanation;
use dunlin_command::report::{cut, psk_name};
use dunlin_store::psk::file::PskFile;
use dunlin_store::psk::sqlite::LiveSqlitePsks;
use dunlin_store::psk::time::format_time;
use dunlin_store::psk::{self, ImportedIdentity, PskError, PskRecord, PskSet, Revoked, State, text_of};

use crate::psk::now_s;

/// The source of a server's keys.
pub(crate) enum ServerPsks {
    /// Keys that were read once, from the command line or a pipe.
    Fixed(PskSet, Arc<CryptoProvider>),
    /// A key file. Changes apply to the next handshake.
    File(PskFile),
    /// A key database. Changes apply to the next handshake.
    Database(LiveSqlitePsks),
}

impl ServerPsks {
    /// Returns the record of this identity, valid or not.
    fn record(&self, identity: &[u8]) -> Option<PskRecord> {
        match self {
            Self::Fixed(set, _) => set.record(identity).cloned(),
            Self::File(file) => file.record(identity),
            Self::Database(database) => database.record(identity),
        }
    }

    /// The identity hint for TLS 1.2 clients; empty without a hint.
    fn identity_hint(&self) -> Vec<u8> {
        match self {
            Self::Fixed(set, _) => set.hint().unwrap_or_default().to_vec(),
            Self::File(file) => file.identity_hint(),
            Self::Database(database) => database.identity_hint(),
        }
    }
}

impl FindPsk for ServerPsks {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        match self {
            Self::Fixed(set, provider) => {
                let get = |identity: &[u8]| Ok::<_, PskError>(set.record(identity).cloned());
                psk::find(identity, now, provider, get).ok().flatten()
            }
            Self::File(file) => file.find(identity, now),
            Self::Database(database) => database.find(identity, now),
        }
    }

    fn find_for_thaw(&self, identity: &[u8], now: Now) -> Result<Option<Arc<Psk>>, dunlin::Error> {
        match self {
            Self::Database(database) => database.find_for_thaw(identity, now),
            // Keys that were read once, or that stay in force, are always at hand.
            Self::Fixed(..) | Self::File(_) => Ok(self.find(identity, now)),
        }
    }
}

/// The keys for one connection, and the identities that its client named.
pub(crate) struct NamedPsks {
    psks: Arc<ServerPsks>,
    named: Mutex<Vec<Vec<u8>>>,
}

/// The number of remembered identities; the last ones, because a renegotiation names others.
const MAX_NAMED: usize = 8;

impl NamedPsks {
    /// The server's keys, before the client named any.
    pub(crate) const fn new(psks: Arc<ServerPsks>) -> Self {
        Self { psks, named: Mutex::new(vec![]) }
    }

    /// Explains why the identity that the client named was refused. Only this side learns the reason.
    pub(crate) fn explain(&self, source: &str) -> Option<Explanation> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let known = named.iter().find(|wire| self.known(wire).is_some());
        // Unknown identities may be tickets of another server.
        let is_text = |wire: &&Vec<u8>| !text_of(wire).starts_with('#');
        let wire = known.or_else(|| named.iter().find(is_text)).or(named.last())?;
        Some(self.explain_one(wire, source))
    }

    fn known(&self, wire: &[u8]) -> Option<PskRecord> {
        let imported = || self.psks.record(ImportedIdentity::read(wire)?.identity);
        self.psks.record(wire).or_else(imported)
    }

    fn explain_one(&self, wire: &[u8], source: &str) -> Explanation {
        let shown = psk_name(wire);
        let Some(record) = self.known(wire) else {
            let why = format!("{source} has no key of the client's identity {shown}");
            return Explanation::new(why, "give both sides the same identity and key");
        };
        let imported = ImportedIdentity::read(wire).filter(|_| record.identity.as_bytes() != wire);
        let theirs = imported.as_ref().map(|imported| imported.context);
        let identity = &record.identity;
        match (record.import.as_deref(), theirs) {
            (Some(_), None) => {
                let why = format!("{source} has imported the key of {identity}, and the client has not");
                return Explanation::new(why, "import it on the client, too, and use TLS 1.3");
            }
            (None, Some(_)) => {
                let why = format!("the client has imported the key of {identity}, and {source} has not");
                return Explanation::new(why, "import it with `dunlin psk import`");
            }
            (Some(ours), Some(theirs)) if ours != theirs => {
                let theirs = cut(theirs);
                let ours = cut(ours);
                let why = format!(
                    "the client has imported the key of {identity} for the context \"{theirs}\", {source} for \"{ours}\""
                );
                return Explanation::new(why, "import it with the same context on both sides");
            }
            _ => {}
        }
        let time = |time_s: Option<u64>| time_s.and_then(format_time).unwrap_or_else(|| "then".to_owned());
        let (is, advice) = match record.state(now_s()) {
            State::Revoked => {
                let (at_s, reason) = match record.revoked {
                    Some(Revoked { at_s, reason }) => (Some(at_s), reason),
                    None => (None, None),
                };
                let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                (
                    format!("was revoked at {}{reason}", time(at_s)),
                    "give the client a key of another identity",
                )
            }
            State::Expired => {
                let is = format!("has expired at {}", time(record.not_after_s));
                (is, "give the client its next key, or a new one with `dunlin psk new`")
            }
            State::Early => {
                (format!("is not valid before {}", time(record.not_before_s)), "check the clock, or wait")
            }
            State::Valid => {
                let why =
                    format!("the client's pre-shared key for the identity {shown} differs from {source}");
                return Explanation::new(why, "give both sides the same key");
            }
        };
        Explanation::new(format!("the key of the client's identity {shown} in {source} {is}"), advice)
    }
}

impl NamedPsks {
    /// The identity hint for TLS 1.2 clients; empty without a hint.
    pub(crate) fn identity_hint(&self) -> Vec<u8> {
        self.psks.identity_hint()
    }
}

impl FindPsk for NamedPsks {
    fn find(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() == MAX_NAMED {
            named.remove(0);
        }
        named.push(identity.to_vec());
        drop(named);
        self.psks.find(identity, now)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_store::psk::sqlite::SqlitePsks;

    use super::*;

    #[test]
    fn a_database_that_cannot_be_read_says_nothing_about_the_key_of_a_frozen_association() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.db");
        let keys = SqlitePsks::open_or_create(&path).unwrap();
        let provider = Arc::new(dunlin_awslc::provider());
        let psks = ServerPsks::Database(LiveSqlitePsks::new(keys, provider, Box::new(|_| {})));
        let is_found = || psks.find_for_thaw(b"sensor", dunlin_tokio::now()).map(|key| key.is_some());
        assert_eq!(is_found(), Ok(false));
        std::fs::write(&path, "no database").unwrap();
        assert!(matches!(is_found(), Err(dunlin::Error::Internal(_))));
    }
}
