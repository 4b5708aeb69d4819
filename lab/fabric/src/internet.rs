//! The host beyond the internet gateway.

use std::net::Ipv4Addr;

/// The internet's one host; answers ICMP echo, and echoes on TCP and UDP port 7 while an
/// [`InternetHost`] lives.
pub const INTERNET_HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The public address to which the internet gateway translates an ENI's primary address.
///
/// Of 198.18.0.0/15, the range set aside for benchmarks: the low 17 bits are the private address's.
pub fn public_address_of(private: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0000 | (u32::from(private) & 0x0001_ffff))
}

/// The echo service on [`INTERNET_HOST`]; ends when dropped.
#[derive(Debug)]
pub struct InternetHost {}
