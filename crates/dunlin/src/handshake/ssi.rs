//! Decentralised identities in messages of their own, for both sides (docs/identity.md):
//!
//! ```text
//! VC or DID     in place of Certificate: a credential, or a bare identifier
//! DIDProof*     what the identifier resolves to, for a peer that has named a registry
//! DIDVerify     in place of CertificateVerify: the signature by the key of the identifier
//! ```
//!
//! The peer's identity, its verifier and its key are the same as after a Certificate. The verifier judges when DIDVerify or the proof has
//! arrived, since the proof comes after the credential.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::CertificateDer;

use super::verify::{Believed, ExpectCertificate, ExpectSignature, Subject, Then};
use super::{Cx, ExpectMessage, Step};
use crate::auth::{Credential, KeyUse, KnownRegistry};
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::message::{Did, Message, Staples, did_proof, vc};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::wire::{CertificateType, DidMethod, HandshakeType, What};

/// Sends the credential or identifier, and the newest proof for a peer that accepts those of these registries.
pub(super) fn present(
    cx: &mut Cx<'_>,
    transcript: &mut Transcript,
    credential: &Credential,
    registries: &[KnownRegistry],
) -> Result<(), Error> {
    let content = credential.entries().next().unwrap_or_default();
    let message = match credential.certificate_type() {
        CertificateType::VERIFIABLE_CREDENTIAL => vc::write(content)?,
        _ => {
            let method = credential.did_method().and_then(DidMethod::to_byte);
            Did::write(method.ok_or(Internal::Bug(What::DidMethod))?, content)?
        }
    };
    cx.send_in(transcript, message)?;
    match credential.did_proof(registries) {
        Some(proof) => cx.send_in(transcript, did_proof::write(&proof)?),
        None => Ok(()),
    }
}

/// What this side has asked for. It accepts nothing else, except a certificate that it trusts.
pub(super) struct Asked {
    /// A verifiable credential, or a bare identifier.
    pub(super) typ: CertificateType,
    /// The methods that this side has named, for a bare identifier. The verifier finds that of a credential.
    pub(super) did_methods: Vec<DidMethod>,
    /// Whether this side has named registries, so that a proof may come.
    pub(super) accepts_proofs: bool,
}

/// Waits for the peer's VC or DID, or for a Certificate in its place.
pub(super) struct ExpectCredential {
    pub(super) asked: Asked,
    pub(super) certificate: ExpectCertificate,
}

impl ExpectMessage for ExpectCredential {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { asked: Asked { typ, did_methods, accepts_proofs }, certificate } = *self;
        let entry = match (message.typ, typ) {
            (HandshakeType::VC, CertificateType::VERIFIABLE_CREDENTIAL) => vc::read(message.body())?,
            (HandshakeType::DID, CertificateType::DECENTRALISED_IDENTIFIER) => {
                let Did { method, did } = Did::read(message.body())?;
                if !did_methods.contains(&method) {
                    return Err(PeerMisbehaved::NotOffered(What::DidMethod).into());
                }
                did
            }
            // A bare identifier proves less than a credential, so it never stands in for one, nor the reverse.
            _ => {
                // RFC 8879 §4: an SSIRequest offers no decompression.
                if certificate.peer == Side::Client {
                    message.expect(HandshakeType::CERTIFICATE)?;
                }
                return Box::new(certificate).message(cx, message);
            }
        };
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
        Ok(Step::expect(ExpectProof { subject, accepts_proofs, transcript, then }))
    }
}

/// Waits for DIDVerify, or for the proof before it.
struct ExpectProof {
    subject: Subject,
    accepts_proofs: bool,
    transcript: Transcript,
    then: Then,
}

impl ExpectMessage for ExpectProof {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut subject, accepts_proofs, mut transcript, then } = *self;
        let (typ, peer) = (HandshakeType::DID_VERIFY, subject.peer);
        let verify: Believed = match message.typ {
            HandshakeType::DID_PROOF if accepts_proofs => {
                subject.staples.did_proof = Some(did_proof::read(message.body())?.to_vec());
                transcript.add(message.bytes());
                Box::new(move |_, believed| {
                    Ok(Step::expect(ExpectSignature { typ, believed, transcript, peer, then }))
                })
            }
            _ => {
                message.expect(typ)?;
                Box::new(move |cx, believed| {
                    let state = Box::new(ExpectSignature { typ, believed, transcript, peer, then });
                    state.message(cx, message)
                })
            }
        };
        subject.verify(cx, verify)
    }
}
