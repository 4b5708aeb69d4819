//! The policy sets of all pods.

use crate::{
    class::{ClassChanges, Classes},
    delta::Delta,
    digest::Used,
    peers::{AllPeers, PeerId},
    rows::{AllTables, RowCompiler},
    set::{PolicySet, RuleNames},
    tables::{ClassId, PodSets, SetId, SetRows, Tables},
};
use policy_core::{Direction, index::GroupId};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
};

/// The sets of all pods, numbered.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    numbers: BTreeMap<(Direction, Arc<PolicySet>), SetId>,
    used: Used,
    states: BTreeMap<SetId, State>,
    /// The sets that ask for a peer.
    of_peer: BTreeMap<PeerId, BTreeSet<SetId>>,
    /// Sets that may have lost their last user.
    idle: BTreeSet<SetId>,
    /// Sets without users, whose rows are still there.
    retired: BTreeMap<SetId, State>,
    /// Sets whose rows are to be compiled.
    new: BTreeSet<SetId>,
}

#[derive(Debug)]
struct State {
    direction: Direction,
    set: Arc<PolicySet>,
    /// The peers that the set asks for, sorted.
    relevant: Vec<PeerId>,
    /// The number of uses by subjects.
    users: usize,
}

/// The inputs of the compilation of rows.
pub(crate) struct Inputs<'a> {
    pub(crate) peers: &'a AllPeers,
    pub(crate) classes: &'a Classes,
    /// The groups of Services by the class of their addresses.
    pub(crate) services: &'a BTreeMap<u64, Vec<GroupId>>,
    /// The classes of Services' addresses are other ones.
    pub(crate) has_other_services: bool,
}

impl Sets {
    /// Removes the use of a subject.
    pub(crate) fn release(&mut self, sets: &PodSets) {
        let PodSets { ingress, egress, hairpin_ingress, hairpin_egress } = *sets;
        for id in [ingress, egress, hairpin_ingress, hairpin_egress] {
            if let Some(state) = self.states.get_mut(&id) {
                state.users = state.users.saturating_sub(1);
                self.idle.insert(id);
            }
        }
    }

    /// Makes the numbers of sets without users available. Such a set often comes back with other peers.
    pub(crate) fn retire(&mut self) {
        for id in take(&mut self.idle) {
            if self.states.get(&id).is_none_or(|state| state.users > 0) {
                continue;
            }
            let Some(state) = self.states.remove(&id) else { continue };
            self.numbers.remove(&(state.direction, Arc::clone(&state.set)));
            self.used.release(id.0);
            for peer in &state.relevant {
                if let Some(sets) = self.of_peer.get_mut(peer) {
                    sets.remove(&id);
                    if sets.is_empty() {
                        self.of_peer.remove(peer);
                    }
                }
            }
            self.retired.insert(id, state);
        }
    }

    /// The number of a set, for one more user.
    pub(crate) fn number(
        &mut self,
        direction: Direction,
        set: PolicySet,
        peers: &AllPeers,
        names: &RuleNames,
    ) -> SetId {
        if set.is_empty() {
            return SetId(0);
        }
        let key = (direction, Arc::new(set));
        if let Some(id) = self.numbers.get(&key) {
            if let Some(state) = self.states.get_mut(id) {
                state.users += 1;
            }
            return *id;
        }
        let set = Arc::clone(&key.1);
        let digest = set.digest(direction, peers, names);
        let id = SetId(self.used.number(digest, Some(set.names_services())));
        self.numbers.insert(key, id);
        let relevant = set.relevant();
        for peer in &relevant {
            self.of_peer.entry(*peer).or_default().insert(id);
        }
        let earlier = self.retired.remove(&id);
        if earlier.is_none_or(|state| (state.direction, &state.set) != (direction, &set)) {
            self.new.insert(id);
        }
        self.states.insert(id, State { direction, set, relevant, users: 1 });
        id
    }

    /// Compiles the rows that are new, and removes those that are gone.
    pub(crate) fn compile(
        &mut self,
        inputs: &Inputs<'_>,
        changes: &ClassChanges,
        all: &mut AllTables,
        tables: &mut Tables,
        delta: &mut Delta,
    ) {
        let mut new = take(&mut self.new);
        if inputs.has_other_services {
            new.extend(self.states.keys().filter(|id| id.names_services()));
        }
        for id in take(&mut self.retired).into_keys() {
            let rows = tables.sets.remove(&id);
            all.count_removed(rows.as_ref().map_or(0, |rows| rows.rows.len() + 1));
            note(id, rows.as_ref(), None, delta);
        }
        for id in &new {
            let Some(state) = self.states.get(id) else { continue };
            let mut compiler = state.compiler(inputs, all, tables);
            let mut rows = compiler.start();
            // All other classes have the tables of class 0.
            for number in inputs.classes.of_peers(&state.relevant) {
                let Some(peers) = inputs.classes.peers(number) else { continue };
                rows.rows.extend(compiler.class(number, &peers, all, tables));
            }
            let earlier = tables.sets.insert(*id, rows);
            all.count_removed(earlier.as_ref().map_or(0, |rows| rows.rows.len() + 1));
            note(*id, earlier.as_ref(), tables.sets.get(id), delta);
        }
        for (class, peers) in &changes.removed {
            for id in self.asking(peers).difference(&new) {
                let Some(rows) = tables.sets.get_mut(id) else { continue };
                let gone = rows.rows.range((*class, 0)..=(*class, u64::MAX));
                let gone: Vec<(ClassId, u64)> = gone.map(|(key, _)| *key).collect();
                all.count_removed(gone.len());
                for key in gone {
                    rows.rows.remove(&key);
                    delta.rows.insert((*id, key.0, key.1));
                }
            }
        }
        let mut added: BTreeMap<SetId, Vec<_>> = BTreeMap::new();
        for (number, peers) in &changes.added {
            for id in self.asking(peers).difference(&new) {
                added.entry(*id).or_default().push((*number, peers));
            }
        }
        for (id, classes) in added {
            let Some(state) = self.states.get(&id) else { continue };
            let mut compiler = state.compiler(inputs, all, tables);
            for (number, peers) in classes {
                let rows = compiler.class(number, peers, all, tables);
                delta.rows.extend(rows.iter().map(|((class, service), _)| (id, *class, *service)));
                if let Some(set) = tables.sets.get_mut(&id) {
                    set.rows.extend(rows);
                }
            }
        }
    }

    /// The sets that ask for at least one of these peers.
    fn asking(&self, peers: &[PeerId]) -> BTreeSet<SetId> {
        peers.iter().filter_map(|peer| self.of_peer.get(peer)).flatten().copied().collect()
    }
}

impl State {
    fn compiler<'a>(
        &'a self,
        inputs: &'a Inputs<'_>,
        all: &mut AllTables,
        tables: &mut Tables,
    ) -> RowCompiler<'a> {
        let Self { direction, set, relevant, users: _ } = self;
        RowCompiler::new(set, *direction, relevant, inputs.peers, inputs.services, all, tables)
    }
}

/// Notes the rows that differ.
fn note(id: SetId, was: Option<&SetRows>, is: Option<&SetRows>, delta: &mut Delta) {
    if was.map(|set| set.default) != is.map(|set| set.default) {
        delta.sets.insert(id);
    }
    let row = |set: Option<&SetRows>, key| set.and_then(|set| set.rows.get(key).copied());
    let keys = [was, is].into_iter().flatten().flat_map(|set| set.rows.keys());
    let keys = keys.filter(|key| row(was, *key) != row(is, *key));
    delta.rows.extend(keys.map(|(class, service)| (id, *class, *service)));
}
