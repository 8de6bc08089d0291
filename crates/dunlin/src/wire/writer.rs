//! A writer of messages, which fills in each length after the content.

use alloc::vec::Vec;

use super::FieldTooLong;

/// A growing message. The writer remembers a length that does not fit its prefix, and [`Writer::finish`]
/// reports it: the engine never sends a truncated length.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    overflow: bool,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The bytes written; `Err` if a field was too long for its length prefix.
    pub(crate) fn finish(self) -> Result<Vec<u8>, FieldTooLong> {
        if self.overflow { Err(FieldTooLong) } else { Ok(self.bytes) }
    }

    /// Allocates room for `additional` bytes at once, so that the buffer does not move while it grows.
    pub(crate) fn reserve(&mut self, additional: usize) {
        self.bytes.reserve(additional);
    }

    pub(crate) fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    pub(crate) fn u16(&mut self, v: u16) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.overflow |= other.overflow;
        self.put(&other.bytes);
    }

    pub(crate) fn vec8(&mut self, body: impl FnOnce(&mut Self)) {
        self.prefixed(1, body);
    }

    pub(crate) fn vec16(&mut self, body: impl FnOnce(&mut Self)) {
        self.prefixed(2, body);
    }

    pub(crate) fn vec24(&mut self, body: impl FnOnce(&mut Self)) {
        self.prefixed(3, body);
    }

    fn prefixed(&mut self, prefix: usize, body: impl FnOnce(&mut Self)) {
        let at = self.open(prefix);
        body(self);
        self.close(at, prefix);
    }

    /// Begins a field whose length has `prefix` bytes. Writes 0xff… in place of the length until it is known,
    /// so that an unfinished frame cannot parse. Returns the field's position for [`Self::close`].
    pub(crate) fn open(&mut self, prefix: usize) -> usize {
        let at = self.bytes.len();
        self.bytes.resize(at + prefix, 0xff);
        at
    }

    /// Ends the field at `at`, and fills in its length.
    pub(crate) fn close(&mut self, at: usize, prefix: usize) {
        let len = (self.bytes.len() - at - prefix) as u64;
        if len >> (8 * prefix) != 0 {
            self.overflow = true;
            return;
        }
        let be = len.to_be_bytes();
        if let (Some(slot), Some(value)) = (self.bytes.get_mut(at..at + prefix), be.get(8 - prefix..)) {
            slot.copy_from_slice(value);
        }
    }
}
