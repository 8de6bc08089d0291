//! The life of a gateway or tunnel, from its start to its end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The phases of a gateway or tunnel, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It accepts connections.
    Running,
    /// It accepts no connections, aborts handshakes, and lets established connections end.
    Draining,
    /// It ends all connections.
    Ending,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

/// The tasks that have not ended.
#[derive(Clone, Copy, Debug, Default)]
struct Tasks {
    /// Tasks that may end by themselves while the program drains.
    ordinary: usize,
    /// Tasks that go on until the program ends all connections, and freezes theirs.
    freezable: usize,
}

impl Tasks {
    const fn of(&mut self, is_freezable: bool) -> &mut usize {
        if is_freezable { &mut self.freezable } else { &mut self.ordinary }
    }
}

/// A task of the program, counted until the value is dropped.
pub(crate) struct Alive {
    tasks: watch::Sender<Tasks>,
    is_freezable: bool,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.tasks.send_modify(|tasks| {
            let count = tasks.of(self.is_freezable);
            *count = count.saturating_sub(1);
        });
    }
}

/// The phase of a program, and its tasks: listeners and connections.
pub(crate) struct Life {
    phase: watch::Sender<Phase>,
    tasks: watch::Sender<Tasks>,
}

impl Default for Life {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Running), tasks: watch::Sender::new(Tasks::default()) }
    }
}

impl Life {
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The phase, and each later one. A task that has them does not keep the program alive.
    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Waits until the program has reached `phase`.
    pub(crate) async fn reached(&self, phase: Phase) {
        reached(&self.phases(), phase).await;
    }

    /// Counts a task. If it is freezable, a program that drains does not wait for its end.
    pub(crate) fn alive(&self, is_freezable: bool) -> Alive {
        self.tasks.send_modify(|tasks| *tasks.of(is_freezable) += 1);
        Alive { tasks: self.tasks.clone(), is_freezable }
    }

    /// Begins to drain, and waits at most for `patience` until the ordinary tasks have ended. Returns whether
    /// no task is left.
    pub(crate) async fn drain(&self, patience: Duration) -> bool {
        self.phase.send_if_modified(|phase| {
            let is_news = *phase < Phase::Draining;
            *phase = (*phase).max(Phase::Draining);
            is_news
        });
        // Freezable tasks go on as long as any ordinary task does.
        let _ = timeout(patience, self.ended(|tasks| tasks.ordinary == 0)).await;
        let tasks = *self.tasks.borrow();
        tasks.ordinary == 0 && tasks.freezable == 0
    }

    /// Ends all connections at once, and waits at most for `patience` until their tasks have ended, then for
    /// `freezing` until listeners have frozen theirs.
    pub(crate) async fn end(&self, patience: Duration, freezing: Duration) {
        self.phase.send_replace(Phase::Ending);
        let is_over = |tasks: &Tasks| tasks.ordinary == 0 && tasks.freezable == 0;
        if timeout(patience, self.ended(is_over)).await.is_err() {
            let _ = timeout(freezing, self.ended(|tasks| tasks.freezable == 0)).await;
        }
    }

    /// Waits until `is_enough` is true for the tasks that have not ended.
    async fn ended(&self, is_enough: impl FnMut(&Tasks) -> bool) {
        // It fails only if the sender is gone, which is part of this.
        let _ = self.tasks.subscribe().wait_for(is_enough).await;
    }
}

/// Waits until the program has reached `phase`.
pub(crate) async fn reached(phases: &watch::Receiver<Phase>, phase: Phase) {
    // It fails only if the program is gone, which is later than every phase.
    let _ = phases.clone().wait_for(|now| *now >= phase).await;
}
