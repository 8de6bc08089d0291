//! The lab: what Dunlin's experiments stand on.
//!
//! A real run needs a network of its own: [`net`] makes one of network namespaces, and [`link`](mod@link) is a slow or lossy
//! line between two of them. Both vanish with the process, however it ends. [`capture`] keeps the packets of a device, and
//! [`count`] counts their bytes, layer by layer. [`experiment`] has the experiments, [`report`] the tables and pages of their
//! results. [`caller`] gives files to the user who called sudo.
//!
//! This crate is no part of the protocol. Only `dunlin lab` depends on it.

pub mod caller;
pub mod capture;
pub mod count;
mod error;
pub mod experiment;
pub mod link;
pub mod net;
pub mod report;
pub mod signals;

pub use crate::error::Error;
