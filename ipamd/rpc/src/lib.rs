//! The daemon's API over its unix socket.
