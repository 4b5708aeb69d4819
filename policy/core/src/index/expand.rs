//! Rules whose peers depend on the subject's namespace: one pair of groups for each existing namespace, or for
//! each tuple of values of its labels.

use super::{
    Index,
    delta::{Change, Expanded, GroupId, Role},
    ids::Ids,
    matching::PodSelection,
    source::{Source, only},
};
use crate::{Peer, Peers, Pods, Policy, PolicyKey, Scope};
use policy_objects::{Labels, Operator, Selector};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// The rules of a policy that are expanded.
#[derive(Debug, Default)]
pub(super) struct Expanding {
    rules: Vec<Expansion>,
    /// The groups of its other rules.
    pub(super) fixed: (Ids, Ids),
    /// Number of namespaces of each value.
    values: BTreeMap<Value, u32>,
}

/// A rule, one of its ways to compare namespaces, and what both have in common.
type Value = (usize, usize, Vec<String>);

#[derive(Debug)]
struct Expansion {
    rule: usize,
    /// The policy's namespace; empty for the cluster's.
    own: String,
    subject: Vec<Pods>,
    peers: Vec<(Alike, Selector)>,
}

#[derive(Debug)]
enum Alike {
    Name,
    Labels(Vec<String>),
}

/// Name and labels of a namespace.
pub(super) type Spot = Option<(String, Labels)>;

impl Expanding {
    /// `None` if no rule is.
    pub(super) fn of(policy: &Policy) -> Option<Box<Self>> {
        let expansion = |(at, rule): (usize, &crate::Rule)| {
            let Peers::Of(peers) = &rule.peers else { return None };
            let peers: Vec<_> = peers.iter().filter_map(alike).collect();
            (!peers.is_empty()).then(|| {
                let (own, subject) = (policy.key.namespace.clone(), rule.subject.clone());
                Expansion { rule: at, own, subject, peers }
            })
        };
        let rules: Vec<_> = policy.rules.iter().enumerate().filter_map(expansion).collect();
        (!rules.is_empty()).then(|| Box::new(Self { rules, ..Self::default() }))
    }

    /// The values that a namespace has.
    fn values_of(&self, name: &str, labels: &Labels) -> BTreeSet<Value> {
        let mut values = BTreeSet::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if !(rule.own.is_empty() || rule.own == name)
                || !rule.subject.iter().any(|pods| may_be_in(pods, name, labels))
            {
                continue;
            }
            for (which, (alike, _)) in rule.peers.iter().enumerate() {
                let value: Option<Vec<String>> = match alike {
                    Alike::Name => Some(vec![name.to_owned()]),
                    Alike::Labels(keys) => (!keys.is_empty())
                        .then_some(())
                        .and_then(|()| keys.iter().map(|key| labels.get(key).cloned()).collect()),
                };
                values.extend(value.map(|value| (at, which, value)));
            }
        }
        values
    }

    /// A namespace was so and is now so; whether there is a value more or less.
    pub(super) fn turn(&mut self, before: &Spot, after: &Spot) -> bool {
        let of = |spot: &Spot| {
            spot.as_ref().map(|(name, labels)| self.values_of(name, labels)).unwrap_or_default()
        };
        let (before, after) = (of(before), of(after));
        let mut changed = false;
        for value in after.difference(&before) {
            let count = self.values.entry(value.clone()).or_default();
            *count += 1;
            changed |= *count == 1;
        }
        for value in before.difference(&after) {
            let Some(count) = self.values.get_mut(value) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.values.remove(value);
                changed = true;
            }
        }
        changed
    }

    /// The rule, whom it is about and with whom, for each value.
    pub(super) fn sources(&self) -> impl Iterator<Item = (usize, Vec<Source<'_>>, Source<'_>)> {
        self.values.keys().filter_map(|(at, which, values)| {
            let rule = &self.rules[*at];
            let (alike, pods) = rule.peers.get(*which)?;
            let subject = rule.subject.iter().filter_map(Source::of);
            let own = subject.filter_map(|source| within(source, &rule.own));
            let selector = Cow::Borrowed(pods);
            Some(match alike {
                Alike::Name => {
                    let name = values.first()?;
                    let subject = own.filter_map(|source| source.within_space(name)).collect();
                    let space = Some(Cow::Borrowed(name.as_str()));
                    (
                        rule.rule,
                        subject,
                        Source::Pods(PodSelection { space, spaces: None, selector }),
                    )
                }
                Alike::Labels(keys) => {
                    let mut spaces = Selector::default();
                    for (key, value) in keys.iter().zip(values) {
                        spaces.requirements.extend(only(key, value).requirements);
                    }
                    let subject = own.map(|source| source.within_spaces(&spaces)).collect();
                    let spaces = Some(Cow::Owned(spaces));
                    (
                        rule.rule,
                        subject,
                        Source::Pods(PodSelection { space: None, spaces, selector }),
                    )
                }
            })
        })
    }
}

/// Limits a source to a policy's own namespace. Write access to one namespace must not affect another.
pub(super) fn within<'a>(source: Source<'a>, own: &str) -> Option<Source<'a>> {
    if own.is_empty() { Some(source) } else { source.within_space(own) }
}

fn alike(peer: &Peer) -> Option<(Alike, Selector)> {
    match peer {
        Peer::Pods(Pods::Labeled { scope: Scope::SameNamespace, pods }) => {
            Some((Alike::Name, pods.clone()))
        }
        Peer::Pods(Pods::Labeled { scope: Scope::SameLabels(keys), pods }) => {
            Some((Alike::Labels(keys.clone()), pods.clone()))
        }
        Peer::Pods(_) | Peer::Block(_) | Peer::Nodes(_) | Peer::Name(_) | Peer::Service(_) => None,
    }
}

/// True if pods can be in a namespace.
fn may_be_in(pods: &Pods, name: &str, labels: &Labels) -> bool {
    match pods {
        Pods::Labeled { scope: Scope::Namespace(own), .. } => own == name,
        Pods::Labeled { scope: Scope::Namespaces(selector), .. } => {
            selector.requirements.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                match &requirement.operator {
                    Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                    Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
        }
        Pods::Labeled { scope: Scope::SameNamespace | Scope::SameLabels(_), .. } => false,
        Pods::Group(_) => true,
        Pods::Service(of) | Pods::ServiceAccount(of) => of.namespace == name,
    }
}

impl Index {
    /// The groups that stand for the rules of a policy whose peers depend on the subject's namespace.
    pub fn expanded(&self, policy: &PolicyKey) -> Vec<Expanded> {
        self.find_policy(policy).map(|id| self.expanded_of(id)).unwrap_or_default()
    }

    /// Sorted.
    pub(super) fn expanded_of(&self, policy: u32) -> Vec<Expanded> {
        let expanding = self.policies[policy].expanding.as_ref();
        let expanded = |(rule, subject, peer): (usize, Vec<Source<'_>>, Source<'_>)| {
            let mut applied: Vec<GroupId> = subject.iter().map(Source::id).collect();
            applied.sort_unstable();
            applied.dedup();
            Expanded { rule, applied, address: peer.id() }
        };
        let mut found: Vec<Expanded> =
            expanding.iter().flat_map(|expanding| expanding.sources()).map(expanded).collect();
        found.sort_unstable();
        found
    }

    /// A namespace as rules compare it, if there is one.
    pub(super) fn spot(&self, name: &str) -> Spot {
        if self.expanding.is_empty() || self.loading {
            return None;
        }
        let space = self.matching.live_space(name)?;
        Some((name.to_owned(), self.matching.space_labels(space)))
    }

    /// A namespace was so: policies that compare namespaces may need other groups now.
    pub(super) fn turn_spot(&mut self, name: &str, before: &Spot) {
        let after = self.spot(name);
        if *before == after {
            return;
        }
        for policy in self.expanding.clone() {
            let expanding = &mut self.policies[policy].expanding;
            if expanding.as_mut().is_some_and(|expanding| expanding.turn(before, &after)) {
                self.regroup(policy);
                self.changes.policies.entry(policy).or_insert(Change::Changed);
            }
        }
    }

    /// Counts the namespaces that there are.
    pub(super) fn expand(&mut self, policy: u32) {
        let Some(mut expanding) = self.policies[policy].expanding.take() else { return };
        for space in self.matching.spaces.ids() {
            let name = self.matching.spaces[space].name.to_string();
            if self.matching.live_space(&name).is_some() {
                let labels = self.matching.space_labels(space);
                expanding.turn(&None, &Some((name, labels)));
            }
        }
        self.policies[policy].expanding = Some(expanding);
    }

    /// Gives a policy the groups that its values ask for.
    pub(super) fn regroup(&mut self, policy: u32) {
        let Some(expanding) = self.policies[policy].expanding.take() else { return };
        let (mut applied, mut address) = expanding.fixed.clone();
        for (_, subject, peer) in expanding.sources() {
            for source in &subject {
                applied.insert(self.acquire(source, Role::Applied));
            }
            address.insert(self.acquire(&peer, Role::Address));
        }
        self.policies[policy].expanding = Some(expanding);
        self.reuse(policy, applied, address);
    }
}
