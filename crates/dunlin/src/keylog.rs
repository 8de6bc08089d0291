//! The key log, for debugging with a protocol analyser (RFC 9850).

use core::fmt;

/// Where secrets go when the user asks for a key log. Whoever has them reads the traffic.
pub trait KeyLog: Send + Sync + fmt::Debug {
    /// A secret with its label ("CLIENT_TRAFFIC_SECRET_0", …) and the random of the ClientHello: one line of the
    /// log is `label client_random secret`, the last two in hexadecimal.
    fn log(&self, label: &str, client_random: &[u8; 32], secret: &[u8]);
}
