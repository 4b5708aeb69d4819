//! Observes the links of this node's pods, by the alias that the plugin writes on their host ends.

use config_model::{HostEnd, HostLink, causes};
use datapath_node::Links;
use routing_netlink::{Socket, With};
use routing_plan::{Link, LinkKind, Observed};

/// Reads the links of the network namespace of the calling thread. Blocks for some milliseconds.
///
/// # Errors
/// The kernel gives no socket or no list; the cause.
pub(crate) fn observe() -> Result<Links, String> {
    let mut socket = Socket::open().map_err(|error| causes(&error))?;
    let observed = socket.observe(With::Nothing).map_err(|error| causes(&error))?;
    Ok(links_of(&observed))
}

/// The host ends by the container ID in their alias; those of another plugin have none. The link of a branch ENI carries
/// its pod's alias as well and is no host end.
fn links_of(observed: &Observed) -> Links {
    let mut links = Links::new();
    for link in observed.links.values().filter(|link| link.kind == LinkKind::Veth) {
        let (container, number) = match link.key() {
            Some(key) => (key.container_id.clone(), key.number()),
            None => (String::new(), 0),
        };
        let link = host_link(observed, link, number);
        if !container.is_empty() || !link.addresses.is_empty() {
            links.entry(container).or_default().push(link);
        }
    }
    links.values_mut().for_each(|of| of.sort_by_key(|link| link.number));
    links
}

fn host_link(observed: &Observed, link: &Link, number: u8) -> HostLink {
    let addresses = observed.routed_to(link.index);
    let host_end = match link.master {
        Some(_) => HostEnd::Bridged { port: link.name.clone() },
        None => HostEnd::Routed,
    };
    HostLink {
        name: link.name.clone(),
        ifindex: link.index.0,
        mac: link.mac,
        number,
        // With compact rules the kernel's state does not name it.
        table: addresses.iter().find_map(|address| observed.table_of(*address)),
        addresses,
        mark: None,
        eni: None,
        host_end,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::{Mac, PodKey, TableId};
    use routing_plan::{IfIndex, Route, Rule, Selector};
    use std::{collections::BTreeMap, net::IpAddr};

    fn link(index: u32, alias: Option<String>, kind: LinkKind) -> Link {
        Link {
            index: IfIndex(index),
            name: format!("eni{index}"),
            mac: Some(Mac([2, 0, 0, 0, 0, 7])),
            mtu: 1500,
            up: true,
            alias,
            group: 0,
            kind,
            peer: None,
            master: None,
            ipv4: BTreeMap::new(),
            ipv6: BTreeMap::new(),
        }
    }

    #[test]
    fn host_ends_are_found_by_alias_with_their_addresses_and_tables() {
        let key = PodKey::new("aws-cni", "c-0", "eth0").unwrap();
        let address: IpAddr = "10.0.0.9".parse().unwrap();
        let mut observed = Observed::default();
        for link in [
            link(4, Some(key.interface(1).alias()), LinkKind::Veth),
            link(5, Some(key.alias()), LinkKind::Veth),
            link(6, Some(key.alias()), LinkKind::Vlan(7)),
            link(7, None, LinkKind::Veth),
            link(8, Some("a person's".to_owned()), LinkKind::Veth),
        ] {
            observed.links.insert(link.index, link);
        }
        observed.routes.push(Route::on_link(TableId::MAIN, address, IfIndex(5)));
        let other: IpAddr = "10.0.0.10".parse().unwrap();
        observed.routes.push(Route::on_link(TableId::MAIN, other, IfIndex(7)));
        let pref = config_model::registry::PREF_FROM_POD;
        observed.rules.push(Rule::ours(pref, Selector::from(address), TableId(3)));
        let links = links_of(&observed);
        assert_eq!(links.keys().collect::<Vec<_>>(), ["", "c-0"]);
        let [theirs] = links[""].as_slice() else { panic!("{links:?}") };
        assert_eq!((theirs.ifindex, theirs.addresses.len()), (7, 1), "a route leads to it");
        let [first, second] = links["c-0"].as_slice() else { panic!("{links:?}") };
        assert_eq!((first.ifindex, first.number, first.table), (5, 0, Some(TableId(3))));
        assert_eq!(first.addresses, [address].into());
        assert_eq!((second.ifindex, second.number, second.table), (4, 1, None));
    }
}
