//! Sending Certificate and CertificateVerify, or the messages of [`super::ssi`], for both sides.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{AwaitAnswer, Cx, Step, signature, ssi};
use crate::auth::select::Choice;
use crate::auth::{AcceptedStaples, PrivateKey};
use crate::cache::Fingerprint;
use crate::compression;
use crate::error::{Error, Internal, Misuse};
use crate::handshake::question::{Answer, Question};
use crate::message::{self, Staples};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateCompressionAlgorithm, Field, HandshakeType};

/// The continuation after this side has sent its proof.
pub(crate) type Then = Box<dyn FnOnce(&mut Cx<'_>, Transcript) -> Result<Step, Error> + Send + Sync>;

/// The features of a Certificate message that the peer supports.
#[derive(Default)]
pub(crate) struct Reads {
    /// The compression algorithms that the peer accepts.
    pub(crate) compressions: Vec<CertificateCompressionAlgorithm>,
    /// Whether the peer accepts an OCSP response.
    pub(crate) ocsp: bool,
    /// The staples that the peer accepts beside a decentralised identity.
    pub(crate) staples: AcceptedStaples,
    /// Sends a decentralised identity in messages of its own, if the peer asks for one.
    pub(super) present: Option<ssi::Present>,
    /// The fingerprint of the Certificate message in the peer's cache. This side sends an abbreviated message
    /// instead.
    pub(crate) cached: Option<Fingerprint>,
}

/// Sends the chosen credential and the proof of its key, then continues with `then`.
pub(crate) fn prove(
    cx: &mut Cx<'_>,
    mut transcript: Transcript,
    profile: &ProfileSettings,
    side: Side,
    choice: Choice,
    reads: &Reads,
    then: Then,
) -> Result<Step, Error> {
    let index = choice.index;
    let credential = profile.credentials.get(index).ok_or(Internal::Bug(Field::CredentialIndex))?;
    if choice.by_messages
        && let Some(present) = reads.present
    {
        present(cx, &mut transcript, credential, &reads.staples)?;
        return prove_key(cx, transcript, profile, side, choice, then);
    }
    let stapled = profile.certificates.stapled.iter().find(|(i, _)| reads.ocsp && *i == index);
    let ocsp_response = stapled.map(|(_, response)| response.clone());
    if let Some(fingerprint) = &reads.cached {
        // The peer's entry keeps what the identifier of a credential resolves to, and until when its status
        // is known.
        let staples = Staples { ocsp_response, ..Staples::default() };
        let abbreviated = message::Certificate::write(&[], core::iter::once(&[][..]), staples)?;
        let saved = message::Certificate::beyond_abbreviated(credential.entries());
        cx.draft.leave_own_out(saved);
        cx.send_in(&mut transcript, abbreviated)?;
        transcript.add(&fingerprint.cached_object());
        return prove_key(cx, transcript, profile, side, choice, then);
    }
    let staples = Staples {
        ocsp_response,
        did_proof: credential.did_proof(&reads.staples.registries),
        credential_status: credential.status().filter(|_| reads.staples.status).map(<[u8]>::to_vec),
    };
    // RFC 8879 §4: the transcript contains the message as sent, compressed or not. Messages compressed in
    // advance contain nothing beside their entries.
    let certificate = match compression::choose(&profile.certificates.compressed, index, &reads.compressions)
    {
        Some((algorithm, message)) if staples.is_empty() => {
            cx.draft.own_certificate_compression = Some(algorithm);
            message.to_vec()
        }
        // RFC 8446 §4.4.2: the context is empty during the handshake.
        _ => message::Certificate::write(&[], credential.entries(), staples)?,
    };
    cx.send_in(&mut transcript, certificate)?;
    prove_key(cx, transcript, profile, side, choice, then)
}

/// Sends CertificateVerify or DIDVerify.
fn prove_key(
    cx: &mut Cx<'_>,
    mut transcript: Transcript,
    profile: &ProfileSettings,
    side: Side,
    choice: Choice,
    then: Then,
) -> Result<Step, Error> {
    let typ = if choice.by_messages { HandshakeType::DID_VERIFY } else { HandshakeType::CERTIFICATE_VERIFY };
    let content = signature::content(typ, side, transcript.current().as_ref());
    let then: Signed = Box::new(move |cx, signature| {
        let verify = message::CertificateVerify::write(typ, choice.scheme, &signature)?;
        cx.send_in(&mut transcript, verify)?;
        then(cx, transcript)
    });
    sign(cx, profile, choice, content, then)
}

/// The continuation that receives this side's signature.
pub(super) type Signed = Box<dyn FnOnce(&mut Cx<'_>, Vec<u8>) -> Result<Step, Error> + Send + Sync>;

/// Signs `content` with the chosen credential, or asks the caller for the signature, then continues with
/// `then`.
pub(super) fn sign(
    cx: &mut Cx<'_>,
    profile: &ProfileSettings,
    Choice { index, scheme, .. }: Choice,
    content: Vec<u8>,
    then: Signed,
) -> Result<Step, Error> {
    cx.draft.own_signature = Some(scheme);
    let credential = profile.credentials.get(index).ok_or(Internal::Bug(Field::CredentialIndex))?;
    let known = match credential.key() {
        PrivateKey::Here(key) => {
            Ok(Answer::Signature(key.sign(scheme, &content, &*profile.provider.random)?))
        }
        PrivateKey::Elsewhere { label, .. } => {
            Err(Question::Sign { label: label.clone(), scheme, message: content })
        }
    };
    cx.ask(known, Box::new(AwaitSignature { then }))
}

/// Sends a Certificate message without certificates, so that no proof follows (RFC 8446 §4.4.2).
pub(crate) fn decline(cx: &mut Cx<'_>, transcript: &mut Transcript) -> Result<(), Error> {
    let certificate = message::Certificate::write(&[], core::iter::empty(), Staples::default())?;
    cx.send_in(transcript, certificate)
}

struct AwaitSignature {
    then: Signed,
}

impl AwaitAnswer for AwaitSignature {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Answer::Signature(signature) = answer else { return Err(Misuse::WrongAnswer.into()) };
        (self.then)(cx, signature)
    }
}
