//! A branch ENI: its VLAN link on the trunk, and the routes and rules of its pod.

use crate::{
    Action, IfIndex, Ipv4Conf, Link, LinkKind, LinkRef, Observed, Op, Route, Rule, Selector,
    Subject, VlanLink, rules::rules_of,
};
use config_model::{Mac, PodKey, TableId, registry};
use std::net::IpAddr;

/// The part of a pod's traffic that uses its branch ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enforcing {
    /// All traffic, including that from and to the node.
    Strict,
    /// Traffic from the pod to destinations beyond the node.
    Standard,
}

/// A branch ENI as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// VLAN id on the trunk.
    pub vlan: u16,
    pub mac: Mac,
    /// Address of its subnet's router.
    pub gateway: IpAddr,
    pub enforcing: Enforcing,
}

impl Branch {
    /// The table with the branch's routes.
    pub fn table(&self) -> TableId {
        TableId(registry::BRANCH_TABLES + u32::from(self.vlan))
    }

    /// The name of its VLAN link.
    pub fn link_name(&self) -> String {
        format!("{}{}", registry::VLAN_LINK, self.vlan)
    }

    /// The table with the host's route to the pod.
    pub(crate) fn host_table(&self) -> TableId {
        match self.enforcing {
            Enforcing::Strict => self.table(),
            Enforcing::Standard => TableId::MAIN,
        }
    }

    /// The routes of the branch's table, by its VLAN link `carrier`.
    pub fn routes(&self, carrier: IfIndex) -> [Route; 2] {
        let (table, gateway) = (self.table(), self.gateway);
        [Route::on_link(table, gateway, carrier), Route::default_via(table, gateway, carrier)]
    }

    /// The host's rules for its pod. `veth` and `carrier` are the names of the pod's host end and of the VLAN link.
    pub(crate) fn rules(&self, address: IpAddr, veth: &str, carrier: &str) -> Vec<Rule> {
        let from_link = |name: &str| {
            let rule = Rule::ours(registry::PREF_BRANCH, Selector::incoming(name), self.table());
            Rule { family: crate::Family::of(address), ..rule }
        };
        match self.enforcing {
            Enforcing::Strict => vec![from_link(carrier), from_link(veth)],
            Enforcing::Standard => rules_of(address, self.table()),
        }
    }

    fn number(&self) -> IfIndex {
        IfIndex(registry::VLAN_INDEX + u32::from(self.vlan))
    }
}

/// The VLAN link that carries a branch, and the actions that create or correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The link after the actions.
    pub link: LinkRef,
    /// Netlink messages only.
    pub actions: Vec<Action>,
    /// True if the link exists already.
    pub there: bool,
}

/// Cause for which no link can carry a branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The trunk's link has not come up yet, or is gone.
    #[error("no link with the trunk's MAC {mac}")]
    TrunkMissing {
        /// The trunk's Ethernet address, by which the link is searched.
        mac: Mac,
    },
    /// Several links have the trunk's address.
    #[error("{} links have the trunk's MAC {mac}", links.len())]
    TrunkAmbiguous { mac: Mac, links: Vec<IfIndex> },
    /// Another pod uses the VLAN.
    #[error("VLAN {vlan} is in use by {by}")]
    Held { vlan: u16, by: PodKey },
}

/// Finds the link that carries the branch of the pod interface `key`, or plans its creation. A link of the same VLAN
/// whose key `holds` rejects is replaced.
///
/// # Errors
/// There is no trunk link, or another pod uses the VLAN.
pub fn carry(
    branch: &Branch,
    key: &PodKey,
    trunk: Mac,
    observed: &Observed,
    holds: impl Fn(&PodKey, &Link) -> bool,
) -> Result<Carrier, Obstacle> {
    let parent = match observed.enis_with(trunk)[..] {
        [link] => link,
        [] => return Err(Obstacle::TrunkMissing { mac: trunk }),
        ref links => {
            let links = links.iter().map(|link| link.index).collect();
            return Err(Obstacle::TrunkAmbiguous { mac: trunk, links });
        }
    };
    let of_vlan = |link: &&Link| {
        link.kind == LinkKind::Vlan(branch.vlan)
            && link.peer.is_some_and(|peer| peer.index == parent.index)
    };
    let there = observed.links.values().find(of_vlan);
    let other = there.and_then(|link| Some((link.key().filter(|other| other != key)?, link)));
    if let Some((by, _)) = other.filter(|(by, link)| holds(by, link)) {
        return Err(Obstacle::Held { vlan: branch.vlan, by });
    }
    Ok(match there {
        Some(link) if link.mac == Some(branch.mac) => kept(link, key),
        Some(link) => {
            let delete = Action::DeleteLink(LinkRef::from(link));
            let made = made(branch, key, parent);
            Carrier { actions: [vec![delete], made.actions].concat(), ..made }
        }
        None => made(branch, key, parent),
    })
}

fn kept(there: &Link, key: &PodKey) -> Carrier {
    let link = LinkRef::from(there);
    let strict = there.ipv4.get(&Ipv4Conf::RpFilter).is_some_and(|value| *value != LOOSE);
    let actions = [
        (there.key().as_ref() != Some(key)).then(|| Action::SetAlias(link.clone(), key.alias())),
        (there.group == registry::GROUP_REAP).then(|| Action::SetGroup(link.clone(), 0)),
        (!there.up).then(|| Action::SetUp(link.clone())),
        strict.then(|| loose_rp_filter(&link)),
    ];
    Carrier { actions: actions.into_iter().flatten().collect(), link, there: true }
}

fn made(branch: &Branch, key: &PodKey, parent: &Link) -> Carrier {
    let link = LinkRef { index: branch.number(), name: branch.link_name() };
    let (parent, mac) = (LinkRef::from(parent), branch.mac);
    let vlan = VlanLink { link: link.clone(), parent, vlan: branch.vlan, mac };
    let alias = Action::SetAlias(link.clone(), key.alias());
    let actions = vec![Action::AddVlan(vlan), alias, loose_rp_filter(&link)];
    Carrier { link, actions, there: false }
}

/// Accepts a packet whose source is reachable by any link. The reverse path filter looks the source up without the
/// incoming link, so it does not follow the rules of a branch.
pub(crate) fn loose_rp_filter(link: &LinkRef) -> Action {
    Action::SetIpv4(link.clone(), Ipv4Conf::RpFilter, LOOSE)
}

/// Removes the rules that match these links, which are about to be deleted.
pub fn disconnect<'a>(
    observed: &'a Observed,
    links: impl Iterator<Item = &'a Link>,
) -> impl Iterator<Item = Op> {
    let names: std::collections::BTreeSet<&str> = links.map(|link| link.name.as_str()).collect();
    let rules = observed.rules.iter();
    let of_these = move |rule: &&Rule| rule.branch_link().is_some_and(|name| names.contains(name));
    rules
        .filter(of_these)
        .map(|rule| Op::new(Subject::Leftover(rule.clone()), Action::DeleteRule(rule.clone())))
}

/// `rp_filter`: a source is accepted if any link reaches it.
pub(crate) const LOOSE: u32 = 2;
