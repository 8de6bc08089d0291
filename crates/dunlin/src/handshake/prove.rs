//! Certificate and CertificateVerify as we send them, the same for both sides.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{AwaitAnswer, Cx, Step, signature};
use crate::auth::PrivateKey;
use crate::auth::select::Choice;
use crate::cache::Fingerprint;
use crate::compression;
use crate::error::{Error, Internal, Misuse};
use crate::handshake::question::{Answer, Question};
use crate::message;
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateCompressionAlgorithm, What};

/// What goes on after the proof was sent.
pub(crate) type Then = Box<dyn FnOnce(&mut Cx<'_>, Transcript) -> Result<Step, Error> + Send + Sync>;

/// What the peer reads in a Certificate message.
#[derive(Default)]
pub(crate) struct Reads {
    /// With what it may be compressed.
    pub(crate) compressions: Vec<CertificateCompressionAlgorithm>,
    /// Whether there may be an OCSP response.
    pub(crate) ocsp: bool,
    /// What it has in its cache already; the message says no more than that it is this.
    pub(crate) cached: Option<Fingerprint>,
}

/// Sends the chosen credential and the proof of its key, then goes on with `then`.
pub(crate) fn prove(
    cx: &mut Cx<'_>,
    mut transcript: Transcript,
    profile: &ProfileSettings,
    side: Side,
    Choice { index, scheme }: Choice,
    reads: &Reads,
    then: Then,
) -> Result<Step, Error> {
    let credential = profile.credentials.get(index).ok_or(Internal::Bug(What::CredentialIndex))?;
    let stapled = profile.stapled.iter().find(|(i, _)| reads.ocsp && *i == index);
    let response = stapled.map(|(_, response)| response.as_slice());
    if let Some(fingerprint) = &reads.cached {
        let abbreviated = message::Certificate::write(&[], core::iter::once(&[][..]), response)?;
        let saved = message::Certificate::beyond_abbreviated(credential.entries());
        cx.draft.leave_own_out(saved);
        cx.send_in(&mut transcript, abbreviated)?;
        transcript.add(&fingerprint.cached_object());
        return prove_key(cx, transcript, profile, side, Choice { index, scheme }, then);
    }
    // RFC 8879 §4: the transcript has the message as it is sent. What was compressed beforehand has no OCSP response.
    let certificate = match compression::choose(&profile.compressed, index, &reads.compressions) {
        Some((algorithm, message)) if stapled.is_none() => {
            cx.draft.own_certificate_compression = Some(algorithm);
            message.to_vec()
        }
        // RFC 8446 §4.4.2: in the handshake the context is empty.
        _ => message::Certificate::write(&[], credential.entries(), response)?,
    };
    cx.send_in(&mut transcript, certificate)?;
    prove_key(cx, transcript, profile, side, Choice { index, scheme }, then)
}

/// Sends CertificateVerify.
fn prove_key(
    cx: &mut Cx<'_>,
    mut transcript: Transcript,
    profile: &ProfileSettings,
    side: Side,
    Choice { index, scheme }: Choice,
    then: Then,
) -> Result<Step, Error> {
    let content = signature::content(side, transcript.current().as_ref());
    let then: Signed = Box::new(move |cx, signature| {
        let verify: Vec<u8> = message::CertificateVerify::write(scheme, &signature)?;
        cx.send_in(&mut transcript, verify)?;
        then(cx, transcript)
    });
    sign(cx, profile, Choice { index, scheme }, content, then)
}

/// What goes on with a signature of ours.
pub(super) type Signed = Box<dyn FnOnce(&mut Cx<'_>, Vec<u8>) -> Result<Step, Error> + Send + Sync>;

/// Signs `content` with the chosen credential, or asks for the signature, then goes on with `then`.
pub(super) fn sign(
    cx: &mut Cx<'_>,
    profile: &ProfileSettings,
    Choice { index, scheme }: Choice,
    content: Vec<u8>,
    then: Signed,
) -> Result<Step, Error> {
    cx.draft.own_signature = Some(scheme);
    let credential = profile.credentials.get(index).ok_or(Internal::Bug(What::CredentialIndex))?;
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

/// Sends a Certificate message without certificates: nothing to prove (RFC 8446 §4.4.2).
pub(crate) fn decline(cx: &mut Cx<'_>, transcript: &mut Transcript) -> Result<(), Error> {
    let certificate = message::Certificate::write(&[], core::iter::empty(), None)?;
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
