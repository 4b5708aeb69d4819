//! A small node to plan for: what it should be, and the links that a plan expects to find.

use config_model::{EniId, Mac, PodKey, PodName, TableId, VethName, registry};
use ipnet::IpNet;
use routing_plan::{EniDesired, Family, NodeDesired, PodDesired, PrimaryDesired};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// The Ethernet address of ENI `n`; 0 is the primary.
pub fn mac(n: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, n])
}

/// Address `host` of the subnet of ENI `n`.
pub fn address(n: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, n, host).into()
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
        subnet: IpNet::new_assert(address(n, 0), 24),
        table: table(n),
        mtu: registry::ENI_MTU,
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
        confirmed: true,
    }
}

/// The key of `eth0` in the sandbox of this id.
pub fn key(container_id: &str) -> PodKey {
    PodKey::new(registry::CNI_NETWORK, container_id, "eth0").expect("a key in good form")
}

/// A node with these secondary ENIs and pods. Every address of its subnets is managed.
pub fn node(enis: u8, pods: Vec<PodDesired>) -> NodeDesired {
    let hosts = |n| (4..=100).map(move |host| address(n, host));
    let managed: BTreeSet<IpNet> = (0..=enis).flat_map(hosts).map(IpNet::from).collect();
    NodeDesired {
        family: Family::V4,
        primary: PrimaryDesired { mac: mac(0), mtu: registry::ENI_MTU },
        connmark: Some(registry::CONNMARK),
        enis: (1..=enis).map(eni).collect(),
        pods,
        spared: BTreeSet::new(),
        managed,
        veth_prefix: "eni".to_owned(),
        sysctls: BTreeMap::new(),
    }
}
