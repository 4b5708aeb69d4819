//! Ranges of addresses.

use ipnet::IpNet;
use std::net::IpAddr;

/// A range of addresses of one family, without host bits. A range in the form of IPv4 within IPv6
/// (`::ffff:10.0.0.0/104`) is the range of IPv4.
pub type Cidr = IpNet;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    pub cidr: Cidr,
    /// Ranges that are not in it; sorted, without duplicates.
    pub except: Vec<Cidr>,
}

impl Block {
    /// True if an address is in the range and in none of the exceptions.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.cidr.contains(&address) && !self.except.iter().any(|hole| hole.contains(&address))
    }
}
