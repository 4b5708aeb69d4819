//! One pod's links, addresses, routes and rules, as the plugin builds, checks and removes them.

mod check;

pub use crate::mac::mac_addresses;
pub use check::{Mismatch, check};

use crate::branch::{Carrier, loose_rp_filter};
use crate::rules::{from_rule, rules_of};
use crate::{
    Action, Branch, Enforcing, Family, IfIndex, Link, LinkAddr, LinkRef, Neighbor, Op, Route, Rule,
    RulePattern, Selector, Subject,
};
use config_model::{Mac, PodKey, RuleLayout, TableId, VethName, registry};
use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All inputs for one pod interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNet {
    /// Its `ifname` is the interface's name in the pod.
    pub key: PodKey,
    /// The name of the host end.
    pub veth: VethName,
    /// Number among the pod's interfaces: 0 has the default route of table main, the others have tables of their own.
    pub number: u8,
    pub address: IpAddr,
    /// The table of its ENI.
    pub table: TableId,
    /// Layout of the host's rules for pods. A pod with a branch ENI has rules of its own in either layout.
    pub layout: RuleLayout,
    /// The host end's mode. A pod with a branch ENI is always routed.
    pub host_end: HostEnd,
    /// MTU of both ends in bytes.
    pub mtu: u32,
    /// Its branch ENI, whose table is `table`.
    pub branch: Option<Branch>,
}

/// The host end of a pod: its mode with the observed gateway port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEnd {
    /// The host's route leads to the host veth.
    Routed,
    /// The host veth is a port of a bridge, and the host's route leads to the gateway port.
    Bridged(GatewayPort),
}

/// The link by which the host reaches the pods of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPort {
    pub index: IfIndex,
    pub name: String,
    /// Pods have it as the Ethernet address of their gateway.
    pub mac: Mac,
}

impl GatewayPort {
    /// `None` if the link is down or has no Ethernet address: no route can use it then.
    pub fn of(link: &Link) -> Option<Self> {
        let mac = link.mac.filter(|_| link.up)?;
        Some(Self { index: link.index, name: link.name.clone(), mac })
    }

    /// The host's entry for a pod. The port has no address, so the host cannot solicit the pod's Ethernet address.
    pub(crate) fn neighbor(&self, address: IpAddr, key: &PodKey) -> Neighbor {
        let [_, mac] = mac_addresses(key);
        Neighbor { dev: self.index, address, mac: Some(mac), permanent: true }
    }
}

/// One end of a veth pair to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethEnd {
    pub name: String,
    pub mac: Mac,
    /// In bytes.
    pub mtu: u32,
}

/// A veth pair to create, each end in its final namespace. The host end is created up and in [`registry::GROUP_NEW`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethPair {
    pub host: VethEnd,
    /// The host end's index; the kernel chooses it if `None`.
    pub host_index: Option<IfIndex>,
    pub pod: VethEnd,
}

impl PodNet {
    /// The link-local gateway: [`registry::POD_GATEWAY`] or [`registry::POD_GATEWAY_V6`] plus the
    /// interface's number.
    pub fn gateway(&self) -> IpAddr {
        gateway(Family::of(self.address), self.number)
    }

    /// The links to create. Both addresses should be locally administered: udev does not change those.
    pub fn veth_pair(&self, host_mac: Mac, pod_mac: Mac) -> VethPair {
        let end = |name: &str, mac| VethEnd { name: name.to_owned(), mac, mtu: self.mtu };
        VethPair {
            host: end(self.veth.as_str(), host_mac),
            host_index: None,
            pod: end(&self.key.ifname, pod_mac),
        }
    }

    /// Operations in the pod's namespace after the links exist. `host_mac` is the host end's address.
    pub fn pod_batch(&self, pod_end: IfIndex, host_mac: Mac) -> Vec<Op> {
        let link = LinkRef { index: pod_end, name: self.key.ifname.clone() };
        let built = [
            Action::SetUp(link),
            Action::AddAddress(self.pod_address(pod_end)),
            Action::ReplaceRoute(self.gateway_route(pod_end)),
            Action::ReplaceRoute(self.default_route(pod_end)),
            Action::SetNeighbor(self.gateway_neighbor(pod_end, host_mac)),
        ];
        self.ops(built.into_iter().chain(self.rule_in_pod().map(Action::AddRule)))
    }

    /// Operations on the host after the links exist. The alias comes first, so that the link is recognized after a
    /// crash.
    pub fn host_batch(&self, host_end: IfIndex) -> Vec<Op> {
        let link = LinkRef { index: host_end, name: self.veth.as_str().to_owned() };
        let rules = self.rules().into_iter().map(Action::AddRule);
        let strict = self.branch.is_some_and(|branch| branch.enforcing == Enforcing::Strict);
        let loose = strict.then(|| loose_rp_filter(&link));
        let alias = Action::Claim(link, self.key.alias());
        let gateway = self.host_address(host_end).map(Action::AddAddress);
        let route = Action::ReplaceRoute(self.host_route(host_end));
        let neighbor = self.host_neighbor().map(Action::SetNeighbor);
        let first = [alias].into_iter().chain(loose).chain(gateway).chain([route]);
        self.ops(first.chain(neighbor).chain(rules))
    }

    /// Undoes a failed build, however far it got. A link's routes disappear with it; those by a gateway port do not.
    pub fn undo_batch(&self, host_end: Option<IfIndex>) -> Vec<Op> {
        let name = self.veth.as_str().to_owned();
        let link = host_end.map(|index| Action::DeleteLink(LinkRef { index, name }));
        let bridged = match &self.host_end {
            HostEnd::Routed => Vec::new(),
            HostEnd::Bridged(port) => port_removals(self.address, port.index),
        };
        self.ops(purges(self.address).into_iter().chain(bridged).chain(link))
    }

    /// The host's route to the pod.
    pub fn host_route(&self, host_end: IfIndex) -> Route {
        let shared = self.layout.pod_routes();
        let table = self.branch.map_or(shared, |branch| branch.host_table());
        let dev = match &self.host_end {
            HostEnd::Routed => host_end,
            HostEnd::Bridged(port) => port.index,
        };
        Route::on_link(table, self.address, dev)
    }

    /// The host's neighbor entry for the pod; `None` in mode routed.
    pub fn host_neighbor(&self) -> Option<Neighbor> {
        match &self.host_end {
            HostEnd::Routed => None,
            HostEnd::Bridged(port) => Some(port.neighbor(self.address, &self.key)),
        }
    }

    /// The host's rules with which the pod is built. A shared rule to pods may exist already. The pod's own rule from
    /// it remains until the daemon observes a shared rule with the same effect.
    pub fn rules(&self) -> Vec<Rule> {
        if let Some(branch) = &self.branch {
            return branch.rules(self.address, self.veth.as_str(), &branch.link_name());
        }
        match self.layout {
            RuleLayout::PerPod => rules_of(self.address, self.table),
            RuleLayout::Compact => {
                let to = Rule::to_pods(Family::of(self.address));
                [to].into_iter().chain(from_rule(self.address, self.table)).collect()
            }
        }
    }

    /// Operations for the VLAN link of the pod's branch, before the host's batch.
    pub fn branch_batch(&self, carrier: &Carrier) -> Vec<Op> {
        let routes = self.branch.iter().flat_map(|branch| branch.routes(carrier.link.index));
        self.ops(carrier.actions.iter().cloned().chain(routes.map(Action::ReplaceRoute)))
    }

    pub(crate) fn host_address(&self, dev: IfIndex) -> Option<LinkAddr> {
        match self.host_end {
            HostEnd::Routed => host_address(self.gateway(), dev),
            HostEnd::Bridged(_) => None,
        }
    }

    /// The table in the pod for this interface.
    fn pod_table(&self) -> TableId {
        if self.number == 0 { TableId::MAIN } else { TableId(u32::from(self.number)) }
    }

    pub(crate) fn pod_address(&self, dev: IfIndex) -> LinkAddr {
        let address = IpNet::from(self.address);
        LinkAddr { dev, address, peer: None, global: true, secondary: false, noprefixroute: false }
    }

    pub(crate) fn gateway_route(&self, dev: IfIndex) -> Route {
        Route::on_link(self.pod_table(), self.gateway(), dev)
    }

    pub(crate) fn default_route(&self, dev: IfIndex) -> Route {
        Route::default_via(self.pod_table(), self.gateway(), dev)
    }

    /// The pod's entry for its gateway: the host end, which has `host_mac`, or the gateway port.
    pub(crate) fn gateway_neighbor(&self, dev: IfIndex, host_mac: Mac) -> Neighbor {
        let mac = match &self.host_end {
            HostEnd::Routed => host_mac,
            HostEnd::Bridged(port) => port.mac,
        };
        Neighbor { dev, address: self.gateway(), mac: Some(mac), permanent: true }
    }

    /// Sends packets from a further interface's address by that interface.
    pub(crate) fn rule_in_pod(&self) -> Option<Rule> {
        let from = Selector::from(self.address);
        (self.number > 0).then(|| Rule::ours(registry::PREF_IN_POD, from, self.pod_table()))
    }

    fn ops(&self, actions: impl IntoIterator<Item = Action>) -> Vec<Op> {
        let subject = Subject::Address(self.address);
        actions.into_iter().map(|action| Op::new(subject.clone(), action)).collect()
    }
}

/// The gateway of a pod's interface of this number.
pub(crate) fn gateway(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => {
            let first = u32::from(registry::POD_GATEWAY);
            Ipv4Addr::from(first + u32::from(number)).into()
        }
        Family::V6 => {
            let first = u128::from(registry::POD_GATEWAY_V6);
            Ipv6Addr::from(first + u128::from(number)).into()
        }
    }
}

/// The gateway's address on the host end, for IPv6 only. The host solicits the pod's Ethernet address from a
/// link-local address. The kernel would check an address of its own for duplicates for a second first.
pub(crate) fn host_address(gateway: IpAddr, dev: IfIndex) -> Option<LinkAddr> {
    let IpAddr::V6(gateway) = gateway else { return None };
    let address = IpNet::V6(Ipv6Net::new_assert(gateway, LINK_LOCAL_BITS));
    let (global, secondary, noprefixroute) = (false, false, false);
    Some(LinkAddr { dev, address, peer: None, global, secondary, noprefixroute })
}

/// Operations of a DEL for one address on the host, in either layout. All rules of the pod alone are removed, and the
/// host routes if they lead to `host_end`, the link with the pod's own key.
pub fn removal(address: IpAddr, host_end: Option<IfIndex>) -> Vec<Op> {
    let routes = host_end.into_iter().flat_map(|dev| routes_by(address, dev));
    let routes = routes.map(Action::DeleteRoute);
    purges(address)
        .into_iter()
        .chain(routes)
        .map(|action| Op::new(Subject::Address(address), action))
        .collect()
}

/// Operations of a DEL for one address on a node with a gateway port: the host's routes by it and the neighbor entry.
pub fn removal_from_port(address: IpAddr, gateway_port: IfIndex) -> Vec<Op> {
    let actions = port_removals(address, gateway_port).into_iter();
    actions.map(|action| Op::new(Subject::Address(address), action)).collect()
}

fn port_removals(address: IpAddr, port: IfIndex) -> Vec<Action> {
    let neighbor = Neighbor { dev: port, address, mac: None, permanent: true };
    let routes = routes_by(address, port).map(Action::DeleteRoute);
    routes.into_iter().chain([Action::DeleteNeighbor(neighbor)]).collect()
}

/// The host's routes to an address by a link, of either layout and with any protocol.
fn routes_by(address: IpAddr, dev: IfIndex) -> [Route; 2] {
    [RuleLayout::PerPod, RuleLayout::Compact].map(|layout| {
        let route = Route::on_link(layout.pod_routes(), address, dev);
        Route { protocol: 0, ..route }
    })
}

/// Moves the host end of a deleted pod to the reap group. The daemon deletes such links together: one deletion costs
/// a grace period of the kernel, however many links it removes.
pub fn retire(host_end: &Link) -> Op {
    let action = Action::SetGroup(LinkRef::from(host_end), registry::GROUP_REAP);
    Op::new(Subject::Link(host_end.index), action)
}

fn purges(address: IpAddr) -> [Action; 2] {
    [
        Action::PurgeRules(RulePattern::To { pref: registry::PREF_TO_POD, address }),
        Action::PurgeRules(RulePattern::From { pref: registry::PREF_FROM_POD, address }),
    ]
}

/// The length of the prefix that link-local addresses share (RFC 4291).
const LINK_LOCAL_BITS: u8 = 64;
