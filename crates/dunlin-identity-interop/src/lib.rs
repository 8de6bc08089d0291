//! Parts of other implementations of decentralised identities, which no program of this project needs: tests and
//! examples interoperate with them.
//!
//! The public implementation of the paper has credentials of its own ([`LinksCredential`], [`LinksVerifier`]) and
//! DIDs on a ledger ([`ott`]), and numbers its messages in its own way ([`dunlin::SsiMessages::Links`]).
//! [`PEER`] is a further method whose DIDs contain their documents. A holder shows credentials outside a
//! handshake by a presentation ([`present`], [`verify_presentation`]).
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                     what they contain
//! 1    verifier                  | peers with credentials of the public implementation
//! 0    credential ott            | these credentials; DIDs on a ledger
//! 0    peer presentation         | `did:peer`; credentials outside a handshake
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

mod credential;
pub mod ott;
mod peer;
mod presentation;
mod verifier;

pub use credential::{LinksCredential, LinksError, LinksIssuer, MAX_LINKS_TEXT, VerifiedLinks, verify};
pub use peer::{PEER, Peer};
pub use presentation::{
    Audience, MAX_PRESENTATION, MAX_PRESENTED, PresentationError, present, verify_presentation,
};
pub use verifier::{LinksRefusal, LinksVerifier};
