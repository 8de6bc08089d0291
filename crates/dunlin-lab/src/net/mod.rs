//! Networks of one's own: namespaces, what runs in them, and the devices between them.
//!
//! Nothing has to be cleaned up after a run that was interrupted, however that happened. Namespaces have no name in the
//! file system, so the kernel removes them and their devices with the last process that holds them; and processes are
//! started by a [`Ground`], which the kernel ends when this process is gone.

mod device;
mod ground;
mod namespace;

pub use device::{End, set_mtu, veth};
pub use ground::{Ground, Pair, Process};
pub use namespace::Namespace;
pub(crate) use namespace::on_own_thread;
