//! A reader of bounded byte strings, which checks every length before it reads.

use alloc::vec::Vec;

use super::{Field, Malformed, Unit};

/// A cursor over one structure. `what` names the structure in errors.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: Field,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], what: Field) -> Self {
        Self { rest: bytes, what }
    }

    /// Reads a whole structure and rejects trailing bytes (RFC 8446 §4.2 and §6.2, `decode_error`).
    pub(crate) fn all<T, E: From<Malformed>>(
        bytes: &'a [u8],
        what: Field,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut reader = Self::new(bytes, what);
        let value = read(&mut reader)?;
        reader.end()?;
        Ok(value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number of bytes left.
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns an error unless everything was read.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes(self.what)) }
    }

    /// The error for a length that the structure's definition does not allow.
    pub(crate) const fn bad_length(&self) -> Malformed {
        Malformed::Length(self.what)
    }

    /// The error for a value that the structure's definition does not allow.
    pub(crate) const fn bad_value(&self) -> Malformed {
        Malformed::Value(self.what)
    }

    /// Returns an error if `entries` exceeds `max`, a limit of this side.
    pub(crate) const fn limit(&self, entries: usize, max: usize) -> Result<(), Malformed> {
        if entries > max {
            Err(Malformed::AboveLimit { what: self.what, max, unit: Unit::Entries })
        } else {
            Ok(())
        }
    }

    /// Everything that is left, at most `max` bytes, a limit of this side.
    pub(crate) fn rest_up_to(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        if self.rest.len() > max {
            Err(Malformed::AboveLimit { what: self.what, max, unit: Unit::Bytes })
        } else {
            Ok(self.rest())
        }
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Malformed::Truncated(self.what))?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Truncated(self.what))?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u24(&mut self) -> Result<usize, Malformed> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_be_bytes([0, a, b, c]) as usize)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// `opaque x<min..2^8-1>` with a length of one byte.
    pub(crate) fn vec8(&mut self, min: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u8()?);
        self.bounded(len, min)
    }

    /// `opaque x<min..2^16-1>` with a length of two bytes.
    pub(crate) fn vec16(&mut self, min: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u16()?);
        self.bounded(len, min)
    }

    /// `opaque x<min..2^24-1>` with a length of three bytes.
    pub(crate) fn vec24(&mut self, min: usize) -> Result<&'a [u8], Malformed> {
        let len = self.u24()?;
        self.bounded(len, min)
    }

    fn bounded(&mut self, len: usize, min: usize) -> Result<&'a [u8], Malformed> {
        if len < min {
            return Err(self.bad_length());
        }
        self.take(len)
    }

    /// The items of a list that fills `bytes`.
    pub(crate) fn items<T, E>(
        bytes: &'a [u8],
        what: Field,
        mut item: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut reader = Self::new(bytes, what);
        let mut items = Vec::new();
        while !reader.is_empty() {
            items.push(item(&mut reader)?);
        }
        Ok(items)
    }
}
