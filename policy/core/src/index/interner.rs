//! Labels and selectors, each once.

use super::table::{Keyed, Table};
use policy_objects::page::{OperatorView, RequirementView, SelectorView};
use std::ops;

#[derive(Debug)]
struct Key {
    text: Box<str>,
    /// Number of lists found by this key, with any value.
    watched: u32,
}

#[derive(Debug)]
struct Label {
    key: u32,
    value: Box<str>,
    /// Number of lists found by this label.
    watched: u32,
    sets: u32,
}

impl Keyed for Key {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.text
    }
}

/// One requirement, in numbers: labels, or for the last two a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    In(AnyOf),
    NotIn(AnyOf),
    Exists(u32),
    Missing(u32),
}

/// Labels, sorted; one of them needs no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum AnyOf {
    One(u32),
    Many(Box<[u32]>),
}

impl ops::Deref for AnyOf {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::One(label) => std::slice::from_ref(label),
            Self::Many(labels) => labels,
        }
    }
}

#[derive(Debug)]
pub(super) struct Terms(Box<[Term]>);

impl Keyed for Terms {
    type Key<'a> = &'a [Term];

    fn key(&self) -> &[Term] {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pivot {
    Label(u32),
    Key(u32),
    /// Lists without a key or label; each lookup reads them too.
    Any,
}

#[derive(Debug)]
pub(super) struct Interner {
    keys: Table<Key>,
    /// Found by the texts of key and value.
    labels: Table<Label>,
    selectors: Table<Terms>,
    /// Terms of a selector that is looked up.
    terms: Vec<Term>,
}

impl Interner {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            keys: Table::new(seed),
            labels: Table::new(seed),
            selectors: Table::new(seed),
            terms: Vec::new(),
        }
    }

    fn key(&mut self, text: &str) -> u32 {
        let id = match self.keys.find(text) {
            Some(id) => id,
            None => self.keys.insert(Key { text: text.into(), watched: 0 }),
        };
        self.keys.hold(id)
    }

    /// One user more of a label.
    pub(super) fn label(&mut self, key: &str, value: &str) -> u32 {
        let mark = self.labels.mark((key, value));
        let is = |label: &Label| *label.value == *value && *self.keys[label.key].text == *key;
        if let Some(id) = self.labels.find_marked(mark, is) {
            return self.labels.hold(id);
        }
        let label = Label { key: self.key(key), value: value.into(), watched: 0, sets: 0 };
        let id = self.labels.insert_marked(mark, label);
        self.labels.hold(id)
    }

    pub(super) fn release_label(&mut self, id: u32) {
        if let Some(label) = self.labels.release(id) {
            self.keys.release(label.key);
        }
    }

    /// The labels' numbers, sorted; one user more of each.
    pub(super) fn labels<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Box<[u32]> {
        let mut ids = Vec::new();
        self.labels_into(labels, &mut ids);
        ids.into_boxed_slice()
    }

    /// The same, into a list that is used again.
    pub(super) fn labels_into<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        ids: &mut Vec<u32>,
    ) {
        ids.clear();
        ids.extend(labels.map(|(key, value)| self.label(key, value)));
        ids.sort_unstable();
    }

    pub(super) fn release_labels(&mut self, labels: &[u32]) {
        labels.iter().for_each(|label| self.release_label(*label));
    }

    /// Key and value.
    pub(super) fn text(&self, label: u32) -> (&str, &str) {
        let label = &self.labels[label];
        (&self.keys[label.key].text, &label.value)
    }

    /// One user more of a selector.
    pub(super) fn selector(&mut self, selector: &SelectorView<'_>) -> u32 {
        let mut terms = std::mem::take(&mut self.terms);
        terms.extend(selector.requirements().iter().map(|requirement| self.term(requirement)));
        let id = match self.selectors.seek(terms.as_slice()) {
            Ok(id) => {
                self.release_terms(&terms);
                terms.clear();
                id
            }
            Err(mark) => self.selectors.insert_marked(mark, Terms(terms.drain(..).collect())),
        };
        self.terms = terms;
        self.selectors.hold(id)
    }

    fn term(&mut self, requirement: &RequirementView<'_>) -> Term {
        let RequirementView { key, operator } = requirement;
        match operator {
            OperatorView::In(values) => Term::In(self.any_of(key, values.as_slice())),
            OperatorView::NotIn(values) => Term::NotIn(self.any_of(key, values.as_slice())),
            OperatorView::Exists => Term::Exists(self.key(key)),
            OperatorView::DoesNotExist => Term::Missing(self.key(key)),
        }
    }

    fn any_of(&mut self, key: &str, values: &[&str]) -> AnyOf {
        match values {
            [value] => AnyOf::One(self.label(key, value)),
            values => AnyOf::Many(self.labels(values.iter().map(|value| (key, *value)))),
        }
    }

    pub(super) fn release_selector(&mut self, id: u32) {
        if let Some(Terms(terms)) = self.selectors.release(id) {
            self.release_terms(&terms);
        }
    }

    fn release_terms(&mut self, terms: &[Term]) {
        for term in terms {
            match term {
                Term::In(labels) | Term::NotIn(labels) => self.release_labels(labels),
                Term::Exists(key) | Term::Missing(key) => drop(self.keys.release(*key)),
            }
        }
    }

    pub(super) fn selects(&self, selector: u32, labels: &[u32]) -> bool {
        let any = |of: &[u32]| of.iter().any(|label| labels.binary_search(label).is_ok());
        let there = |key: u32| labels.iter().any(|label| self.labels[*label].key == key);
        self.selectors[selector].0.iter().all(|term| match term {
            Term::In(of) => any(of),
            Term::NotIn(of) => !any(of),
            Term::Exists(key) => there(*key),
            Term::Missing(key) => !there(*key),
        })
    }

    /// Under what a selector is found by the labels that it selects: of several ways the one with the
    /// shortest lists. The number of the requirement, to find the same again.
    pub(super) fn narrowest(&self, selector: u32) -> Option<usize> {
        let crowd = |term: &Term| match term {
            Term::In(of) => Some((0, of.iter().map(|l| self.labels[*l].watched).sum::<u32>())),
            Term::Exists(key) => Some((1, self.keys[*key].watched)),
            Term::NotIn(_) | Term::Missing(_) => None,
        };
        let terms = self.selectors[selector].0.iter().enumerate();
        let ways = terms.filter_map(|(at, term)| crowd(term).map(|crowd| (crowd, at)));
        ways.min().map(|(_, at)| at)
    }

    pub(super) fn pivots(
        &self,
        selector: u32,
        at: Option<usize>,
    ) -> impl Iterator<Item = Pivot> + use<> {
        let (one, many) = match at.map(|at| &self.selectors[selector].0[at]) {
            Some(Term::In(AnyOf::One(of))) => (Some(Pivot::Label(*of)), Vec::new()),
            Some(Term::In(AnyOf::Many(of))) => (None, of.to_vec()),
            Some(Term::Exists(key)) => (Some(Pivot::Key(*key)), Vec::new()),
            Some(Term::NotIn(_) | Term::Missing(_)) | None => (Some(Pivot::Any), Vec::new()),
        };
        one.into_iter().chain(many.into_iter().map(Pivot::Label))
    }

    pub(super) fn watch(&mut self, pivot: Pivot, more: bool) {
        let watched = match pivot {
            Pivot::Label(label) => &mut self.labels[label].watched,
            Pivot::Key(key) => &mut self.keys[key].watched,
            Pivot::Any => return,
        };
        *watched = if more { *watched + 1 } else { watched.saturating_sub(1) };
    }

    /// Keys and labels of the lists that may select these labels.
    pub(super) fn doors<'a>(&'a self, labels: &'a [u32]) -> impl Iterator<Item = Pivot> + 'a {
        let watched = |label: &'a u32| {
            let of = &self.labels[*label];
            let by_label = (of.watched > 0).then_some(Pivot::Label(*label));
            let by_key = (self.keys[of.key].watched > 0).then_some(Pivot::Key(of.key));
            by_label.into_iter().chain(by_key)
        };
        labels.iter().flat_map(watched).chain([Pivot::Any])
    }

    /// The labels one of which an object must have to be selected, fewest holders first; none: any will do.
    pub(super) fn needed(&self, selector: u32) -> Option<&[u32]> {
        let holders = |of: &[u32]| of.iter().map(|label| self.labels[*label].sets).sum::<u32>();
        let ways = self.selectors[selector].0.iter().filter_map(|term| match term {
            Term::In(of) => Some((holders(of), &**of)),
            Term::NotIn(_) | Term::Exists(_) | Term::Missing(_) => None,
        });
        ways.min().map(|(_, of)| of)
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> usize {
        self.keys.len() + self.labels.len() + self.selectors.len()
    }

    /// Number of sets that have one of these labels.
    pub(super) fn holders(&self, labels: &[u32]) -> usize {
        labels.iter().map(|label| self.labels[*label].sets as usize).sum()
    }

    pub(super) fn held(&mut self, labels: &[u32], more: bool) {
        for label in labels {
            let sets = &mut self.labels[*label].sets;
            *sets = if more { *sets + 1 } else { sets.saturating_sub(1) };
        }
    }
}
