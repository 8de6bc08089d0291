//! The pre-shared keys of a server, with explanations of refused keys.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin::Now;
use dunlin::auth::{FindPsk, Psk};
use dunlin_command::error::Explanation;
use dunlin_command::report::{cut, psk_name};
use dunlin_setup::psk::Psks;
use dunlin_store::psk::time::format_time;
use dunlin_store::psk::{ImportedIdentity, PskRecord, Revoked, State, text_of};

use crate::psk::now_s;

/// The keys for one connection, and the identities that its client named.
pub(crate) struct NamedPsks {
    psks: Arc<Psks>,
    named: Mutex<Vec<Vec<u8>>>,
}

/// The number of remembered identities; the last ones, because a renegotiation names others.
const MAX_NAMED: usize = 8;

impl NamedPsks {
    /// The server's keys, before the client named any.
    pub(crate) const fn new(psks: Arc<Psks>) -> Self {
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
