//! The real program against real replicas: the controller's own stream over TLS on loopback, the socket, the disk.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

mod admit;
mod disk;
mod node;
mod replica;
mod streams;
