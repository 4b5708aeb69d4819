//! A blocking socket of netlink, and the frames of the kernel's replies.
//!
//! [`KernelSocket`] sends requests of one protocol and receives datagrams. [`Frames`] splits the datagrams of a reply into
//! messages, and accepts any bytes. The crates of the protocols parse the messages.

mod frames;
mod socket;

pub use frames::{Frames, Unreadable};
pub use socket::{KernelSocket, SocketError};
