//! Network load balancers: destinations outside the VPC's blocks that the router replaces by targets in the VPC.
//!
//! Only the destination is replaced, so a target receives the client's own address and port. Answers pass the router,
//! whose connection tracking restores the load balancer's address. The packet is routed and judged by security groups
//! after the replacement, as EC2 judges packets to targets of type `instance`.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, net::Ipv4Addr};

/// The addresses of all load balancers of a lab. No block of a VPC may overlap them.
pub const BALANCER_ADDRESSES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);

/// One port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    pub address: Ipv4Addr,
    pub transport: Transport,
    pub port: u16,
    /// The port of each target.
    pub target_port: u16,
    /// The targets of new connections; packets for a port without targets are dropped.
    pub targets: Vec<Ipv4Addr>,
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

/// The transaction that replaces all forwardings. The kernel applies it as a whole.
pub(crate) fn transaction(forwardings: &[Forwarding]) -> String {
    let mut out = format!(
        "add table ip {TABLE}\n\
         delete table ip {TABLE}\n\
         add table ip {TABLE}\n\
         add chain ip {TABLE} {CHAIN} {{ type nat hook prerouting priority {PRIORITY}; policy accept; }}\n"
    );
    for forwarding in forwardings.iter().filter(|forwarding| !forwarding.targets.is_empty()) {
        let Forwarding { address, transport, port, target_port, targets } = forwarding;
        let transport = transport.keyword();
        let count = targets.len();
        let numbered: Vec<String> =
            targets.iter().enumerate().map(|(n, target)| format!("{n} : {target}")).collect();
        let _ = writeln!(
            out,
            "add rule ip {TABLE} {CHAIN} ip daddr {address} {transport} dport {port} dnat to jhash \
             ip saddr . {transport} sport . ip daddr . {transport} dport mod {count} seed {SEED} \
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
            address: Ipv4Addr::new(198, 51, 100, 1),
            transport: Transport::Tcp,
            port: 80,
            target_port: 30_080,
            targets: targets.iter().map(|octets| Ipv4Addr::from(*octets)).collect(),
        }
    }

    #[test]
    fn each_connection_gets_one_of_the_targets_by_its_ends() {
        let script = transaction(&[web(&[[10, 0, 1, 10], [10, 0, 2, 10]])]);
        let rule = script.lines().last().unwrap_or_default();
        let expected = "add rule ip balancers forward ip daddr 198.51.100.1 tcp dport 80 dnat to jhash \
                        ip saddr . tcp sport . ip daddr . tcp dport mod 2 seed 0x46455252 \
                        map { 0 : 10.0.1.10, 1 : 10.0.2.10 } : 30080";
        assert_eq!(rule, expected);
    }

    #[test]
    fn a_port_without_targets_has_no_rule_and_earlier_rules_are_removed() {
        let script = transaction(&[web(&[])]);
        assert!(!script.contains("add rule"), "{script}");
        assert!(script.contains("delete table ip balancers\n"), "{script}");
    }
}
