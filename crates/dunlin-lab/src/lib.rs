//! The lab: the base of Dunlin's experiments.
//!
//! A real run needs an isolated network: [`net`] makes it of network namespaces, and [`link`](mod@link) is a
//! slow or lossy line between two of them. Both vanish with the process, however it ends. [`capture`] records
//! the packets of a device, and [`count`] counts their bytes by layer. [`experiment`] has the experiments,
//! [`report`] the tables and pages of their results.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                what they contain
//! 4    experiment           | the experiments
//! 3    count                | bytes by layer
//! 2    capture link         | packets of a device; a slow or lossy line
//! 1    net report signals   | namespaces; results as tables and pages; the end of the program
//! 0    error                | the errors of the lab
//! ```
//! <!-- end of layers -->
//!
//! This crate is not part of the protocol. Only the program `dunlin-lab` depends on it, and tests. Without the
//! feature `experiments`, it is empty.

#![cfg(feature = "experiments")]

pub mod capture;
pub mod count;
mod error;
pub mod experiment;
pub mod link;
pub mod net;
pub mod report;
pub mod signals;

pub use crate::error::Error;
