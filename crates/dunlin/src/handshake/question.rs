//! Questions that a handshake asks the caller, and the caller's answers. The caller may answer at any later
//! time.
//!
//! The engine asks only for what the configuration lacks. With keys in memory
//! ([`crate::auth::PrivateKey::Here`]), a [`crate::auth::PskTable`] and trust anchors, the caller sees no
//! question.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm};

use crate::auth::{Acceptance, PeerIdentity, Psk, Validity};
use crate::error::{AuthenticationFailure, Error, Misuse, PeerIncompatible};
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::setup::ServerConfig;
use crate::protocol::Side;
use crate::resume::Session;
use crate::wire::{CertificateType, SignatureScheme};

/// Identifies one question of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub(crate) u64);

/// A question to the caller. Only this handshake waits for [`crate::Connection::answer`]; other connections
/// continue.
#[derive(Debug)]
#[non_exhaustive]
pub enum Question {
    /// Which configuration should serve this client? Nothing in the ClientHello is authenticated yet.
    /// Answer: [`Answer::Profile`].
    ChooseProfile(ClientHelloInfo),
    /// Which configuration belongs to this client? A server of [`crate::ServerProfiles`] asks it in every
    /// handshake with an authenticated client. After a full handshake of TLS 1.2, the server renegotiates
    /// once to another profile, if it can. Otherwise a profile in use that has a lower rank than the profile
    /// in the answer ends the handshake with access_denied. Before a resumption, such a session is not
    /// resumed instead. Answer: [`Answer::Profile`].
    ProfileOf(Box<IdentifiedClient>),
    /// Which external PSK has this identity, if it is valid now? The engine asks this for a new connection.
    /// It asks it again on resumption, for the key from which the session stems. Answer: [`Answer::Psk`].
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dunlin::auth::Psk;
    /// use dunlin::{Answer, Error, Event, Now, PskSource, Question, ServerConfig, TlsConnection};
    ///
    /// // The configuration has `with_psks(PskSource::Ask)`. Waiting for `look_up` blocks no other
    /// // connection.
    /// async fn answer_all(
    ///     connection: &mut TlsConnection,
    ///     now: Now,
    ///     look_up: impl AsyncFn(&[u8]) -> Option<[u8; 32]>,
    /// ) -> Result<(), Error> {
    ///     while let Some(event) = connection.poll_event() {
    ///         if let Event::Question(id, Question::FindPsk { identity }) = event {
    ///             let key = look_up(&identity).await;
    ///             let psk = key.map(|key| Psk::new(identity, &key)).transpose()?;
    ///             connection.answer(now, id, Answer::Psk(psk.map(Arc::new)))?;
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    FindPsk {
        /// The identity. The peer is not authenticated yet.
        identity: Vec<u8>,
    },
    /// Which key fits the hint of this TLS 1.2 server ([`crate::PskChoice::Ask`])? Answer: [`Answer::Psk`].
    /// Without a key the handshake fails.
    ChoosePsk {
        /// The server's psk_identity_hint, empty if it sent none. The server is not authenticated yet.
        hint: Vec<u8>,
    },
    /// Which session has this name? The caller keeps it until [`crate::Event::SessionUsed`]. TLS 1.2 can
    /// resume a session until it expires or a fatal alert ends one of its connections. Answer:
    /// [`Answer::Session`].
    FindSession {
        /// The name. The peer is not authenticated yet.
        id: Vec<u8>,
    },
    /// Is this the first use of the ticket called `id`? The rules of [`crate::resume::UseOnce::first_use`]
    /// apply. The caller records the ticket whatever it answers. If it cannot record it, it answers
    /// [`Answer::Failed`], and answers no question with `Answer::FirstUse(true)` until `until_ms`. Answer:
    /// [`Answer::FirstUse`].
    FirstUse {
        /// The name of the ticket. The client has proven that it has the ticket's secret.
        id: [u8; 32],
        /// The time until which the caller must remember it, in milliseconds since 1970. After it, this first
        /// flight is no longer fresh.
        until_ms: u64,
    },
    /// Does the caller trust this peer? Answer: [`Answer::Verified`].
    Verify {
        /// The chain, leaf first, or one raw public key (SubjectPublicKeyInfo), or one credential or
        /// identifier, or the entries of another certificate type.
        certificates: Vec<CertificateDer<'static>>,
        /// The type, which tells what `certificates` is.
        certificate_type: CertificateType,
        /// The role of the peer.
        peer: Side,
        /// The name that a server's certificate must be for.
        name: Option<ServerName<'static>>,
        /// The OCSP response in DER that came with the first certificate. The engine has not checked it.
        ocsp_response: Option<Vec<u8>>,
        /// The proof of what the peer's decentralised identifier resolves to, if the peer has sent it. The
        /// engine has not checked it.
        did_proof: Option<Vec<u8>>,
        /// The status lists of the issuer of the peer's verifiable credential, if the peer has sent them. The
        /// engine has not checked them.
        credential_status: Option<Vec<u8>>,
        /// The algorithms that may verify signatures in certificates and credentials. The profile determines
        /// them.
        algorithms: Vec<&'static dyn SignatureVerificationAlgorithm>,
    },
    /// What is the signature by the key called `label`? Answer: [`Answer::Signature`].
    Sign {
        /// The label of the key in the credential.
        label: String,
        /// The signature scheme.
        scheme: SignatureScheme,
        /// The message to sign, not hashed yet.
        message: Vec<u8>,
    },
}

/// The answer to a question.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The configuration for this client. `None` refuses the client with access_denied.
    Profile(Option<Arc<ServerConfig>>),
    /// Refuses the client as `Profile(None)` does, for this reason and with its alert:
    /// no_application_protocol for [`PeerIncompatible::ApplicationProtocol`] (RFC 7301 §3.2),
    /// unrecognized_name for [`PeerIncompatible::ServerName`] (RFC 6066 §3), missing_extension for
    /// [`PeerIncompatible::NoServerName`] (RFC 8446 §9.2).
    Refused(PeerIncompatible),
    /// The key. `None` if there is none.
    Psk(Option<Arc<Psk>>),
    /// The session. `None` if there is none.
    Session(Option<Box<Session>>),
    /// Whether this is the ticket's first use. If not, the handshake continues without early data.
    FirstUse(bool),
    /// Whether the caller trusts the peer, and for how long.
    Verified(Result<Acceptance, AuthenticationFailure>),
    /// The signature.
    Signature(Vec<u8>),
    /// The caller could not find the answer. The handshake fails with internal_error. After
    /// [`Question::FirstUse`] it continues without early data.
    Failed,
}

/// The kind of a question and of the answer that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Profile,
    Psk,
    Session,
    FirstUse,
    Verified,
    Signature,
}

impl Question {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::ChooseProfile(_) | Self::ProfileOf(_) => Kind::Profile,
            Self::FindPsk { .. } | Self::ChoosePsk { .. } => Kind::Psk,
            Self::FindSession { .. } => Kind::Session,
            Self::FirstUse { .. } => Kind::FirstUse,
            Self::Verify { .. } => Kind::Verified,
            Self::Sign { .. } => Kind::Signature,
        }
    }
}

impl Answer {
    /// The kind of question that it answers. `None` fits every question.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Profile(_) | Self::Refused(_) => Some(Kind::Profile),
            Self::Psk(_) => Some(Kind::Psk),
            Self::Session(_) => Some(Kind::Session),
            Self::FirstUse(_) => Some(Kind::FirstUse),
            Self::Verified(_) => Some(Kind::Verified),
            Self::Signature(_) => Some(Kind::Signature),
            Self::Failed => None,
        }
    }

    /// The configuration of an answer to a question for a profile.
    ///
    /// # Errors
    /// The reason for which the answer refuses the client, or it answers another question.
    pub(crate) fn into_profile(self) -> Result<Arc<ServerConfig>, Error> {
        match self {
            Self::Profile(config) => Ok(config.ok_or(PeerIncompatible::Refused)?),
            Self::Refused(why) => Err(why.into()),
            _ => Err(Misuse::WrongAnswer.into()),
        }
    }
}

impl From<Option<Arc<ServerConfig>>> for Answer {
    fn from(config: Option<Arc<ServerConfig>>) -> Self {
        Self::Profile(config)
    }
}

impl From<Result<Arc<ServerConfig>, PeerIncompatible>> for Answer {
    fn from(chosen: Result<Arc<ServerConfig>, PeerIncompatible>) -> Self {
        chosen.map_or_else(Self::Refused, |config| Self::Profile(Some(config)))
    }
}

/// A client whose identity is known, for the choice of its profile ([`Question::ProfileOf`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IdentifiedClient {
    /// The identity.
    pub identity: PeerIdentity,
    /// The time span in which this side's verdict on the client's certificate holds. `None` without a limit.
    pub validity: Option<Validity>,
    /// The name of the profile that the handshake uses.
    pub profile: String,
    /// Whether the client has proven its identity in this handshake, up to Finished. Before a resumption it
    /// is only the identity of the session that the client has named.
    pub is_proven: bool,
}
