//! The input of a target as a script: a sequence of numbers and byte strings.

/// The rest of the input. After its end it returns zeros, and a zero always means no change. So every prefix
/// of a script is a script, and the empty script is an unchanged run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// Starts at the beginning of the input.
    pub(crate) const fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether the end is reached.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many bytes are left.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns one byte.
    pub(crate) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number of two bytes.
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let value = if n > 256 { usize::from(self.u16()) } else { usize::from(self.u8()) };
        if n == 0 { 0 } else { value % n }
    }

    /// Returns one bit.
    pub(crate) fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Returns a byte string after its length in one byte; fewer bytes at the end.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.u8()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }
}
