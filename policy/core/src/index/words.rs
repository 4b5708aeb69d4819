//! Labels and selectors, each once.

use super::table::{Keyed, Table};
use policy_objects::{Operator, Selector};

#[derive(Debug)]
struct Key {
    text: Box<str>,
    /// How many lists are found by this key, whatever its value is.
    watched: u32,
}

#[derive(Debug)]
struct Label {
    key: u32,
    value: Box<str>,
    /// How many lists are found by this label.
    watched: u32,
    /// How many sets hold it.
    sets: u32,
}

impl Keyed for Key {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.text
    }
}

impl Keyed for Label {
    type Key<'a> = (u32, &'a str);

    fn key(&self) -> (u32, &str) {
        (self.key, &self.value)
    }
}

/// One requirement, in numbers: labels, or for the last two a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    In(Box<[u32]>),
    NotIn(Box<[u32]>),
    Exists(u32),
    Missing(u32),
}

#[derive(Debug)]
pub(super) struct Terms(Box<[Term]>);

impl Keyed for Terms {
    type Key<'a> = &'a [Term];

    fn key(&self) -> &[Term] {
        &self.0
    }
}

/// By what a list is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pivot {
    Label(u32),
    Key(u32),
    /// By nothing: whoever looks looks here too.
    Any,
}

#[derive(Debug)]
pub(super) struct Words {
    keys: Table<Key>,
    labels: Table<Label>,
    selectors: Table<Terms>,
}

impl Words {
    pub(super) fn new(seed: u64) -> Self {
        Self { keys: Table::new(seed), labels: Table::new(seed), selectors: Table::new(seed) }
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
        let known = self.keys.find(key);
        if let Some(id) = known.and_then(|key| self.labels.find((key, value))) {
            return self.labels.hold(id);
        }
        let key = self.key(key);
        let id = self.labels.insert(Label { key, value: value.into(), watched: 0, sets: 0 });
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
        let mut ids: Vec<u32> = labels.map(|(key, value)| self.label(key, value)).collect();
        ids.sort_unstable();
        ids.into_boxed_slice()
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
    pub(super) fn selector(&mut self, selector: &Selector) -> u32 {
        let mut terms = Vec::with_capacity(selector.requirements.len());
        for requirement in &selector.requirements {
            let key = requirement.key.as_str();
            let mut labels = |values: &std::collections::BTreeSet<String>| {
                self.labels(values.iter().map(|value| (key, value.as_str())))
            };
            terms.push(match &requirement.operator {
                Operator::In(values) => Term::In(labels(values)),
                Operator::NotIn(values) => Term::NotIn(labels(values)),
                Operator::Exists => Term::Exists(self.key(key)),
                Operator::DoesNotExist => Term::Missing(self.key(key)),
            });
        }
        if let Some(id) = self.selectors.find(terms.as_slice()) {
            self.release_terms(&terms);
            return self.selectors.hold(id);
        }
        let id = self.selectors.insert(Terms(terms.into_boxed_slice()));
        self.selectors.hold(id)
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

    pub(super) fn pivots(&self, selector: u32, at: Option<usize>) -> Vec<Pivot> {
        match at.map(|at| &self.selectors[selector].0[at]) {
            Some(Term::In(of)) => of.iter().copied().map(Pivot::Label).collect(),
            Some(Term::Exists(key)) => vec![Pivot::Key(*key)],
            Some(Term::NotIn(_) | Term::Missing(_)) | None => vec![Pivot::Any],
        }
    }

    pub(super) fn watch(&mut self, pivot: Pivot, more: bool) {
        let watched = match pivot {
            Pivot::Label(label) => &mut self.labels[label].watched,
            Pivot::Key(key) => &mut self.keys[key].watched,
            Pivot::Any => return,
        };
        *watched = if more { *watched + 1 } else { watched.saturating_sub(1) };
    }

    /// Where lists that may select these labels are found.
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
            Term::In(of) => Some((holders(of), of)),
            Term::NotIn(_) | Term::Exists(_) | Term::Missing(_) => None,
        });
        ways.min().map(|(_, of)| &**of)
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> usize {
        self.keys.len() + self.labels.len() + self.selectors.len()
    }

    /// How many sets hold one of these.
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
