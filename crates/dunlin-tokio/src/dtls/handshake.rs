//! The handshake, up to the finished [`DtlsAssociation`].

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::error::Misuse;
use dunlin::pki_types::CertificateDer;
use dunlin::wire::HandshakeType;
use dunlin::{
    Answer, ClientHelloInfo, Event, IdentifiedClient, MessageSize, Negotiated, QuestionId, ServerConfig, Side,
};

use super::association::{DtlsAssociation, OnPath, PathEvent, Reporter, ended};
use super::shared::Owned;
use crate::answers::Answers;
use crate::clock::now;
use crate::error::HandshakeError;
use crate::handshake::Options;
use crate::stream::HandshakeBytes;

/// Options of a DTLS handshake, for client and server.
#[derive(Clone, Default)]
pub struct DtlsOptions(Options, Option<Arc<OnPath>>);

impl DtlsOptions {
    /// The defaults: [`crate::DEFAULT_TIMEOUT`] and no answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a handshake may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Chooses the configuration for a client by its ClientHello, which is not authenticated. `None` refuses
    /// the client, and so does a reason ([`dunlin::error::PeerIncompatible`]) instead of `Ok(config)`, with
    /// its alert. The server's configuration must ask for the choice ([`ServerConfig::with_profile_choice`]).
    #[must_use]
    pub fn with_profiles<C: Into<Answer>>(
        mut self,
        choose: impl Fn(&ClientHelloInfo) -> C + Send + Sync + 'static,
    ) -> Self {
        self.0.profiles = Some(Arc::new(move |hello| choose(hello).into()));
        self
    }

    /// Chooses the configuration of every client that has an identity, for a server of
    /// [`dunlin::ServerProfiles`]. The profile that serves the client must have at least the rank of this
    /// one. `None` refuses the client. For an asynchronous choice, answer the question instead.
    #[must_use]
    pub fn with_client_profiles(
        mut self,
        choose: impl Fn(&IdentifiedClient) -> Option<Arc<ServerConfig>> + Send + Sync + 'static,
    ) -> Self {
        self.0.client_profiles = Some(Arc::new(choose));
        self
    }

    /// Sets the source of answers to questions that the configuration leaves open. Without answers, a
    /// question ends the handshake.
    #[must_use]
    pub fn with_answers(mut self, answers: impl Answers + 'static) -> Self {
        self.0.answers = Some(Arc::new(answers));
        self
    }

    /// Sets a function that is called with the certificate of a peer that the engine refuses. The error of
    /// the handshake says why. The peer has not proven that the certificate is its own.
    #[must_use]
    pub fn with_on_refused(mut self, f: impl Fn(&CertificateDer<'static>) + Send + Sync + 'static) -> Self {
        self.0.on_refused = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called for every sent or received handshake message, also after the handshake.
    #[must_use]
    pub fn with_on_message(mut self, f: impl Fn(&MessageSize) + Send + Sync + 'static) -> Self {
        self.0.on_message = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called when the association goes on over another path, or the system has no
    /// route to the server, as soon as the application receives.
    #[must_use]
    pub fn with_on_path(mut self, f: impl Fn(&PathEvent) + Send + Sync + 'static) -> Self {
        self.1 = Some(Arc::new(f));
        self
    }

    /// How long a handshake may take.
    pub(super) const fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(super) async fn handshake(&self, owned: Owned) -> Result<DtlsAssociation, HandshakeError> {
        let reporter = Reporter::new(self.0.on_message.clone(), self.1.clone());
        match tokio::time::timeout(self.0.timeout, self.run(&owned, &reporter)).await {
            Ok(Ok((negotiated, bytes))) => Ok(DtlsAssociation::new(owned, negotiated, bytes, reporter)),
            Ok(Err(e)) => Err(e),
            Err(_) => {
                // Messages that led to no event were not reported yet, such as a HelloRetryRequest.
                reporter.report(&owned);
                Err(late(&owned, self.0.timeout))
            }
        }
    }

    async fn run(
        &self,
        owned: &Owned,
        reporter: &Reporter,
    ) -> Result<(Negotiated, HandshakeBytes), HandshakeError> {
        loop {
            let step = poll_fn(|cx| poll_step(owned, cx)).await;
            reporter.report(owned);
            match step {
                Step::Event(event) => self.handle(owned, *event).await?,
                Step::Complete(negotiated, bytes) => return Ok((*negotiated, bytes)),
                Step::Failed(e) => return Err(e),
            }
        }
    }

    async fn handle(&self, owned: &Owned, event: Event) -> Result<(), dunlin::Error> {
        match (event, &self.0.answers) {
            (Event::Question(id, question), _) => {
                let answer = self.0.answer(question).await;
                give(owned, id, answer)
            }
            (Event::NewSession(name, session), Some(answers)) => {
                answers.keep_session(name, session).await;
                Ok(())
            }
            (Event::SessionUsed(name), Some(answers)) => {
                answers.forget_session(name).await;
                Ok(())
            }
            (Event::PeerRefused(certificate), _) => {
                self.0.refused(&certificate);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for DtlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsOptions").field("timeout", &self.0.timeout).finish_non_exhaustive()
    }
}

/// The error of a handshake whose time is over.
fn late(owned: &Owned, after: Duration) -> HandshakeError {
    let unconfirmed = owned.shared().read(|state| {
        let connection = state.endpoint.association(owned.id)?.connection();
        let records = connection.discarded().unauthenticated;
        let has_finished = |sent| {
            let mut messages = connection.messages().iter();
            messages.any(|message| message.sent == sent && message.typ == HandshakeType::FINISHED)
        };
        // RFC 6347 §4.2.4, Figure 1: the client's Finished goes first, but for resumption and DTLS 1.3.
        let is_unanswered = connection.side() == Side::Client && has_finished(true) && !has_finished(false);
        (records > 0 || is_unanswered).then_some(HandshakeError::Unconfirmed { after, records })
    });
    unconfirmed.unwrap_or(HandshakeError::Timeout(after))
}

/// The next step of a handshake: an event, or its end.
enum Step {
    Event(Box<Event>),
    Complete(Box<Negotiated>, HandshakeBytes),
    Failed(HandshakeError),
}

fn poll_step(owned: &Owned, cx: &Context<'_>) -> Poll<Step> {
    owned.shared().act(|state| {
        let gone = || Step::Failed(HandshakeError::Stopped);
        match state.endpoint.update(owned.id, |connection| connection.poll_event()) {
            Some(Some(event)) => return Poll::Ready(Step::Event(Box::new(event))),
            Some(None) => {}
            None => return Poll::Ready(gone()),
        }
        let Some(association) = state.endpoint.association(owned.id) else { return Poll::Ready(gone()) };
        let connection = association.connection();
        if let Some(reason) = association.ended() {
            return Poll::Ready(Step::Failed(HandshakeError::Io(ended(reason))));
        }
        if let Some(error) = connection.error() {
            return Poll::Ready(Step::Failed(error.clone().into()));
        }
        if !connection.is_handshaking()
            && let Some(negotiated) = connection.negotiated()
        {
            let negotiated = Box::new(negotiated.clone());
            // The bytes of the last flight count, too.
            state.flush();
            let Some(association) = state.endpoint.association(owned.id) else { return Poll::Ready(gone()) };
            let all = (association.bytes_received(), association.bytes_sent());
            // The socket may not take the last datagram at once.
            let (read, written) = association.handshake_bytes().unwrap_or(all);
            let bytes = HandshakeBytes { read, written };
            return Poll::Ready(Step::Complete(negotiated, bytes));
        }
        if state.is_refused(owned.peer, owned.id) {
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            return Poll::Ready(Step::Failed(HandshakeError::Io(refused)));
        }
        state.wait(owned.id, cx);
        Poll::Pending
    })
}

/// Passes an answer to the connection. Returns an error if the answer does not fit the question.
fn give(owned: &Owned, id: QuestionId, answer: Answer) -> Result<(), dunlin::Error> {
    let given = owned.shared().act(|state| {
        state.endpoint.update(owned.id, |connection| match connection.answer(now(), id, answer) {
            // The next step finds the error that ended the connection.
            Err(_) if connection.error().is_some() => Ok(()),
            // The question came from a port of the server that turned out to be another one's
            // (`dunlin::PortScheme::Ipc`).
            Err(dunlin::Error::Misuse(Misuse::NoSuchQuestion)) => Ok(()),
            // The application's answer does not fit the question, so the peer gets internal_error.
            Err(misfit) => {
                let _ = connection.answer(now(), id, Answer::Failed);
                Err(misfit)
            }
            Ok(()) => Ok(()),
        })
    });
    given.unwrap_or(Ok(()))
}
