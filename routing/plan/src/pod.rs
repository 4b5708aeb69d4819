//! One pod's plumbing, as the plugin builds, checks and removes it.

mod check;

pub use check::{Mismatch, check};

use crate::branch::{Carrier, loose_rp_filter};
use crate::rules::{from_rule, rules_of};
use crate::{
    Action, Branch, Enforcing, Family, IfIndex, Link, LinkAddr, LinkRef, Neighbor, Op, Route,
    Rule, RulePattern, Selector, Subject,
};
use config_model::{Mac, PodKey, RuleLayout, TableId, VethName, registry};
use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Everything that decides how one pod interface is plumbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNet {
    /// Which interface; its `ifname` is the name within the pod.
    pub key: PodKey,
    /// The name of the host end.
    pub veth: VethName,
    /// Its number among the pod's interfaces: 0 has the pod's default route in table main, the
    /// others have tables of their own.
    pub number: u8,
    /// Its address.
    pub address: IpAddr,
    /// The table of its ENI.
    pub table: TableId,
    /// How the host's rules for pods are laid out. One with a branch ENI has its own either way.
    pub layout: RuleLayout,
    /// Largest packet in bytes, of both ends.
    pub mtu: u32,
    /// Its branch ENI, whose table is then `table`.
    pub branch: Option<Branch>,
}

/// One end of a veth pair to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethEnd {
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// A veth pair to be made, each end in its final namespace; the host end is made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethPair {
    /// The host end.
    pub host: VethEnd,
    /// The host end's number; `None` leaves it to the kernel.
    pub host_index: Option<IfIndex>,
    /// The pod's end.
    pub pod: VethEnd,
}

impl PodNet {
    /// The link-local gateway: [`registry::POD_GATEWAY`] or [`registry::POD_GATEWAY_V6`] plus the
    /// interface's number.
    pub fn gateway(&self) -> IpAddr {
        gateway(Family::of(self.address), self.number)
    }

    /// The links to make. Both addresses should be locally administered: then udev lets them be.
    pub fn veth_pair(&self, host_mac: Mac, pod_mac: Mac) -> VethPair {
        let end = |name: &str, mac| VethEnd { name: name.to_owned(), mac, mtu: self.mtu };
        VethPair {
            host: end(self.veth.as_str(), host_mac),
            host_index: None,
            pod: end(&self.key.ifname, pod_mac),
        }
    }

    /// What to do in the pod's namespace once the links are there.
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

    /// What to do in the host's namespace once the links are there: the alias first, so that
    /// whatever is left after a crash can be recognised.
    pub fn host_batch(&self, host_end: IfIndex) -> Vec<Op> {
        let link = LinkRef { index: host_end, name: self.veth.as_str().to_owned() };
        let rules = self.rules().into_iter().map(Action::AddRule);
        let strict = self.branch.is_some_and(|branch| branch.enforcing == Enforcing::Strict);
        let loose = strict.then(|| loose_rp_filter(&link));
        let alias = Action::SetAlias(link, self.key.alias());
        let gateway = self.host_address(host_end).map(Action::AddAddress);
        let route = Action::ReplaceRoute(self.host_route(host_end));
        self.ops([alias].into_iter().chain(loose).chain(gateway).chain([route]).chain(rules))
    }

    /// What takes back a build that failed, whatever part of it was done. The link takes its
    /// routes along.
    pub fn undo_batch(&self, host_end: Option<IfIndex>) -> Vec<Op> {
        let name = self.veth.as_str().to_owned();
        let link = host_end.map(|index| Action::DeleteLink(LinkRef { index, name }));
        self.ops(purges(self.address).into_iter().chain(link))
    }

    /// The host's route to the pod.
    pub fn host_route(&self, host_end: IfIndex) -> Route {
        let shared = self.layout.pod_routes();
        let table = self.branch.map_or(shared, |branch| branch.host_table());
        Route::on_link(table, self.address, host_end)
    }

    /// The host's rules that the pod is built with. Where pods share the one to them, it may be
    /// there; the one from this pod lasts until the daemon has seen that a shared one does the same.
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

    /// What to do for the link that carries the pod's branch, before the host's batch.
    pub fn branch_batch(&self, carrier: &Carrier) -> Vec<Op> {
        let routes = self.branch.iter().flat_map(|branch| branch.routes(carrier.link.index));
        self.ops(carrier.actions.iter().cloned().chain(routes.map(Action::ReplaceRoute)))
    }

    pub(crate) fn host_address(&self, dev: IfIndex) -> Option<LinkAddr> {
        host_address(self.gateway(), dev)
    }

    /// The pod's own table for this interface.
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

    pub(crate) fn gateway_neighbor(&self, dev: IfIndex, mac: Mac) -> Neighbor {
        Neighbor { dev, address: self.gateway(), mac: Some(mac), permanent: true }
    }

    /// What leaves by a further interface's address goes by that interface.
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

/// The gateway's address on the host end, for IPv6 only: the host asks for the pod's Ethernet
/// address from a link-local address, and one of the kernel's own would first be tried for
/// duplicates a second long.
pub(crate) fn host_address(gateway: IpAddr, dev: IfIndex) -> Option<LinkAddr> {
    let IpAddr::V6(gateway) = gateway else { return None };
    let address = IpNet::V6(Ipv6Net::new_assert(gateway, LINK_LOCAL_BITS));
    let (global, secondary, noprefixroute) = (false, false, false);
    Some(LinkAddr { dev, address, peer: None, global, secondary, noprefixroute })
}

/// What a DEL does for one address in the host's namespace, however rules are laid out: every rule
/// of the pod alone, and the host routes if they lead to `host_end`, the link that carries the pod's
/// own key.
pub fn removal(address: IpAddr, host_end: Option<IfIndex>) -> Vec<Op> {
    let routes = host_end.into_iter().flat_map(|dev| {
        [RuleLayout::PerPod, RuleLayout::Compact].map(|layout| {
            let route = Route::on_link(layout.pod_routes(), address, dev);
            Action::DeleteRoute(Route { protocol: 0, ..route })
        })
    });
    purges(address)
        .into_iter()
        .chain(routes)
        .map(|action| Op::new(Subject::Address(address), action))
        .collect()
}

/// Hands the host end of a pod that is gone to the daemon, which deletes such links in groups:
/// one deletion costs a grace period of the kernel, however many links it takes.
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
