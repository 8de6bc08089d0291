//! The common interface of all competitors: two ends that exchange bytes.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The least time of measured handshakes in a round, for each side.
const ROUND: Duration = Duration::from_millis(15);
/// The content of a record, in bytes.
const RECORD: usize = 16 * 1024;
/// The number of records that are sealed, and then opened, in a batch.
const RECORDS: usize = 16;
/// The number of batches in a round.
const BATCHES: usize = 40;

/// A TLS stack that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Competitor {
    Dunlin,
    Rustls,
    #[cfg(feature = "openssl")]
    OpenSsl,
}

impl Competitor {
    #[cfg(feature = "openssl")]
    pub(crate) const ALL: [Self; 3] = [Self::Dunlin, Self::Rustls, Self::OpenSsl];
    #[cfg(not(feature = "openssl"))]
    pub(crate) const ALL: [Self; 2] = [Self::Dunlin, Self::Rustls];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dunlin => "dunlin",
            Self::Rustls => "rustls",
            #[cfg(feature = "openssl")]
            Self::OpenSsl => "openssl",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|competitor| competitor.name() == name).expect("a competitor")
    }
}

/// One end of a connection.
pub(crate) trait End {
    /// Receives all of `bytes`. Returns the number of bytes of application data in them.
    fn take(&mut self, bytes: &[u8]) -> usize;
    /// Appends all output to `out`.
    fn give(&mut self, out: &mut Vec<u8>);
    /// Seals data.
    fn send(&mut self, data: &[u8]);
    fn is_connected(&self) -> bool;
    fn is_resumed(&self) -> bool;
}

pub(crate) type Maker = Box<dyn Fn() -> Box<dyn End>>;

/// A competitor, ready to make connections.
pub(crate) struct Stack {
    pub(crate) client: Maker,
    pub(crate) server: Maker,
    /// Whether its connections are resumed.
    pub(crate) resumed: bool,
}

/// Runs the work of a side. Valgrind counts the instructions inside this function by its name.
#[inline(never)]
pub(crate) fn counted_work(work: &mut dyn FnMut()) {
    work();
    // Prevent a tail call, which would leave this function before the work begins.
    black_box(());
}

/// The processor time of this thread, which excludes other processes.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Two ends that are connected.
pub(crate) struct Connected {
    /// The time that the handshake took on the client and on the server.
    pub(crate) times: [Duration; 2],
    pub(crate) ends: [Box<dyn End>; 2],
}

impl Stack {
    /// Connects. The work of the side `counted`, 0 for the client, goes through [`counted_work`].
    pub(crate) fn connect(&self, counted: Option<usize>) -> Connected {
        let mut times = [Duration::ZERO; 2];
        let mut work = |at: usize, work: &mut dyn FnMut()| {
            let start = now();
            if counted == Some(at) {
                counted_work(work);
            } else {
                work();
            }
            times[at] += now() - start;
        };
        let mut ends = [None, None];
        for (at, (end, make)) in ends.iter_mut().zip([&self.client, &self.server]).enumerate() {
            work(at, &mut || *end = Some(make()));
        }
        let mut ends = ends.map(|end| end.expect("made above"));
        let mut wire = Vec::with_capacity(RECORD);
        for turn in 0.. {
            let at = turn % 2;
            work(at, &mut || {
                ends[at].take(&wire);
                wire.clear();
                ends[at].give(&mut wire);
            });
            if wire.is_empty() && turn > 0 {
                break;
            }
        }
        for end in &ends {
            assert!(end.is_connected());
            assert_eq!(end.is_resumed(), self.resumed);
        }
        Connected { times, ends }
    }

    /// Microseconds that client and server take for a handshake.
    pub(crate) fn round(&self) -> [f64; 2] {
        let mut times = [Duration::ZERO; 2];
        let mut count = 0;
        while times.iter().any(|time| *time < ROUND) {
            let connected = self.connect(None);
            for (sum, time) in times.iter_mut().zip(connected.times) {
                *sum += time;
            }
            count += 1;
        }
        times.map(|time| time.as_secs_f64() * 1e6 / f64::from(count))
    }
}

impl Connected {
    /// Megabytes per second that the client seals, and that the server opens.
    pub(crate) fn bulk(&mut self) -> [f64; 2] {
        let data = [7; RECORD];
        let mut wires = [const { Vec::new() }; RECORDS];
        let mut times = [Duration::ZERO; 2];
        let [client, server] = &mut self.ends;
        for batch in 0..=BATCHES {
            wires.iter_mut().for_each(Vec::clear);
            let start = now();
            for wire in &mut wires {
                client.send(&data);
                client.give(wire);
            }
            let sealed = now();
            for wire in &wires {
                assert_eq!(server.take(wire), RECORD);
            }
            let opened = now();
            // The first batch allocates the buffers.
            if batch > 0 {
                times[0] += sealed - start;
                times[1] += opened - sealed;
            }
        }
        times.map(|time| (BATCHES * RECORDS * RECORD) as f64 / 1e6 / time.as_secs_f64())
    }
}
