//! Names in the nftables tables of the VPC, for the rules that are written and the counters that are read.

/// The table for IPv4.
pub(crate) const TABLE: &str = "vpc";
/// The table for IPv6.
pub(crate) const TABLE_V6: &str = "vpc6";
/// The set of every port's addresses, each with its counter.
pub(crate) const SOURCES: &str = "sources";
/// The set of sources that failed the source check.
pub(crate) const SPOOFED: &str = "spoofed";
/// The set of sources without a public address that sent packets to the internet.
pub(crate) const HOMELESS: &str = "homeless";
