//! Input that waits: records that the receiver has not opened yet, and data that the application has not
//! read.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::address::Path;

/// The most bytes of unopened records while a question is open: a large flight. The peer repeats the rest.
const MAX_WAITING: usize = 64 * 1024;
/// The same in records, since each costs more than its bytes.
const MAX_WAITING_RECORDS: usize = 512;
/// The most records, and their most bytes, that arrived before the keys of their epoch and wait for these.
const MAX_EARLY_RECORDS: usize = 16;
const MAX_EARLY: usize = 16 * 1024;

/// The most unread application data, in bytes. As in a UDP socket, further data is lost.
const MAX_UNREAD: usize = 64 * 1024;
/// The most unread records of application data.
const MAX_UNREAD_RECORDS: usize = 256;

/// Records that the receiver has not opened yet, and the paths over which they came.
#[derive(Default)]
pub(super) struct Unopened {
    records: VecDeque<(Path, Vec<u8>)>,
    bytes: usize,
    /// Records of the next epoch, which arrived before its keys.
    early: Vec<(Path, Vec<u8>)>,
}

impl Unopened {
    /// Adds a record. `false` if there is no room for it.
    pub(super) fn push(&mut self, path: Path, record: &[u8]) -> bool {
        let fits = self.bytes + record.len() <= MAX_WAITING && self.records.len() < MAX_WAITING_RECORDS;
        if fits {
            self.bytes += record.len();
            self.records.push_back((path, record.to_vec()));
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<(Path, Vec<u8>)> {
        let (path, record) = self.records.pop_front()?;
        self.bytes -= record.len();
        if self.records.is_empty() {
            // An idle connection keeps no memory for its queues.
            self.records = VecDeque::new();
        }
        Some((path, record))
    }

    /// Keeps a record of the next epoch. `false` if there is no room for it.
    pub(super) fn push_early(&mut self, path: Path, record: Vec<u8>) -> bool {
        let kept: usize = self.early.iter().map(|(_, record)| record.len()).sum();
        let fits = self.early.len() < MAX_EARLY_RECORDS && kept + record.len() <= MAX_EARLY;
        if fits {
            self.early.push((path, record));
        }
        fits
    }

    /// Puts the records of the next epoch, whose keys are known now, before the others.
    pub(super) fn take_early(&mut self) {
        for (path, record) in core::mem::take(&mut self.early).into_iter().rev() {
            self.bytes += record.len();
            self.records.push_front((path, record));
        }
    }
}

/// Application data that was not read yet, by record.
#[derive(Default)]
pub(super) struct Unread {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Unread {
    /// Adds the data of a record. `false` if there is no room for it.
    pub(super) fn push(&mut self, data: Vec<u8>) -> bool {
        let fits = self.bytes + data.len() <= MAX_UNREAD && self.records.len() < MAX_UNREAD_RECORDS;
        if fits {
            self.bytes += data.len();
            self.records.push_back(data);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let data = self.records.pop_front()?;
        self.bytes -= data.len();
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
        Some(data)
    }
}
