//! Entity ↔ label set ↔ selection: the matches between selectors and entities.
//!
//! Entities of one namespace with the same labels share a [`Set`]; a [`Selection`] is a selector with its
//! scope. Each is found from the other by a common label or key. A new one therefore costs in proportion to its
//! matches and not to the number of objects. Nodes are entities of the namespace without name, which no selector
//! for namespaces selects.

use super::{
    ids::Ids,
    interner::{Interner, Pivot},
    table::{Keyed, Mark, Table},
};
use policy_objects::{Labels, Selector, page::SelectorView};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

#[derive(Debug)]
pub(super) struct Space {
    pub(super) name: Box<str>,
    pub(super) labels: Box<[u32]>,
    /// There is an object of it.
    pub(super) known: bool,
    /// The namespace selectors that select it.
    scopes: Ids,
    pub(super) sets: u32,
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) space: u32,
    labels: Box<[u32]>,
    pub(super) entities: Ids,
    pub(super) selections: Ids,
}

/// Of which namespaces a selection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    Space(u32),
    /// Namespaces that a namespace selector selects; if the second field is present, only that namespace.
    Scope(u32, Option<u32>),
}

#[derive(Debug)]
pub(super) struct Selection {
    reach: Reach,
    selector: u32,
    /// The requirement under which it is found.
    door: Option<u8>,
    pub(super) groups: Ids,
}

#[derive(Debug)]
struct Scope {
    selector: u32,
    door: Option<u8>,
    selections: Ids,
}

/// Entries of a list: sets of a namespace, sets of namespaces that a selector selects, or namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Room {
    Space(u32),
    Scope(u32),
    Spaces,
}

#[derive(Debug)]
struct Bucket {
    at: (Room, Pivot),
    ids: Ids,
}

impl Keyed for Space {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.name
    }
}

impl Keyed for Set {
    type Key<'a> = (u32, &'a [u32]);

    fn key(&self) -> (u32, &[u32]) {
        (self.space, &self.labels)
    }
}

impl Keyed for Selection {
    type Key<'a> = (Reach, u32);

    fn key(&self) -> (Reach, u32) {
        (self.reach, self.selector)
    }
}

impl Keyed for Scope {
    type Key<'a> = u32;

    fn key(&self) -> u32 {
        self.selector
    }
}

impl Keyed for Bucket {
    type Key<'a> = (Room, Pivot);

    fn key(&self) -> (Room, Pivot) {
        self.at
    }
}

/// A selection as text, before it is interned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodSelection<'a> {
    pub(super) space: Option<Cow<'a, str>>,
    pub(super) spaces: Option<Cow<'a, Selector>>,
    /// With these labels.
    pub(super) selector: Cow<'a, Selector>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Borrowed<'a> {
    /// The namespace of the policy.
    pub(super) own: &'a str,
    /// Of namespaces with these labels; `None`: of the policy's own.
    pub(super) spaces: Option<&'a SelectorView<'a>>,
    /// With these labels.
    pub(super) selector: &'a SelectorView<'a>,
}

#[derive(Debug)]
pub(super) struct Matching {
    interner: Interner,
    /// Labels of an entity that are looked up.
    labels: Vec<u32>,
    pub(super) spaces: Table<Space>,
    pub(super) sets: Table<Set>,
    pub(super) selections: Table<Selection>,
    scopes: Table<Scope>,
    buckets: Table<Bucket>,
    /// Sets by label and namespace.
    holders: BTreeSet<(u32, u32, u32)>,
    /// Namespaces by label.
    labeled: BTreeSet<(u32, u32)>,
    /// As long as objects are loaded nothing is matched.
    loading: bool,
}

/// Selections of a set before an event.
pub(super) type Before = BTreeMap<u32, Ids>;

impl Matching {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            interner: Interner::new(seed),
            labels: Vec::new(),
            spaces: Table::new(seed),
            sets: Table::new(seed),
            selections: Table::new(seed),
            scopes: Table::new(seed),
            buckets: Table::new(seed),
            holders: BTreeSet::new(),
            labeled: BTreeSet::new(),
            loading: true,
        }
    }

    /// Matches everything that was loaded.
    pub(super) fn loaded(&mut self) {
        self.loading = false;
        let mut labeled = Vec::new();
        for space in self.spaces.ids() {
            labeled.extend(keys(&self.spaces[space].labels).map(|label| (label, space)));
            self.spaces[space].scopes = self.scopes_of(space);
        }
        self.labeled = labeled.into_iter().collect();
        let mut holders = Vec::new();
        for id in self.sets.ids() {
            let selections = self.selections_of(id);
            let set = &mut self.sets[id];
            set.selections = selections;
            let space = set.space;
            holders.extend(keys(&set.labels).map(|label| (label, space, id)));
        }
        self.holders = holders.into_iter().collect();
    }

    /// A namespace by its name, with one user more. Of one whose object is not known only its name is.
    pub(super) fn space(&mut self, name: &str) -> u32 {
        if let Some(id) = self.spaces.find(name) {
            return self.spaces.hold(id);
        }
        let labels = match name {
            "" => Box::default(),
            name => self.interner.labels([(NAME_LABEL, name)].into_iter()),
        };
        let (name, scopes) = (name.into(), Ids::default());
        let id = self.spaces.insert(Space { name, labels, known: false, scopes, sets: 0 });
        self.enter(id);
        self.spaces.hold(id)
    }

    pub(super) fn release_space(&mut self, id: u32) {
        let Some(Space { labels, .. }) = self.spaces.release(id) else { return };
        if !self.loading {
            for label in keys(&labels) {
                self.labeled.remove(&(label, id));
            }
        }
        self.interner.release_labels(&labels);
    }

    fn enter(&mut self, space: u32) {
        if !self.loading {
            let labels = self.spaces[space].labels.clone();
            self.labeled.extend(keys(&labels).map(|label| (label, space)));
            self.spaces[space].scopes = self.scopes_of(space);
        }
    }

    /// Gives a namespace its labels; what the sets in it were selected by, of those where that changes.
    pub(super) fn label_space(&mut self, id: u32, labels: Option<Vec<(&str, &str)>>) -> Before {
        let name = self.spaces[id].name.clone();
        let mut labels = labels.unwrap_or_default();
        if labels.iter().all(|(key, _)| *key != NAME_LABEL) {
            labels.push((NAME_LABEL, &name));
        }
        let labels = self.interner.labels(labels.into_iter());
        let old = std::mem::replace(&mut self.spaces[id].labels, labels);
        let mut before = Before::new();
        if !self.loading {
            for label in keys(&old) {
                self.labeled.remove(&(label, id));
            }
            let left = std::mem::take(&mut self.spaces[id].scopes);
            self.enter(id);
            let entered = self.spaces[id].scopes.clone();
            for scope in left.iter().filter(|scope| !entered.contains(*scope)) {
                self.turn(id, scope, false, &mut before);
            }
            for scope in entered.iter().filter(|scope| !left.contains(*scope)) {
                self.turn(id, scope, true, &mut before);
            }
        }
        self.interner.release_labels(&old);
        before
    }

    /// A namespace enters or leaves a namespace selector.
    fn turn(&mut self, space: u32, scope: u32, enters: bool, before: &mut Before) {
        for selection in self.scopes[scope].selections.clone().iter() {
            let Selection { reach, selector, .. } = self.selections[selection];
            if matches!(reach, Reach::Scope(_, Some(only)) if only != space) {
                continue;
            }
            for set in self.sets_in(space, selector) {
                let selections = &mut self.sets[set].selections;
                before.entry(set).or_insert_with(|| selections.clone());
                if enters { selections.insert(selection) } else { selections.remove(selection) }
            }
        }
    }

    fn scopes_of(&self, space: u32) -> Ids {
        let Space { name, labels, .. } = &self.spaces[space];
        if name.is_empty() || self.scopes.len() == 0 {
            return Ids::default();
        }
        let found = self.behind(Room::Spaces, labels);
        found.filter(|scope| self.interner.selects(self.scopes[*scope].selector, labels)).collect()
    }

    fn selections_of(&self, set: u32) -> Ids {
        let Set { space, labels, .. } = &self.sets[set];
        let scopes = self.spaces[*space].scopes.iter().map(Room::Scope);
        let rooms = [Room::Space(*space)].into_iter().chain(scopes);
        let found = rooms.flat_map(|room| self.behind(room, labels));
        let selects = |id: &u32| {
            let Selection { reach, selector, .. } = self.selections[*id];
            !matches!(reach, Reach::Scope(_, Some(only)) if only != *space)
                && self.interner.selects(selector, labels)
        };
        found.filter(selects).collect()
    }

    fn behind<'a>(&'a self, room: Room, labels: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let bucket = move |pivot| self.buckets.find((room, pivot));
        let found = self.interner.doors(labels).filter_map(bucket);
        found.flat_map(|bucket| self.buckets[bucket].ids.as_slice()).copied()
    }

    fn hang(&mut self, room: Room, selector: u32, door: Option<u8>, id: u32) {
        for pivot in self.interner.pivots(selector, door.map(usize::from)) {
            self.interner.watch(pivot, true);
            let bucket = self.buckets.intern(Bucket { at: (room, pivot), ids: Ids::default() });
            self.buckets[bucket].ids.insert(id);
        }
    }

    fn unhang(&mut self, room: Room, selector: u32, door: Option<u8>, id: u32) {
        for pivot in self.interner.pivots(selector, door.map(usize::from)) {
            self.interner.watch(pivot, false);
            let Some(bucket) = self.buckets.find((room, pivot)) else { continue };
            self.buckets[bucket].ids.remove(id);
            if self.buckets[bucket].ids.is_empty() {
                self.buckets.remove(bucket);
            }
        }
    }

    /// An entity comes into the set of its namespace and labels.
    pub(super) fn join<'a>(
        &mut self,
        entity: u32,
        space: u32,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> u32 {
        let mut ids = std::mem::take(&mut self.labels);
        self.interner.labels_into(labels, &mut ids);
        let id = match self.sets.seek((space, &ids)) {
            Ok(id) => {
                self.interner.release_labels(&ids);
                id
            }
            Err(mark) => self.new_set(mark, space, ids.as_slice().into()),
        };
        self.labels = ids;
        self.sets[id].entities.insert(entity);
        id
    }

    fn new_set(&mut self, mark: Mark, space: u32, labels: Box<[u32]>) -> u32 {
        self.spaces.hold(space);
        self.spaces[space].sets += 1;
        self.interner.held(&labels, true);
        let (entities, selections) = (Ids::default(), Ids::default());
        let set = Set { space, labels, entities, selections };
        let id = self.sets.insert_marked(mark, set);
        if !self.loading {
            self.holders.extend(keys(&self.sets[id].labels).map(|label| (label, space, id)));
            self.sets[id].selections = self.selections_of(id);
        }
        id
    }

    pub(super) fn leave(&mut self, entity: u32, id: u32) {
        self.sets[id].entities.remove(entity);
        if !self.sets[id].entities.is_empty() {
            return;
        }
        if let Some(Set { space, labels, .. }) = self.sets.remove(id) {
            self.interner.held(&labels, false);
            if !self.loading {
                for label in keys(&labels) {
                    self.holders.remove(&(label, space, id));
                }
            }
            self.interner.release_labels(&labels);
            self.spaces[space].sets -= 1;
            self.release_space(space);
        }
    }

    /// The selection of this; a new one has no group yet.
    pub(super) fn select(&mut self, wanted: &PodSelection<'_>) -> u32 {
        let selector = self.interner.selector(&SelectorView::from(&*wanted.selector));
        let only = wanted.space.as_deref().map(|name| self.space(name));
        let spaces = wanted.spaces.as_ref().filter(|spaces| !spaces.requirements.is_empty());
        let reach = match (spaces, only) {
            (None, Some(space)) => Reach::Space(space),
            (Some(spaces), only) => Reach::Scope(self.scope(&SelectorView::from(&**spaces)), only),
            (None, None) => Reach::Scope(self.scope(&SelectorView::default()), None),
        };
        self.selection(reach, selector)
    }

    pub(super) fn select_borrowed(&mut self, borrowed: Borrowed<'_>) -> u32 {
        let selector = self.interner.selector(borrowed.selector);
        let reach = match borrowed.spaces {
            None => Reach::Space(self.space(borrowed.own)),
            Some(spaces) => Reach::Scope(self.scope(spaces), None),
        };
        self.selection(reach, selector)
    }

    /// The selection that has one use of each from now on, if it is new; else they are given back.
    fn selection(&mut self, reach: Reach, selector: u32) -> u32 {
        let mark = match self.selections.seek((reach, selector)) {
            Ok(id) => {
                self.release_reach(reach, selector);
                return id;
            }
            Err(mark) => mark,
        };
        let door = self.interner.narrowest(selector).and_then(|at| u8::try_from(at).ok());
        let selection = Selection { reach, selector, door, groups: Ids::default() };
        let id = self.selections.insert_marked(mark, selection);
        self.hang(room(reach), selector, door, id);
        if let Reach::Scope(scope, _) = reach {
            self.scopes[scope].selections.insert(id);
        }
        if !self.loading {
            self.sets_of(id).into_iter().for_each(|set| self.sets[set].selections.insert(id));
        }
        id
    }

    /// Removes a selection that no group uses.
    pub(super) fn unselect(&mut self, id: u32) {
        if !self.loading {
            self.sets_of(id).into_iter().for_each(|set| self.sets[set].selections.remove(id));
        }
        if let Some(Selection { reach, selector, door, .. }) = self.selections.remove(id) {
            self.unhang(room(reach), selector, door, id);
            if let Reach::Scope(scope, _) = reach {
                self.scopes[scope].selections.remove(id);
            }
            self.release_reach(reach, selector);
        }
    }

    fn release_reach(&mut self, reach: Reach, selector: u32) {
        match reach {
            Reach::Space(space) => self.release_space(space),
            Reach::Scope(scope, only) => {
                self.release_scope(scope);
                only.into_iter().for_each(|space| self.release_space(space));
            }
        }
        self.interner.release_selector(selector);
    }

    fn scope(&mut self, selector: &SelectorView<'_>) -> u32 {
        let selector = self.interner.selector(selector);
        if let Some(id) = self.scopes.find(selector) {
            self.interner.release_selector(selector);
            return self.scopes.hold(id);
        }
        let door = self.interner.narrowest(selector).and_then(|at| u8::try_from(at).ok());
        let id = self.scopes.insert(Scope { selector, door, selections: Ids::default() });
        self.hang(Room::Spaces, selector, door, id);
        if !self.loading {
            self.spaces_of(id).into_iter().for_each(|space| self.spaces[space].scopes.insert(id));
        }
        self.scopes.hold(id)
    }

    fn release_scope(&mut self, id: u32) {
        let leave = !self.loading && self.scopes.is_last(id);
        let spaces = if leave { self.spaces_of(id) } else { Vec::new() };
        if let Some(Scope { selector, door, .. }) = self.scopes.release(id) {
            spaces.into_iter().for_each(|space| self.spaces[space].scopes.remove(id));
            self.unhang(Room::Spaces, selector, door, id);
            self.interner.release_selector(selector);
        }
    }

    /// The namespaces that a namespace selector selects.
    fn spaces_of(&self, scope: u32) -> Vec<u32> {
        let selector = self.scopes[scope].selector;
        let needed = self.interner.needed(selector).unwrap_or(&[ALL]);
        let with = |label: &u32| self.labeled.range((*label, 0)..=(*label, u32::MAX));
        let found = needed.iter().flat_map(with).map(|(_, space)| *space);
        let selects = |space: &u32| {
            let Space { name, labels, .. } = &self.spaces[*space];
            !name.is_empty() && self.interner.selects(selector, labels)
        };
        found.filter(selects).collect()
    }

    /// The sets that a selection selects.
    pub(super) fn sets_of(&self, selection: u32) -> Vec<u32> {
        let Selection { reach, selector, .. } = self.selections[selection];
        let scope = match reach {
            Reach::Space(space) => return self.sets_in(space, selector),
            Reach::Scope(scope, Some(space)) if self.spaces[space].scopes.contains(scope) => {
                return self.sets_in(space, selector);
            }
            Reach::Scope(_, Some(_)) => return Vec::new(),
            Reach::Scope(scope, None) => scope,
        };
        let spaces = self.spaces_of(scope);
        match self.interner.needed(selector) {
            Some(needed) if self.interner.holders(needed) <= spaces.len() => {
                let with =
                    |label: &u32| self.holders.range((*label, 0, 0)..=(*label, u32::MAX, u32::MAX));
                let found = needed.iter().flat_map(with);
                let found =
                    found.filter(|(_, space, _)| self.spaces[*space].scopes.contains(scope));
                found.map(|(_, _, set)| *set).filter(|set| self.is_in(*set, selector)).collect()
            }
            _ => spaces.into_iter().flat_map(|space| self.sets_in(space, selector)).collect(),
        }
    }

    /// The sets of a namespace that a selector selects.
    fn sets_in(&self, space: u32, selector: u32) -> Vec<u32> {
        let needed = self.interner.needed(selector).unwrap_or(&[ALL]);
        let with = |label: &u32| self.holders.range((*label, space, 0)..=(*label, space, u32::MAX));
        let found = needed.iter().flat_map(with).map(|(_, _, set)| *set);
        found.filter(|set| self.is_in(*set, selector)).collect()
    }

    fn is_in(&self, set: u32, selector: u32) -> bool {
        self.interner.selects(selector, &self.sets[set].labels)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let lists = self.holders.len() + self.labeled.len() + self.buckets.len();
        let things = self.spaces.len() + self.sets.len() + self.selections.len();
        lists + things + self.scopes.len() + self.interner.words()
    }

    /// A namespace that there is: an object of it, or pods in it.
    pub(super) fn live_space(&self, name: &str) -> Option<u32> {
        let found = self.spaces.find(name).filter(|_| !name.is_empty());
        found.filter(|space| self.spaces[*space].known || self.spaces[*space].sets > 0)
    }

    pub(super) fn space_labels(&self, space: u32) -> Labels {
        let texts = self.spaces[space].labels.iter().map(|label| self.interner.text(*label));
        texts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

fn room(reach: Reach) -> Room {
    match reach {
        Reach::Space(space) => Room::Space(space),
        Reach::Scope(scope, _) => Room::Scope(scope),
    }
}

/// Under which labels something is found: its own, and one that everything has.
fn keys(labels: &[u32]) -> impl Iterator<Item = u32> {
    labels.iter().copied().chain([ALL])
}

const ALL: u32 = u32::MAX;
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
