//! Effects of a change of objects.

use super::{
    ask::named,
    kinds::{self, Looks, Sight},
    matrix::{Names, ends},
    samples::{Allowed, Samples},
};
use crate::World;
use policy_objects::{Named, Pod};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Between pods of both.
    pub pairs: Vec<Change>,
    /// Pods of the second alone.
    #[serde(serialize_with = "words")]
    pub new: Vec<Named>,
    /// Pods of the first alone.
    #[serde(serialize_with = "words")]
    pub gone: Vec<Named>,
}

/// Change between pods that both worlds treat alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Name of the group of senders.
    pub from: String,
    /// Name of the group of receivers.
    pub to: String,
    #[serde(serialize_with = "words")]
    pub sources: Vec<Named>,
    #[serde(serialize_with = "words")]
    pub destinations: Vec<Named>,
    pub before: Allowed,
    pub after: Allowed,
}

impl Changes {
    /// Number of pairs of pods that have changed.
    pub fn count(&self) -> usize {
        let pairs = |change: &Change| {
            let all = change.sources.len() * change.destinations.len();
            let both = change.sources.iter().filter(|pod| change.destinations.contains(pod));
            all - both.count()
        };
        self.pairs.iter().map(pairs).sum()
    }
}

/// Changes from one world to another.
pub fn changes(before: &World, after: &World, samples: &Samples) -> Changes {
    let names = |world: &World| -> BTreeSet<Named> { kinds::pods(world).map(named).collect() };
    let (old, new) = (names(before), names(after));
    let mut kinds: BTreeMap<(Sight, Sight), Vec<(&Pod, &Pod)>> = BTreeMap::new();
    let looks = (Looks::of(before), Looks::of(after));
    for name in old.intersection(&new) {
        let (Some(one), Some(two)) = (before.pod(name), after.pod(name)) else { continue };
        let sight = (looks.0.at(before, one), looks.1.at(after, two));
        kinds.entry(sight).or_default().push((one, two));
    }
    let kinds: Vec<Vec<(&Pod, &Pod)>> = kinds.into_values().collect();
    let titles = Names::of(after);
    let mut pairs = Vec::new();
    for from in &kinds {
        for to in &kinds {
            let ask = |world, side: fn(&(_, _)) -> _| {
                let (from, to): (Vec<&Pod>, Vec<&Pod>) =
                    (from.iter().map(side).collect(), to.iter().map(side).collect());
                let (from, to) = ends(&from, &to)?;
                samples.ask(world, from, to)
            };
            let (Some(was), Some(is)) = (ask(before, |pair| pair.0), ask(after, |pair| pair.1))
            else {
                continue;
            };
            if was == is {
                continue;
            }
            let of = |kind: &[(&Pod, &Pod)]| kind.iter().map(|(_, pod)| named(pod)).collect();
            let (sources, destinations): (Vec<Named>, Vec<Named>) = (of(from), of(to));
            pairs.push(((was, is), sources, destinations));
        }
    }
    let told = |((before, after), sources, destinations): Pair| Change {
        from: titles.of_group(&sources),
        to: titles.of_group(&destinations),
        sources,
        destinations,
        before,
        after,
    };
    Changes {
        pairs: together(pairs).into_iter().map(told).collect(),
        new: new.difference(&old).cloned().collect(),
        gone: old.difference(&new).cloned().collect(),
    }
}

/// Traffic that passed before and that passes now, senders, receivers.
type Pair = ((Allowed, Allowed), Vec<Named>, Vec<Named>);

/// Merges pairs with the same change: first senders with the same receivers, then receivers with the same senders.
fn together(pairs: Vec<Pair>) -> Vec<Pair> {
    let mut of_destinations: BTreeMap<_, Vec<Named>> = BTreeMap::new();
    for (what, sources, destinations) in pairs {
        of_destinations.entry((destinations, what)).or_default().extend(sources);
    }
    let mut of_sources: BTreeMap<_, Vec<Named>> = BTreeMap::new();
    for ((destinations, what), mut sources) in of_destinations {
        sources.sort();
        of_sources.entry((sources, what)).or_default().extend(destinations);
    }
    let sorted = |((sources, what), mut destinations): (_, Vec<Named>)| {
        destinations.sort();
        (what, sources, destinations)
    };
    of_sources.into_iter().map(sorted).collect()
}

fn words<S: serde::Serializer>(pods: &[Named], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pods.iter().map(crate::text::named))
}
