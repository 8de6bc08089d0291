//! `record_size_limit` (RFC 8449) and the older `max_fragment_length` (RFC 6066 §4), of which a server
//! answers one.

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::ExtensionsWriter;
use crate::extension::max_fragment_length::MaxFragmentLength;
use crate::extension::record_size_limit::RecordSizeLimit;
use crate::handshake::Cx;
use crate::wire::{ExtensionType, Field, MAX_PLAINTEXT};

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let profile = &offer.terms.config.profile;
    hello.extensions.put_some(profile.records.record_size_limit.map(RecordSizeLimit).as_ref());
    hello.extensions.put_some(profile.records.max_fragment_length.map(MaxFragmentLength).as_ref());
}

pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    let profile = &terms.config.profile;
    let version = answers.version;
    let size = answers.extensions.get::<RecordSizeLimit>()?;
    let length = answers.extensions.get::<MaxFragmentLength>()?;
    // RFC 8449 §4: this client's limit applies once the server has answered.
    let (sent, received) = match (size, length) {
        (None, None) => (MAX_PLAINTEXT, MAX_PLAINTEXT),
        (Some(limit), None) => (limit.content(version), profile.received_content_limit(version)),
        // RFC 6066 §4: a length other than the requested one is illegal_parameter.
        (None, Some(length)) if profile.records.max_fragment_length == Some(length.0) => {
            (usize::from(length.0), usize::from(length.0))
        }
        (None, Some(_)) => {
            return Err(
                PeerMisbehaved::NotOffered(Field::Extension(ExtensionType::MAX_FRAGMENT_LENGTH)).into()
            );
        }
        // RFC 8449 §5: the server must not answer both extensions.
        (Some(_), Some(_)) => {
            return Err(PeerMisbehaved::IllegalParameter(Field::RecordSizeLimitToo).into());
        }
    };
    cx.emitter.limit_sent_records(sent);
    cx.emitter.limit_received_records(received);
    Ok(())
}

pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    let profile = &chosen.config.profile;
    let version = chosen.version;
    let size = chosen.hello.extensions().get::<RecordSizeLimit>()?;
    let length = chosen.hello.extensions().get::<MaxFragmentLength>()?;
    let (sent, received) = match (size, length) {
        (None, None) => (MAX_PLAINTEXT, MAX_PLAINTEXT),
        // RFC 8449 §4: the server sends its limit only in answer. §5: then it ignores max_fragment_length.
        (Some(limit), _) => {
            let ours = profile.records.record_size_limit.map(|ours| RecordSizeLimit::of(ours, version));
            w.put_some(ours.as_ref());
            (limit.content(version), profile.received_content_limit(version))
        }
        (None, Some(length)) => {
            w.put(&length);
            (usize::from(length.0), usize::from(length.0))
        }
    };
    cx.emitter.limit_sent_records(sent);
    cx.emitter.limit_received_records(received);
    Ok(())
}
