//! What becomes of a datagram on its way.

use std::time::Duration;

use dunlin::Now;

/// One direction of a path.
pub trait Link {
    /// What arrives of a datagram that is sent now, and after how long: itself, once; but it may be changed, come
    /// several times or not at all.
    fn carry(&mut self, now: Now, datagram: Vec<u8>) -> Vec<(Duration, Vec<u8>)>;
}

/// Everything arrives after this time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay(pub Duration);

impl Link for Delay {
    fn carry(&mut self, _: Now, datagram: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        vec![(self.0, datagram)]
    }
}

/// A link as a function.
impl<F: FnMut(Now, Vec<u8>) -> Vec<(Duration, Vec<u8>)>> Link for F {
    fn carry(&mut self, now: Now, datagram: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        self(now, datagram)
    }
}
