//! The client's early data: whether a session allows it, its keys, and the server's answer (RFC 8446
//! §4.2.10).

use alloc::boxed::Box;

use crate::early::{EarlyDataOutcome, EarlyDataProtocols, NoEarlyData};
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::handshake::Cx;
use crate::handshake::negotiate::Offer;
use crate::handshake::negotiate::early_data::{self, EarlyDataSteps, EarlyOffer};
use crate::handshake::negotiate::psk::OfferedPsk;
use crate::handshake::progress::{EarlyOutput, EarlySession, Sending};
use crate::handshake::setup::ClientConfig;
use crate::message;
use crate::schedule::tls13::EarlySecret;
use crate::schedule::{HelloTranscript, Transcript};
use crate::transport::Epoch;
use crate::wire::{CipherSuite, Field, HandshakeType};

pub(crate) static EARLY_DATA: EarlyDataSteps =
    EarlyDataSteps { offer, put: early_data::put, open, accept, end };

fn offer(
    cx: &Cx<'_>,
    config: &ClientConfig,
    protocols: &EarlyDataProtocols,
    psks: &[OfferedPsk],
) -> Result<EarlyOffer, NoEarlyData> {
    if !cx.protocol().has_early_data() {
        return Err(NoEarlyData::Disabled);
    }
    // RFC 8446 §4.2.10: early data belongs to the first PSK.
    let Some(OfferedPsk::Session(first)) = psks.first() else { return Err(NoEarlyData::NoSession) };
    let terms = first.session.early.clone().ok_or(NoEarlyData::NotForSession)?;
    let suite = config.profile.suite(first.session.cipher_suite).ok_or(NoEarlyData::CipherSuite)?;
    // The server cannot choose a protocol that the client no longer offers.
    let offered = terms.alpn.as_ref().is_none_or(|alpn| config.profile.alpn.contains(alpn));
    if offered && protocols.allow(terms.alpn.as_ref()) {
        Ok(EarlyOffer { suite, terms, steps: &EARLY_DATA })
    } else {
        Err(NoEarlyData::ApplicationProtocol)
    }
}

fn open(cx: &mut Cx<'_>, early: &EarlyOffer, offer: &Offer, hello: &HelloTranscript) -> Result<(), Error> {
    let EarlyOffer { suite, terms, .. } = early;
    let Some(OfferedPsk::Session(first)) = offer.psks.first() else {
        return Err(Internal::Bug(Field::NoEarlySession).into());
    };
    let secret = EarlySecret::new(suite, cx.protocol(), first.session.psk.as_ref());
    let hash = hello.start(suite.hash).current();
    let traffic = secret.client_traffic(hash.as_ref());
    let exporter = secret.exporter(hash.as_ref());
    cx.effects.log_secret("CLIENT_EARLY_TRAFFIC_SECRET", traffic.bytes());
    cx.effects.log_secret("EARLY_EXPORTER_SECRET", exporter.bytes());
    if !offer.session_id.is_empty() {
        // RFC 8446 §D.4: ChangeCipherSpec precedes the early data.
        cx.emitter.change_cipher_spec()?;
    }
    cx.emitter.write_keys(Epoch::Early, &traffic.keys(cx.protocol()))?;
    cx.progress.early = EarlyOutput {
        sending: Sending::EarlyData(terms.max_size),
        session: Some(Box::new(EarlySession {
            exporter,
            alpn: terms.alpn.clone(),
            peer: first.session.peer.clone(),
        })),
    };
    Ok(())
}

fn accept(cx: &mut Cx<'_>, early: &EarlyOffer, suite: CipherSuite) -> Result<(), Error> {
    // RFC 8446 §4.2.10: the server may accept only with the session's cipher suite and ALPN.
    if suite != early.suite.id {
        return Err(PeerMisbehaved::EarlyDataMismatch(Field::CipherSuite).into());
    }
    if cx.draft.alpn != early.terms.alpn {
        return Err(PeerMisbehaved::EarlyDataMismatch(Field::ApplicationProtocol).into());
    }
    cx.early_data(EarlyDataOutcome::Accepted);
    Ok(())
}

fn end(cx: &mut Cx<'_>, transcript: &mut Transcript) -> Result<(), Error> {
    cx.progress.early = EarlyOutput::default();
    cx.send_in(transcript, message::encode(HandshakeType::END_OF_EARLY_DATA, |_| ())?)
}
