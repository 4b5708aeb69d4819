//! One pod's plumbing, as the plugin builds, checks and removes it.

mod check;

pub use check::{Mismatch, check};

use crate::{
    Action, IfIndex, Link, LinkAddr, LinkRef, Neighbour, Op, Route, Rule, RulePattern, Selector,
    Subject, kernel::host,
};
use config_model::{Mac, PodKey, TableId, VethName, registry};
use std::net::{IpAddr, Ipv4Addr};

/// Everything that decides how one pod interface is plumbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNet {
    /// Which interface; its `ifname` is the name within the pod.
    pub key: PodKey,
    /// The name of the host end.
    pub veth: VethName,
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The table of its ENI.
    pub table: TableId,
    /// The link-local gateway: [`registry::POD_GATEWAY`] plus the interface's number.
    pub gateway: Ipv4Addr,
    /// Largest packet in bytes, of both ends.
    pub mtu: u32,
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
        self.ops([
            Action::SetUp(link),
            Action::AddAddress(self.pod_address(pod_end)),
            Action::ReplaceRoute(self.gateway_route(pod_end)),
            Action::ReplaceRoute(self.default_route(pod_end)),
            Action::SetNeighbour(self.gateway_neighbour(pod_end, host_mac)),
        ])
    }

    /// What to do in the host's namespace once the links are there: the alias first, so that
    /// whatever is left after a crash can be recognised.
    pub fn host_batch(&self, host_end: IfIndex) -> Vec<Op> {
        let link = LinkRef { index: host_end, name: self.veth.as_str().to_owned() };
        let rules = self.rules().into_iter().map(Action::AddRule);
        let first = [
            Action::SetAlias(link, self.key.alias()),
            Action::ReplaceRoute(self.host_route(host_end)),
        ];
        self.ops(first.into_iter().chain(rules))
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
        Route::on_link(TableId::MAIN, self.address, host_end)
    }

    /// The host's rules for the pod.
    pub fn rules(&self) -> Vec<Rule> {
        rules_of(self.address, self.table)
    }

    pub(crate) fn pod_address(&self, dev: IfIndex) -> LinkAddr {
        let address = host(self.address);
        LinkAddr { dev, address, global: true, secondary: false, noprefixroute: false }
    }

    pub(crate) fn gateway_route(&self, dev: IfIndex) -> Route {
        Route::on_link(TableId::MAIN, self.gateway, dev)
    }

    pub(crate) fn default_route(&self, dev: IfIndex) -> Route {
        Route::default_via(TableId::MAIN, self.gateway, dev)
    }

    pub(crate) fn gateway_neighbour(&self, dev: IfIndex, mac: Mac) -> Neighbour {
        Neighbour { dev, address: IpAddr::V4(self.gateway), mac: Some(mac), permanent: true }
    }

    fn ops(&self, actions: impl IntoIterator<Item = Action>) -> Vec<Op> {
        let subject = Subject::Address(self.address);
        actions.into_iter().map(|action| Op::new(subject.clone(), action)).collect()
    }
}

/// The host's rules for a pod: traffic to it goes to `main`, traffic from it to its ENI's table.
pub(crate) fn rules_of(address: Ipv4Addr, table: TableId) -> Vec<Rule> {
    let to = Rule::ours(registry::PREF_TO_POD, Selector::to(address), TableId::MAIN);
    let from = (table != TableId::MAIN)
        .then(|| Rule::ours(registry::PREF_FROM_POD, Selector::from(address), table));
    [to].into_iter().chain(from).collect()
}

/// What a DEL does for one address in the host's namespace: every rule of the pod, and the host
/// route if it leads to `host_end`, the link that carries the pod's own key.
pub fn removal(address: Ipv4Addr, host_end: Option<IfIndex>) -> Vec<Op> {
    let route = host_end.map(|dev| {
        Action::DeleteRoute(Route { protocol: 0, ..Route::on_link(TableId::MAIN, address, dev) })
    });
    purges(address)
        .into_iter()
        .chain(route)
        .map(|action| Op::new(Subject::Address(address), action))
        .collect()
}

/// Hands the host end of a pod that is gone to the daemon, which deletes such links in groups:
/// one deletion costs a grace period of the kernel, however many links it takes.
pub fn retire(host_end: &Link) -> Op {
    let action = Action::SetGroup(LinkRef::from(host_end), registry::GROUP_REAP);
    Op::new(Subject::Link(host_end.index), action)
}

fn purges(address: Ipv4Addr) -> [Action; 2] {
    [
        Action::PurgeRules(RulePattern::To { pref: registry::PREF_TO_POD, address }),
        Action::PurgeRules(RulePattern::From { pref: registry::PREF_FROM_POD, address }),
    ]
}
