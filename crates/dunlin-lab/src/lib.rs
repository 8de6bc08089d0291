//! The lab: what Dunlin's experiments stand on.
//!
//! A real run needs a network that nobody else uses: [`net`] makes one of namespaces, [`link`](mod@link) is a slow or
//! lossy line between two of them. Both vanish with the process, however it ends.
//!
//! Nothing here is part of the protocol, and nothing but `dunlin lab` depends on it.

pub mod capture;
pub mod count;
mod error;
pub mod link;
pub mod net;
pub mod signals;

pub use crate::error::Error;
