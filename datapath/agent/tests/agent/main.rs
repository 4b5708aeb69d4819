//! The real program against real replicas: the controller's own stream over TLS, the socket, the disk, and where
//! replicas are by a real API server.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics and tells its skips")]

mod admit;
mod disk;
mod node;
mod replica;
mod replica_file;
mod retire;
mod streams;
