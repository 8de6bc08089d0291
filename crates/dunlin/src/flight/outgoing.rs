//! The messages of this side, from their creation until the peer acknowledges them (RFC 9147 §5.8, §7).

use alloc::vec::Vec;
use core::ops::Range;

use super::ack::RecordNumber;
use crate::message;

/// The most sent records whose content is remembered: several long flights in small datagrams. The ACK of an
/// older record has no effect, so its messages are sent again.
const MAX_TRACKED: usize = 1024;

/// A piece of a message's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The number of the message (message_seq).
    pub(crate) number: u16,
    pub(crate) range: Range<usize>,
}

/// A message that the peer has not acknowledged.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) epoch: u64,
    pub(crate) number: u16,
    pub(crate) message: Vec<u8>,
    /// The parts of the body that the peer has not acknowledged. An empty message has one empty part.
    pub(crate) missing: Vec<Range<usize>>,
    pub(crate) is_sent: bool,
}

/// Messages that this side must still send, or that the peer has not acknowledged.
#[derive(Clone, Default)]
pub(crate) struct Flight {
    messages: Vec<Outgoing>,
    /// The content of each sent record that the peer has not acknowledged.
    records: Vec<(RecordNumber, Vec<Piece>)>,
}

impl Flight {
    /// Queues a whole message, header included.
    pub(crate) fn push(&mut self, epoch: u64, number: u16, message: Vec<u8>) {
        let len = message.len().saturating_sub(message::HEADER_LEN);
        let missing = core::iter::once(0..len).collect();
        self.messages.push(Outgoing { epoch, number, message, missing, is_sent: false });
    }

    /// The messages, in order.
    pub(crate) fn messages(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.messages.iter_mut()
    }

    /// Whether there is no message.
    pub(crate) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether a message of this epoch is not acknowledged.
    pub(crate) fn needs_epoch(&self, epoch: u64) -> bool {
        self.messages.iter().any(|message| message.epoch == epoch)
    }

    /// Whether the message with this number is not acknowledged.
    #[cfg(test)]
    fn contains(&self, number: u16) -> bool {
        self.messages.iter().any(|message| message.number == number)
    }

    /// Whether the message with this number, or one before it, is not acknowledged.
    pub(crate) fn contains_up_to(&self, number: u16) -> bool {
        self.messages.iter().any(|message| message.number <= number)
    }

    /// The number of the latest message.
    pub(crate) fn last_number(&self) -> Option<u16> {
        self.messages.last().map(|message| message.number)
    }

    /// Whether the peer has not acknowledged a message that was sent.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.messages.iter().any(|message| message.is_sent)
    }

    /// The epochs of the messages that were sent.
    pub(crate) fn outstanding_epochs(&self) -> impl Iterator<Item = u64> {
        self.messages.iter().filter(|message| message.is_sent).map(|message| message.epoch)
    }

    /// Remembers what a sent record contains.
    pub(crate) fn sent(&mut self, number: RecordNumber, pieces: Vec<Piece>) {
        if self.records.len() >= MAX_TRACKED {
            self.records.remove(0);
        }
        self.records.push((number, pieces));
    }

    /// The peer has received these records. Returns whether one of them contained something that was still
    /// missing.
    pub(crate) fn acknowledged(&mut self, numbers: &[RecordNumber]) -> bool {
        let Self { messages, records } = self;
        let mut is_progress = false;
        records.retain(|(number, pieces)| {
            let is_acknowledged = numbers.contains(number);
            for piece in pieces.iter().filter(|_| is_acknowledged) {
                let message = messages.iter_mut().find(|message| message.number == piece.number);
                is_progress |= message.is_some_and(|message| message.remove(&piece.range));
            }
            !is_acknowledged
        });
        messages.retain(|message| !message.missing.is_empty());
        self.shrink();
        is_progress
    }

    /// Releases the memory that an empty flight does not need.
    fn shrink(&mut self) {
        if !self.is_outstanding() {
            self.records = Vec::new();
        }
        if self.messages.is_empty() {
            self.messages = Vec::new();
        }
    }

    /// The peer has received all sent messages, because it has answered them. Returns whether there were any.
    pub(crate) fn answered(&mut self) -> bool {
        let before = self.messages.len();
        self.drop_if(|message| message.is_sent);
        self.messages.len() < before
    }

    /// Drops the messages for which `is_dropped` is true, without waiting for their ACKs.
    pub(crate) fn drop_if(&mut self, is_dropped: impl Fn(&Outgoing) -> bool) {
        self.messages.retain(|message| !is_dropped(message));
        self.shrink();
    }
}

impl Outgoing {
    /// Removes a range from the missing parts. Returns whether some of it was missing.
    fn remove(&mut self, range: &Range<usize>) -> bool {
        let before = self.missing.clone();
        self.missing.clear();
        for old in &before {
            let rest = [old.start..old.end.min(range.start), old.start.max(range.end)..old.end];
            let is_apart = old.end <= range.start || range.end <= old.start;
            if is_apart && old != range {
                self.missing.push(old.clone());
            } else {
                self.missing.extend(rest.into_iter().filter(|rest| rest.start < rest.end));
            }
        }
        self.missing != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn record(sequence: u64) -> RecordNumber {
        RecordNumber { epoch: 2, sequence }
    }

    fn flight(len: usize) -> Flight {
        let mut flight = Flight::default();
        flight.push(2, 0, vec![0; message::HEADER_LEN + len]);
        for message in flight.messages() {
            message.is_sent = true;
        }
        flight
    }

    fn missing(flight: &mut Flight) -> Vec<Range<usize>> {
        flight.messages().flat_map(|message| message.missing.clone()).collect()
    }

    #[test]
    fn a_part_is_missing_until_a_record_with_it_is_acknowledged() {
        let mut flight = flight(100);
        for (i, range) in [0..40, 40..70, 70..100, 30..80].into_iter().enumerate() {
            flight.sent(record(i as u64), vec![Piece { number: 0, range }]);
        }
        assert!(flight.acknowledged(&[record(1)]));
        assert_eq!(missing(&mut flight), [0..40, 70..100]);
        assert!(!flight.acknowledged(&[record(1), record(9)]), "an ACK counts once");
        assert!(flight.acknowledged(&[record(3)]));
        assert_eq!(missing(&mut flight), [0..30, 80..100]);
        assert!(flight.acknowledged(&[record(2), record(0)]));
        assert!(!flight.is_outstanding() && !flight.contains(0));
    }

    #[test]
    fn an_empty_message_is_missing_until_its_ack() {
        let mut flight = flight(0);
        flight.sent(record(0), vec![Piece { number: 0, range: 0..0 }]);
        assert_eq!(missing(&mut flight), vec![Range { start: 0, end: 0 }]);
        assert!(flight.acknowledged(&[record(0)]));
        assert!(!flight.contains(0));
    }

    #[test]
    fn an_answer_acknowledges_only_sent_messages() {
        let mut flight = flight(10);
        flight.push(2, 1, vec![0; 20]);
        assert!(flight.answered());
        assert!(!flight.contains(0) && flight.contains(1) && !flight.is_outstanding());
        assert!(!flight.answered());
    }

    #[test]
    fn bounds_the_number_of_tracked_records() {
        let mut flight = flight(10);
        for i in 0..=MAX_TRACKED as u64 {
            flight.sent(record(i), vec![Piece { number: 0, range: 0..10 }]);
        }
        assert!(!flight.acknowledged(&[record(0)]));
        assert!(flight.acknowledged(&[record(1)]));
    }
}
