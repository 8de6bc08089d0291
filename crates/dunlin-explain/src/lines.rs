//! A bound on memory: how much an explanation may say.

use crate::message::Field;
use crate::model::{Part, Record};

/// More lines than anybody reads; each takes some hundred bytes of memory.
const MAX_LINES: usize = 1 << 20;
/// What one line holds of a value, in bytes.
const LINE: usize = 64;

/// The lines that are left for records, messages and fields.
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
