//! The pods that the fast path can reach.

use config_model::registry::STRICT_VETH_PREFIX;
use datapath_abi::{AddressKey, Pod, address, address_key};
use datapath_plan::Address;
use routing_plan::{IfIndex, Link, LinkKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

/// The link of each pod, by its address.
pub type FastPods = BTreeMap<Address, u32>;

/// The links that are fit for the fast path, with the addresses that the host routes to each.
pub(crate) type Fit = BTreeMap<u32, BTreeSet<IpAddr>>;

/// `struct fast_pod` of `datapath/bpf/tables.h`.
pub(crate) type FastRow = [u8; 20];

/// A row of the map; `None` removes it.
pub(crate) type FastWrite = (AddressKey, Option<FastRow>);

/// The links that are fit for the fast path. A packet enters the pod at the other end of a veth. `queued` are the links whose
/// queue can delay or drop packets, which the fast path would pass by.
pub(crate) fn fit(
    links: &BTreeMap<IfIndex, Link>,
    routed: &BTreeMap<u32, BTreeSet<IpAddr>>,
    queued: &BTreeSet<IfIndex>,
) -> Fit {
    let is_fit = |link: &&Link| {
        link.kind == LinkKind::Veth
            && link.up
            && link.master.is_none()
            && link.peer.is_some_and(|peer| peer.netns.is_some())
            && !link.name.starts_with(STRICT_VETH_PREFIX)
            && !queued.contains(&link.index)
    };
    let links = links.values().filter(is_fit);
    let addresses = |link: &Link| routed.get(&link.index.0).cloned().unwrap_or_default();
    links.map(|link| (link.index.0, addresses(link))).collect()
}

/// The pods that the fast path can reach. An address that the host routes to two links is that of no such pod.
pub(crate) fn fast_pods(pods: &BTreeMap<u32, Pod>, fit: &Fit) -> FastPods {
    let mut found = FastPods::new();
    let mut twice = BTreeSet::new();
    for (link, pod) in pods {
        let Some(routed) = fit.get(link) else { continue };
        let routed: BTreeSet<Address> = routed.iter().map(|of| Address::from(*of)).collect();
        for address in [pod.v4, pod.v6].into_iter().flatten().filter(|of| routed.contains(of)) {
            if found.insert(address, *link).is_some() {
                twice.insert(address);
            }
        }
    }
    found.retain(|address, _| !twice.contains(address));
    found
}

/// The writes that bring rows to these pods. The programs add flags and MACs to a row, which stay while the pod has the same link.
/// `behind_nat` are pods to which NAT leads datagrams, with their links.
pub(crate) fn plan(
    rows: &BTreeMap<AddressKey, FastRow>,
    pods: &FastPods,
    behind_nat: &BTreeMap<Address, u32>,
) -> Vec<FastWrite> {
    let wanted: BTreeMap<AddressKey, (u32, bool)> = pods
        .iter()
        .map(|(address, link)| {
            (address_key(*address), (*link, behind_nat.get(address) == Some(link)))
        })
        .collect();
    let gone = rows.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (*key, None));
    let written = wanted.iter().filter_map(|(key, (link, is_behind_nat))| {
        let earlier = rows.get(key).filter(|row| word(row, 0) == *link);
        let mut row = earlier.copied().unwrap_or_default();
        row[..4].copy_from_slice(&link.to_ne_bytes());
        let flags = word(&row, 4);
        let flags = if *is_behind_nat { flags | BEHIND_NAT } else { flags };
        row[4..8].copy_from_slice(&flags.to_ne_bytes());
        (earlier != Some(&row)).then_some((*key, Some(row)))
    });
    gone.chain(written).collect()
}

/// The pods whose rows the programs or an earlier plan have marked, and their links.
pub(crate) fn behind_nat(rows: &BTreeMap<AddressKey, FastRow>) -> BTreeMap<Address, u32> {
    let marked = rows.iter().filter(|(_, row)| word(row, 4) & BEHIND_NAT != 0);
    marked.map(|(key, row)| (address(*key), word(row, 0))).collect()
}

/// The pods whose MACs the programs do not know, with their links.
pub(crate) fn silent(rows: &BTreeMap<AddressKey, FastRow>) -> Vec<(IfIndex, IpAddr)> {
    let silent = rows.iter().filter(|(_, row)| word(row, 4) & HAS_MACS == 0);
    let end = |key| Ipv6Addr::from_bits(address(key).0).to_canonical();
    silent.map(|(key, row)| (IfIndex(word(row, 0)), end(*key))).collect()
}

/// One of the row's words: the link at 0, the flags at 4.
fn word(row: &FastRow, at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&row[at..at + 4]);
    u32::from_ne_bytes(word)
}

/// Flags of a row in `datapath/bpf/tables.h`.
const HAS_MACS: u32 = 1;
const BEHIND_NAT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use routing_plan::Peer;

    fn link(index: u32, change: impl FnOnce(&mut Link)) -> (IfIndex, Link) {
        let mut link = Link {
            index: IfIndex(index),
            name: format!("eni{index}"),
            mac: None,
            mtu: 9001,
            up: true,
            alias: None,
            group: 0,
            kind: LinkKind::Veth,
            peer: Some(Peer { index: IfIndex(3), netns: Some(0) }),
            master: None,
            ipv4: BTreeMap::new(),
            ipv6: BTreeMap::new(),
        };
        change(&mut link);
        (link.index, link)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_a_veth_into_another_namespace_without_a_queue_is_fit() {
        let links = BTreeMap::from([
            link(1, |_| {}),
            link(2, |link| link.kind = LinkKind::Other("netkit".to_owned())),
            link(3, |link| link.peer = Some(Peer { index: IfIndex(9), netns: None })),
            link(4, |link| link.peer = None),
            link(5, |link| link.name = "vlan0123456789a".to_owned()),
            link(6, |_| {}),
            link(7, |link| link.up = false),
            link(8, |link| link.master = Some(IfIndex(1))),
        ]);
        let routed = BTreeMap::from([(1, BTreeSet::from([ip("10.0.0.1")]))]);
        let fit = fit(&links, &routed, &BTreeSet::from([IfIndex(6)]));
        assert_eq!(fit, BTreeMap::from([(1, BTreeSet::from([ip("10.0.0.1")]))]));
    }

    #[test]
    fn a_pod_is_reached_by_the_addresses_that_the_host_routes_to_its_link() {
        let pod = |v4: &str| Pod { v4: Some(ip(v4).into()), ..Pod::default() };
        let pods =
            BTreeMap::from([(1, pod("10.0.0.1")), (2, pod("10.0.0.2")), (3, pod("10.0.0.2"))]);
        let routed = |of: &str| BTreeSet::from([ip(of)]);
        let of = |fit: Fit| fast_pods(&pods, &fit);
        let first = FastPods::from([(ip("10.0.0.1").into(), 1)]);
        let fit = Fit::from([(1, routed("10.0.0.1")), (2, routed("10.0.0.9"))]);
        assert_eq!(of(fit), first, "another address is routed to the link");
        let fit = |third| Fit::from([(2, routed("10.0.0.2")), (3, routed(third))]);
        assert_eq!(of(fit("10.0.0.2")), FastPods::new(), "two links have the address");
        let second = FastPods::from([(ip("10.0.0.2").into(), 2)]);
        assert_eq!(of(fit("10.0.0.9")), second);
    }

    #[test]
    fn a_row_keeps_the_parts_of_the_programs_while_the_pod_has_its_link() {
        let at = Address::from(ip("10.0.0.1"));
        let pods = FastPods::from([(at, 7)]);
        let (none, nat) = (BTreeMap::new(), BTreeMap::from([(at, 7)]));
        let mut row = FastRow::default();
        row[..4].copy_from_slice(&7_u32.to_ne_bytes());
        let new = vec![(address_key(at), Some(row))];
        assert_eq!(plan(&BTreeMap::new(), &pods, &none), new);
        row[4..8].copy_from_slice(&1_u32.to_ne_bytes());
        row[8..].fill(0xa);
        let rows = BTreeMap::from([(address_key(at), row)]);
        assert_eq!(plan(&rows, &pods, &none), []);
        row[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        assert_eq!(plan(&rows, &pods, &nat), [(address_key(at), Some(row))]);
        let moved = plan(&rows, &FastPods::from([(at, 8)]), &none);
        let mut row = FastRow::default();
        row[..4].copy_from_slice(&8_u32.to_ne_bytes());
        assert_eq!(moved, [(address_key(at), Some(row))], "the MACs are those of the earlier link");
        assert_eq!(plan(&rows, &FastPods::new(), &none), [(address_key(at), None)]);
    }

    #[test]
    fn a_pod_behind_nat_keeps_its_mark_while_its_row_is_missing() {
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|at| Address::from(ip(at)));
        let row = |link: u32, flags: u32| {
            let mut row = FastRow::default();
            row[..4].copy_from_slice(&link.to_ne_bytes());
            row[4..8].copy_from_slice(&flags.to_ne_bytes());
            row
        };
        let rows = [(one, row(7, 3)), (other, row(8, 1))].map(|(at, row)| (address_key(at), row));
        let marked = behind_nat(&BTreeMap::from(rows));
        assert_eq!(marked, BTreeMap::from([(one, 7)]));
        let later = |link| plan(&BTreeMap::new(), &FastPods::from([(one, link)]), &marked);
        assert_eq!(later(7), [(address_key(one), Some(row(7, 2)))]);
        assert_eq!(later(9), [(address_key(one), Some(row(9, 0)))], "another pod has the address");
    }

    #[test]
    fn a_pod_whose_row_has_no_macs_is_silent() {
        let row = |address: &str, link: u32, flags: u32| {
            let mut row = FastRow::default();
            row[..4].copy_from_slice(&link.to_ne_bytes());
            row[4..8].copy_from_slice(&flags.to_ne_bytes());
            (address_key(Address::from(ip(address))), row)
        };
        let rows = [
            row("10.0.0.1", 7, BEHIND_NAT),
            row("10.0.0.2", 8, HAS_MACS),
            row("10.0.0.3", 9, HAS_MACS | BEHIND_NAT),
            row("fd00::1", 7, 0),
        ];
        let link = IfIndex(7);
        let expected = [(link, ip("10.0.0.1")), (link, ip("fd00::1"))];
        assert_eq!(silent(&BTreeMap::from(rows)), expected);
    }
}
