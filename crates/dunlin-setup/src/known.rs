//! Permanent knowledge, which outlives the program, in a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_identity::handshake::KnownStore;
use dunlin_identity::knowledge::{Knowledge, RECORD_LEN, Record, Subject};
use dunlin_store::RecordFile;
use dunlin_store::cache::CacheFault;

use crate::place::{Fault, FileField};

/// How often a program writes the knowledge to the disk. A loss of power loses this much at most.
pub const SYNC_TIME: Duration = Duration::from_secs(1);

/// A file is written anew if it has twice as many records as are needed, and more than this.
const MAX_SUPERSEDED: usize = 4096;

/// How often the file gets the mark of a log. A log grows with every operation of any DID, and the file only
/// grows: by 30 MB a year at most.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The marks of logs that a store does not have yet. It gets the first mark of a log at once, and later ones
/// with a pause.
#[derive(Debug)]
pub struct LogMarks {
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
    /// None yet; `pause` is the time between two marks of a log.
    pub const fn new(pause: Duration) -> Self {
        Self { pause, logs: Mutex::new(BTreeMap::new()) }
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<Subject, LogMark>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record. Returns it if the store should have it now: also every record that is not about a log.
    pub fn take(&self, record: &Record, now: Instant) -> Option<Record> {
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
    pub fn due(&self, now: Instant) -> Vec<Record> {
        self.logs().values_mut().filter_map(|mark| mark.due(now, self.pause)).collect()
    }

    /// All marks that wait, when the program ends.
    pub fn all(&self) -> Vec<Record> {
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
    pub fn open(field: &FileField) -> Result<(Arc<Self>, Knowledge), Fault> {
        Self::open_at(&field.value).map_err(|fault| unusable(field, &fault))
    }

    fn open_at(path: &Path) -> Result<(Arc<Self>, Knowledge), CacheFault> {
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
    pub fn check(field: &FileField) -> Result<(), Fault> {
        let path = &field.value;
        let records = RecordFile::check(path, RECORD_LEN).and_then(|records| learn(path, records));
        records.map(drop).map_err(|fault| unusable(field, &fault))
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

fn unusable(path: &FileField, fault: &CacheFault) -> Fault {
    path.place
        .fault(fault.to_string(), "name a file for this program alone, in a directory that it can write")
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
            let (file, _) = KnownFile::open_at(&path).unwrap();
            sizes.iter().for_each(|size| file.add(&log(*size)));
            file.sync();
            let before = std::fs::metadata(&path).unwrap().len();
            if closes {
                file.close();
            }
            drop(file);
            // Of several in a minute, the file has the first and the last one.
            assert!(std::fs::metadata(&path).unwrap().len() > before);
            let (_file, knowledge) = KnownFile::open_at(&path).unwrap();
            assert_eq!(knowledge.get(&log(0).subject), Some(log(sizes[2]).mark));
        }
    }
}
