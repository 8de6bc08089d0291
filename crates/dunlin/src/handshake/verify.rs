//! Receiving Certificate and CertificateVerify, for both sides. [`super::ssi`] receives other messages in
//! place of Certificate.

use crate::sync::Arc;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer};

use super::{AwaitAnswer, Cx, ExpectMessage, Step, signature};
use crate::auth::verifier::verify_signature;
use crate::auth::{Acceptance, Claim, KeyUse, PeerIdentity, Validity, Verdict, Verified, Verifier};
use crate::cache::{CachedPeer, Proven, Vouched};
use crate::compression;
use crate::crypto::Algorithms;
use crate::error::{AuthenticationFailure, Error, Misuse, PeerMisbehaved};
use crate::handshake::question::{Answer, Question};
use crate::message::{self, Message, Staples};
use crate::proof::{PeerVerified, SignatureValid};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::settings::ProfileSettings;
use crate::time::Now;
use crate::wire::{CertificateType, ExtensionType, Field, HandshakeType, SignatureScheme};

/// The peer's identity, with the proofs of it.
pub(crate) struct Authenticated {
    pub(crate) identity: PeerIdentity,
    pub(crate) vouched: Vouched,
    _verified: PeerVerified,
    _signature: SignatureValid,
}

/// The continuation after the peer has proven its identity. It receives `None` if the peer declined.
pub(crate) type Then =
    Box<dyn FnOnce(&mut Cx<'_>, Transcript, Option<Authenticated>) -> Result<Step, Error> + Send + Sync>;

/// Waits for the peer's Certificate.
pub(crate) struct ExpectCertificate {
    pub(crate) profile: Arc<ProfileSettings>,
    pub(crate) transcript: Transcript,
    pub(crate) peer: Side,
    pub(crate) certificate_type: CertificateType,
    /// The name that the certificate must be for.
    pub(crate) name: Option<ServerName<'static>>,
    /// Whether the peer may decline, with an empty certificate list.
    pub(crate) optional: bool,
    /// The extensions that may come with the certificate, since this side requested them.
    pub(crate) staples: Vec<ExtensionType>,
    /// The peer to which an abbreviated Certificate refers. `None` if the two sides agreed on no
    /// abbreviation.
    pub(crate) cached: Option<Box<CachedPeer>>,
    pub(crate) then: Then,
}

impl ExpectMessage for ExpectCertificate {
    fn message(mut self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let body = match message.typ {
            // RFC 8879 §4: the peer may compress only if this side offered to decompress.
            HandshakeType::COMPRESSED_CERTIFICATE if self.profile.decompresses() => {
                let compressed = message::CompressedCertificate::read(message.body())?;
                cx.draft.peer_certificate_compression = Some(compressed.algorithm);
                Cow::Owned(compression::decompress(&self.profile.certificates.decompressors, &compressed)?)
            }
            _ => Cow::Borrowed(message.expect(HandshakeType::CERTIFICATE)?),
        };
        let may_be_abbreviated = self.cached.is_some() && message.typ == HandshakeType::CERTIFICATE;
        let certificate =
            message::Certificate::read(&body, self.certificate_type, &self.staples, may_be_abbreviated)?;
        // RFC 8446 §4.4.2: the context is empty during the handshake, as in the request.
        if !certificate.context.is_empty() {
            return Err(PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext).into());
        }
        if certificate.is_abbreviated
            && let Some(cached) = self.cached
        {
            self.transcript.add(message.bytes());
            self.transcript.add(&cached.fingerprint.cached_object());
            cx.draft.take_peer_from_cache();
            let Self { profile, transcript, peer, then, .. } = *self;
            let believed = BelievedPeer::cached(profile, cached, cx.now)?;
            let typ = HandshakeType::CERTIFICATE_VERIFY;
            return Ok(Step::expect(ExpectSignature { typ, believed, transcript, peer, then }));
        }
        let chain: Vec<CertificateDer<'static>> =
            certificate.entries.iter().map(|c| CertificateDer::from(c.to_vec())).collect();
        self.transcript.add(message.bytes());
        if chain.is_empty() {
            return match self.optional {
                true => (self.then)(cx, self.transcript, None),
                // RFC 8446 §4.4.2.4: an empty certificate list from a server is a decode_error.
                false if self.peer == Side::Server => {
                    Err(crate::error::Malformed::Length(Field::CertificateList).into())
                }
                false => Err(AuthenticationFailure::NoCertificate.into()),
            };
        }
        let Self { profile, transcript, peer, certificate_type, name, then, .. } = *self;
        let staples = certificate.staples;
        let usage = KeyUse::Sign;
        let subject =
            Subject { profile, certificate_type, chain, peer, name, staples, usage, is_cacheable: true };
        let then: Believed = Box::new(move |_, believed| {
            Ok(Step::expect(ExpectSignature {
                typ: HandshakeType::CERTIFICATE_VERIFY,
                believed,
                transcript,
                peer,
                then,
            }))
        });
        subject.verify(cx, then)
    }
}

/// A chain or key of a peer, for the verifier to judge.
pub(super) struct Subject {
    pub(super) profile: Arc<ProfileSettings>,
    pub(super) certificate_type: CertificateType,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) peer: Side,
    pub(super) name: Option<ServerName<'static>>,
    pub(super) staples: Staples,
    /// The purpose of the peer's key in this handshake.
    pub(super) usage: KeyUse,
    /// Whether the handshake cache may keep the verdict.
    pub(super) is_cacheable: bool,
}

impl Subject {
    /// The verifier of a type that the profile lets the peer send. A peer may send a certificate that this
    /// side has not asked for.
    fn verifier(&self) -> Result<&dyn Verifier, AuthenticationFailure> {
        let typ = self.certificate_type;
        if self.profile.verifies(typ) {
            self.profile.trust.of(typ)
        } else {
            Err(AuthenticationFailure::UnsupportedType(typ))
        }
    }

    fn claim(&self, now: Now) -> Claim<'_> {
        Claim {
            entries: &self.chain,
            peer: self.peer,
            name: self.name.as_ref(),
            ocsp_response: self.staples.ocsp_response.as_deref(),
            did_proof: self.staples.did_proof.as_deref(),
            credential_status: self.staples.credential_status.as_deref(),
            algorithms: &self.profile.chain_algorithms,
            usage: self.usage,
            keeps_details: self.profile.x509_details.is_some(),
            sha256: self.profile.provider.sha256,
            now,
        }
    }

    /// The verifier's verdict. If it leaves the decision to the caller, the question for it.
    pub(super) fn judge(&self, cx: &Cx<'_>) -> Result<Result<Answer, Question>, AuthenticationFailure> {
        Ok(match self.verifier()?.verify(&self.claim(cx.now))? {
            Verdict::Accepted(peer) => Ok(Answer::Verified(Ok(Acceptance::by_verifier(peer)))),
            Verdict::Ask => Err(Question::Verify {
                certificates: self.chain.clone(),
                certificate_type: self.certificate_type,
                peer: self.peer,
                name: self.name.clone(),
                ocsp_response: self.staples.ocsp_response.clone(),
                did_proof: self.staples.did_proof.clone(),
                credential_status: self.staples.credential_status.clone(),
                algorithms: self.profile.chain_algorithms.clone(),
            }),
        })
    }

    /// The peer according to the verdict.
    pub(super) fn accepted(self, now: Now, answer: Answer) -> Result<Box<Judged>, Error> {
        let Answer::Verified(verdict) = answer else { return Err(Misuse::WrongAnswer.into()) };
        let (peer, validity) = verdict?.into_parts();
        let mut peer = match peer {
            Some(peer) => peer,
            None => self.verifier()?.read(&self.claim(now))?,
        };
        if let Some(limit) = validity {
            limit.check(now)?;
            peer.validity = peer.validity.within(limit);
        }
        peer.complete(self.certificate_type, self.chain, self.profile.provider.sha256)?;
        let Verified { public_key, mut identity, validity: holds, issuer_key } = *peer;
        if let (Some(read), PeerIdentity::X509(id)) = (self.profile.x509_details, &mut identity) {
            let details = id.chain.first().and_then(|leaf| read(leaf));
            id.details = details.and_then(|details| details.with_issuer_key(issuer_key)).map(Box::new);
        }
        let public_key = if identity.public_key().is_none() { Some(public_key) } else { None };
        let is_kept = self.is_cacheable && validity.is_some();
        Ok(Box::new(Judged { public_key, identity, validity: holds, is_kept }))
    }

    /// Continues with `then` when the peer is accepted.
    pub(super) fn verify(self, cx: &mut Cx<'_>, then: Believed) -> Result<Step, Error> {
        let judged = self.judge(cx);
        let known = judged.inspect_err(|_| cx.effects.refuse(&self.chain, self.certificate_type))?;
        cx.ask(known, Box::new(AwaitVerification { subject: self, then }))
    }
}

/// A peer after the verdict on what it sent.
pub(super) struct Judged {
    /// The peer's key. `None` if the identity contains it: a second copy would cost memory for the rest of
    /// the handshake.
    public_key: Option<SubjectPublicKeyInfoDer<'static>>,
    pub(super) identity: PeerIdentity,
    pub(super) validity: Validity,
    /// Whether the handshake cache may keep the verdict.
    is_kept: bool,
}

impl Judged {
    fn public_key(&self) -> Result<SubjectPublicKeyInfoDer<'_>, AuthenticationFailure> {
        let key = self.public_key.as_deref().or_else(|| self.identity.public_key());
        Ok(key.ok_or(AuthenticationFailure::BadEncoding)?.into())
    }
}

/// The continuation after the verifier has accepted the peer's chain or key.
pub(super) type Believed = Box<dyn FnOnce(&mut Cx<'_>, BelievedPeer) -> Result<Step, Error> + Send + Sync>;

/// Waits for the verdict on the peer's chain or key.
struct AwaitVerification {
    subject: Subject,
    then: Believed,
}

impl AwaitAnswer for AwaitVerification {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { subject, then } = *self;
        let profile = Arc::clone(&subject.profile);
        if matches!(answer, Answer::Verified(Err(_))) {
            cx.effects.refuse(&subject.chain, subject.certificate_type);
        }
        let presented = Presented::Verified(subject.accepted(cx.now, answer)?);
        then(cx, BelievedPeer { profile, presented, verified: PeerVerified::assert() })
    }
}

/// A peer whose chain or key is accepted, but that has not yet proven possession of the private key.
pub(super) struct BelievedPeer {
    profile: Arc<ProfileSettings>,
    presented: Presented,
    verified: PeerVerified,
}

/// The source of the peer's identity and key.
enum Presented {
    /// The verdict on the chain or key that the peer sent.
    Verified(Box<Judged>),
    /// The cache entry of a chain or key that was verified earlier.
    Cached(Box<CachedPeer>),
}

impl BelievedPeer {
    /// Accepts the peer of a cache entry that a full handshake would still accept. The dates are checked
    /// again, because the entry was read when the handshake began.
    pub(super) fn cached(
        profile: Arc<ProfileSettings>,
        peer: Box<CachedPeer>,
        now: Now,
    ) -> Result<Self, AuthenticationFailure> {
        peer.check_dates(now)?;
        Ok(Self { profile, presented: Presented::Cached(peer), verified: PeerVerified::assert() })
    }

    pub(super) fn profile(&self) -> &ProfileSettings {
        &self.profile
    }

    /// The peer's identity and key, with which the client encrypts its secret. The peer's Finished later
    /// proves that it could decrypt the secret (RFC 5246 §7.4.7.1). Until then the handshake does not report
    /// the identity.
    pub(super) fn recipient(
        self,
        cx: &mut Cx<'_>,
    ) -> Result<(PeerIdentity, SubjectPublicKeyInfoDer<'static>), Error> {
        cx.draft.peer_validity = Some(self.validity());
        match self.presented {
            Presented::Verified(peer) => {
                let key = peer.public_key()?.into_owned();
                Ok((peer.identity, key))
            }
            Presented::Cached(peer) => Ok((peer.identity, peer.public_key)),
        }
    }

    /// The time span in which this side believes the peer.
    fn validity(&self) -> Validity {
        match &self.presented {
            Presented::Verified(peer) => peer.validity,
            Presented::Cached(peer) => Validity::new(peer.not_before_s, peer.not_after_s),
        }
    }

    /// Verifies the signature over `content` with the peer's key. `algorithms` are the algorithms of
    /// `scheme`.
    pub(super) fn prove(
        self,
        cx: &mut Cx<'_>,
        scheme: SignatureScheme,
        algorithms: Algorithms<'_>,
        content: &[u8],
        signature: &[u8],
    ) -> Result<Authenticated, Error> {
        cx.draft.peer_signature = Some(scheme);
        cx.draft.peer_validity = Some(self.validity());
        let key = match &self.presented {
            Presented::Verified(peer) => &peer.public_key()?,
            Presented::Cached(peer) => &peer.public_key,
        };
        let proof = verify_signature(algorithms, key, content, signature)?;
        let (identity, vouched) = match self.presented {
            Presented::Verified(peer) => {
                let Judged { public_key, identity, validity, is_kept } = *peer;
                (
                    identity,
                    Vouched::Verdict(Proven { public_key, validity: Some(validity).filter(|_| is_kept) }),
                )
            }
            Presented::Cached(peer) => (peer.identity.clone(), Vouched::Entry(peer)),
        };
        Ok(Authenticated { identity, vouched, _verified: self.verified, _signature: proof })
    }
}

/// Waits for the signature that proves possession of the private key.
pub(super) struct ExpectSignature {
    /// CertificateVerify or DIDVerify.
    pub(super) typ: HandshakeType,
    pub(super) believed: BelievedPeer,
    pub(super) transcript: Transcript,
    pub(super) peer: Side,
    pub(super) then: Then,
}

impl ExpectMessage for ExpectSignature {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { typ, believed, mut transcript, peer, then } = *self;
        let verify = message::CertificateVerify::read(typ, message.expect(typ)?)?;
        // RFC 8446 §4.4.3: the peer uses a scheme that this side offered and that may sign handshakes.
        let profile = believed.profile();
        let may_sign = match peer {
            Side::Client => verify.scheme.signs_handshakes(),
            Side::Server => verify.scheme.signs_for_servers(),
        };
        if !profile.signature_schemes.contains(&verify.scheme) || !may_sign {
            return Err(PeerMisbehaved::NotOffered(Field::SignatureScheme).into());
        }
        let algorithms = profile.provider.signatures.for_scheme(verify.scheme);
        let content = signature::content(typ, peer, transcript.current().as_ref());
        let authenticated = believed.prove(cx, verify.scheme, algorithms, &content, verify.signature)?;
        transcript.add(message.bytes());
        then(cx, transcript, Some(authenticated))
    }
}
