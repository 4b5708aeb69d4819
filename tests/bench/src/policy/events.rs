//! Times of single events in a loaded index.

use crate::figures::Samples;
use anyhow::{Context as _, Result};
use policy_core::{
    Policy, compile,
    index::{Event, Index},
};
use policy_objects::{Kind, Namespace, Object, Pod, page};
use std::{io::Read, time::Instant};

/// Times of the events of one kind, each from the object to its deltas.
#[derive(Debug)]
pub struct EventTimes {
    /// Prefix of the figures' names.
    pub name: &'static str,
    pub samples: Samples,
    /// Number of members that entered or left groups in all samples together.
    pub members: usize,
}

/// The first objects of each kind in a data set.
struct FirstObjects {
    namespaces: Vec<Namespace>,
    pods: Vec<Pod>,
    policies: Vec<Policy>,
}

/// Applies `rounds` events of each kind to a loaded index, and undoes them.
///
/// # Errors
/// If the pages cannot be read again.
pub fn events(index: &mut Index, from: &mut impl Read, rounds: usize) -> Result<Vec<EventTimes>> {
    let firsts = firsts(from)?;
    let mut timed = vec![
        EventTimes::new("pod_added"),
        EventTimes::new("pod_gone"),
        EventTimes::new("pod_late_address"),
        EventTimes::new("pod_relabelled"),
        EventTimes::new("policy_added"),
        EventTimes::new("namespace_relabelled"),
    ];
    let [added, gone, late, relabelled, policy_added, namespace_relabelled] = &mut timed[..] else {
        unreachable!("there are six");
    };
    for (round, pod) in firsts.pods.iter().cycle().take(rounds).enumerate() {
        let mut new = pod.clone();
        new.meta.name = format!("new-{round}");
        new.meta.uid = format!("00000000-0000-4000-8000-{round:012x}");
        new.addresses.clear();
        index.apply(Event::Pod(&new));
        new.addresses = vec![format!("172.16.{}.{}", round >> 8 & 255, round & 255).parse()?];
        late.time(index, Event::Pod(&new));
        gone.time(index, new_gone(&new));
        added.time(index, Event::Pod(&new));
        let mut other = new.clone();
        other.meta.labels.clone_from(&firsts.pods[(round + 3) % firsts.pods.len()].meta.labels);
        relabelled.time(index, Event::Pod(&other));
        index.apply(new_gone(&new));
    }
    for (round, policy) in firsts.policies.iter().cycle().take(rounds).enumerate() {
        let mut new = policy.clone();
        new.key.name = format!("new-{round}");
        new.uid = format!("10000000-0000-4000-8000-{round:012x}");
        policy_added.time(index, Event::Policy(&new));
        let (namespace, name) = (&*new.key.namespace, &*new.key.name);
        index.apply(Event::Gone { kind: new.key.kind, namespace, name, uid: "" });
    }
    let watcher = across(&firsts)?;
    index.apply(Event::Policy(&watcher));
    for namespace in firsts.namespaces.iter().cycle().take(rounds.min(100)) {
        let mut red = namespace.clone();
        red.meta.labels.insert("team".to_owned(), "red".to_owned());
        namespace_relabelled.time(index, Event::Namespace(&red));
        index.apply(Event::Namespace(namespace));
    }
    Ok(timed)
}

fn new_gone(pod: &Pod) -> Event<'_> {
    let (namespace, name, uid) = (&*pod.meta.namespace, &*pod.meta.name, &*pod.meta.uid);
    Event::Gone { kind: Kind::Pod, namespace, name, uid }
}

/// A policy that allows traffic from namespaces with the label `team: red`.
fn across(firsts: &FirstObjects) -> Result<Policy> {
    let namespace = &firsts.namespaces.first().context("the data set has no namespace")?.meta.name;
    let value = serde_json::json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "across", "namespace": namespace},
        "spec": {
            "podSelector": {},
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}]}],
        },
    });
    let read = Object::read_as(Kind::NetworkPolicy, &value).context("read a policy")?;
    compile(&read.object).context("a policy")
}

impl EventTimes {
    fn new(name: &'static str) -> Self {
        Self { name, samples: Samples::default(), members: 0 }
    }

    fn time(&mut self, index: &mut Index, event: Event<'_>) {
        let started = Instant::now();
        let deltas = index.apply(event);
        self.samples.push(started.elapsed());
        let moved =
            |delta: &policy_core::index::GroupDelta| delta.added.len() + delta.removed.len();
        self.members += deltas.groups.iter().map(moved).sum::<usize>();
    }
}

/// The first page of each kind.
fn firsts(from: &mut impl Read) -> Result<FirstObjects> {
    let mut firsts =
        FirstObjects { namespaces: Vec::new(), pods: Vec::new(), policies: Vec::new() };
    let mut kind = [0];
    while from.read(&mut kind).context("read a page")? > 0 {
        let mut length = [0; 8];
        from.read_exact(&mut length).context("read a page")?;
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length))?];
        from.read_exact(&mut bytes).context("read a page")?;
        match kind[0] {
            0 if firsts.namespaces.is_empty() => {
                page::namespaces(&bytes, |item| {
                    firsts.namespaces.extend(item.map(Namespace::from));
                })?;
            }
            1 if firsts.pods.is_empty() => {
                page::pods(&bytes, |item| firsts.pods.extend(item.map(Pod::from)))?;
            }
            2 if firsts.policies.is_empty() => {
                page::objects(Kind::NetworkPolicy, &bytes, |item| {
                    firsts.policies.extend(item.ok().and_then(|parsed| compile(&parsed.object)));
                })?;
            }
            _ => {}
        }
    }
    Ok(firsts)
}
