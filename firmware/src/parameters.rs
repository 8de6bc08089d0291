//! What the host tells the device: each parameter is two bytes of length, the higher first, and so many bytes.

use alloc::vec::Vec;

use dunlin::Now;

use crate::board::Uart;

/// The parameters, in the order in which they come.
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

    /// The next parameter: the time in milliseconds since 1970, in eight bytes. The device has no clock, and the
    /// connection lives in one moment.
    pub(crate) fn now(&mut self) -> Now {
        Now::from_unix_ms(self.bytes().iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte)))
    }
}
