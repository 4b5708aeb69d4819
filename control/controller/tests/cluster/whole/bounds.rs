//! Upper and lower bound of a node's content while the cluster changes.

use control_hub::{ClientState, Handshake, Hub};
use control_wire::{
    KnownId, NodeSnapshot, ObjectId,
    model::{Member, Policy},
    parts,
    proto::Part,
};
use policy_core::{
    compile,
    index::{Event, GroupId, Holds, MemberKey},
};
use policy_objects::Object;
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// Content of a node, by names. The API server assigns UIDs, which the plan does not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Each form in which the object may be sent, without UID and generation.
    policies: BTreeMap<String, Vec<Policy>>,
    pods: BTreeMap<String, BTreeSet<IpAddr>>,
    applied: BTreeMap<GroupId, BTreeSet<String>>,
    members: BTreeMap<GroupId, BTreeMap<String, BTreeSet<IpAddr>>>,
    holds: BTreeMap<GroupId, Vec<Holds>>,
}

/// Content of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    least: View,
    most: View,
}

impl View {
    /// All objects of the content.
    pub(crate) fn of(held: &NodeSnapshot) -> Self {
        let mut view = Self::default();
        held.policies.values().for_each(|policy| view.policy(policy));
        for pod in held.pods.values() {
            let addresses = pod.addresses.iter().copied().collect();
            view.pods.insert(named(&pod.namespace, &pod.name), addresses);
        }
        held.applied.keys().for_each(|id| view.applied(held, *id));
        held.addresses.keys().for_each(|id| view.address(held, *id));
        view
    }

    /// Returns the sizes of these objects.
    fn of_some(held: &NodeSnapshot, ids: &BTreeSet<ObjectId>) -> Self {
        let mut view = Self::default();
        for id in ids {
            match id.known() {
                Some(KnownId::Policy(uid)) => {
                    held.policies.get(uid).into_iter().for_each(|policy| view.policy(policy));
                }
                Some(KnownId::Pod(uid)) => {
                    if let Some(pod) = held.pods.get(uid) {
                        let addresses = pod.addresses.iter().copied().collect();
                        view.pods.insert(named(&pod.namespace, &pod.name), addresses);
                    }
                }
                Some(KnownId::Applied(id)) if held.applied.contains_key(&id) => {
                    view.applied(held, id)
                }
                Some(KnownId::Address(id)) if held.addresses.contains_key(&id) => {
                    view.address(held, id)
                }
                Some(KnownId::Applied(_))
                | Some(KnownId::Address(_))
                | Some(KnownId::Node | KnownId::Service(_) | KnownId::Slice(_))
                | None => {}
            }
        }
        view
    }

    fn policy(&mut self, policy: &Policy) {
        let policy = Policy { uid: String::new(), generation: 0, ..policy.clone() };
        self.policies.entry(format!("{:?}", policy.key)).or_default().push(policy);
    }

    fn applied(&mut self, held: &NodeSnapshot, id: GroupId) {
        let name = |uid: &String| match held.pods.get(uid) {
            Some(pod) => named(&pod.namespace, &pod.name),
            None => format!("a pod that is not held, {uid}"),
        };
        self.applied.insert(id, held.applied[&id].iter().map(name).collect());
    }

    fn address(&mut self, held: &NodeSnapshot, id: GroupId) {
        let group = &held.addresses[&id];
        let member = |(key, member): (&MemberKey, &Member)| {
            (named(&key.namespace, &key.name), member.addresses.iter().copied().collect())
        };
        self.members.insert(id, group.members.iter().map(member).collect());
        self.holds.insert(id, vec![(*group.holds).clone()]);
    }

    /// Returns the objects that are present and in none of these worlds.
    fn beyond(&self, most: &Self) -> Option<String> {
        for (name, is) in &self.policies {
            let may = most.policies.get(name).map(Vec::as_slice).unwrap_or_default();
            if !is.iter().all(|is| may.contains(is)) {
                return Some(format!("{name} as {is:?}, of which may be {may:?}"));
            }
        }
        for (id, is) in &self.holds {
            let may = most.holds.get(id).map(Vec::as_slice).unwrap_or_default();
            if !is.iter().all(|is| may.contains(is)) {
                return Some(format!("group {id:?} with {is:?}, of which may be {may:?}"));
            }
        }
        let groups = self.members.iter().find_map(|(id, is)| {
            let what = in_excess(is, most.members.get(id)?)?;
            Some(format!("{what} in {id:?}"))
        });
        let applied = self.applied.iter().find_map(|(id, is)| {
            let none = BTreeSet::new();
            let extra = is.difference(most.applied.get(id).unwrap_or(&none)).next()?;
            Some(format!("{extra} in applied-to group {id:?}"))
        });
        let pods = || in_excess(&self.pods, &most.pods);
        groups.or(applied).or_else(pods)
    }

    /// Returns the objects that all these worlds have and that are missing. For partial content, only groups are checked.
    fn lacks_of_groups(&self, least: &Self, ids: impl Iterator<Item = ObjectId>) -> Option<String> {
        for id in ids {
            let lacks = match id.known() {
                Some(KnownId::Address(id)) => least.members.get(&id).and_then(|least| {
                    self.members.get(&id).map_or(Some("all".to_owned()), |is| in_excess(least, is))
                }),
                Some(KnownId::Applied(id)) => least.applied.get(&id).and_then(|least| {
                    let none = BTreeSet::new();
                    let is = self.applied.get(&id).unwrap_or(&none);
                    least.difference(is).next().cloned()
                }),
                Some(KnownId::Policy(_) | KnownId::Pod(_) | KnownId::Node)
                | Some(KnownId::Service(_) | KnownId::Slice(_))
                | None => None,
            };
            if let Some(lacks) = lacks {
                return Some(format!("{lacks} in {id}"));
            }
        }
        None
    }

    fn union(views: Vec<Self>) -> Self {
        let mut all = Self::default();
        for view in views {
            for (name, policies) in view.policies {
                all.policies.entry(name).or_default().extend(policies);
            }
            for (id, holds) in view.holds {
                all.holds.entry(id).or_default().extend(holds);
            }
            for (pod, addresses) in view.pods {
                all.pods.entry(pod).or_default().extend(addresses);
            }
            for (id, pods) in view.applied {
                all.applied.entry(id).or_default().extend(pods);
            }
            for (id, members) in view.members {
                let group = all.members.entry(id).or_default();
                for (name, addresses) in members {
                    group.entry(name).or_default().extend(addresses);
                }
            }
        }
        all
    }
}

/// Returns the members that are here and not there, or that have other addresses there.
fn in_excess(
    is: &BTreeMap<String, BTreeSet<IpAddr>>,
    may: &BTreeMap<String, BTreeSet<IpAddr>>,
) -> Option<String> {
    is.iter().find_map(|(name, addresses)| match may.get(name) {
        None => Some(name.clone()),
        Some(may) => {
            let extra = addresses.difference(may).next()?;
            Some(format!("{name} at {extra}"))
        }
    })
}

impl Bounds {
    /// Computes the bounds from the worlds of a [`Phase`](super::plan::Phase).
    pub(crate) fn of(least: &mut Hub, most: &mut [Hub], node: &str) -> Self {
        let views = most.iter_mut().map(|hub| View::of(&content_of(hub, node))).collect();
        Self { least: View::of(&content_of(least, node)), most: View::union(views) }
    }

    /// Returns all violations of the content.
    pub(crate) fn wrong(&self, held: &NodeSnapshot) -> Option<String> {
        let is = View::of(held);
        if let Some(what) = is.beyond(&self.most) {
            return Some(format!("it holds {what}"));
        }
        let policy = self.least.policies.keys().find(|name| !is.policies.contains_key(*name));
        let pods = || in_excess(&self.least.pods, &is.pods);
        let groups = || {
            let of = self.least.members.keys().map(|id| ObjectId::address(*id));
            let ids = of.chain(self.least.applied.keys().map(|id| ObjectId::applied(*id)));
            is.lacks_of_groups(&self.least, ids)
        };
        let what = policy.cloned().or_else(pods).or_else(groups)?;
        Some(format!("it lacks {what}"))
    }

    /// Returns the violations of these changed objects. `names` has the names of the previous policies and pods.
    pub(crate) fn wrong_of(
        &self,
        held: &NodeSnapshot,
        touched: &BTreeSet<ObjectId>,
        names: &mut BTreeMap<ObjectId, String>,
    ) -> Option<String> {
        let is = View::of_some(held, touched);
        if let Some(what) = is.beyond(&self.most) {
            return Some(format!("it holds {what}"));
        }
        for id in touched {
            let name = match id.known() {
                Some(KnownId::Policy(uid)) => {
                    held.policies.get(uid).map(|it| format!("{:?}", it.key))
                }
                Some(KnownId::Pod(uid)) => {
                    held.pods.get(uid).map(|it| named(&it.namespace, &it.name))
                }
                Some(KnownId::Address(_) | KnownId::Applied(_) | KnownId::Node)
                | Some(KnownId::Service(_) | KnownId::Slice(_))
                | None => continue,
            };
            let Some(name) = name else {
                let Some(was) = names.remove(id) else { continue };
                let least = &self.least;
                if least.policies.contains_key(&was) || least.pods.contains_key(&was) {
                    return Some(format!("it lacks {was}"));
                }
                continue;
            };
            names.insert(id.clone(), name);
        }
        let lacks = is.lacks_of_groups(&self.least, touched.iter().cloned())?;
        Some(format!("it lacks {lacks}"))
    }
}

fn named(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Returns the hub's content for a node.
pub(crate) fn content_of(hub: &mut Hub, node: &str) -> NodeSnapshot {
    let Handshake::Compared(stream) = hub.open_stream(node, &ClientState::default()) else {
        panic!("the hub has no other stream");
    };
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    if let Some(update) = hub.next_update(&stream) {
        for part in parts(update.generation, &update.changes) {
            held.receive(Part::decode(&*part).unwrap()).unwrap();
        }
    }
    hub.close_stream(&stream, 0);
    held
}

/// Returns a hub that has read these objects.
pub(crate) fn hub<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Hub {
    let mut hub = Hub::new([9; 16], 9);
    for object in objects {
        match object {
            Object::Pod(pod) => hub.apply(Event::Pod(pod)),
            Object::Namespace(namespace) => hub.apply(Event::Namespace(namespace)),
            Object::Node(node) => hub.apply(Event::Node(node)),
            Object::Service(service) => hub.apply(Event::Service(service)),
            Object::Tier(tier) => hub.apply(Event::Tier(tier)),
            Object::Group(group) => hub.apply(Event::Group(group)),
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
                hub.policy(&compile(object).unwrap(), object.meta().generation);
            }
        }
    }
    hub.loaded();
    hub
}
