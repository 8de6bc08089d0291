//! The parts that the programs `dunlin` and `dunlin-lab` share: the frame of a program ([`program`]), its errors,
//! files and signals, and the description of a connection for people and for scripts.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules              what they contain
//! 4    program generate   | the frame of a program; completions and man pages
//! 3    report             | the result of a handshake, for people and for scripts
//! 2    files faults events session | whole files; faults of configurations; JSON objects; TLS and DTLS behind one trait
//! 3    log                | the log of a program that serves, which a thread writes
//! 2    stop               | signals that stop a command, and its limit on open files
//! 1    error counted      | the error that ends a command; a transport that counts its bytes
//! 0    argv caller        | OpenSSL's spelling of options; the user who called sudo
//! ```
//! <!-- end of layers -->

pub mod argv;
pub mod caller;
pub mod counted;
pub mod error;
pub mod events;
pub mod faults;
pub mod files;
pub mod generate;
pub mod log;
pub mod program;
pub mod report;
pub mod session;
pub mod stop;
