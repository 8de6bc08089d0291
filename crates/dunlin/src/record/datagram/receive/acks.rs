//! The records that the receiver has to acknowledge (RFC 9147 §7).

use alloc::vec::Vec;

use crate::flight::RecordNumber;
use crate::flight::reassemble::Taken;

/// The most records to acknowledge: a long flight in the smallest datagrams. The receiver forgets the oldest
/// beyond them, and acknowledges these when the peer retransmits them.
const MAX_ACKNOWLEDGED: usize = 256;

/// The most records that wait for the delivery of their messages before this side acknowledges them: as many
/// as the reassembler keeps messages. The peer retransmits what exceeds the limit, and gets its ACK then.
const MAX_UNDELIVERED: usize = 16;

/// The numbers of records with handshake messages.
#[derive(Default)]
pub(super) struct Acks {
    /// Since this side's last flight, which acknowledged all earlier ones.
    numbers: Vec<RecordNumber>,
    /// Whether `numbers` has some that no ACK had yet.
    is_owed: bool,
    /// Records since the handshake with an incomplete or early message: its number, and the record's.
    undelivered: Vec<(usize, RecordNumber)>,
}

impl Acks {
    /// Whether a record waits for its ACK; with `again`, even if an ACK had its number before.
    pub(super) const fn are_owed(&self, again: bool) -> bool {
        self.is_owed || again && !self.numbers.is_empty()
    }

    /// The numbers in increasing order, for an ACK.
    pub(super) fn owed(&mut self) -> &[RecordNumber] {
        self.is_owed = false;
        self.numbers.sort_unstable();
        &self.numbers
    }

    /// Takes these numbers out.
    pub(super) fn take(&mut self) -> Vec<RecordNumber> {
        self.owed();
        core::mem::take(&mut self.numbers)
    }

    /// Whether no record waits for the delivery of its messages.
    pub(super) const fn are_all_delivered(&self) -> bool {
        self.undelivered.is_empty()
    }

    /// Forgets the records that wait for the delivery of their messages.
    pub(super) fn drop_undelivered(&mut self) {
        self.undelivered = Vec::new();
    }

    /// Notes the number of a record with messages, if all of it was taken, for the next ACK or a later one.
    pub(super) fn note(&mut self, taken: Taken, number: RecordNumber) {
        match taken {
            Taken::All => {
                push_newest(&mut self.numbers, MAX_ACKNOWLEDGED, number);
                self.is_owed = true;
            }
            Taken::Until(message) => push_newest(&mut self.undelivered, MAX_UNDELIVERED, (message, number)),
            Taken::NotAll => {}
        }
    }

    /// Notes the records whose messages were all delivered for the next ACK. `next` is the number of the next
    /// message.
    pub(super) fn note_delivered(&mut self, next: usize) {
        let records = core::mem::take(&mut self.undelivered).into_iter();
        let (delivered, rest): (Vec<_>, Vec<_>) = records.partition(|(message, _)| *message < next);
        self.undelivered = rest;
        delivered.into_iter().for_each(|(_, number)| self.note(Taken::All, number));
    }
}

/// Adds an item, and drops the first one if there are `most`.
fn push_newest<T>(items: &mut Vec<T>, most: usize, item: T) {
    if items.len() >= most {
        items.remove(0);
    }
    items.push(item);
}
