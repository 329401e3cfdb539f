//! The `paceline` command as a library: [`run`] is what the cargo-built binary and the Python wheel both call.

pub mod sandbox;
