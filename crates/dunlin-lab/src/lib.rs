//! The lab: what Dunlin's experiments stand on.
//!
//! A real run needs a network that nobody else uses: [`net`] makes one of namespaces, [`link`](mod@link) is a slow or
//! lossy line between two of them. Both vanish with the process, however it ends. [`capture`] keeps what passes a device,
//! [`count`] tells what it cost, layer by layer. [`experiment`] has what is measured by these means, [`report`] what is
//! made of it.
//!
//! Nothing here is part of the protocol, and nothing but `dunlin lab` depends on it.

pub mod capture;
pub mod count;
mod error;
pub mod experiment;
pub mod link;
pub mod net;
pub mod report;
pub mod signals;

pub use crate::error::Error;
