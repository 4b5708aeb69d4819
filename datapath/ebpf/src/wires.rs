//! The links to other nodes, with Services.

use routing_plan::{Family, IfIndex, Link, LinkKind, Observed, Route};
use std::{collections::BTreeMap, net::IpAddr};

/// The links to other nodes.
pub type Wires = BTreeMap<u32, Wire>;

/// Addresses of a link to other nodes: of IPv4, then of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// The addresses from which packets to other nodes are masqueraded.
    pub addresses: [Option<IpAddr>; 2],
    /// The gateways of packets on the fast path.
    pub gateways: [Option<IpAddr>; 2],
}

/// The links with Ethernet frames and an address of the node. Packets that are masqueraded have the first address of each
/// family. Host links of pods have no address. A link of a branch ENI has no gateway here: its packets take the stack.
pub(crate) fn wires(observed: &Observed) -> Wires {
    let mut wires = Wires::new();
    for address in observed.addresses.iter().filter(|of| of.global && !of.secondary) {
        let link = observed.links.get(&address.dev);
        if link.is_none_or(|of| of.mac.is_none() || [LOOPBACK, IPVS].contains(&&*of.name)) {
            continue;
        }
        let at = address.address.addr();
        let of_link = wires.entry(address.dev.0).or_default();
        of_link.addresses[usize::from(at.is_ipv6())].get_or_insert(at);
    }
    for (dev, wire) in &mut wires {
        let is_eni = |(index, link): (&IfIndex, &Link)| {
            index.0 == *dev && matches!(link.kind, LinkKind::Device | LinkKind::Veth)
        };
        if observed.links.iter().any(is_eni) {
            wire.gateways = [Family::V4, Family::V6].map(|family| gateway(observed, *dev, family));
        }
    }
    wires
}

/// The gateway of all default routes of a link, whatever their tables are. `None` if they have different ones.
fn gateway(observed: &Observed, dev: u32, family: Family) -> Option<IpAddr> {
    let leads = |route: &&Route| route.dev == Some(IfIndex(dev)) && route.dst == family.any();
    let mut gateways = observed.routes.iter().filter(leads).map(|route| route.gateway);
    let first = gateways.next()??;
    gateways.all(|gateway| gateway == Some(first)).then_some(first)
}

pub(crate) const LOOPBACK: &str = "lo";
/// The link of kube-proxy's mode `ipvs`.
pub(crate) const IPVS: &str = "kube-ipvs0";

#[cfg(test)]
mod tests {
    use super::*;
    use config_model::{Mac, TableId};
    use routing_plan::LinkAddr;

    fn link(index: u32, kind: LinkKind) -> Link {
        Link {
            index: IfIndex(index),
            name: format!("eth{index}"),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            mtu: 9001,
            up: true,
            alias: None,
            group: 0,
            kind,
            peer: None,
            master: None,
            ipv4: BTreeMap::new(),
            ipv6: BTreeMap::new(),
        }
    }

    fn address(dev: u32, address: &str) -> LinkAddr {
        LinkAddr {
            dev: IfIndex(dev),
            address: address.parse().expect("an address with its length"),
            peer: None,
            global: true,
            secondary: false,
            noprefixroute: false,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_link_has_the_gateway_of_all_its_default_routes() {
        let default = |table, gateway: &str, dev| {
            Route::default_via(TableId(table), ip(gateway), IfIndex(dev))
        };
        let on_link = Route { gateway: None, ..default(254, "10.4.0.1", 4) };
        let observed = Observed {
            links: [
                link(1, LinkKind::Device),
                link(2, LinkKind::Device),
                link(3, LinkKind::Vlan(7)),
                link(4, LinkKind::Device),
                link(5, LinkKind::Device),
            ]
            .map(|link| (link.index, link))
            .into(),
            addresses: vec![
                address(1, "10.1.0.9/24"),
                address(1, "10.1.0.8/24"),
                address(1, "fd00::9/64"),
                address(2, "10.2.0.9/24"),
                address(3, "10.3.0.9/24"),
                address(4, "10.4.0.9/24"),
            ],
            routes: vec![
                default(254, "10.1.0.1", 1),
                default(254, "fe80:ec2::1", 1),
                default(2, "10.1.0.1", 1),
                default(3, "10.2.0.1", 2),
                default(4, "10.2.0.2", 2),
                default(5, "10.3.0.1", 3),
                on_link,
                default(6, "10.5.0.1", 5),
            ],
            ..Observed::default()
        };
        let [primary, several, branch, direct] = ["10.1.0.9", "10.2.0.9", "10.3.0.9", "10.4.0.9"]
            .map(|at| Wire { addresses: [Some(ip(at)), None], ..Wire::default() });
        let primary = Wire {
            addresses: [primary.addresses[0], Some(ip("fd00::9"))],
            gateways: [Some(ip("10.1.0.1")), Some(ip("fe80:ec2::1"))],
        };
        assert_eq!(
            wires(&observed),
            Wires::from([(1, primary), (2, several), (3, branch), (4, direct)])
        );
    }
}
