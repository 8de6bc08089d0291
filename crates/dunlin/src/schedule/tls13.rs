//! The key schedule of TLS 1.3 and DTLS 1.3 (RFC 8446 §7.1): one type a stage, each made from the one before.
//!
//! ```text
//!             0
//!             |
//!   PSK ->  HKDF-Extract = EarlySecret ──── binder keys
//!             |                         ├── early traffic secret
//!             |                         └── early exporter secret
//!             |
//!       Derive-Secret(., "derived", "")
//!             |
//! (EC)DHE -> HKDF-Extract = HandshakeSecret ── handshake traffic secrets
//!             |
//!       Derive-Secret(., "derived", "")
//!             |
//!   0 ->    HKDF-Extract = MasterSecret ──── application traffic secrets
//!                                       ├── exporter secret
//!                                       └── resumption secret
//! ```

use super::Export;
use super::binder::PskKind;
use super::hkdf::{Prk, Secret};
use super::keys::{RecordForm, TrafficKeys};
use crate::crypto::{HashOutput, MAX_HASH_LEN, SharedSecret, Tls13CipherSuite};
use crate::error::{Error, Misuse, PeerMisbehaved};
use crate::proof::FinishedValid;
use crate::role::{Side, TransportKind};
use subtle::ConstantTimeEq;

const ZEROS: [u8; MAX_HASH_LEN] = [0; MAX_HASH_LEN];

fn zeros(suite: &Tls13CipherSuite) -> &'static [u8] {
    ZEROS.get(..suite.hash.algorithm().output_len()).unwrap_or(&ZEROS)
}

/// After HKDF-Extract of the PSK.
pub(crate) struct EarlySecret {
    suite: &'static Tls13CipherSuite,
    transport: TransportKind,
    prk: Prk,
}

impl EarlySecret {
    /// With the PSK, or without one.
    pub(crate) fn new(
        suite: &'static Tls13CipherSuite,
        transport: TransportKind,
        psk: Option<&[u8]>,
    ) -> Self {
        let ikm = psk.unwrap_or(zeros(suite));
        Self { suite, transport, prk: Prk::extract(suite.hash, transport, zeros(suite), ikm) }
    }

    /// The binder over a ClientHello whose truncated transcript has this hash (RFC 8446 §4.2.11.2).
    pub(crate) fn binder(&self, kind: PskKind, transcript_hash: &[u8]) -> HashOutput {
        let empty = self.suite.hash.algorithm().of_nothing();
        finished(&self.prk.derive(kind.label(), empty).prk(), transcript_hash)
    }

    /// The secret of the client's early data, given the hash of its ClientHello.
    pub(crate) fn client_traffic(&self, hello_hash: &[u8]) -> TrafficSecret {
        TrafficSecret { suite: self.suite, prk: self.prk.derive(b"c e traffic", hello_hash).prk() }
    }

    /// The exporter that is there with early data, given the hash of the ClientHello.
    pub(crate) fn exporter(&self, hello_hash: &[u8]) -> Exporter {
        Exporter { secret: self.prk.derive(b"e exp master", hello_hash) }
    }

    /// With the (EC)DHE secret, or without one (psk_ke).
    pub(crate) fn into_handshake(self, shared: Option<&SharedSecret>) -> HandshakeSecret {
        let ikm = shared.map_or(zeros(self.suite), SharedSecret::as_bytes);
        let Self { suite, transport, prk } = self;
        let salt = prk.derive(b"derived", suite.hash.algorithm().of_nothing());
        HandshakeSecret { suite, transport, prk: Prk::extract(suite.hash, transport, salt.bytes(), ikm) }
    }
}

/// After HKDF-Extract of the (EC)DHE secret.
pub(crate) struct HandshakeSecret {
    suite: &'static Tls13CipherSuite,
    transport: TransportKind,
    prk: Prk,
}

impl HandshakeSecret {
    /// The handshake traffic secret of a side, given the hash of ClientHello..ServerHello.
    pub(crate) fn traffic(&self, side: Side, hello_hash: &[u8]) -> TrafficSecret {
        let label: &[u8] = match side {
            Side::Client => b"c hs traffic",
            Side::Server => b"s hs traffic",
        };
        TrafficSecret { suite: self.suite, prk: self.prk.derive(label, hello_hash).prk() }
    }

    pub(crate) fn into_master(self) -> MasterSecret {
        let Self { suite, transport, prk } = self;
        let salt = prk.derive(b"derived", suite.hash.algorithm().of_nothing());
        MasterSecret { suite, prk: Prk::extract(suite.hash, transport, salt.bytes(), zeros(suite)) }
    }
}

/// After the last HKDF-Extract.
pub(crate) struct MasterSecret {
    suite: &'static Tls13CipherSuite,
    prk: Prk,
}

impl MasterSecret {
    /// The first application traffic secret of a side, given the hash of ClientHello..server Finished.
    pub(crate) fn traffic(&self, side: Side, server_finished_hash: &[u8]) -> TrafficSecret {
        let label: &[u8] = match side {
            Side::Client => b"c ap traffic",
            Side::Server => b"s ap traffic",
        };
        TrafficSecret { suite: self.suite, prk: self.prk.derive(label, server_finished_hash).prk() }
    }

    /// Given the hash of ClientHello..server Finished.
    pub(crate) fn exporter(&self, server_finished_hash: &[u8]) -> Exporter {
        Exporter { secret: self.prk.derive(b"exp master", server_finished_hash) }
    }

    /// Given the hash of ClientHello..client Finished.
    pub(crate) fn into_resumption(self, client_finished_hash: &[u8]) -> ResumptionSecret {
        ResumptionSecret { secret: self.prk.derive(b"res master", client_finished_hash) }
    }
}

/// The secret from which the keys of one direction come.
pub(crate) struct TrafficSecret {
    suite: &'static Tls13CipherSuite,
    prk: Prk,
}

/// A traffic secret whose keys are in use: it waits for a KeyUpdate.
pub(crate) struct RestingSecret {
    suite: &'static Tls13CipherSuite,
    secret: Secret,
}

impl TrafficSecret {
    /// One that a key log gives; those of a connection come from its key schedule.
    pub(crate) fn logged(
        suite: &'static Tls13CipherSuite,
        transport: TransportKind,
        secret: HashOutput,
    ) -> Self {
        Self { suite, prk: Secret::new(suite.hash, transport, secret).prk() }
    }

    pub(crate) fn keys(&self, transport: TransportKind) -> TrafficKeys {
        let mut keys = TrafficKeys::zeros(self.suite.aead, RecordForm::Tls13);
        self.prk.expand_label(b"key", &[], keys.key_mut());
        self.prk.expand_label(b"iv", &[], &mut keys.iv);
        if transport == TransportKind::Datagram {
            self.prk.expand_label(b"sn", &[], keys.record_number_key_mut());
        }
        keys
    }

    /// The value of Finished over a transcript with this hash (RFC 8446 §4.4.4).
    pub(crate) fn finished(&self, transcript_hash: &[u8]) -> HashOutput {
        finished(&self.prk, transcript_hash)
    }

    /// Compares the value of a received Finished, in constant time.
    pub(crate) fn verify_finished(
        &self,
        transcript_hash: &[u8],
        received: &[u8],
    ) -> Result<FinishedValid, Error> {
        let expected = self.finished(transcript_hash);
        // RFC 8446 §4.4.4: a Finished has the length of the hash.
        if received.len() != expected.as_ref().len() {
            return Err(crate::error::Malformed::Length("Finished").into());
        }
        match bool::from(expected.as_ref().ct_eq(received)) {
            true => Ok(FinishedValid::assert()),
            false => Err(PeerMisbehaved::BadFinished.into()),
        }
    }

    /// Once its keys are made.
    pub(crate) fn rest(self) -> RestingSecret {
        RestingSecret { suite: self.suite, secret: self.prk.into_secret() }
    }

    /// For the key log.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.prk.bytes()
    }
}

impl RestingSecret {
    /// The secret of the next generation (RFC 8446 §7.2).
    pub(crate) fn next(&self) -> TrafficSecret {
        TrafficSecret { suite: self.suite, prk: self.secret.prk().derive(b"traffic upd", &[]).prk() }
    }
}

/// The source of exported keying material (RFC 8446 §7.5).
pub(crate) struct Exporter {
    secret: Secret,
}

impl Export for Exporter {
    /// TLS-Exporter(label, context, out.len()). No context is an empty one.
    fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        let context = context.unwrap_or_default();
        let hash = self.secret.hash();
        // RFC 5869 §2.3, and the label with its prefix must fit 255 bytes.
        if out.len() > 255 * hash.algorithm().output_len() || label.len() > 249 {
            return Err(Misuse::ExporterLength.into());
        }
        let secret = self.secret.prk().derive(label, hash.algorithm().of_nothing());
        secret.prk().expand_label(b"exporter", hash.hash(&[context]).as_ref(), out);
        Ok(())
    }
}

impl Exporter {
    /// For the key log.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.bytes()
    }
}

/// The source of the PSKs of tickets (RFC 8446 §4.6.1).
pub(crate) struct ResumptionSecret {
    secret: Secret,
}

impl ResumptionSecret {
    pub(crate) fn psk(&self, ticket_nonce: &[u8]) -> HashOutput {
        self.secret.prk().expand_hash(b"resumption", ticket_nonce)
    }
}

fn finished(base: &Prk, transcript_hash: &[u8]) -> HashOutput {
    base.derive(b"finished", &[]).prk().sign(transcript_hash)
}
