//! Answers to what a handshake has to ask.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dunlin::resume::Session;
use dunlin::{Answer, Question};

/// Who answers the questions of handshakes: a database of keys, a signer on another machine, a policy.
///
/// Each call belongs to one handshake, which waits for it; others go on. The time until the handshake is given up
/// includes the answers. Implementations can write their functions as `async fn`.
pub trait Answers: Send + Sync {
    /// The answer to `question`, of the kind that the question names. [`Answer::Failed`] ends the handshake with
    /// internal_error, or lets it go on without early data if the question was for that.
    fn answer(&self, question: Question) -> impl Future<Output = Answer> + Send;

    /// Keeps `session` under this name ([`dunlin::resume::Tickets::ask`]). The client hears of it afterwards.
    ///
    /// By default it is forgotten: the next handshake is a full one.
    fn keep_session(&self, name: Vec<u8>, session: Session) -> impl Future<Output = ()> + Send {
        drop((name, session));
        async {}
    }

    /// Forgets the session under this name, which was resumed ([`dunlin::resume::Tickets::ask`]). It is not called when a fatal
    /// alert ends a connection after its handshake: where that must end its sessions, give a store to
    /// [`dunlin::resume::Tickets::stateful`].
    ///
    /// By default nothing happens, which is right only where [`Answers::answer`] gives every session out once.
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

/// [`Answers`] of a type that is not named.
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
