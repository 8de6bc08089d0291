//! Whether a registry answers the program's own watches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long the program's own watches have had no answer when the registry counts as silent.
pub const SILENT_TIME: Duration = Duration::from_secs(60);

/// The last answer of a registry to any watch. A program has several watches of one registry, for example one
/// for each listener, and during a reload those of both configurations. A question that stays without an
/// answer changes nothing that another watch has heard.
#[derive(Debug, Default)]
pub(super) struct Answers {
    state: Mutex<State>,
    is_silent: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    watches: usize,
    /// The last answer, or the beginning of the first watch.
    last: Option<Instant>,
}

impl Answers {
    /// Whether the registry counts as silent.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the registry counts as silent. Returns whether that is news. The lock orders the news of
    /// several watches.
    fn set(&self, _: &MutexGuard<'_, State>, is_silent: bool) -> bool {
        self.is_silent.swap(is_silent, Ordering::Relaxed) != is_silent
    }

    pub(super) fn begin(&self, now: Instant) {
        let mut state = self.state();
        state.watches += 1;
        state.last.get_or_insert(now);
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.watches -= 1;
        if state.watches == 0 {
            // Without a watch, nothing says that the registry is silent.
            state.last = None;
            self.set(&state, false);
        }
    }

    pub(super) fn answered(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.last = state.last.max(Some(now));
        self.set(&state, false)
    }

    pub(super) fn unanswered(&self, now: Instant) -> bool {
        let state = self.state();
        let is_silent = state.last.is_some_and(|last| now.duration_since(last) >= SILENT_TIME);
        is_silent && self.set(&state, true)
    }
}
