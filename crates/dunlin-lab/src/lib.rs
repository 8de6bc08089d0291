//! The lab: the base of Dunlin's experiments.
//!
//! A real run needs an isolated network: [`net`] makes it of network namespaces, and [`link`](mod@link) is a
//! slow or lossy line between two of them. Both vanish with the process, however it ends. [`capture`] records
//! the packets of a device, and [`count`] counts their bytes by layer. [`experiment`] has the experiments,
//! [`report`] the tables and pages of their results.
//!
//! This crate is not part of the protocol. Only the program `dunlin-lab` depends on it, and tests.

pub mod capture;
pub mod count;
mod error;
pub mod experiment;
pub mod link;
pub mod net;
pub mod report;
pub mod signals;

pub use crate::error::Error;
