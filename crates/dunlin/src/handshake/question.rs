//! What a handshake cannot know by itself, asked of the caller and answered whenever the answer is there.
//!
//! A configuration that carries what is asked for ([`crate::auth::PrivateKey::Here`], a
//! [`crate::auth::PskTable`], trust anchors) is never asked; so simple users see no question.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName};

use crate::auth::Psk;
use crate::error::AuthenticationFailure;
use crate::handshake::setup::ServerConfig;
use crate::protocol::Side;
use crate::resume::Session;
use crate::wire::{CertificateType, CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// Names one question of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub(crate) u64);

/// A question. This handshake waits for [`crate::Connection::answer`]; others go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Question {
    /// Which configuration for this client? Nothing in the hello is authenticated yet.
    /// Answer: [`Answer::Profile`].
    ChooseProfile(ClientHelloInfo),
    /// The external PSK with this identity, if it is valid now? It is asked for the key of a new connection, and for
    /// the key that a session stems from when that is resumed. Answer: [`Answer::Psk`].
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dunlin::auth::Psk;
    /// use dunlin::{Answer, Error, Event, Now, PskSource, Question, ServerConfig, TlsConnection};
    ///
    /// // The configuration has `with_psks(PskSource::Ask)`. Whoever waits for `look_up` blocks no other connection.
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
        /// The identity, from an unauthenticated peer.
        identity: Vec<u8>,
    },
    /// Which key for the server of TLS 1.2 that gave this hint? ([`crate::PskChoice::Ask`]) Answer: [`Answer::Psk`]; without a
    /// key the handshake ends.
    ChoosePsk {
        /// What the server says for the choice; empty if nothing. Nobody has proven it.
        hint: Vec<u8>,
    },
    /// The session with this name? [`crate::Event::SessionUsed`] tells when to forget it; TLS 1.2 resumes a session until it
    /// expires or a fatal alert ends one of its connections.
    /// Answer: [`Answer::Session`].
    FindSession {
        /// The name, from an unauthenticated peer.
        id: Vec<u8>,
    },
    /// Does early data come with the ticket called `id` for the first time? What
    /// [`crate::resume::UseOnce::first_use`] demands holds here: the ticket is to be remembered whatever the answer is, and
    /// whoever could not (and says so with [`Answer::Failed`]) gives no [`Answer::FirstUse`] of `true` to anybody until
    /// `until_ms` is over. Answer: [`Answer::FirstUse`].
    FirstUse {
        /// The name of the ticket; the client has proven that it has the ticket's secret.
        id: [u8; 32],
        /// Until when it is to be remembered, in milliseconds since 1970: as long as this first flight can be fresh.
        until_ms: u64,
    },
    /// Is this peer to be believed? Answer: [`Answer::Verified`].
    Verify {
        /// The chain, leaf first, or one raw public key (SubjectPublicKeyInfo).
        certificates: Vec<CertificateDer<'static>>,
        /// Which of the two it is.
        certificate_type: CertificateType,
        /// The role of the peer.
        peer: Side,
        /// The name that a server's certificate must be for.
        name: Option<ServerName<'static>>,
        /// The OCSP response in DER that came with the first certificate. Nobody has looked at it.
        ocsp_response: Option<Vec<u8>>,
    },
    /// A signature by the key called `label`. Answer: [`Answer::Signature`].
    Sign {
        /// The key, as the credential calls it.
        label: String,
        /// How to sign.
        scheme: SignatureScheme,
        /// What to sign; not hashed yet.
        message: Vec<u8>,
    },
}

/// The answer to a question.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The configuration for this client; `None` refuses it with access_denied.
    Profile(Option<Arc<ServerConfig>>),
    /// The key; `None` if there is none.
    Psk(Option<Arc<Psk>>),
    /// The session; `None` if there is none.
    Session(Option<Box<Session>>),
    /// Whether the ticket comes for the first time; if not, the handshake goes on without early data.
    FirstUse(bool),
    /// Whether the peer is believed.
    Verified(Result<(), AuthenticationFailure>),
    /// The signature.
    Signature(Vec<u8>),
    /// Who should know could not be reached: the handshake ends with internal_error, or goes on without early data
    /// if this is all that was asked for.
    Failed,
}

/// Which answer fits which question.
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
            Self::ChooseProfile(_) => Kind::Profile,
            Self::FindPsk { .. } | Self::ChoosePsk { .. } => Kind::Psk,
            Self::FindSession { .. } => Kind::Session,
            Self::FirstUse { .. } => Kind::FirstUse,
            Self::Verify { .. } => Kind::Verified,
            Self::Sign { .. } => Kind::Signature,
        }
    }
}

impl Answer {
    /// The kind of question that it answers; `None` fits every one.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Profile(_) => Some(Kind::Profile),
            Self::Psk(_) => Some(Kind::Psk),
            Self::Session(_) => Some(Kind::Session),
            Self::FirstUse(_) => Some(Kind::FirstUse),
            Self::Verified(_) => Some(Kind::Verified),
            Self::Signature(_) => Some(Kind::Signature),
            Self::Failed => None,
        }
    }
}

/// What a ClientHello says about its sender: hints, as long as nothing is proven.
#[derive(Clone, Debug, Default)]
pub struct ClientHelloInfo {
    /// server_name
    pub server_name: Option<String>,
    /// ALPN protocols, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Versions offered.
    pub versions: Vec<ProtocolVersion>,
    /// Cipher suites offered, in order of preference.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups offered, in order of preference.
    pub groups: Vec<NamedGroup>,
    /// Signature schemes that the client verifies, in order of preference.
    pub signature_schemes: Vec<SignatureScheme>,
    /// Types of certificate that the client can send.
    pub client_certificate_types: Vec<CertificateType>,
    /// Identities of PSKs and tickets offered.
    pub psk_identities: Vec<Vec<u8>>,
}
