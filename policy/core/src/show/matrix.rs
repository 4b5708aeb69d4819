//! Reachability between pods.

use super::{
    ask::named,
    kinds,
    samples::{Allowed, Samples},
};
use crate::World;
use policy_objects::{Named, Pod};
use serde::Serialize;
use std::collections::BTreeMap;

/// Reachability between pods. Pods that reach alike are one row, pods that are reached alike one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// Senders: the rows.
    pub sources: Vec<Group>,
    /// Receivers: the columns.
    pub destinations: Vec<Group>,
    /// Traffic that passes from each source to each destination. `None`: a single pod to itself, which policies
    /// do not judge, or ends without a common address family.
    pub cells: Vec<Vec<Option<Allowed>>>,
}

/// Pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub name: String,
    #[serde(serialize_with = "words")]
    pub pods: Vec<Named>,
}

impl Matrix {
    pub fn of(world: &World, samples: &Samples) -> Self {
        let kinds: Vec<Vec<&Pod>> = kinds::kinds(world).into_values().collect();
        let cell = |from: &Vec<&Pod>, to: &Vec<&Pod>| {
            let (from, to) = ends(from, to)?;
            samples.ask(world, from, to)
        };
        let cells: Vec<Vec<Option<Allowed>>> =
            kinds.iter().map(|from| kinds.iter().map(|to| cell(from, to)).collect()).collect();
        let (rows, columns) = merged(&cells);
        let names = Names::of(world);
        let groups = |of: &[Vec<usize>]| -> Vec<Group> {
            let group = |kinds_of: &Vec<usize>| {
                let members = kinds_of.iter().filter_map(|kind| kinds.get(*kind)).flatten();
                let mut pods: Vec<Named> = members.map(|pod| named(pod)).collect();
                pods.sort();
                Group { name: names.of_group(&pods), pods }
            };
            of.iter().map(group).collect()
        };
        Self {
            sources: groups(&rows),
            destinations: groups(&columns),
            cells: rows
                .iter()
                .map(|from| {
                    columns.iter().map(|to| block(&cells, from, to).next().cloned()).collect()
                })
                .collect(),
        }
    }
}

type Cells = Vec<Vec<Option<Allowed>>>;

/// One pod of each kind; of one kind two, if it has them.
pub(super) fn ends<'a>(from: &[&'a Pod], to: &[&'a Pod]) -> Option<(&'a Pod, &'a Pod)> {
    let first = *from.first()?;
    let other = to.iter().find(|pod| {
        pod.meta.name != first.meta.name || pod.meta.namespace != first.meta.namespace
    })?;
    Some((first, *other))
}

/// Kinds with equal rows together, and kinds with equal columns.
fn merged(cells: &Cells) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let alike = |one: Option<&Allowed>, two: Option<&Allowed>| match (one, two) {
        (Some(one), Some(two)) => one == two,
        // A pod and itself are like anything.
        (None, _) | (_, None) => true,
    };
    let kinds = 0..cells.len();
    let rows = grouped(cells.len(), |one, two| {
        kinds.clone().all(|to| alike(cell(cells, one, to), cell(cells, two, to)))
    });
    let columns = grouped(cells.len(), |one, two| {
        kinds.clone().all(|from| alike(cell(cells, from, one), cell(cells, from, two)))
    });
    // Where pods and themselves hid that others differ, rows stay apart.
    let differs = |row: &Vec<usize>| {
        columns.iter().any(|column| {
            let mut values = block(cells, row, column);
            let first = values.next();
            values.any(|value| Some(value) != first)
        })
    };
    let apart = |row: Vec<usize>| match differs(&row) {
        true => row.into_iter().map(|kind| vec![kind]).collect(),
        false => vec![row],
    };
    (rows.into_iter().flat_map(apart).collect(), columns)
}

/// In the order of the first of each.
fn grouped(count: usize, alike: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for kind in 0..count {
        match groups.iter_mut().find(|group| group.iter().all(|of| alike(*of, kind))) {
            Some(group) => group.push(kind),
            None => groups.push(vec![kind]),
        }
    }
    groups
}

/// Traffic between two groups of pods.
fn block<'a>(
    cells: &'a Cells,
    from: &'a [usize],
    to: &'a [usize],
) -> impl Iterator<Item = &'a Allowed> {
    from.iter().flat_map(move |from| to.iter().filter_map(move |to| cell(cells, *from, *to)))
}

fn cell(cells: &Cells, from: usize, to: usize) -> Option<&Allowed> {
    cells.get(from)?.get(to)?.as_ref()
}

/// Names of groups of pods, with counts that keep them unique.
pub(super) struct Names(BTreeMap<String, usize>);

impl Names {
    /// By how many pods each namespace has.
    pub(super) fn of(world: &World) -> Self {
        let mut count = BTreeMap::new();
        for pod in kinds::pods(world) {
            *count.entry(pod.meta.namespace.clone()).or_default() += 1;
        }
        Self(count)
    }

    /// `ns/pod`, `ns/web-* (3)`, `ns (all 4)`, or several of these.
    pub(super) fn of_group(&self, pods: &[Named]) -> String {
        let mut namespaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for pod in pods {
            namespaces.entry(&pod.namespace).or_default().push(&pod.name);
        }
        let mut parts = namespaces.iter().map(|(namespace, pods)| self.part(namespace, pods));
        let first: Vec<String> = parts.by_ref().take(SHOWN).collect();
        match parts.count() {
            0 => first.join(", "),
            1 => format!("{} and 1 namespace more", first.join(", ")),
            more => format!("{} and {more} namespaces more", first.join(", ")),
        }
    }

    fn part(&self, namespace: &str, pods: &[&str]) -> String {
        match pods {
            [pod] => format!("{namespace}/{pod}"),
            pods if self.0.get(namespace) == Some(&pods.len()) => {
                format!("{namespace} (all {})", pods.len())
            }
            pods => format!("{namespace}/{}* ({})", common(pods), pods.len()),
        }
    }
}

/// Common prefix of names, up to a dash if there is one.
fn common<'a>(names: &[&'a str]) -> &'a str {
    let Some((first, rest)) = names.split_first() else { return "" };
    let mut end = first.len();
    for name in rest {
        let same = first.bytes().zip(name.bytes()).take_while(|(one, two)| one == two).count();
        end = end.min(same);
    }
    let head = first.get(..end).unwrap_or_default();
    head.rfind('-').map_or(head, |dash| head.get(..=dash).unwrap_or(head))
}

fn words<S: serde::Serializer>(pods: &[Named], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pods.iter().map(crate::text::named))
}

/// Largest number of namespaces in a group's name.
const SHOWN: usize = 3;
