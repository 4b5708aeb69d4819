//! A branch ENI: the VLAN of the trunk that carries it, and what leads to and from its pod.

use crate::{
    Action, IfIndex, Ipv4Conf, Link, LinkKind, LinkRef, Observed, Op, Route, Rule, Selector,
    Subject, VlanLink, rules::rules_of,
};
use config_model::{Mac, PodKey, TableId, registry};
use std::net::IpAddr;

/// Which of a pod's traffic passes its branch ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enforcing {
    /// All of it, that from and to the node included.
    Strict,
    /// What the pod sends beyond the node.
    Standard,
}

/// A branch ENI, as far as the host is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The number of its VLAN.
    pub vlan: u16,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The address of its subnet's router.
    pub gateway: IpAddr,
    /// Which of the pod's traffic passes it.
    pub enforcing: Enforcing,
}

impl Branch {
    /// The table of what leaves by it.
    pub fn table(&self) -> TableId {
        TableId(registry::BRANCH_TABLES + u32::from(self.vlan))
    }

    /// What its link is called.
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

    /// What leaves by it leaves by `carrier`.
    pub fn routes(&self, carrier: IfIndex) -> [Route; 2] {
        let (table, gateway) = (self.table(), self.gateway);
        [Route::on_link(table, gateway, carrier), Route::default_via(table, gateway, carrier)]
    }

    /// The host's rules for its pod, whose host end has this name, as has the link that carries it.
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

/// The link that carries a branch, and what makes it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The link, once that is done.
    pub link: LinkRef,
    /// What to do for it; messages alone.
    pub actions: Vec<Action>,
    /// Whether it is there already.
    pub there: bool,
}

/// Why no link can carry a branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The trunk's link has not come up yet, or has gone.
    #[error("no link with the trunk's MAC {mac}")]
    TrunkMissing {
        /// By which it is looked for.
        mac: Mac,
    },
    /// Several links have the trunk's address.
    #[error("{} links have the trunk's MAC {mac}", links.len())]
    TrunkAmbiguous {
        /// The address.
        mac: Mac,
        /// The links.
        links: Vec<IfIndex>,
    },
    /// The VLAN is another pod's.
    #[error("VLAN {vlan} is in use by {by}")]
    Held {
        /// Which.
        vlan: u16,
        /// Whose.
        by: PodKey,
    },
}

/// Finds what carries a branch of the pod interface with this key, or what makes it. A link of its
/// VLAN that nobody holds gives way.
///
/// # Errors
/// There is no trunk to carry it, or the VLAN's link is of another who holds it.
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

/// What comes in by a branch, or from a strict pod, need not leave the same way by the lookup that
/// the filter of sources makes: that one knows nothing of the link that a rule asks for.
pub(crate) fn loose_rp_filter(link: &LinkRef) -> Action {
    Action::SetIpv4(link.clone(), Ipv4Conf::RpFilter, LOOSE)
}

/// Takes away the rules for what comes in by these links, which are about to go.
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

/// A source need only be reachable by some link.
pub(crate) const LOOSE: u32 = 2;
