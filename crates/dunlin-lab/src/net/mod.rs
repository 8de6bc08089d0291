//! Isolated networks: namespaces, their processes, and the devices between them.
//!
//! An interrupted run leaves nothing behind. Namespaces have no name in the file system, so the kernel
//! removes them and their devices with the last process in them. A [`Ground`] starts the processes, and the
//! kernel ends them when this process is gone.

mod device;
mod ground;
mod namespace;

pub use device::{End, set_mtu, veth};
pub(crate) use ground::MTU;
pub use ground::{Ground, Pair, Process};
pub use namespace::Namespace;
pub(crate) use namespace::on_own_thread;
