//! Decentralised identities in messages of their own, for both sides (docs/identity.md):
//!
//! ```text
//! VC or DID     in place of Certificate: a credential, or a bare identifier
//! DIDProof*     what the identifier resolves to, for a peer that has named a registry
//! VCStatus*     the status lists of the credential's issuer, for a peer that accepts them
//! DIDVerify     in place of CertificateVerify: the signature by the key of the identifier
//! ```
//!
//! The peer's identity, its verifier and its key are the same as after a Certificate. The verifier judges
//! when DIDVerify has arrived, since the other two come after the credential.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::CertificateDer;

use super::verify::{Believed, ExpectCertificate, ExpectSignature, Subject, Then};
use super::{Cx, ExpectMessage, Step};
use crate::auth::{AcceptedStaples, Credential, KeyUse};
use crate::cache::CacheOutcome;
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::message::{Did, Message, Staples, ssi_staple, vc};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::wire::{CertificateType, DidMethod, Field, HandshakeType};

/// Sends an identity ([`present`]).
pub(super) type Present =
    fn(&mut Cx<'_>, &mut Transcript, &Credential, &AcceptedStaples) -> Result<(), Error>;

/// Sends the credential or identifier, and beside it what the peer accepts.
pub(super) fn present(
    cx: &mut Cx<'_>,
    transcript: &mut Transcript,
    credential: &Credential,
    accepted: &AcceptedStaples,
) -> Result<(), Error> {
    let content = credential.entries().next().unwrap_or_default();
    let message = match credential.certificate_type() {
        CertificateType::VERIFIABLE_CREDENTIAL => vc::write(content)?,
        _ => {
            let method = credential.did_method().and_then(DidMethod::to_byte);
            Did::write(method.ok_or(Internal::Bug(Field::DidMethod))?, content)?
        }
    };
    cx.send_in(transcript, message)?;
    if let Some(proof) = credential.did_proof(&accepted.registries) {
        cx.send_in(transcript, ssi_staple::write(HandshakeType::DID_PROOF, &proof)?)?;
    }
    match credential.status().filter(|_| accepted.status) {
        Some(lists) => cx.send_in(transcript, ssi_staple::write(HandshakeType::VC_STATUS, lists)?),
        None => Ok(()),
    }
}

/// The identity that this side has asked for. This side accepts nothing else, except a certificate that it
/// trusts.
pub(super) struct Asked {
    /// A verifiable credential, or a bare identifier.
    pub(super) typ: CertificateType,
    /// The methods that this side has named, for a bare identifier. The verifier finds the method of a
    /// credential.
    pub(super) did_methods: Vec<DidMethod>,
    /// The staples that may come beside the identity.
    pub(super) staples: AcceptedStaples,
    /// Whether this side shows no certificate that the peer may have cached.
    pub(super) is_only: bool,
}

/// Waits for the peer's identity, or for a Certificate in its place.
pub(super) fn expect(asked: Asked, certificate: ExpectCertificate) -> Step {
    Step::expect(ExpectCredential { asked, certificate })
}

/// Waits for the peer's VC or DID, or for a Certificate in its place.
struct ExpectCredential {
    asked: Asked,
    certificate: ExpectCertificate,
}

impl ExpectMessage for ExpectCredential {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { asked: Asked { typ, did_methods, staples, is_only }, certificate } = *self;
        let entry = match (message.typ, typ) {
            (HandshakeType::VC, CertificateType::VERIFIABLE_CREDENTIAL) => vc::read(message.body())?,
            (HandshakeType::DID, CertificateType::DECENTRALISED_IDENTIFIER) => {
                let Did { method, did } = Did::read(message.body())?;
                if !did_methods.contains(&method) {
                    return Err(PeerMisbehaved::NotOffered(Field::DidMethod).into());
                }
                did
            }
            // A bare identifier proves less than a credential, so it never stands in for one, nor the
            // reverse.
            (HandshakeType::DID, _) => return Err(PeerMisbehaved::DidForCredential.into()),
            (HandshakeType::VC, _) => return Err(PeerMisbehaved::CredentialForDid.into()),
            _ => {
                // RFC 8879 §4: an SSIRequest offers no decompression.
                if certificate.peer == Side::Client {
                    message.expect(HandshakeType::CERTIFICATE)?;
                }
                return Box::new(certificate).message(cx, message);
            }
        };
        if is_only && cx.draft.cache != CacheOutcome::Disabled {
            cx.draft.cache = CacheOutcome::NotUsable;
        }
        let ExpectCertificate { profile, mut transcript, peer, name, then, .. } = certificate;
        let subject = Subject {
            profile,
            certificate_type: typ,
            chain: [CertificateDer::from(entry.to_vec())].to_vec(),
            peer,
            name,
            staples: Staples::default(),
            usage: KeyUse::Sign,
            // docs/handshake-cache.md knows Certificate messages only.
            is_cacheable: false,
        };
        transcript.add(message.bytes());
        Ok(Step::expect(ExpectVerify { subject, accepts: staples, transcript, then }))
    }
}

/// Waits for DIDVerify, or for what may come before it.
struct ExpectVerify {
    subject: Subject,
    accepts: AcceptedStaples,
    transcript: Transcript,
    then: Then,
}

impl ExpectMessage for ExpectVerify {
    fn message(mut self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let accepts_proof = !self.accepts.registries.is_empty();
        let accepts_status =
            self.accepts.status && self.subject.certificate_type == CertificateType::VERIFIABLE_CREDENTIAL;
        let staples = &mut self.subject.staples;
        let staple = match message.typ {
            // Each comes at most once, the proof first.
            HandshakeType::DID_PROOF if accepts_proof && staples.is_empty() => &mut staples.did_proof,
            HandshakeType::VC_STATUS if accepts_status && staples.credential_status.is_none() => {
                &mut staples.credential_status
            }
            typ => {
                message.expect(HandshakeType::DID_VERIFY)?;
                let Self { subject, transcript, then, .. } = *self;
                let peer = subject.peer;
                let verify: Believed = Box::new(move |cx, believed| {
                    let state = ExpectSignature { typ, believed, transcript, peer, then };
                    Box::new(state).message(cx, message)
                });
                return subject.verify(cx, verify);
            }
        };
        *staple = Some(ssi_staple::read(message.typ, message.body())?.to_vec());
        self.transcript.add(message.bytes());
        Ok(Step::expect(*self))
    }
}
