//! The contents of the eBPF maps: compiled tables as keys and values of bytes.
//!
//! `datapath/bpf/tables.h` has the same layouts in C. The loader of the maps refuses a key or value of another size, and
//! the tests in `tests/netns` compare the programs' verdicts with [`Tables::judge`](datapath_plan::Tables::judge).
//! Numbers have the byte order of the machine; addresses have that of the network.

mod intervals;
mod maps;

pub use intervals::{LARGE, SMALL, TooLong};
pub use maps::{Endpoint, Maps, Row};

/// An address as a key.
pub type AddressKey = [u8; 16];
/// A prefix as a key: its length and its first address.
pub type PrefixKey = [u8; 20];
/// A set, a class and a Service as a key.
pub type SetKey = [u8; 12];
/// A table with [`SMALL`] intervals.
pub type SmallTable = [u8; 8 * SMALL];
/// A table with [`LARGE`] intervals.
pub type LargeTable = [u8; 8 * LARGE];
