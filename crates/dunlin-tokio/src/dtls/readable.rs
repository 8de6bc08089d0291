//! Which of many sockets can be read. A pool of ports has thousands, so a wake-up asks only those that have
//! woken the task.

use std::future::poll_fn;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Something that can be read at times.
pub(super) trait Source {
    /// Whether it can be read; otherwise registers the task of `cx`.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The sockets that may be readable, and the others, which wake the task.
pub(super) struct Readable<S> {
    sources: Arc<[Arc<S>]>,
    wakers: Vec<Arc<Bell>>,
    woken: Arc<Woken>,
}

/// The sockets that have woken the task since it has last looked.
#[derive(Default)]
struct Woken {
    places: Mutex<Vec<usize>>,
    task: Mutex<Option<Waker>>,
}

/// The waker of one socket.
struct Bell {
    place: usize,
    has_rung: AtomicBool,
    woken: Arc<Woken>,
}

impl Bell {
    fn note(&self) {
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            self.woken.places.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.note();
        let task = self.woken.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        task.into_iter().for_each(Waker::wake);
    }
}

impl<S: Source> Readable<S> {
    /// All of these sockets may be readable.
    pub(super) fn new(sources: Arc<[Arc<S>]>) -> Self {
        let woken = Arc::<Woken>::default();
        let bell = |place| Arc::new(Bell { place, has_rung: AtomicBool::new(false), woken: woken.clone() });
        let wakers: Vec<_> = (0..sources.len()).map(bell).collect();
        wakers.iter().for_each(|bell| bell.note());
        Self { sources, wakers, woken }
    }

    /// Whether these are the sockets.
    pub(super) fn has(&self, sources: &Arc<[Arc<S>]>) -> bool {
        Arc::ptr_eq(&self.sources, sources)
    }

    /// Waits until sockets can be read, and returns them. The next call asks them again. The caller can drop
    /// the future without loss.
    pub(super) async fn ready(&mut self) -> Vec<Arc<S>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Vec<Arc<S>>> {
        // First, so that no socket wakes an earlier task.
        *self.woken.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        let places = take(&mut *self.woken.places.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ready = Vec::new();
        for place in places {
            let (Some(source), Some(bell)) = (self.sources.get(place), self.wakers.get(place)) else {
                continue;
            };
            bell.has_rung.store(false, Ordering::Release);
            let waker = Waker::from(bell.clone());
            if source.poll_readable(&mut Context::from_waker(&waker)).is_ready() {
                // It is readable until a read says otherwise.
                bell.note();
                ready.push(source.clone());
            }
        }
        if ready.is_empty() { Poll::Pending } else { Poll::Ready(ready) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A socket that counts how often it was asked.
    #[derive(Default)]
    struct Counted {
        number: usize,
        asked: AtomicUsize,
        is_readable: AtomicBool,
        waker: Mutex<Option<Waker>>,
    }

    impl Source for Counted {
        fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_readable.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn asks_only_the_sockets_that_have_woken_the_task() {
        let sources: Arc<[_]> =
            (0..1000).map(|number| Arc::new(Counted { number, ..Counted::default() })).collect();
        let asked = || sources.iter().map(|source| source.asked.load(Ordering::Relaxed)).sum::<usize>();
        let mut readable = Readable::new(sources.clone());
        let task = Arc::new(Task(AtomicUsize::new(0)));
        let waker = Waker::from(task.clone());
        let mut poll = || match readable.poll(&Context::from_waker(&waker)) {
            Poll::Ready(ready) => ready.iter().map(|source| source.number).collect::<Vec<_>>(),
            Poll::Pending => vec![],
        };
        assert_eq!((poll(), asked()), (vec![], 1000));
        for number in [7, 500] {
            sources[number].is_readable.store(true, Ordering::Relaxed);
            sources[number].waker.lock().unwrap().take().unwrap().wake();
        }
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "one wake-up for both");
        assert_eq!((poll(), asked()), (vec![7, 500], 1002));
        // One has more to read.
        sources[7].is_readable.store(false, Ordering::Relaxed);
        assert_eq!((poll(), asked()), (vec![500], 1004));
        sources[500].is_readable.store(false, Ordering::Relaxed);
        assert_eq!((poll(), asked()), (vec![], 1005));
        assert_eq!((poll(), asked()), (vec![], 1005));
        sources[7].is_readable.store(true, Ordering::Relaxed);
        sources[7].waker.lock().unwrap().take().unwrap().wake();
        assert_eq!((poll(), asked(), task.0.load(Ordering::Relaxed)), (vec![7], 1006, 2));
    }
}
