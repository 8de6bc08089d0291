//! Dunlin crypto provider.
