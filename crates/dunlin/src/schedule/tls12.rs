//! The key schedule of TLS 1.2 (RFC 5246 §5, §6.3, §8.1), which derives everything from the premaster secret
//! with one PRF.
//!
//! ```text
//! premaster secret
//! └── PRF("extended master secret", session hash) = MasterSecret
//!     ├── PRF("key expansion") = keys
//!     ├── PRF("… finished") = Finished
//!     └── PRF(label) = exporter
//! ```

use alloc::boxed::Box;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::keys::{RecordForm, TrafficKeys};
use crate::crypto::{
    AeadAlgorithm, Hash, HmacKey, MAX_KEY_LEN, NONCE_LEN, OwnSecret, Tls12Authentication, Tls12CipherSuite,
};
use crate::error::{Error, Malformed, Misuse, PeerMisbehaved};
use crate::proof::FinishedValid;
use crate::protocol::Side;
use crate::wire::{Field, HandshakeType, Reader, Writer};

/// The length of the master secret, in bytes (RFC 5246 §8.1).
pub(crate) const MASTER_SECRET_LEN: usize = 48;
/// The length of verify_data in Finished, in bytes. No supported suite specifies another one (RFC 5246
/// §7.4.9).
pub(crate) const VERIFY_DATA_LEN: usize = 12;
/// The length of a nonce's fixed part if the record carries the rest (RFC 5288 §3), in bytes.
const FIXED_IV_LEN: usize = 4;
/// The largest key block: keys and IVs of both directions, in bytes.
const KEY_BLOCK_LEN: usize = 2 * (MAX_KEY_LEN + NONCE_LEN);

/// The verify_data of a Finished.
pub(crate) type VerifyData = [u8; VERIFY_DATA_LEN];

/// The randoms of both hellos.
#[derive(Clone, Copy)]
pub(crate) struct Randoms {
    pub(crate) client: [u8; 32],
    pub(crate) server: [u8; 32],
}

/// `PRF(secret, label, seed)` (RFC 5246 §5) with the suite's hash. The parts of `seed` are concatenated.
fn prf(hmac: &dyn HmacKey, label: &[u8], seed: [&[u8]; 3], out: &mut [u8]) {
    let [x, y, z] = seed;
    let mut a = hmac.sign(&[label, x, y, z]);
    let mut rest = out;
    while !rest.is_empty() {
        let block = hmac.sign(&[a.as_ref(), label, x, y, z]);
        let (now, later) = rest.split_at_mut(rest.len().min(block.as_ref().len().max(1)));
        for (to, from) in now.iter_mut().zip(block.as_ref()) {
            *to = *from;
        }
        rest = later;
        a = hmac.sign(&[a.as_ref()]);
    }
}

/// The form of the records of this suite.
pub(crate) fn record_form(suite: &Tls12CipherSuite) -> RecordForm {
    RecordForm::Tls12 {
        explicit_nonce: suite.aead.algorithm() != AeadAlgorithm::ChaCha20Poly1305,
        proves_psk: suite.authentication == Tls12Authentication::Psk,
    }
}

/// The master secret of a session.
pub(crate) struct MasterSecret {
    suite: &'static Tls12CipherSuite,
    bytes: OwnSecret,
    hmac: Box<dyn HmacKey>,
}

impl MasterSecret {
    /// Computes it from the premaster secret and the randoms (RFC 5246 §8.1). With extended master secret,
    /// the hash of the handshake up to ClientKeyExchange replaces the randoms (RFC 7627 §4).
    pub(crate) fn new(
        suite: &'static Tls12CipherSuite,
        premaster: &[u8],
        randoms: &Randoms,
        session_hash: Option<&[u8]>,
    ) -> Self {
        let mut bytes = Zeroizing::new([0; MASTER_SECRET_LEN]);
        let hmac = suite.hash.hmac(premaster);
        match session_hash {
            Some(hash) => prf(&*hmac, b"extended master secret", [hash, &[], &[]], &mut *bytes),
            None => prf(&*hmac, b"master secret", [&randoms.client, &randoms.server, &[]], &mut *bytes),
        }
        Self::resumed(suite, OwnSecret::new(&*bytes))
    }

    /// Takes over the master secret of a resumed session.
    pub(crate) fn resumed(suite: &'static Tls12CipherSuite, bytes: OwnSecret) -> Self {
        let hmac = suite.hash.hmac(bytes.as_ref());
        Self { suite, bytes, hmac }
    }

    /// The client's and the server's write keys (RFC 5246 §6.3).
    pub(crate) fn keys(&self, randoms: &Randoms) -> (TrafficKeys, TrafficKeys) {
        let aead = self.suite.aead;
        let form = record_form(self.suite);
        let iv_len = match form {
            RecordForm::Tls12 { explicit_nonce: true, .. } => FIXED_IV_LEN,
            _ => NONCE_LEN,
        };
        let mut client = TrafficKeys::zeros(aead, form);
        let mut server = TrafficKeys::zeros(aead, form);
        let mut block = Zeroizing::new([0; KEY_BLOCK_LEN]);
        let len = 2 * (client.key().len() + iv_len);
        let block = block.get_mut(..len).unwrap_or_default();
        prf(&*self.hmac, b"key expansion", [&randoms.server, &randoms.client, &[]], block);
        let mut rest = &*block;
        let mut take = |to: &mut [u8]| {
            let (bytes, others) = rest.split_at(to.len().min(rest.len()));
            to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            rest = others;
        };
        // An AEAD suite has no MAC keys.
        take(client.key_mut());
        take(server.key_mut());
        take(client.iv.get_mut(..iv_len).unwrap_or_default());
        take(server.iv.get_mut(..iv_len).unwrap_or_default());
        (client, server)
    }

    /// The verify_data of a side's Finished, given the hash of the handshake (RFC 5246 §7.4.9).
    pub(crate) fn finished(&self, side: Side, transcript_hash: &[u8]) -> VerifyData {
        let label: &[u8] = match side {
            Side::Client => b"client finished",
            Side::Server => b"server finished",
        };
        let mut value = [0; VERIFY_DATA_LEN];
        prf(&*self.hmac, label, [transcript_hash, &[], &[]], &mut value);
        value
    }

    /// Compares the verify_data of a received Finished in constant time. Returns it for renegotiation_info.
    pub(crate) fn verify_finished(
        &self,
        side: Side,
        transcript_hash: &[u8],
        received: &[u8],
    ) -> Result<(FinishedValid, VerifyData), Error> {
        let expected = self.finished(side, transcript_hash);
        if received.len() != expected.len() {
            return Err(Malformed::Length(Field::Message(HandshakeType::FINISHED)).into());
        }
        if bool::from(expected.ct_eq(received)) {
            Ok((FinishedValid::assert(), expected))
        } else {
            Err(PeerMisbehaved::BadFinished.into())
        }
    }

    /// The secret's bytes, for the key log and for a stored session.
    pub(crate) const fn bytes(&self) -> &OwnSecret {
        &self.bytes
    }

    /// The source of exported keying material (RFC 5705).
    pub(crate) fn into_exporter(self, randoms: Randoms) -> Exporter {
        Exporter { suite: self.suite, secret: self.bytes, randoms }
    }
}

/// The source of exported keying material (RFC 5705 §4). It keeps the master secret without a prepared HMAC
/// key, which takes a kilobyte and which most connections never use.
pub(crate) struct Exporter {
    suite: &'static Tls12CipherSuite,
    secret: OwnSecret,
    randoms: Randoms,
}

impl Exporter {
    /// Reads the output of [`super::Export::freeze`].
    pub(crate) fn thaw(r: &mut Reader<'_>, suite: &'static Tls12CipherSuite) -> Result<Self, Error> {
        let secret = OwnSecret::new(r.take(MASTER_SECRET_LEN)?);
        Ok(Self { suite, secret, randoms: Randoms { client: r.array()?, server: r.array()? } })
    }
}

impl super::Export for Exporter {
    fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        let hash: &dyn Hash = self.suite.hash;
        if out.len() > 255 * hash.algorithm().output_len() {
            return Err(Misuse::ExporterLength.into());
        }
        let randoms = [self.randoms.client, self.randoms.server].concat();
        // RFC 5705 §4: the length precedes the context, so an empty context differs from a missing one.
        let len = match context {
            Some(context) => u16::try_from(context.len()).map_err(|_| Misuse::FieldTooLong)?.to_be_bytes(),
            None => [0; 2],
        };
        let len: &[u8] = if context.is_some() { &len } else { &[] };
        prf(&*hash.hmac(self.secret.as_ref()), label, [&randoms, len, context.unwrap_or_default()], out);
        Ok(())
    }

    fn freeze(&self, w: &mut Writer) {
        w.put(self.secret.as_ref());
        w.put(&self.randoms.client);
        w.put(&self.randoms.server);
    }
}
