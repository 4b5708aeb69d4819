//! The links at which clients outside ask for Services.

use routing_plan::Observed;
use std::{collections::BTreeMap, net::IpAddr};

/// By link: the addresses of both families from which packets to other nodes are masqueraded.
pub type Wires = BTreeMap<u32, [Option<IpAddr>; 2]>;

/// The links with Ethernet frames and an address of the node. Packets that are masqueraded have the first address of each
/// family. Host links of pods have no address.
pub(crate) fn wires(observed: &Observed) -> Wires {
    let mut wires = Wires::new();
    for address in observed.addresses.iter().filter(|of| of.global && !of.secondary) {
        let link = observed.links.get(&address.dev);
        if link.is_none_or(|of| of.mac.is_none() || [LOOPBACK, IPVS].contains(&&*of.name)) {
            continue;
        }
        let at = address.address.addr();
        let of_link = wires.entry(address.dev.0).or_insert([None; 2]);
        of_link[usize::from(at.is_ipv6())].get_or_insert(at);
    }
    wires
}

pub(crate) const LOOPBACK: &str = "lo";
/// The link of kube-proxy's mode `ipvs`.
pub(crate) const IPVS: &str = "kube-ipvs0";
