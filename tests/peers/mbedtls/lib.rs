//! Empty: Cargo.toml names the source code that the Makefile compiles.
