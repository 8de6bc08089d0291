//! Answers to the questions of a handshake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dunlin::resume::Session;
use dunlin::{Answer, Question};

/// Answers the questions of handshakes, for example from a database of keys, a signer on another machine or a
/// policy.
///
/// Each call belongs to one handshake, which waits for it; other handshakes continue. The handshake's timeout
/// includes the time for answers. Implementations can write their functions as `async fn`.
pub trait Answers: Send + Sync {
    /// Returns the answer to `question`, of the kind that the question names. After [`Answer::Failed`] the
    /// handshake fails with internal_error. If the question was about early data, the handshake continues
    /// without early data.
    fn answer(&self, question: Question) -> impl Future<Output = Answer> + Send;

    /// Keeps `session` under this name ([`dunlin::resume::Tickets::ask`]). The server sends the ticket
    /// afterwards.
    ///
    /// By default the session is dropped, and the client's next handshake is full.
    fn keep_session(&self, name: Vec<u8>, session: Session) -> impl Future<Output = ()> + Send {
        drop((name, session));
        async {}
    }

    /// Forgets the session under this name, because it was resumed ([`dunlin::resume::Tickets::ask`]). This
    /// function is not called when a fatal alert ends a connection after its handshake. If that must end its
    /// sessions, use a store with [`dunlin::resume::Tickets::stateful`].
    ///
    /// By default nothing happens. That is correct only if [`Answers::answer`] returns every session at most
    /// once.
    fn forget_session(&self, name: Vec<u8>) -> impl Future<Output = ()> + Send {
        drop(name);
        async {}
    }
}

impl<A: Answers> Answers for Arc<A> {
    fn answer(&self, question: Question) -> impl Future<Output = Answer> + Send {
        A::answer(self, question)
    }

    fn keep_session(&self, name: Vec<u8>, session: Session) -> impl Future<Output = ()> + Send {
        A::keep_session(self, name, session)
    }

    fn forget_session(&self, name: Vec<u8>) -> impl Future<Output = ()> + Send {
        A::forget_session(self, name)
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The dyn-compatible form of [`Answers`].
pub(crate) trait DynAnswers: Send + Sync {
    fn answer(&self, question: Question) -> Boxed<'_, Answer>;
    fn keep_session(&self, name: Vec<u8>, session: Session) -> Boxed<'_, ()>;
    fn forget_session(&self, name: Vec<u8>) -> Boxed<'_, ()>;
}

impl<A: Answers> DynAnswers for A {
    fn answer(&self, question: Question) -> Boxed<'_, Answer> {
        Box::pin(Answers::answer(self, question))
    }

    fn keep_session(&self, name: Vec<u8>, session: Session) -> Boxed<'_, ()> {
        Box::pin(Answers::keep_session(self, name, session))
    }

    fn forget_session(&self, name: Vec<u8>) -> Boxed<'_, ()> {
        Box::pin(Answers::forget_session(self, name))
    }
}
