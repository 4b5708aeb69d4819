//! Network load balancers: destinations outside the VPC's blocks that the router replaces by targets in the VPC.
//!
//! Only the destination is replaced, so a target receives the client's own address and port. Answers pass the router,
//! whose connection tracking restores the load balancer's address. The packet is routed and judged by security groups
//! after the replacement, as EC2 judges packets to targets. Targets of type `ip` receive the client's address too.

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The addresses of all load balancers of a lab. No block of a VPC may overlap them.
pub const BALANCER_ADDRESSES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);

/// The IPv6 addresses of load balancers, where the VPC has IPv6.
pub const BALANCER_ADDRESSES_V6: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0xfffe, 0, 0, 0, 0, 0), 64);

/// One port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    pub address: IpAddr,
    pub transport: Transport,
    pub port: u16,
    /// The port of each target.
    pub target_port: u16,
    /// The targets of new connections, of the family of `address`; packets for a port without targets are dropped.
    pub targets: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Its name in nftables.
    fn keyword(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// The transaction that replaces all forwardings. The kernel applies it as a whole. Without IPv6 in the VPC it has no table
/// of IPv6.
pub(crate) fn transaction(forwardings: &[Forwarding], has_v6: bool) -> String {
    let families = ["ip"].into_iter().chain(has_v6.then_some("ip6"));
    families.map(|family| table(family, forwardings)).collect()
}

fn table(family: &str, forwardings: &[Forwarding]) -> String {
    let mut out = format!(
        "add table {family} {TABLE}\n\
         delete table {family} {TABLE}\n\
         add table {family} {TABLE}\n\
         add chain {family} {TABLE} {CHAIN} {{ type nat hook prerouting priority {PRIORITY}; policy accept; }}\n"
    );
    let is_of_family = |at: &IpAddr| at.is_ipv4() == (family == "ip");
    for Forwarding { address, transport, port, target_port, targets } in forwardings {
        if !is_of_family(address) || targets.is_empty() {
            continue;
        }
        let transport = transport.keyword();
        let count = targets.len();
        let numbered: Vec<String> =
            targets.iter().enumerate().map(|(n, target)| format!("{n} : {target}")).collect();
        let _ = writeln!(
            out,
            "add rule {family} {TABLE} {CHAIN} {family} daddr {address} {transport} dport {port} dnat to jhash \
             {family} saddr . {transport} sport . {family} daddr . {transport} dport mod {count} seed {SEED} \
             map {{ {} }} : {target_port}",
            numbered.join(", ")
        );
    }
    out
}

const TABLE: &str = "balancers";
const CHAIN: &str = "forward";
/// After connection tracking (-200) and before the VPC's check of destinations (-150).
const PRIORITY: &str = "-175";
/// The same for each transaction: a client's port has the same target as long as the targets stay.
const SEED: &str = "0x46455252";

#[cfg(test)]
mod tests {
    use super::*;

    fn web(targets: &[[u8; 4]]) -> Forwarding {
        Forwarding {
            address: Ipv4Addr::new(198, 51, 100, 1).into(),
            transport: Transport::Tcp,
            port: 80,
            target_port: 30_080,
            targets: targets.iter().map(|octets| IpAddr::from(*octets)).collect(),
        }
    }

    #[test]
    fn each_connection_gets_one_of_the_targets_by_its_ends() {
        let script = transaction(&[web(&[[10, 0, 1, 10], [10, 0, 2, 10]])], false);
        let rule = script.lines().last().unwrap_or_default();
        let expected = "add rule ip balancers forward ip daddr 198.51.100.1 tcp dport 80 dnat to jhash \
                        ip saddr . tcp sport . ip daddr . tcp dport mod 2 seed 0x46455252 \
                        map { 0 : 10.0.1.10, 1 : 10.0.2.10 } : 30080";
        assert_eq!(rule, expected);
    }

    #[test]
    fn each_family_has_the_rules_of_its_addresses_only() {
        let address = IpAddr::from([0x2001, 0xdb8, 0xfffe, 0, 0, 0, 0, 1]);
        let v6 = Forwarding {
            address,
            targets: vec![IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 7])],
            ..web(&[])
        };
        let script = transaction(&[web(&[[10, 0, 1, 10]]), v6], true);
        let rules: Vec<&str> = script.lines().filter(|line| line.starts_with("add rule")).collect();
        assert_eq!(rules.len(), 2, "{script}");
        assert!(rules[0].starts_with("add rule ip ") && rules[0].contains("{ 0 : 10.0.1.10 }"));
        assert!(rules[1].starts_with("add rule ip6 balancers forward ip6 daddr 2001:db8:fffe::1 "));
        assert!(rules[1].ends_with(" map { 0 : fd00::7 } : 30080"), "{script}");
    }

    #[test]
    fn a_port_without_targets_has_no_rule_and_earlier_rules_are_removed() {
        let script = transaction(&[web(&[])], true);
        assert!(!script.contains("add rule"), "{script}");
        for family in ["ip", "ip6"] {
            assert!(script.contains(&format!("delete table {family} balancers\n")), "{script}");
        }
    }
}
