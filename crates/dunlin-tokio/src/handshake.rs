//! The handshake, up to the finished [`TlsStream`].

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin::pki_types::CertificateDer;
use dunlin::{
    Answer, ClientHelloInfo, EarlyDataOutcome, Event, IdentifiedClient, Question, QuestionId, ServerConfig,
    Side,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answers::DynAnswers;
use crate::clock::now;
use crate::error::HandshakeError;
use crate::stream::{OnLinger, OnMessage, Task, TlsStream};

/// How long a handshake may take by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type ChooseProfile = dyn Fn(&ClientHelloInfo) -> Answer + Send + Sync;
pub(crate) type ProfileOf = dyn Fn(&IdentifiedClient) -> Option<Arc<ServerConfig>> + Send + Sync;
/// Called with the certificate of a peer that the engine refuses.
pub(crate) type OnRefused = dyn Fn(&CertificateDer<'static>) + Send + Sync;

/// The options that connectors and acceptors share.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) timeout: Duration,
    pub(crate) answers: Option<Arc<dyn DynAnswers>>,
    pub(crate) profiles: Option<Arc<ChooseProfile>>,
    pub(crate) client_profiles: Option<Arc<ProfileOf>>,
    pub(crate) on_linger: Option<Arc<OnLinger>>,
    pub(crate) on_message: Option<Arc<OnMessage>>,
    pub(crate) on_refused: Option<Arc<OnRefused>>,
    pub(crate) hold_finished: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: DEFAULT_TIMEOUT,
            answers: None,
            profiles: None,
            client_profiles: None,
            on_linger: None,
            on_message: None,
            on_refused: None,
            hold_finished: false,
        }
    }
}

impl Options {
    pub(crate) async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: TlsStream<IO>,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        self.handshake_with(stream, &[]).await.map(|(stream, _)| stream)
    }

    /// Does the handshake with this early data. Returns how many bytes of it the server accepted.
    pub(crate) async fn handshake_with<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: TlsStream<IO>,
        early_data: &[u8],
    ) -> Result<(TlsStream<IO>, usize), HandshakeError> {
        match tokio::time::timeout(self.timeout, self.run(&mut stream, early_data)).await {
            Ok(result) => result.map(|taken| (stream, taken)),
            Err(_) => Err(self.late(&stream)),
        }
    }

    /// Does the same as [`Options::handshake`]. If `stop` is ready first, sends close_notify and aborts. If
    /// the handshake has already failed, returns its error.
    pub(crate) async fn handshake_until<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: TlsStream<IO>,
        stop: impl Future<Output = ()>,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let shaken = {
            let mut run = pin!(tokio::time::timeout(self.timeout, self.run(&mut stream, &[])));
            let mut stop = pin!(stop);
            poll_fn(|cx| match run.as_mut().poll(cx) {
                Poll::Ready(shaken) => Poll::Ready(Some(shaken)),
                Poll::Pending => stop.as_mut().poll(cx).map(|()| None),
            })
            .await
        };
        match shaken {
            Some(Ok(Err(HandshakeError::Io(error)))) if stream.bytes_read == 0 => {
                Err(HandshakeError::Probe(error))
            }
            Some(Ok(result)) => result.map(|_| stream),
            Some(Err(_)) => Err(self.late(&stream)),
            // The handshake has failed and waits for its peer to close.
            None if stream.connection.error().is_some() => Err(self.late(&stream)),
            None => {
                // RFC 8446 §6.1: close_notify ends the connection. Do not wait for a peer that does not read
                // it.
                stream.connection.close();
                let _ = poll_fn(|cx| Poll::Ready(stream.poll_drain(cx, Task::Writer))).await;
                Err(HandshakeError::Stopped)
            }
        }
    }

    /// The error when the timeout is reached. If the handshake failed earlier and only the alert waits for a
    /// slow peer, returns the original error.
    fn late<IO>(&self, stream: &TlsStream<IO>) -> HandshakeError {
        match stream.connection.error() {
            Some(error) => failure(error.clone()),
            None => HandshakeError::Timeout(self.timeout),
        }
    }

    async fn run<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut TlsStream<IO>,
        early_data: &[u8],
    ) -> Result<usize, HandshakeError> {
        let mut early = 0;
        loop {
            stream.report();
            while let Some(event) = stream.connection.poll_event() {
                let handled = self.handle(stream, event).await;
                stream.report();
                if let Err(misfit) = handled {
                    return Err(fail(stream, misfit).await);
                }
            }
            if let Some(error) = stream.connection.error().cloned() {
                return Err(fail(stream, error).await);
            }
            if !stream.connection.is_handshaking() {
                break;
            }
            if let Some(mut sending) = stream.connection.early_data()
                && let Some(rest) = early_data.get(early..).filter(|rest| !rest.is_empty())
            {
                early += sending.send(rest)?;
            }
            poll_fn(|cx| stream.poll_handshake(cx)).await.map_err(HandshakeError::Io)?;
        }
        let taken = match stream.negotiated().early_data {
            EarlyDataOutcome::Accepted => early,
            EarlyDataOutcome::NotOffered(_) | EarlyDataOutcome::Rejected(_) => 0,
        };
        stream.note_handshake();
        match stream.connection.side() {
            // The server waits for the client's Finished.
            Side::Client if !self.hold_finished => {
                poll_fn(|cx| stream.poll_drain(cx, Task::Writer)).await.map_err(HandshakeError::Io)?;
                Ok(taken)
            }
            Side::Client => Ok(taken),
            Side::Server => {
                // Tickets that the transport does not accept now follow with the next read or write. The
                // client does not wait for them.
                let _ = poll_fn(|cx| Poll::Ready(stream.poll_drain(cx, Task::Writer))).await;
                Ok(0)
            }
        }
    }

    async fn handle<IO>(&self, stream: &mut TlsStream<IO>, event: Event) -> Result<(), dunlin::Error> {
        match (event, &self.answers) {
            (Event::Question(id, question), _) => {
                let answer = self.answer(question).await;
                give(stream, id, answer)
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
                self.refused(&certificate);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn refused(&self, certificate: &CertificateDer<'static>) {
        if let Some(on_refused) = &self.on_refused {
            on_refused(certificate);
        }
    }

    pub(crate) async fn answer(&self, question: Question) -> Answer {
        match (&question, &self.profiles, &self.client_profiles, &self.answers) {
            (Question::ChooseProfile(hello), Some(profiles), ..) => profiles(hello),
            (Question::ProfileOf(client), _, Some(profiles), _) => Answer::Profile(profiles(client)),
            (.., Some(answers)) => answers.answer(question).await,
            (.., None) => Answer::Failed,
        }
    }
}

/// Passes an answer to the connection. Returns an error if the answer does not fit the question.
fn give<IO>(stream: &mut TlsStream<IO>, id: QuestionId, answer: Answer) -> Result<(), dunlin::Error> {
    match stream.connection.answer(now(), id, answer) {
        // The caller checks for the error that ended the connection.
        Err(_) if stream.connection.error().is_some() => Ok(()),
        // The application's answer does not fit the question, so the peer gets internal_error.
        Err(misfit) => {
            let _ = stream.connection.answer(now(), id, Answer::Failed);
            Err(misfit)
        }
        Ok(()) => Ok(()),
    }
}

/// Sends the alert, as far as the peer accepts it, and returns the error.
async fn fail<IO: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut TlsStream<IO>,
    error: dunlin::Error,
) -> HandshakeError {
    poll_fn(|cx| stream.poll_end(cx, Task::Writer)).await;
    failure(error)
}

fn failure(error: dunlin::Error) -> HandshakeError {
    match error {
        // No data can be truncated during the handshake.
        dunlin::Error::Truncated => HandshakeError::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the peer ended the connection without saying why",
        )),
        error => HandshakeError::Tls(error),
    }
}
