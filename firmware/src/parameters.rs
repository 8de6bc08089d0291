//! Reads the parameters that the host sends: each has a big-endian length of two bytes, then its value.

use alloc::vec::Vec;

use dunlin::Now;

use crate::board::Uart;

/// The parameters, in the order in which the host sends them.
pub struct Parameters(Uart);

impl Parameters {
    pub(crate) fn open() -> Self {
        Self(Uart::host())
    }

    /// Waits for the next parameter.
    pub fn bytes(&mut self) -> Vec<u8> {
        let len = u16::from_be_bytes([self.0.read(), self.0.read()]);
        (0..len).map(|_| self.0.read()).collect()
    }

    /// The next parameter: the time in milliseconds since 1970, in eight bytes. The device has no clock, so
    /// the time stands still during the connection.
    pub(crate) fn now(&mut self) -> Now {
        Now::from_unix_ms(self.bytes().iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte)))
    }
}
