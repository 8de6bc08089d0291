//! The life of a gateway or tunnel, from its start to its end.

use tokio::sync::watch;

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

    /// Begins to drain: the program accepts no connections, and those that it has may end.
    pub(crate) fn drain(&self) {
        self.phase.send_if_modified(|phase| {
            let is_news = *phase < Phase::Draining;
            *phase = (*phase).max(Phase::Draining);
            is_news
        });
    }

    /// Waits until the ordinary tasks have ended. Freezable tasks go on as long as any of these does.
    pub(crate) async fn drained(&self) {
        self.ended(|tasks| tasks.ordinary == 0).await;
    }

    /// Ends all connections at once.
    pub(crate) fn end(&self) {
        self.phase.send_replace(Phase::Ending);
    }

    /// Whether no task is left.
    pub(crate) fn is_over(&self) -> bool {
        let tasks = *self.tasks.borrow();
        tasks.ordinary == 0 && tasks.freezable == 0
    }

    /// Waits until no task is left.
    pub(crate) async fn over(&self) {
        self.ended(|tasks| tasks.ordinary == 0 && tasks.freezable == 0).await;
    }

    /// Waits until the listeners have frozen their connections.
    pub(crate) async fn frozen(&self) {
        self.ended(|tasks| tasks.freezable == 0).await;
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
