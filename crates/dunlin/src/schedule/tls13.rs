//! The key schedule of TLS 1.3 and DTLS 1.3 (RFC 8446 §7.1). Each stage is a type, made from the previous
//! stage.
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
use crate::crypto::{HashAlgorithm, HashOutput, MAX_HASH_LEN, OwnSecret, SharedSecret, Tls13CipherSuite};
use crate::error::{Error, Misuse, PeerMisbehaved};
use crate::proof::FinishedValid;
use crate::protocol::{Protocol, Side, TransportKind};
use crate::wire::{Field, HandshakeType, Reader, Writer};
use subtle::ConstantTimeEq;

const ZEROS: [u8; MAX_HASH_LEN] = [0; MAX_HASH_LEN];

fn zeros(suite: &Tls13CipherSuite) -> &'static [u8] {
    ZEROS.get(..suite.hash.algorithm().output_len()).unwrap_or(&ZEROS)
}

/// Derive-Secret(HKDF-Extract(0, 0), "derived", ""), a constant of all handshakes without a PSK. RFC 8448 §3
/// prints the first one.
const fn derived_without_psk(hash: HashAlgorithm, protocol: Protocol) -> &'static [u8] {
    match (hash, protocol.transport()) {
        (HashAlgorithm::Sha256, TransportKind::Stream) => {
            b"\x6f\x26\x15\xa1\x08\xc7\x02\xc5\x67\x8f\x54\xfc\x9d\xba\xb6\x97\
              \x16\xc0\x76\x18\x9c\x48\x25\x0c\xeb\xea\xc3\x57\x6c\x36\x11\xba"
        }
        (HashAlgorithm::Sha256, TransportKind::Datagram) => {
            b"\xb1\x7b\xce\x94\x51\xee\x8b\xc6\xe8\xae\xbc\x0a\xa9\xe9\x82\x95\
              \x67\x7a\x4a\x6a\x91\xf7\x84\x40\x83\x31\x46\xe4\x65\xf2\xff\x95"
        }
        (HashAlgorithm::Sha384, TransportKind::Stream) => {
            b"\x15\x91\xda\xc5\xcb\xbf\x03\x30\xa4\xa8\x4d\xe9\xc7\x53\x33\x0e\
              \x92\xd0\x1f\x0a\x88\x21\x4b\x44\x64\x97\x2f\xd6\x68\x04\x9e\x93\
              \xe5\x2f\x2b\x16\xfa\xd9\x22\xfd\xc0\x58\x44\x78\x42\x8f\x28\x2b"
        }
        (HashAlgorithm::Sha384, TransportKind::Datagram) => {
            b"\x27\x00\x86\x05\xd3\x39\x6f\x88\x44\x19\x75\x65\xca\xec\xc5\x92\
              \xb3\xe5\x8f\x2e\xae\x55\xf8\x41\xb5\x77\xcf\xbc\xab\xb4\x7e\x22\
              \x1f\x67\x4e\xd3\xa6\x8a\xa8\x93\x43\x9c\xf5\x57\xf1\x11\xc0\xfc"
        }
    }
}

/// The stage after HKDF-Extract of the PSK. Handshakes without a PSK skip it.
pub(crate) struct EarlySecret {
    suite: &'static Tls13CipherSuite,
    prk: Prk,
}

impl EarlySecret {
    pub(crate) fn new(suite: &'static Tls13CipherSuite, protocol: Protocol, psk: &[u8]) -> Self {
        Self { suite, prk: Prk::extract(suite.hash, protocol, zeros(suite), psk) }
    }

    /// The binder, given the hash of the truncated ClientHello (RFC 8446 §4.2.11.2).
    pub(crate) fn binder(&self, kind: PskKind, transcript_hash: &[u8]) -> HashOutput {
        let empty = self.suite.hash.algorithm().of_nothing();
        finished(&self.prk.derive(kind.label(), empty).prk(), transcript_hash)
    }

    /// The secret of the client's early data, given the hash of its ClientHello.
    pub(crate) fn client_traffic(&self, hello_hash: &[u8]) -> TrafficSecret {
        TrafficSecret { suite: self.suite, prk: self.prk.derive(b"c e traffic", hello_hash).prk() }
    }

    /// The early exporter, given the hash of the ClientHello.
    pub(crate) fn exporter(&self, hello_hash: &[u8]) -> Exporter {
        Exporter { secret: self.prk.derive(b"e exp master", hello_hash) }
    }
}

/// The stage after HKDF-Extract of the (EC)DHE secret.
pub(crate) struct HandshakeSecret {
    suite: &'static Tls13CipherSuite,
    protocol: Protocol,
    prk: Prk,
}

impl HandshakeSecret {
    /// Mixes in the (EC)DHE secret. `early` is `None` without a PSK; `shared` is `None` with psk_ke.
    pub(crate) fn new(
        suite: &'static Tls13CipherSuite,
        protocol: Protocol,
        early: Option<EarlySecret>,
        shared: Option<&SharedSecret>,
    ) -> Self {
        let hash = suite.hash.algorithm();
        let derived = early.map(|early| early.prk.derive(b"derived", hash.of_nothing()));
        let salt = derived.as_ref().map_or(derived_without_psk(hash, protocol), Secret::bytes);
        let ikm = shared.map_or(zeros(suite), SharedSecret::as_bytes);
        Self { suite, protocol, prk: Prk::extract(suite.hash, protocol, salt, ikm) }
    }

    /// The handshake traffic secret of a side, given the hash of ClientHello..ServerHello.
    pub(crate) fn traffic(&self, side: Side, hello_hash: &[u8]) -> TrafficSecret {
        let label: &[u8] = match side {
            Side::Client => b"c hs traffic",
            Side::Server => b"s hs traffic",
        };
        TrafficSecret { suite: self.suite, prk: self.prk.derive(label, hello_hash).prk() }
    }

    pub(crate) fn into_master(self) -> MasterSecret {
        let Self { suite, protocol, prk } = self;
        let salt = prk.derive(b"derived", suite.hash.algorithm().of_nothing());
        MasterSecret { suite, prk: Prk::extract(suite.hash, protocol, salt.bytes(), zeros(suite)) }
    }
}

/// The stage after the last HKDF-Extract.
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

    /// The exporter, given the hash of ClientHello..server Finished.
    pub(crate) fn exporter(&self, server_finished_hash: &[u8]) -> Exporter {
        Exporter { secret: self.prk.derive(b"exp master", server_finished_hash) }
    }

    /// The resumption secret, given the hash of ClientHello..client Finished.
    pub(crate) fn into_resumption(self, client_finished_hash: &[u8]) -> ResumptionSecret {
        ResumptionSecret { secret: self.prk.derive(b"res master", client_finished_hash) }
    }
}

/// The secret that gives the keys of one direction.
pub(crate) struct TrafficSecret {
    suite: &'static Tls13CipherSuite,
    prk: Prk,
}

/// A traffic secret whose keys are already in use. The connection keeps it for the next KeyUpdate.
pub(crate) struct RestingSecret {
    suite: &'static Tls13CipherSuite,
    secret: Secret,
}

impl TrafficSecret {
    /// A secret from a key log. Connections get theirs from the key schedule.
    pub(crate) fn logged(suite: &'static Tls13CipherSuite, protocol: Protocol, secret: HashOutput) -> Self {
        Self { suite, prk: Secret::new(suite.hash, protocol, &secret).prk() }
    }

    pub(crate) fn keys(&self, protocol: Protocol) -> TrafficKeys {
        let mut keys = TrafficKeys::zeros(self.suite.aead, RecordForm::Tls13);
        self.prk.expand_label(b"key", &[], keys.key_mut());
        self.prk.expand_label(b"iv", &[], &mut keys.iv);
        if protocol.encrypts_record_numbers() {
            self.prk.expand_label(b"sn", &[], keys.record_number_key_mut());
        }
        keys
    }

    /// The verify_data of Finished, given the transcript hash (RFC 8446 §4.4.4).
    pub(crate) fn finished(&self, transcript_hash: &[u8]) -> HashOutput {
        finished(&self.prk, transcript_hash)
    }

    /// Compares the verify_data of a received Finished in constant time.
    pub(crate) fn verify_finished(
        &self,
        transcript_hash: &[u8],
        received: &[u8],
    ) -> Result<FinishedValid, Error> {
        let expected = self.finished(transcript_hash);
        // RFC 8446 §4.4.4: verify_data has the length of the hash.
        if received.len() != expected.as_ref().len() {
            return Err(crate::error::Malformed::Length(Field::Message(HandshakeType::FINISHED)).into());
        }
        if bool::from(expected.as_ref().ct_eq(received)) {
            Ok(FinishedValid::assert())
        } else {
            Err(PeerMisbehaved::BadFinished.into())
        }
    }

    /// Drops the HMAC key, once the traffic keys exist.
    pub(crate) fn rest(self) -> RestingSecret {
        RestingSecret { suite: self.suite, secret: self.prk.into_secret() }
    }

    /// The secret's bytes, for the key log.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.prk.bytes()
    }
}

impl RestingSecret {
    /// Writes it for a connection that continues elsewhere.
    pub(crate) fn freeze(&self, w: &mut Writer) {
        w.vec8(|w| w.put(self.secret.bytes()));
    }

    pub(crate) fn thaw(
        r: &mut Reader<'_>,
        suite: &'static Tls13CipherSuite,
        protocol: Protocol,
    ) -> Result<Self, Error> {
        Ok(Self { suite, secret: thaw(r, suite, protocol)? })
    }

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
    /// TLS-Exporter(label, context, out.len()). TLS 1.3 treats a missing context as empty.
    fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        let context = context.unwrap_or_default();
        let hash = self.secret.hash();
        // RFC 5869 §2.3 limits the output to 255 hash lengths. RFC 8446 §7.1: label and prefix have at most
        // 255 bytes.
        if out.len() > 255 * hash.algorithm().output_len() || label.len() > 249 {
            return Err(Misuse::ExporterLength.into());
        }
        let secret = self.secret.prk().derive(label, hash.algorithm().of_nothing());
        secret.prk().expand_label(b"exporter", hash.hash(&[context]).as_ref(), out);
        Ok(())
    }

    fn freeze(&self, w: &mut Writer) {
        w.vec8(|w| w.put(self.secret.bytes()));
    }
}

/// Reads a secret of one hash length.
fn thaw(r: &mut Reader<'_>, suite: &Tls13CipherSuite, protocol: Protocol) -> Result<Secret, Error> {
    let bytes = r.vec8(0)?;
    if bytes.len() == suite.hash.algorithm().output_len() {
        Ok(Secret::new(suite.hash, protocol, &HashOutput::new(bytes)))
    } else {
        Err(r.bad_length().into())
    }
}

impl Exporter {
    pub(crate) fn thaw(
        r: &mut Reader<'_>,
        suite: &'static Tls13CipherSuite,
        protocol: Protocol,
    ) -> Result<Self, Error> {
        Ok(Self { secret: thaw(r, suite, protocol)? })
    }

    /// The secret's bytes, for the key log.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.bytes()
    }
}

/// The secret that gives the PSK of each ticket (RFC 8446 §4.6.1).
pub(crate) struct ResumptionSecret {
    secret: Secret,
}

impl ResumptionSecret {
    pub(crate) fn psk(&self, ticket_nonce: &[u8]) -> OwnSecret {
        OwnSecret::new(self.secret.prk().expand_hash(b"resumption", ticket_nonce).as_ref())
    }
}

fn finished(base: &Prk, transcript_hash: &[u8]) -> HashOutput {
    base.derive(b"finished", &[]).prk().sign(transcript_hash)
}
