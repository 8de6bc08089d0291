//! The key log, for debugging with a protocol analyser (RFC 9850).

use core::fmt;

/// Receives the secrets of a connection if the user asks for a key log. With them, anyone can decrypt the
/// traffic.
pub trait KeyLog: Send + Sync + fmt::Debug {
    /// Takes a secret with its label ("CLIENT_TRAFFIC_SECRET_0", …) and the random of the ClientHello. One
    /// line of the log is `label client_random secret`, the last two in hexadecimal.
    fn log(&self, label: &str, client_random: &[u8; 32], secret: &[u8]);
}
