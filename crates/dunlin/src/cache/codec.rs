//! Encodes entries of the handshake cache for stores. Every length is bounded. An unknown version or flag
//! makes the whole entry unreadable, which costs a full handshake and nothing else.
//!
//! ```text
//! CachedPeer
//!     uint8  version = 2
//!     opaque issuer[8]
//!     opaque F[32]
//!     uint8  head                kind of the identity and form of the key
//!     uint40 validated, not before, not after, in seconds since 1970
//!     opaque key                 variable part of the SubjectPublicKeyInfo; with form 0, the whole one
//!                                and its length
//!     identity
//!
//! CachedServer
//!     uint8  version = 2
//!     uint8  flags               bit 0: suspended, bit 1: has a server, bit 2: has a CertificateRequest
//!     uint8  number of tickets
//!     { opaque ticket[8]; opaque F[32] } for each
//!     opaque CertificateRequest<0..2^14>
//!     CachedPeer
//! ```
//!
//! `auth/codec.rs` defines the head, the key and the identity. The entry does not contain the digest of the
//! settings: a store keeps it separately, or binds the entry to it.

use alloc::vec::Vec;

use super::{CachedPeer, CachedServer, Fingerprint, ISSUER_LEN, MAX_CERTIFICATE_REQUEST};
use crate::auth::codec::{self, Head, TIME_LEN};
use crate::error::{Error, Malformed, Misuse};
use crate::extension::handshake_cache::{MAX_TICKETS, NAME_LEN};
use crate::resume::SettingsDigest;
use crate::wire::{Field, Reader, Writer};

const WHAT: Field = Field::CacheEntry;

/// The version of the format. Version 1 did not distinguish URIs from DNS names.
const VERSION: u8 = 2;

/// The largest entry for one peer, in bytes: room for any key in use and hundreds of names. The cache keeps a
/// peer with all its names or not at all.
const MAX_PEER_LEN: usize = 8000;

const SUSPENDED: u8 = 1;
const SERVER: u8 = 2;
const CERTIFICATE_REQUEST: u8 = 4;

const FINGERPRINT_LEN: usize = 32;

impl CachedPeer {
    /// The number of bytes at the beginning of [`CachedPeer::to_bytes`] that are the same for all peers of
    /// one issuer. A store may keep them once. The fingerprint follows them.
    pub const SHARED_LEN: usize = 1 + ISSUER_LEN;

    /// Encodes the peer for a store, without the digest of the settings. The bytes hold no secret, but an
    /// attacker who can change them can invent a peer: seal entries that leave the process. Times are rounded
    /// down to the second, so a decoded peer is never younger than the original.
    ///
    /// # Errors
    /// The peer has too many names.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        w.reserve(self.max_len());
        self.write(&mut w)?;
        Ok(w.finish()?)
    }

    /// An upper bound of the encoded length, in bytes.
    fn max_len(&self) -> usize {
        Self::SHARED_LEN
            + FINGERPRINT_LEN
            + 1
            + 3 * TIME_LEN
            + 2
            + self.public_key.len()
            + codec::max_len(&self.identity)
    }

    fn write(&self, w: &mut Writer) -> Result<(), Error> {
        if self.max_len() > MAX_PEER_LEN {
            return Err(Misuse::FieldTooLong.into());
        }
        w.u8(VERSION);
        w.put(&self.issuer);
        w.put(self.fingerprint.as_bytes());
        w.u8(Head::new(Some(&self.identity), Some(&self.public_key)).byte());
        codec::write_time(w, self.validated_ms / 1000);
        codec::write_time(w, self.not_before_s);
        codec::write_time(w, self.not_after_s);
        codec::write_key(w, &self.public_key)?;
        codec::write(w, &self.identity)
    }

    /// Identifies the holder of an encoded peer by the kind of its certificate and key, and the key. `own` is
    /// the output of [`CachedPeer::to_bytes`] without its first [`CachedPeer::SHARED_LEN`] bytes. The result
    /// is the same for all certificates of one kind with one key. `None` if `own` does not parse.
    pub fn holder(own: &[u8]) -> Option<(u8, &[u8])> {
        let mut r = Reader::new(own, WHAT);
        r.take(FINGERPRINT_LEN).ok()?;
        let head = Head::read(&mut r).ok()?;
        r.take(3 * TIME_LEN).ok()?;
        Some((head.kind(), codec::read_abridged(&mut r, head).ok()?))
    }

    /// Decodes the output of [`CachedPeer::to_bytes`]. `settings` is the digest of the settings under which
    /// this side has verified the peer.
    ///
    /// # Errors
    /// The bytes do not parse, or have another version.
    pub fn from_bytes(bytes: &[u8], settings: &[u8; 32]) -> Result<Self, Error> {
        if bytes.len() > MAX_PEER_LEN {
            return Err(Malformed::Length(WHAT).into());
        }
        Reader::all(bytes, WHAT, |r| Self::read(r, SettingsDigest::new(settings)))
    }

    fn read(r: &mut Reader<'_>, settings: SettingsDigest) -> Result<Self, Error> {
        if r.u8()? != VERSION {
            return Err(Malformed::Value(WHAT).into());
        }
        let issuer = r.array()?;
        let fingerprint = Fingerprint(r.array()?);
        let head = Head::read(r)?;
        let validated_ms = codec::read_time(r)?.saturating_mul(1000);
        let not_before_s = codec::read_time(r)?;
        let not_after_s = codec::read_time(r)?;
        let public_key = codec::read_key(r, head)?;
        let identity = codec::read(r, head, Some(&public_key), not_after_s)?;
        let identity = identity.ok_or(Malformed::Value(WHAT))?;
        let certificate_type = identity.certificate_type().ok_or(Malformed::Value(WHAT))?;
        Ok(Self {
            fingerprint,
            certificate_type,
            public_key,
            issuer,
            identity,
            not_before_s,
            not_after_s,
            validated_ms,
            settings,
        })
    }
}

impl CachedServer {
    /// Encodes the entry for a store, which keeps it for a [`CacheKey`](super::CacheKey) with these settings.
    /// Seal entries that leave the process.
    ///
    /// # Errors
    /// The entry has other settings or too many tickets, or its server has too many names.
    pub fn to_bytes(&self, settings: &[u8; 32]) -> Result<Vec<u8>, Error> {
        if self.server.as_ref().is_some_and(|server| server.settings.as_bytes() != settings) {
            return Err(Misuse::Config("a server that was verified under other settings".into()).into());
        }
        let count =
            if self.tickets.len() <= MAX_TICKETS { u8::try_from(self.tickets.len()).ok() } else { None };
        let flag = |on, flag| if on { flag } else { 0 };
        let mut w = Writer::new();
        let request = self.certificate_request.as_ref();
        let server = self.server.as_ref().map_or(0, CachedPeer::max_len);
        w.reserve(3 + 40 * self.tickets.len() + 2 + request.map_or(0, Vec::len) + server);
        w.u8(VERSION);
        if request.is_some_and(|request| request.len() > MAX_CERTIFICATE_REQUEST) {
            return Err(Misuse::FieldTooLong.into());
        }
        let flags = flag(self.suspended, SUSPENDED) | flag(self.server.is_some(), SERVER);
        w.u8(flags | flag(request.is_some(), CERTIFICATE_REQUEST));
        w.u8(count.ok_or(Misuse::FieldTooLong)?);
        for (ticket, fingerprint) in &self.tickets {
            w.put(ticket);
            w.put(fingerprint.as_bytes());
        }
        if let Some(request) = request {
            w.vec16(|w| w.put(request));
        }
        if let Some(server) = &self.server {
            server.write(&mut w)?;
        }
        Ok(w.finish()?)
    }

    /// Decodes the output of [`CachedServer::to_bytes`] for these settings.
    ///
    /// # Errors
    /// The bytes do not parse, or have another version.
    pub fn from_bytes(bytes: &[u8], settings: &[u8; 32]) -> Result<Self, Error> {
        Reader::all(bytes, WHAT, |r| {
            let version = r.u8()?;
            let flags = r.u8()?;
            let count = usize::from(r.u8()?);
            if version != VERSION
                || flags & !(SUSPENDED | SERVER | CERTIFICATE_REQUEST) != 0
                || count > MAX_TICKETS
            {
                return Err(Malformed::Value(WHAT).into());
            }
            let tickets = (0..count).map(|_| Ok((r.array()?, Fingerprint(r.array()?))));
            let tickets = tickets.collect::<Result<_, Error>>()?;
            let certificate_request = match flags & CERTIFICATE_REQUEST {
                0 => None,
                _ => Some(r.vec16(0)?.to_vec()),
            };
            if certificate_request.as_ref().is_some_and(|r| r.len() > MAX_CERTIFICATE_REQUEST) {
                return Err(Malformed::Length(WHAT).into());
            }
            let server = match flags & SERVER {
                0 => None,
                _ => Some(CachedPeer::from_bytes(r.rest(), settings)?),
            };
            Ok(Self { server, certificate_request, tickets, suspended: flags & SUSPENDED != 0 })
        })
    }
}

/// An entry of a client's store in two parts. A store may keep the second part once for many servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitServer {
    /// The part of this server alone: the tickets and the rest of the server's entry.
    pub own: Vec<u8>,
    /// The part that servers of one operator have in common: the fingerprints of this client's Certificate,
    /// the CertificateRequest, and the first [`CachedPeer::SHARED_LEN`] bytes of the server.
    pub shared: Vec<u8>,
}

impl SplitServer {
    /// Splits the output of [`CachedServer::to_bytes`].
    ///
    /// # Errors
    /// The bytes do not parse.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let mut own = Writer::new();
        let mut shared = Writer::new();
        Reader::all(bytes, WHAT, |r| {
            let head @ [_, flags, count] = r.array()?;
            own.put(&head);
            for _ in 0..count {
                own.put(r.take(NAME_LEN)?);
                shared.put(r.take(FINGERPRINT_LEN)?);
            }
            if flags & CERTIFICATE_REQUEST != 0 {
                let request = r.vec16(0)?;
                shared.vec16(|w| w.put(request));
            }
            if flags & SERVER != 0 {
                shared.put(r.take(CachedPeer::SHARED_LEN)?);
            }
            own.put(r.rest());
            Ok::<_, Error>(())
        })?;
        Ok(Self { own: own.finish()?, shared: shared.finish()? })
    }

    /// Joins both parts again, for [`CachedServer::from_bytes`].
    ///
    /// # Errors
    /// The parts do not belong together.
    pub fn join(own: &[u8], shared: &[u8]) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        w.reserve(own.len() + shared.len());
        Reader::all(own, WHAT, |own| {
            Reader::all(shared, WHAT, |shared| {
                let head @ [_, flags, count] = own.array()?;
                w.put(&head);
                for _ in 0..count {
                    w.put(own.take(NAME_LEN)?);
                    w.put(shared.take(FINGERPRINT_LEN)?);
                }
                if flags & CERTIFICATE_REQUEST != 0 {
                    let request = shared.vec16(0)?;
                    w.vec16(|w| w.put(request));
                }
                if flags & SERVER != 0 {
                    w.put(shared.take(CachedPeer::SHARED_LEN)?);
                }
                w.put(own.rest());
                Ok::<_, Error>(())
            })
        })?;
        Ok(w.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec;

    use pki_types::SubjectPublicKeyInfoDer;

    use super::*;
    use crate::auth::codec::{KEY_FORMS, KeyForm, abridged};
    use crate::auth::{PeerIdentity, SubjectName, X509Identity};
    use crate::wire::CertificateType;

    const SETTINGS: [u8; 32] = [9; 32];

    fn x509(key: Vec<u8>, names: &[&str], common_name: Option<&str>) -> CachedPeer {
        let id = X509Identity {
            chain: Vec::new(),
            names: names.iter().map(|name| SubjectName::decode(name)).collect(),
            common_name: common_name.map(String::from),
            fingerprint: [7; 32],
            not_after_s: 253_402_300_799,
            details: None,
        };
        peer(CertificateType::X509, key, PeerIdentity::X509(id))
    }

    fn raw(key: Vec<u8>) -> CachedPeer {
        let identity = PeerIdentity::RawKey(SubjectPublicKeyInfoDer::from(key.clone()));
        CachedPeer { not_after_s: u64::MAX, ..peer(CertificateType::RAW_PUBLIC_KEY, key, identity) }
    }

    fn peer(certificate_type: CertificateType, key: Vec<u8>, identity: PeerIdentity) -> CachedPeer {
        CachedPeer {
            fingerprint: Fingerprint([3; 32]),
            certificate_type,
            public_key: SubjectPublicKeyInfoDer::from(key),
            issuer: [5; ISSUER_LEN],
            identity,
            not_before_s: 1_700_000_000,
            not_after_s: 253_402_300_799,
            validated_ms: 1_795_000_000_000,
            settings: SettingsDigest::new(&SETTINGS),
        }
    }

    fn key(form: usize) -> Vec<u8> {
        let KeyForm { before, len, after } = &KEY_FORMS[form];
        [before, &vec![0xa5; *len][..], after].concat()
    }

    fn peers() -> Vec<CachedPeer> {
        vec![
            x509(key(0), &["device-1.example", &"n".repeat(300)], None),
            x509(key(3), &[], Some("device-1")),
            x509(vec![0x30; 200], &[""], Some("")),
            x509(key(1), &["a"; 6], None),
            x509(key(1), &["a"; 7], Some("b")),
            x509(key(1), &["a", "\0a:b"], None),
            raw(key(2)),
            raw(vec![0x30; 44]),
        ]
    }

    #[test]
    fn decodes_a_peer_as_encoded() {
        for peer in peers() {
            let bytes = peer.to_bytes().unwrap();
            assert_eq!(CachedPeer::from_bytes(&bytes, &SETTINGS).unwrap(), peer);
            assert_eq!(bytes[1..CachedPeer::SHARED_LEN], peer.issuer);
        }
        // Rounded down to the second, so that the peer is not younger.
        let peer = CachedPeer { validated_ms: 1_795_000_000_999, ..raw(key(0)) };
        let back = CachedPeer::from_bytes(&peer.to_bytes().unwrap(), &SETTINGS).unwrap();
        assert_eq!(back.validated_ms, 1_795_000_000_000);
    }

    #[test]
    fn identifies_a_holder_by_kind_and_key() {
        for peer in peers() {
            let bytes = peer.to_bytes().unwrap();
            let of = |bytes: &[u8]| {
                CachedPeer::holder(&bytes[CachedPeer::SHARED_LEN..]).map(|(k, key)| (k, key.to_vec()))
            };
            let holder = of(&bytes).unwrap();
            assert_eq!(holder.1, abridged(&peer.public_key).1);
            assert_eq!(holder.0 & 8 != 0, matches!(peer.identity, PeerIdentity::RawKey(_)));
            let mut other = peer.clone();
            (other.fingerprint, other.issuer, other.validated_ms) =
                (Fingerprint([1; 32]), [1; ISSUER_LEN], 1);
            if let PeerIdentity::X509(id) = &mut other.identity {
                (id.names, id.common_name, id.fingerprint) = (vec![], Some("other".to_string()), [1; 32]);
            }
            assert_eq!(of(&other.to_bytes().unwrap()), Some(holder));
            assert_eq!(of(&bytes[..CachedPeer::SHARED_LEN + 60]), None);
        }
        // The same key in another kind of certificate is another holder.
        assert_ne!(
            CachedPeer::holder(&raw(key(0)).to_bytes().unwrap()[CachedPeer::SHARED_LEN..]).unwrap(),
            CachedPeer::holder(&x509(key(0), &[], None).to_bytes().unwrap()[CachedPeer::SHARED_LEN..])
                .unwrap()
        );
    }

    /// The lengths are the lengths of real keys; entries omit the constant parts.
    #[test]
    fn omits_the_constant_parts_of_keys() {
        let shared = CachedPeer::SHARED_LEN + 1 + 32 + 3 * 5;
        for (form, len) in [(0, 91), (1, 120), (2, 44), (3, 294)] {
            assert_eq!(key(form).len(), len);
            let KeyForm { len, .. } = KEY_FORMS[form];
            assert_eq!(raw(key(form)).to_bytes().unwrap().len(), shared + len);
        }
        // A key without a form is stored whole, with its length.
        assert_eq!(raw(vec![0x30; 44]).to_bytes().unwrap().len(), shared + 1 + 44);
        assert_eq!(raw(vec![0x30; 550]).to_bytes().unwrap().len(), shared + 2 + 550);
    }

    #[test]
    fn decodes_a_server_as_encoded() {
        for server in peers().into_iter().map(Some).chain([None]) {
            for count in 0..=2u8 {
                let tickets: Vec<_> = (0..count).map(|i| ([i; 8], Fingerprint([i; 32]))).collect();
                let certificate_request = (count == 2).then(|| vec![13; MAX_CERTIFICATE_REQUEST]);
                let server = server.clone();
                let entry = CachedServer { server, certificate_request, tickets, suspended: count == 1 };
                let bytes = entry.to_bytes(&SETTINGS).unwrap();
                let back = CachedServer::from_bytes(&bytes, &SETTINGS).unwrap();
                let SplitServer { own, shared } = SplitServer::new(&bytes).unwrap();
                assert_eq!(own.len() + shared.len(), bytes.len());
                assert_eq!(SplitServer::join(&own, &shared).unwrap(), bytes);
                SplitServer::join(&own, &[&shared[..], &[0]].concat()).unwrap_err();
                assert_eq!(
                    (back.server, back.certificate_request, back.tickets, back.suspended),
                    (entry.server, entry.certificate_request, entry.tickets, entry.suspended)
                );
            }
        }
        let certificate_request = Some(vec![13; MAX_CERTIFICATE_REQUEST + 1]);
        CachedServer { certificate_request, ..CachedServer::default() }.to_bytes(&SETTINGS).unwrap_err();
        let entry = CachedServer { server: Some(raw(key(0))), ..CachedServer::default() };
        entry.to_bytes(&[8; 32]).unwrap_err();
        let tickets = vec![([0; 8], Fingerprint([0; 32])); 3];
        CachedServer { tickets, ..CachedServer::default() }.to_bytes(&SETTINGS).unwrap_err();
    }

    #[test]
    fn rejects_a_peer_with_too_many_names() {
        let name = "n".repeat(100);
        x509(key(0), &vec![&*name; 70], None).to_bytes().unwrap();
        x509(key(0), &vec![&*name; 80], None).to_bytes().unwrap_err();
        x509(key(0), &[&"n".repeat(0x8000)], None).to_bytes().unwrap_err();
        let long = [raw(key(0)).to_bytes().unwrap(), vec![0; MAX_PEER_LEN]].concat();
        CachedPeer::from_bytes(&long, &SETTINGS).unwrap_err();
    }

    /// A key without a form and seven long names: every field has its maximum length.
    #[test]
    fn encodes_peers_up_to_the_maximum_length() {
        let of = |len: usize| {
            let short = "n".repeat(200);
            let long = "n".repeat(len);
            let names = [&[&*short; 6][..], &[&*long]].concat();
            x509(vec![0x30; 200], &names, None).to_bytes()
        };
        let longest = (MAX_PEER_LEN / 2..MAX_PEER_LEN).map_while(|len| of(len).ok()).last().unwrap();
        assert_eq!(longest.len(), MAX_PEER_LEN);
        CachedPeer::from_bytes(&longest, &SETTINGS).unwrap();
    }

    /// Truncated or longer bytes are an error. A flipped bit gives an error or another entry, which is why
    /// stores seal them.
    #[test]
    fn never_decodes_damaged_bytes_as_the_same_entry() {
        for peer in peers() {
            let bytes = peer.to_bytes().unwrap();
            for len in 0..bytes.len() {
                CachedPeer::from_bytes(&bytes[..len], &SETTINGS).unwrap_err();
            }
            CachedPeer::from_bytes(&[&bytes[..], &[0]].concat(), &SETTINGS).unwrap_err();
            for bit in 0..8 * bytes.len() {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(CachedPeer::from_bytes(&bytes, &SETTINGS).ok() != Some(peer.clone()), "{bit}");
            }
            for version in [VERSION - 1, VERSION + 1] {
                CachedPeer::from_bytes(&[&[version], &bytes[1..]].concat(), &SETTINGS).unwrap_err();
            }
            let entry = CachedServer {
                server: Some(peer),
                tickets: vec![([1; 8], Fingerprint([2; 32]))],
                certificate_request: Some(vec![13; 50]),
                suspended: false,
            };
            let bytes = entry.to_bytes(&SETTINGS).unwrap();
            for len in 0..bytes.len() {
                CachedServer::from_bytes(&bytes[..len], &SETTINGS).unwrap_err();
            }
            for bit in 0..8 * bytes.len() {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let flipped = CachedServer::from_bytes(&bytes, &SETTINGS).ok();
                assert!(
                    flipped.and_then(|f| f.to_bytes(&SETTINGS).ok()) != entry.to_bytes(&SETTINGS).ok(),
                    "{bit}"
                );
            }
        }
    }
}
