//! Dual egress: a pod's second address, of the other family. It is on the pod's first interface and known on its node
//! only. The pod uses it for destinations of that family, and the node translates it.
//!
//! An IPv6 address follows from the pod's own. IPv4 addresses are few, so the kernel assigns them: only one ADD can
//! add the host route to an address. The host end then has the gateway's address with the pod's as its peer. This is
//! the [`lease`]: it is always observed, and unlike the route it survives a link that goes down. Both disappear with
//! the link.

use crate::{Action, Family, IfIndex, LinkAddr, Neighbor, Op, Route, Subject};
use config_model::{Mac, PodKey, TableId, registry};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The range of pods' second addresses of this family.
pub fn range(family: Family) -> IpNet {
    let (v4, v6) = (registry::EGRESS_V4, registry::EGRESS_V6);
    match family {
        Family::V4 => Ipv4Net::new_assert(v4, registry::EGRESS_V4_BITS).into(),
        Family::V6 => Ipv6Net::new_assert(v6, registry::EGRESS_V6_BITS).into(),
    }
}

/// True if the address is in such a range.
pub fn is_within(address: IpAddr) -> bool {
    range(Family::of(address)).contains(&address)
}

/// The second address of an IPv4 pod: a fixed prefix and the pod's address in the last bits.
pub fn v6_of(pod: Ipv4Addr) -> Ipv6Addr {
    let bits = u128::from(registry::EGRESS_V6) | u128::from(u32::from(pod));
    Ipv6Addr::from(bits)
}

/// Number of second IPv4 addresses. The network address, the first address (amazon-vpc-cni's gateway) and the
/// broadcast address are not used.
pub const V4_COUNT: u32 = (1 << (32 - registry::EGRESS_V4_BITS)) - 3;

/// Every second IPv4 address once. The start depends on the key, so that pods that are built at the same time rarely
/// try the same address.
pub fn candidates(key: &PodKey) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let digest = key.digest();
    let start = u32::from_str_radix(&digest[..8], 16).unwrap_or(0) % V4_COUNT;
    let first = u32::from(registry::EGRESS_V4) + 2;
    (0..V4_COUNT).map(move |n| Ipv4Addr::from(first + (start + n) % V4_COUNT))
}

/// The second IPv4 address of the pod behind this host end.
pub fn lease(dev: IfIndex, addresses: &[LinkAddr]) -> Option<Ipv4Addr> {
    let peers = addresses.iter().filter(|address| address.dev == dev);
    let mut peers = peers.filter_map(|address| match address.peer? {
        IpAddr::V4(v4) if is_within(v4.into()) => Some(v4),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    });
    peers.next()
}

/// True if the route has the form of a host route to a second address.
pub(crate) fn is_host_route(route: &Route) -> bool {
    route.table == TableId::MAIN
        && route.plain
        && route.gateway.is_none()
        && route.host_address().is_some_and(is_within)
}

/// The link-local gateway, equal to that of a pod of this family.
pub fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => registry::POD_GATEWAY.into(),
        Family::V6 => registry::POD_GATEWAY_V6.into(),
    }
}

/// The second address of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Not of the family of the pod's own address.
    pub address: IpAddr,
}

impl Egress {
    /// Operations in the pod's namespace.
    pub fn pod_batch(&self, pod_end: IfIndex, host_mac: Mac) -> Vec<Op> {
        let [gateway, default] = self.pod_routes(pod_end);
        self.ops([
            Action::AddAddress(self.pod_address(pod_end)),
            Action::ReplaceRoute(gateway),
            Action::ReplaceRoute(default),
            Action::SetNeighbor(self.gateway_neighbor(pod_end, host_mac)),
        ])
    }

    /// Operations on the host. The address must be leased to the pod already, if it is IPv4.
    pub fn host_batch(&self, host_end: IfIndex) -> Vec<Op> {
        let address = Action::AddAddress(self.host_address(host_end));
        self.ops([address, Action::ReplaceRoute(self.host_route(host_end))])
    }

    /// Leases the address: the kernel refuses the route if another pod has it.
    pub fn take(&self, host_end: IfIndex) -> Op {
        let route = Action::AddRoute(self.host_route(host_end));
        Op::new(Subject::Address(self.address), route)
    }

    /// The host's route to the pod.
    pub fn host_route(&self, host_end: IfIndex) -> Route {
        Route::on_link(TableId::MAIN, self.address, host_end)
    }

    /// The gateway's address on the host end. For IPv4 it is the lease as well.
    pub fn host_address(&self, dev: IfIndex) -> LinkAddr {
        let gateway = gateway(Family::of(self.address));
        let peer = self.address.is_ipv4().then_some(self.address);
        let length = if gateway.is_ipv4() { 32 } else { LINK_LOCAL_BITS };
        let address = IpNet::new_assert(gateway, length);
        let noprefixroute = peer.is_some();
        LinkAddr { dev, address, peer, global: false, secondary: false, noprefixroute }
    }

    pub(crate) fn pod_address(&self, dev: IfIndex) -> LinkAddr {
        LinkAddr {
            dev,
            address: IpNet::from(self.address),
            peer: None,
            global: true,
            secondary: false,
            noprefixroute: false,
        }
    }

    /// The route to the gateway, and the default route by it.
    pub(crate) fn pod_routes(&self, dev: IfIndex) -> [Route; 2] {
        let gateway = gateway(Family::of(self.address));
        let main = TableId::MAIN;
        [Route::on_link(main, gateway, dev), Route::default_via(main, gateway, dev)]
    }

    pub(crate) fn gateway_neighbor(&self, dev: IfIndex, mac: Mac) -> Neighbor {
        Neighbor {
            dev,
            address: gateway(Family::of(self.address)),
            mac: Some(mac),
            permanent: true,
        }
    }

    fn ops(&self, actions: impl IntoIterator<Item = Action>) -> Vec<Op> {
        let subject = Subject::Address(self.address);
        actions.into_iter().map(|action| Op::new(subject.clone(), action)).collect()
    }
}

/// The length of the prefix that link-local addresses share (RFC 4291).
const LINK_LOCAL_BITS: u8 = 64;
