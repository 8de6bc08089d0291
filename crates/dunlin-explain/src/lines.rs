//! Bounds the memory of an explanation by the number of its lines.

use crate::message::Field;
use crate::model::{Part, Record};

/// The most lines of an explanation, more than a person can read. Each takes a few hundred bytes of memory.
const MAX_LINES: usize = 1 << 20;
/// A value counts as one more line for each this many bytes.
const LINE: usize = 64;

/// The number of lines left for records, messages and fields.
pub(crate) struct Lines(usize);

impl Default for Lines {
    fn default() -> Self {
        Self(MAX_LINES)
    }
}

impl Lines {
    pub(crate) const fn are_left(&self) -> bool {
        self.0 > 0
    }

    pub(crate) fn spend(&mut self, record: &Record) {
        let part = |part: &Part| 1 + part.fields.iter().map(lines).sum::<usize>();
        self.0 = self.0.saturating_sub(1 + record.parts.iter().map(part).sum::<usize>());
    }
}

fn lines(field: &Field) -> usize {
    let value = field.value.as_ref().map_or(0, |value| value.len() / LINE);
    1 + value + field.fields.iter().map(lines).sum::<usize>()
}
