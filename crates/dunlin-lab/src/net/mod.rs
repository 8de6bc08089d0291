//! Networks of one's own: namespaces, what runs in them, and the devices between them.

mod namespace;

pub use namespace::Namespace;
