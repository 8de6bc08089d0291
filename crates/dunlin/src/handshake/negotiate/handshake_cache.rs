//! `handshake_cache` and `cached_info` (docs/handshake-cache.md). `client/cache.rs` and `server/cache.rs`
//! decide what to offer and what to accept; a program without a cache does not link them.

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::Error;
use crate::extension::ExtensionsWriter;
use crate::extension::{cached_info, handshake_cache};
use crate::handshake::Cx;
use crate::handshake::cached::client::Cache;
use crate::handshake::hints::{CacheNames, ClientHelloInfo};
use crate::message::ClientHello;
use alloc::boxed::Box;

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if let Cache::Offered(cache) = &offer.terms.cache {
        cache.extensions(&mut hello.extensions);
    }
}

pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    if let Cache::Offered(offer) = core::mem::take(&mut terms.cache) {
        let agreed = offer.answered(answers.extensions, answers.cache)?;
        cx.draft.cache = answers.cache.outcome(agreed.is_some());
        terms.cache = agreed.map_or(Cache::None, Cache::Agreed);
    }
    Ok(())
}

/// The names alone, without a look-up.
pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    let offer = hello.extensions().get::<handshake_cache::Offer>()?;
    let cached = hello.extensions().get::<cached_info::Offer>()?;
    if offer.is_some() || cached.is_some() {
        let mut names = CacheNames::default();
        if let Some(offer) = offer {
            names.certificates.extend(offer.certificate.map(|name| name.to_vec()));
            names.tickets = offer.tickets;
        }
        if let Some(cached) = cached {
            names.certificates.extend(cached.of_type(cached_info::CERT).map(<[u8]>::to_vec));
        }
        info.cache = Some(Box::new(names));
    }
    Ok(())
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if let Some(cache) = chosen.cache {
        cache.extensions(w);
    }
    Ok(())
}
