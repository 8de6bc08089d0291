//! Permanent knowledge, which outlives the program: in a file, and in Redis, where other gateways have it,
//! too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin::crypto::CryptoProvider;
use dunlin_identity::handshake::{Known, KnownStore};
use dunlin_identity::knowledge::{Knowledge, Learnt, RECORD_LEN, Record, Subject};
use dunlin_store::cache::CacheFault;
use dunlin_store::{MAX_KEPT_MESSAGE, MAX_SENT, RecordFile, SharedLog};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::{Fault, FileField, SharedConfig};

/// The interval at which the program exchanges the knowledge with other gateways, and writes it to the disk.
/// A loss of power loses this much at most.
const EXCHANGE: Duration = Duration::from_secs(1);

/// A file is written anew if it has twice as many records as are needed, and more than this.
const MAX_SUPERSEDED: usize = 4096;

/// How often the file and Redis get the mark of a log. A log grows with every operation of any DID, and each
/// of these stores only grows: the file by 30 MB a year at most.
const LOG_PAUSE: Duration = Duration::from_secs(60);
const SHARED_LOG_PAUSE: Duration = Duration::from_secs(3600);

const _: () = assert!(RECORD_LEN <= MAX_KEPT_MESSAGE, "a record is a message");

/// The marks of logs that a store does not have yet. It gets the first mark of a log at once, and later ones
/// with a pause.
#[derive(Debug)]
struct LogMarks {
    pause: Duration,
    logs: Mutex<BTreeMap<Subject, LogMark>>,
}

#[derive(Debug)]
struct LogMark {
    /// When the store got a mark.
    stored: Instant,
    waiting: Option<Record>,
}

impl LogMarks {
    const fn new(pause: Duration) -> Self {
        Self { pause, logs: Mutex::new(BTreeMap::new()) }
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<Subject, LogMark>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record. Returns it if the store should have it now: also every record that is not about a log.
    fn take(&self, record: &Record, now: Instant) -> Option<Record> {
        if !record.subject.is_log() {
            return Some(*record);
        }
        let mut logs = self.logs();
        let Some(mark) = logs.get_mut(&record.subject) else {
            logs.insert(record.subject, LogMark { stored: now, waiting: None });
            return Some(*record);
        };
        mark.waiting = Some(*record);
        mark.due(now, self.pause)
    }

    /// The marks that have waited for the pause.
    fn due(&self, now: Instant) -> Vec<Record> {
        self.logs().values_mut().filter_map(|mark| mark.due(now, self.pause)).collect()
    }

    /// All marks that wait, when the program ends.
    fn all(&self) -> Vec<Record> {
        self.logs().values_mut().filter_map(|mark| mark.waiting.take()).collect()
    }
}

impl LogMark {
    fn due(&mut self, now: Instant, pause: Duration) -> Option<Record> {
        let due = self.waiting.take_if(|_| now.duration_since(self.stored) >= pause)?;
        self.stored = now;
        Some(due)
    }
}

/// The permanent knowledge, in a file.
#[derive(Debug)]
pub struct KnownFile {
    file: RecordFile,
    logs: LogMarks,
    fails: AtomicBool,
}

impl KnownFile {
    /// Opens the file, or creates it. Returns the knowledge, too.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn open(path: &Path) -> Result<(Arc<Self>, Knowledge), CacheFault> {
        let (file, records) = RecordFile::open(path, RECORD_LEN)?;
        let count = records.len();
        let knowledge = learn(path, records)?;
        if count > MAX_SUPERSEDED && count / 2 > knowledge.len() {
            let records: Vec<_> = knowledge.records().map(|record| record.to_bytes()).collect();
            file.rewrite(records.iter().map(|record| &record[..]))?;
        }
        let logs = LogMarks::new(LOG_PAUSE);
        Ok((Arc::new(Self { file, logs, fails: AtomicBool::new(false) }), knowledge))
    }

    /// Checks that [`Self::open`] could use the file, without creating or changing anything. Another process
    /// may use it.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn check(path: &Path) -> Result<(), CacheFault> {
        learn(path, RecordFile::check(path, RECORD_LEN)?).map(drop)
    }

    /// Waits until everything is on the disk, except for marks of logs that are younger than a minute.
    pub fn sync(&self) {
        self.write(&self.logs.due(Instant::now()));
        self.tell(self.file.sync());
    }

    /// Lets another process use the file, when nothing is learnt any more.
    pub fn close(&self) {
        self.write(&self.logs.all());
        self.tell(self.file.close());
    }

    fn write(&self, records: &[Record]) {
        records.iter().for_each(|record| self.tell(self.file.add(&record.to_bytes())));
    }

    fn tell(&self, written: Result<(), CacheFault>) {
        let failed = self.fails.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Err(fault) if !failed => {
                tracing::error!(
                    "{fault}; what is learnt now waits in memory, and is forgotten if the program ends before the file can be written"
                );
            }
            _ => {}
        }
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        self.write(&self.logs.all());
    }
}

/// The knowledge in these records of the file.
fn learn(path: &Path, records: Vec<Vec<u8>>) -> Result<Knowledge, CacheFault> {
    let mut knowledge = Knowledge::default();
    for record in records {
        let foreign = || CacheFault::Unusable {
            store: path.display().to_string(),
            why: "it has a record of another version".to_owned(),
        };
        let Record { subject, mark } = Record::read(&record).ok_or_else(foreign)?;
        knowledge.learn(subject, mark);
    }
    Ok(knowledge)
}

impl KnownStore for KnownFile {
    fn add(&self, record: &Record) {
        self.write(self.logs.take(record, Instant::now()).as_slice());
    }

    fn copy(&self, record: &Record) {
        self.add(record);
    }
}

/// The permanent knowledge, in the Redis that gateways share.
#[derive(Debug)]
pub(crate) struct KnownShared {
    log: SharedLog,
    logs: LogMarks,
    /// Records that Redis does not have yet.
    waiting: Mutex<Vec<Record>>,
    /// The knowledge in Redis, until everything in it was read once.
    first: Mutex<Option<Knowledge>>,
}

impl KnownShared {
    fn open(shared: &SharedConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Fault> {
        let store = &shared.store;
        let key = &shared.key;
        let log = SharedLog::open_kept(&store.value, "known", &key.value, provider.clone());
        let log = log.map_err(|error| shared.fault(&error))?;
        let logs = LogMarks::new(SHARED_LOG_PAUSE);
        Ok(Self { log, logs, waiting: Mutex::default(), first: Mutex::new(Some(Knowledge::default())) })
    }

    /// Tells the other gateways what this one has learnt, and learns from them. After a fault, the unsent
    /// records wait for the next call.
    fn exchange(&self, known: &Known) -> Result<(), CacheFault> {
        self.keep(self.logs.due(Instant::now()));
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut sent = self.waiting();
            let rest = sent.split_off(sent.len().min(MAX_SENT));
            let messages: Vec<_> = sent.iter().map(|record| record.to_bytes().to_vec()).collect();
            let received = self.log.exchange(&messages).inspect_err(|_| {
                self.keep(sent.into_iter().chain(rest.iter().copied()));
            })?;
            let records: Vec<_> = received.iter().filter_map(|message| Record::read(message)).collect();
            if let Some(theirs) = &mut *first {
                for Record { subject, mark } in &records {
                    theirs.learn(*subject, *mark);
                }
            }
            known.merge(records);
            let is_done = received.is_empty() && rest.is_empty();
            self.keep(rest);
            if !is_done {
                continue;
            }
            match first.take() {
                None => return Ok(()),
                // Redis may have lost records that this side has in a file.
                Some(theirs) => self.keep(
                    known
                        .records()
                        .into_iter()
                        .filter(|record| theirs.compare(&record.subject, &record.mark) == Learnt::Later),
                ),
            }
        }
    }

    fn waiting(&self) -> Vec<Record> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, records: impl IntoIterator<Item = Record>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
    }
}

impl KnownStore for KnownShared {
    fn add(&self, record: &Record) {
        self.keep(self.logs.take(record, Instant::now()));
    }
}

/// The permanent knowledge, and its stores.
#[derive(Debug)]
pub(crate) struct KnownPlaces {
    pub(crate) known: Arc<Known>,
    path: Option<FileField>,
    file: Option<Arc<KnownFile>>,
    shared: Option<Arc<KnownShared>>,
}

impl KnownPlaces {
    /// In memory alone.
    pub(crate) fn in_memory() -> Self {
        let known = Arc::new(Known::new(Knowledge::default()));
        Self { known, path: None, file: None, shared: None }
    }

    /// Reads the knowledge. It blocks: for Redis at most some seconds, without which the program begins, too.
    pub(crate) fn open(
        provider: &Arc<CryptoProvider>,
        path: Option<&FileField>,
        shared: Option<&SharedConfig>,
    ) -> Result<Self, Fault> {
        let opened = path.map(|path| KnownFile::open(&path.value).map_err(|fault| unusable(path, &fault)));
        let (file, knowledge) = opened.transpose()?.unzip();
        let shared = shared.map(|shared| KnownShared::open(shared, provider).map(Arc::new)).transpose()?;
        let mut known = Known::new(knowledge.unwrap_or_default());
        if let Some(file) = &file {
            known = known.with_store(file.clone());
        }
        if let Some(shared) = &shared {
            known = known.with_store(shared.clone());
        }
        let places = Self { known: Arc::new(known), path: path.cloned(), file, shared };
        // The task that follows reports faults.
        let _ = places.exchange();
        Ok(places)
    }

    /// Checks the file without using it.
    pub(crate) fn check(path: &FileField) -> Result<(), Fault> {
        KnownFile::check(&path.value).map_err(|fault| unusable(path, &fault))
    }

    /// Whether a reload may keep these places.
    pub(crate) fn is_at(&self, path: Option<&FileField>) -> bool {
        self.path.as_ref().map(|path| &path.value) == path.map(|path| &path.value)
    }

    /// Whether there is something to do in [`follow`].
    pub(crate) const fn outlive_the_program(&self) -> bool {
        self.file.is_some() || self.shared.is_some()
    }

    /// The last exchange.
    pub(crate) fn close(&self) {
        if let Some(shared) = &self.shared {
            shared.keep(shared.logs.all());
        }
        // The task that follows has reported faults.
        let _ = self.exchange();
        if let Some(file) = &self.file {
            file.close();
        }
    }

    /// Writes new records to the disk, and exchanges them with other gateways.
    pub(crate) fn exchange(&self) -> Result<(), CacheFault> {
        let exchanged = self.shared.as_ref().map_or(Ok(()), |shared| shared.exchange(&self.known));
        if let Some(file) = &self.file {
            file.sync();
        }
        exchanged
    }
}

fn unusable(path: &FileField, fault: &CacheFault) -> Fault {
    path.place
        .fault(fault.to_string(), "name a file for this program alone, in a directory that it can write")
}

/// Exchanges the knowledge every second. `told` is called with whether Redis has answered, if there is one.
pub(crate) async fn follow(places: Arc<KnownPlaces>, told: impl Fn(bool)) {
    let mut is_down = false;
    loop {
        sleep(EXCHANGE).await;
        let exchanging = places.clone();
        // It fails only if the runtime ends.
        let Ok(exchanged) = spawn_blocking(move || exchanging.exchange()).await else { return };
        if places.shared.is_none() {
            continue;
        }
        told(exchanged.is_ok());
        match &exchanged {
            Ok(()) if is_down => tracing::info!("what has ended is shared again"),
            Err(fault) if !is_down => {
                tracing::error!("what has ended is not shared: {fault}; each gateway knows its own");
            }
            _ => {}
        }
        is_down = exchanged.is_err();
    }
}

#[cfg(test)]
mod tests {
    use dunlin_identity::Did;
    use dunlin_identity::knowledge::Mark;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn log(size: u64) -> Record {
        Record {
            subject: Subject::log(&dunlin_awslc::provider(), "registry.example/1"),
            mark: Mark::new(size, &[]),
        }
    }

    #[test]
    fn a_store_gets_the_newest_mark_of_a_log_with_a_pause() {
        let marks = LogMarks::new(60 * SECOND);
        let begin = Instant::now();
        assert_eq!(marks.take(&log(2), begin), Some(log(2)));
        assert_eq!([4, 6].map(|size| marks.take(&log(size), begin + 59 * SECOND)), [None; 2]);
        assert!(marks.due(begin + 59 * SECOND).is_empty());
        assert_eq!(marks.due(begin + 60 * SECOND), [log(6)]);
        assert_eq!(marks.take(&log(8), begin + 119 * SECOND), None);
        assert_eq!(marks.take(&log(10), begin + 120 * SECOND), Some(log(10)));
        assert_eq!(marks.take(&log(12), begin + 121 * SECOND), None);
        assert_eq!((marks.all(), marks.all()), (vec![log(12)], vec![]));
        // Everything else must not wait.
        let did: Did = "did:dunlin:device".parse().unwrap();
        let subject = Subject::did(&dunlin_awslc::provider(), "registry.example/1", &did);
        let ended = Record { subject, mark: Mark::ENDED };
        assert_eq!([begin; 2].map(|now| marks.take(&ended, now)), [Some(ended); 2]);
    }

    #[test]
    fn a_file_has_the_newest_mark_of_a_log_when_the_program_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        // It closes the file, or only leaves it.
        for (closes, sizes) in [(true, [2, 4, 6]), (false, [8, 10, 12])] {
            let (file, _) = KnownFile::open(&path).unwrap();
            sizes.iter().for_each(|size| file.add(&log(*size)));
            file.sync();
            let before = std::fs::metadata(&path).unwrap().len();
            if closes {
                file.close();
            }
            drop(file);
            // Of several in a minute, the file has the first and the last one.
            assert!(std::fs::metadata(&path).unwrap().len() > before);
            let (_file, knowledge) = KnownFile::open(&path).unwrap();
            assert_eq!(knowledge.get(&log(0).subject), Some(log(sizes[2]).mark));
        }
    }
}
