//! The compilation of snapshots.

use crate::{
    class::Classes,
    cut::Address,
    delta::Delta,
    digest::{Used, digest},
    names::Names,
    peers::{
        AllPeers, Counted, Peer, PeerId, blocks, names as names_of, peer_groups, port_names,
        ports_of,
    },
    rows::AllTables,
    set::{Resolver, RuleNames, ordered},
    sets::Sets,
    subject::{Subject, Subjects},
    tables::{PodSets, Tables},
};
use control_wire::{
    Changed, Difference, KnownId, NodeSnapshot, ObjectId,
    model::{AddressGroup, Member, Policy},
};
use policy_core::{
    Direction, NameMatch,
    index::{GroupId, MemberKey},
};
use policy_objects::{Block, ContainerPort};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::replace,
    sync::Arc,
};

/// Compiles the policies of a node. `names` are the addresses of DNS names that rules name.
pub fn compile(snapshot: &NodeSnapshot, names: &Names) -> Tables {
    Compilation::new(snapshot, names).tables
}

/// A compilation that follows the snapshots of a node. A change of an address costs its own row, and a change of a policy
/// the sets of its own pods.
#[derive(Debug, Default)]
pub struct Compilation {
    snapshot: NodeSnapshot,
    /// The addresses of DNS names.
    names: Names,
    peers: AllPeers,
    rule_names: RuleNames,
    classes: Classes,
    subjects: Subjects,
    sets: Sets,
    interval_tables: AllTables,
    /// The UIDs of the policies that an applied-to group has.
    policies: BTreeMap<GroupId, BTreeSet<String>>,
    /// The ranges that rules and groups name.
    blocks: Counted<Block>,
    /// The port names that egress rules use.
    port_names: Counted<String>,
    /// The names that egress rules name, each with the UID of the policy.
    name_matches: Counted<(String, NameMatch)>,
    /// The peers that are names, by an address to which they resolve.
    resolved: BTreeMap<Address, BTreeSet<PeerId>>,
    /// The groups of Services by the class of their addresses.
    services: BTreeMap<u64, Vec<GroupId>>,
    tables: Tables,
    /// With more numbered peers and rules than this, most of them are out of use.
    limit: usize,
}

/// The parts of a compilation that a change affects.
#[derive(Debug, Default)]
struct Affected {
    /// Applied-to groups whose subjects get other sets.
    applied: BTreeSet<GroupId>,
    /// Address groups that rules see in another way.
    peers: BTreeSet<GroupId>,
    blocks: bool,
    port_names: bool,
    names: bool,
    services: bool,
}

impl Compilation {
    /// Compiles a snapshot.
    pub fn new(snapshot: &NodeSnapshot, names: &Names) -> Self {
        let mut compilation = Self { limit: usize::MAX, ..Self::default() };
        let policies = snapshot.policies.keys().map(|uid| ObjectId::policy(uid));
        let addresses = snapshot.addresses.keys().map(|id| ObjectId::address(*id));
        let applied = snapshot.applied.keys().map(|id| ObjectId::applied(*id));
        let pods = snapshot.pods.keys().map(|uid| ObjectId::pod(uid));
        let all = policies.chain(addresses).chain(applied).chain(pods).chain([ObjectId::node()]);
        let mut objects = Changed::default();
        all.for_each(|id| objects.insert(id, Difference::Added));
        compilation.update(snapshot, names, &objects);
        compilation.limit = 2 * compilation.numbered() + SPARE;
        compilation
    }

    /// The tables of the snapshot.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Compiles the next snapshot. `objects` are the differences to the earlier one. Returns the difference of the
    /// tables; `None` if everything may differ, because the numbers of tables and rules are other ones.
    pub fn update(
        &mut self,
        snapshot: &NodeSnapshot,
        names: &Names,
        objects: &Changed,
    ) -> Option<Delta> {
        if self.numbered() > self.limit || self.interval_tables.is_worn() {
            *self = Self::new(snapshot, names);
            return None;
        }
        let was = replace(&mut self.snapshot, snapshot.clone());
        let (mut delta, mut affected) = (Delta::default(), Affected::default());
        let known = || objects.iter().filter_map(|(id, _)| id.known());
        let earlier_names = self.port_names.clone();
        for object in known() {
            if let KnownId::Policy(uid) = object {
                let earlier = was.policies.get(uid).map(AsRef::as_ref);
                let policy = snapshot.policies.get(uid).map(AsRef::as_ref);
                self.change_policy(earlier, policy, &mut affected);
            }
        }
        let is_same = earlier_names.values().eq(self.port_names.values());
        let states = States { was: &was, is: snapshot, names: &earlier_names };
        if affected.port_names && !is_same {
            let ids: BTreeSet<&GroupId> =
                was.addresses.keys().chain(snapshot.addresses.keys()).collect();
            for id in ids {
                self.change_group(*id, None, &states, &mut affected);
            }
        } else {
            for object in known() {
                if let KnownId::Address(id) = object {
                    self.change_group(id, objects.members.get(&id), &states, &mut affected);
                }
            }
        }
        if was.node != snapshot.node {
            for address in was.node.as_deref().unwrap_or_default() {
                self.classes.remove((*address).into(), AllPeers::OWN_NODE);
            }
            for address in snapshot.node.as_deref().unwrap_or_default() {
                self.classes.add((*address).into(), AllPeers::OWN_NODE);
            }
        }
        if affected.names || self.names != *names {
            self.names = names.clone();
            self.resolve();
        }
        if affected.blocks {
            let Self { classes, blocks, peers, tables, .. } = self;
            classes.set_blocks(blocks.values(), peers, tables, &mut delta);
        }
        let class_changes = self.classes.settle(&self.peers, &mut self.tables, &mut delta);
        let has_other_services = affected.services && self.set_services(&mut delta);
        self.subjects_of_peers(&mut affected);
        let mut pods = BTreeSet::new();
        for object in known() {
            match object {
                KnownId::Applied(id) => {
                    let was = was.applied.get(&id).map(AsRef::as_ref);
                    let is = snapshot.applied.get(&id).map(AsRef::as_ref);
                    pods.extend(self.subjects.set_group(id, was, is));
                }
                KnownId::Pod(uid) => drop(pods.insert(uid.to_owned())),
                KnownId::Policy(_)
                | KnownId::Address(_)
                | KnownId::Node
                | KnownId::Service(_)
                | KnownId::Slice(_) => {}
            }
        }
        let mut unused = Vec::new();
        for uid in &pods {
            let of = self.subjects.set_pod(uid, snapshot, &mut self.tables, &mut delta);
            unused.extend(of);
        }
        unused.extend(self.subjects.take_sets(&affected.applied));
        for sets in unused {
            self.sets.release(&sets);
        }
        self.sets.retire();
        for subject in self.subjects.without_sets() {
            let sets = self.sets_of(&subject);
            self.subjects.set_sets(&subject, sets, &mut self.tables, &mut delta);
        }
        let Self { sets, interval_tables, peers, classes, services, tables, .. } = self;
        let rows = crate::sets::Inputs { peers, classes, services, has_other_services };
        sets.compile(&rows, &class_changes, interval_tables, tables, &mut delta);
        interval_tables.sweep(tables);
        let numbered = tables.rules.len();
        tables.rules.extend(self.rule_names.names.iter().skip(numbered).cloned());
        Some(delta)
    }

    /// The number of peers and rules that were ever numbered.
    fn numbered(&self) -> usize {
        self.peers.len() + self.rule_names.names.len()
    }

    fn change_policy(
        &mut self,
        was: Option<&Policy>,
        is: Option<&Policy>,
        affected: &mut Affected,
    ) {
        if was == is {
            return;
        }
        // Users are added first, so that a value which both have stays in use.
        if let Some(policy) = is {
            for block in blocks(policy) {
                affected.blocks |= self.blocks.add(block);
            }
            for name in port_names(policy) {
                affected.port_names |= self.port_names.add(&name.to_owned());
            }
            for name in names_of(policy) {
                affected.names |= self.name_matches.add(&(policy.uid.clone(), name.clone()));
            }
        }
        if let Some(policy) = was {
            for block in blocks(policy) {
                affected.blocks |= self.blocks.remove(block);
            }
            for name in port_names(policy) {
                affected.port_names |= self.port_names.remove(&name.to_owned());
            }
            for name in names_of(policy) {
                affected.names |= self.name_matches.remove(&(policy.uid.clone(), name.clone()));
            }
            for group in applied_groups(policy) {
                if let Some(policies) = self.policies.get_mut(&group) {
                    policies.remove(&policy.uid);
                    if policies.is_empty() {
                        self.policies.remove(&group);
                    }
                }
                affected.applied.insert(group);
            }
        }
        if let Some(policy) = is {
            for group in applied_groups(policy) {
                self.policies.entry(group).or_default().insert(policy.uid.clone());
                affected.applied.insert(group);
            }
        }
    }

    /// Changes an address group. `members` are the members that may differ; `None`: all.
    fn change_group(
        &mut self,
        id: GroupId,
        members: Option<&BTreeSet<MemberKey>>,
        states: &States<'_>,
        affected: &mut Affected,
    ) {
        let (was, is) = (states.was.addresses.get(&id), states.is.addresses.get(&id));
        let holds = |group: Option<&Arc<AddressGroup>>| group.map(|group| Arc::clone(&group.holds));
        let (held, holds) = (holds(was), holds(is));
        if held != holds {
            // Rules that name the group depend on its ranges, and on whether it exists and can be used.
            affected.peers.insert(id);
            affected.services = true;
            for block in holds.iter().flat_map(|holds| &holds.blocks) {
                affected.blocks |= self.blocks.add(block);
            }
            for block in held.iter().flat_map(|held| &held.blocks) {
                affected.blocks |= self.blocks.remove(block);
            }
        }
        let all: BTreeSet<&MemberKey>;
        let keys: &mut dyn Iterator<Item = &MemberKey> = match members {
            Some(members) => &mut members.iter(),
            None => {
                let of = [was, is].into_iter().flatten().flat_map(|group| group.members.keys());
                all = of.collect();
                &mut all.into_iter()
            }
        };
        for key in keys {
            let was = was.and_then(|group| group.members.get(key));
            let was = was.map(|of| (of, ports_of(key, of, |name| states.names.contains(name))));
            let is = is.and_then(|group| group.members.get(key));
            let is = is.map(|of| (of, ports_of(key, of, |name| self.port_names.contains(name))));
            let facts = |of: &Option<(&Member, Vec<ContainerPort>)>| {
                of.as_ref().map(|(member, ports)| (member.addresses.clone(), ports.clone()))
            };
            if facts(&was) == facts(&is) {
                continue;
            }
            if let Some((member, ports)) = was {
                let peer = self.peers.number(Peer::Member(id, ports));
                for address in &member.addresses {
                    self.classes.remove((*address).into(), peer);
                }
            }
            if let Some((member, ports)) = is {
                let before = self.peers.len();
                let peer = self.peers.number(Peer::Member(id, ports));
                // Rules that name the group have this peer too.
                if self.peers.len() > before {
                    affected.peers.insert(id);
                }
                for address in &member.addresses {
                    self.classes.add((*address).into(), peer);
                }
            }
        }
    }

    /// Finds the addresses to which the names of rules resolve.
    fn resolve(&mut self) {
        let mut resolved: BTreeMap<Address, BTreeSet<PeerId>> = BTreeMap::new();
        for (policy, name) in self.name_matches.values() {
            let peer = self.peers.number(Peer::Name(policy.clone(), name.clone()));
            for address in self.names.addresses(policy, name) {
                resolved.entry(address.into()).or_default().insert(peer);
            }
        }
        let earlier = replace(&mut self.resolved, resolved);
        let none = BTreeSet::new();
        for (address, peers) in &earlier {
            for peer in peers.difference(self.resolved.get(address).unwrap_or(&none)) {
                self.classes.remove(*address, *peer);
            }
        }
        for (address, peers) in &self.resolved {
            for peer in peers.difference(earlier.get(address).unwrap_or(&none)) {
                self.classes.add(*address, *peer);
            }
        }
    }

    /// Replaces the classes of the Services' addresses. Returns true if a class is new or gone.
    fn set_services(&mut self, delta: &mut Delta) -> bool {
        let mut by_address: BTreeMap<Address, Vec<GroupId>> = BTreeMap::new();
        for (id, group) in &self.snapshot.addresses {
            for vip in &group.holds.vips {
                by_address.entry((*vip).into()).or_default().push(*id);
            }
        }
        let mut used = Used::default();
        let mut numbers: BTreeMap<Vec<GroupId>, u64> = BTreeMap::new();
        let mut classes = BTreeMap::new();
        for (address, groups) in by_address {
            let number = *numbers
                .entry(groups)
                .or_insert_with_key(|groups| used.number(digest(groups), None));
            classes.insert(address, number);
        }
        let services: BTreeMap<u64, Vec<GroupId>> =
            numbers.into_iter().map(|(groups, number)| (number, groups)).collect();
        let earlier = replace(&mut self.tables.services, classes);
        let all = earlier.keys().chain(self.tables.services.keys());
        let differs =
            |address: &&Address| earlier.get(*address) != self.tables.services.get(*address);
        delta.services.extend(all.filter(differs).copied());
        replace(&mut self.services, services) != self.services
    }

    /// Adds the subjects of rules whose groups are seen in another way.
    fn subjects_of_peers(&self, affected: &mut Affected) {
        if affected.peers.is_empty() {
            return;
        }
        for policy in self.snapshot.policies.values() {
            let of = policy.rules.iter().flat_map(peer_groups);
            if of.into_iter().any(|group| affected.peers.contains(&group)) {
                affected.applied.extend(applied_groups(policy));
            }
        }
    }

    /// The numbers of a subject's sets.
    fn sets_of(&mut self, subject: &Subject) -> PodSets {
        let uids: BTreeSet<&String> =
            subject.groups.iter().filter_map(|group| self.policies.get(group)).flatten().collect();
        let policies = uids.into_iter().filter_map(|uid| self.snapshot.policies.get(uid));
        let policies: Vec<&Policy> = policies.map(AsRef::as_ref).collect();
        let mut resolver = Resolver {
            snapshot: &self.snapshot,
            peers: &mut self.peers,
            names: &mut self.rule_names,
        };
        let mut of = |direction| {
            let rules = ordered(&policies, direction, subject);
            let is_isolated = policies.iter().filter_map(|policy| policy.isolation.as_ref());
            let is_isolated = is_isolated
                .filter(|isolation| match direction {
                    Direction::Ingress => isolation.ingress,
                    Direction::Egress => isolation.egress,
                })
                .any(|isolation| subject.is_in(&isolation.applied));
            [false, true].map(|is_hairpin| {
                let set = resolver.set(subject, &rules, is_isolated, is_hairpin);
                self.sets.number(direction, set, resolver.peers, resolver.names)
            })
        };
        let [ingress, hairpin_ingress] = of(Direction::Ingress);
        let [egress, hairpin_egress] = of(Direction::Egress);
        PodSets { ingress, egress, hairpin_ingress, hairpin_egress }
    }
}

/// Two snapshots, and the port names that rules of the first use.
struct States<'a> {
    was: &'a NodeSnapshot,
    is: &'a NodeSnapshot,
    names: &'a Counted<String>,
}

/// The applied-to groups of a policy.
fn applied_groups(policy: &Policy) -> BTreeSet<GroupId> {
    let isolation = policy.isolation.iter().flat_map(|isolation| &isolation.applied);
    isolation.chain(policy.rules.iter().flat_map(|rule| &rule.applied)).copied().collect()
}

/// Peers and rules that may be numbered beyond twice those of the start.
const SPARE: usize = 4096;
