//! A small node for planners: its desired state and its links.

use config_model::{
    EniId, HostEndMode, Mac, PodKey, PodName, RuleLayout, TableId, VethName, registry,
};
use ipnet::{IpNet, Ipv4Net};
use routing_plan::{EniDesired, Family, NodeDesired, PodDesired, PrimaryDesired};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

thread_local! {
    static FAMILY: Cell<Family> = const { Cell::new(Family::V4) };
}

/// Sets the family of this module's functions on the calling thread. The default is IPv4.
pub fn set_family(family: Family) {
    FAMILY.set(family);
}

/// The family of this module's functions on the calling thread.
pub fn family() -> Family {
    FAMILY.get()
}

/// An address outside of the node's subnets.
pub fn far() -> IpAddr {
    match family() {
        Family::V4 => Ipv4Addr::new(192, 0, 2, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1).into(),
    }
}

/// The address with the prefix length of its subnet.
pub fn within_subnet(n: u8, host: u8) -> IpNet {
    let length = match family() {
        Family::V4 => 24,
        Family::V6 => 64,
    };
    IpNet::new_assert(address(n, host), length)
}

/// The MAC address of ENI `n`; 0 is the primary ENI.
pub fn mac(n: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, n])
}

/// Address `host` of the subnet of ENI `n`.
pub fn address(n: u8, host: u8) -> IpAddr {
    match family() {
        Family::V4 => Ipv4Addr::new(10, 0, n, host).into(),
        Family::V6 => {
            let (n, host) = (u16::from(n), u16::from(host));
            Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0, 0, host).into()
        }
    }
}

/// The table of ENI `n`.
pub fn table(n: u8) -> TableId {
    if n == 0 { TableId::MAIN } else { TableId(u32::from(n) + 1) }
}

/// Secondary ENI `n`, whose primary address is the fifth of its subnet.
pub fn eni(n: u8) -> EniDesired {
    EniDesired {
        eni: EniId::new(format!("eni-{n}")),
        mac: mac(n),
        address: Some(address(n, 5)),
        subnet: within_subnet(n, 0),
        table: table(n),
        mtu: registry::ENI_MTU,
        blocks: blocks(n),
        trunk: false,
    }
}

/// Pod `i` with an address of ENI `n`, confirmed.
pub fn pod(n: u8, i: u8) -> PodDesired {
    let name = PodName { namespace: "default".to_owned(), name: format!("pod-{n}-{i}") };
    PodDesired {
        key: key(&format!("c{n}x{i}")),
        veth: VethName::of("eni", &name, 0),
        address: address(n, 20 + i),
        table: table(n),
        host_end: HostEndMode::Routed,
        confirmed: true,
        adopted: false,
    }
}

/// The key of `eth0` in the sandbox with this ID.
pub fn key(container_id: &str) -> PodKey {
    PodKey::new(registry::CNI_NETWORK, container_id, "eth0").expect("a key in good form")
}

/// The range of an external Service.
pub fn range(number: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, number, 0), 24)
}

/// The blocks of ENI `n` for pods. In IPv4 those of its first two pods are single addresses.
fn blocks(n: u8) -> BTreeSet<IpNet> {
    let block = |host, length| IpNet::new_assert(address(n, host), length);
    match family() {
        Family::V4 => [block(20, 32), block(21, 32), block(22, 31), block(24, 29)].into(),
        Family::V6 => [block(16, 124)].into(),
    }
}

/// A node with these secondary ENIs and pods. Every address of its subnets is managed.
pub fn node(enis: u8, pods: Vec<PodDesired>) -> NodeDesired {
    let hosts = |n| (4..=100).map(move |host| address(n, host));
    let managed: BTreeSet<IpNet> = (0..=enis).flat_map(hosts).map(IpNet::from).collect();
    NodeDesired {
        family: family(),
        layout: RuleLayout::PerPod,
        primary: PrimaryDesired { mac: mac(0), mtu: registry::ENI_MTU },
        connmark: Some(registry::CONNMARK),
        external: [range(0)].into(),
        enis: (1..=enis).map(eni).collect(),
        pods,
        branches: Vec::new(),
        trunk: None,
        strict: false,
        spared: BTreeSet::new(),
        managed,
        veth_prefix: "eni".to_owned(),
        egress: false,
        sysctls: BTreeMap::new(),
    }
}
