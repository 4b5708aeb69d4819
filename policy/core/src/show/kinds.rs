//! Pods that policies do not distinguish.

use super::ask::named;
use crate::{NameMatch, Peer, Peers, Pods, World};
use policy_objects::{Cidr, ContainerPort, Labels, Named, Phase, Pod, Selector};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

#[derive(Debug, Default)]
pub(super) struct Looks {
    labels: BTreeSet<String>,
    ranges: BTreeSet<Cidr>,
    names: bool,
}

/// Properties of a pod that policies read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sight {
    namespace: String,
    labels: Vec<(String, String)>,
    account: String,
    ports: Vec<ContainerPort>,
    /// Of each address its family, the ranges that it is in, and the names that lead to it.
    addresses: Vec<(bool, Vec<Cidr>, Vec<String>)>,
}

/// The pods that policy knows, with an address.
pub(super) fn pods(world: &World) -> impl Iterator<Item = &Pod> {
    let known =
        |pod: &&Pod| pod.phase == Phase::Live && !pod.host_network && !pod.addresses.is_empty();
    // If another pod owns an address of this one now, traffic to it is judged as that pod's.
    let own = |pod: &&Pod| {
        let mut addresses = pod.addresses.iter();
        addresses
            .all(|address| world.owner(*address).is_some_and(|owner| named(owner) == named(pod)))
    };
    world.pods().filter(known).filter(own)
}

/// The pods of a world by what its policies see of them.
pub(super) fn kinds(world: &World) -> BTreeMap<Sight, Vec<&Pod>> {
    let looks = Looks::of(world);
    let mut kinds: BTreeMap<Sight, Vec<&Pod>> = BTreeMap::new();
    for pod in pods(world) {
        kinds.entry(looks.at(world, pod)).or_default().push(pod);
    }
    kinds
}

impl Looks {
    pub(super) fn of(world: &World) -> Self {
        let mut looks = Self::default();
        for policy in world.policies() {
            let isolated = policy.isolation.iter().flat_map(|isolation| &isolation.subject);
            isolated.for_each(|pods| looks.see(world, pods));
            for rule in &policy.rules {
                rule.subject.iter().for_each(|pods| looks.see(world, pods));
                let Peers::Of(peers) = &rule.peers else { continue };
                peers.iter().for_each(|peer| looks.see_peer(world, peer));
            }
        }
        for group in world.groups() {
            let name =
                Named { namespace: group.meta.namespace.clone(), name: group.meta.name.clone() };
            let subjects = world.subjects(&name).pods;
            subjects.iter().for_each(|(_, pods)| looks.select(pods));
            // Of a group that cannot be used no address is a member.
            let Ok(members) = world.members(&name) else { continue };
            for block in &members.blocks {
                looks.ranges.insert(block.cidr);
                looks.ranges.extend(&block.except);
            }
        }
        looks
    }

    pub(super) fn at(&self, world: &World, pod: &Pod) -> Sight {
        let labels: &Labels = &pod.meta.labels;
        let label = |key: &String| Some((key.clone(), labels.get(key)?.clone()));
        let address = |address: &IpAddr| {
            let canonical = address.to_canonical();
            let ranges = self.ranges.iter().filter(|range| range.contains(&canonical)).copied();
            let names = world.names(*address).filter(|_| self.names).map(str::to_owned);
            (canonical.is_ipv4(), ranges.collect(), names.collect())
        };
        Sight {
            namespace: pod.meta.namespace.clone(),
            labels: self.labels.iter().filter_map(label).collect(),
            account: pod.service_account.clone(),
            ports: pod.ports.clone(),
            addresses: pod.addresses.iter().map(address).collect(),
        }
    }

    fn see(&mut self, world: &World, pods: &Pods) {
        match pods {
            // Labels of namespaces are seen by the namespace itself.
            Pods::Labeled { scope: _, pods } => self.select(pods),
            Pods::Service(name) => {
                world.behind(name).pods.iter().for_each(|(_, pods)| self.select(pods));
            }
            Pods::Group(_) | Pods::ServiceAccount(_) => {}
        }
    }

    fn see_peer(&mut self, world: &World, peer: &Peer) {
        match peer {
            Peer::Pods(pods) => self.see(world, pods),
            Peer::Block(block) => {
                self.ranges.insert(block.cidr);
                self.ranges.extend(&block.except);
            }
            Peer::Name(NameMatch::Domain(_) | NameMatch::Pattern(_)) => self.names = true,
            Peer::Nodes(_) | Peer::Service(_) => {}
        }
    }

    fn select(&mut self, pods: &Selector) {
        self.labels.extend(pods.requirements.iter().map(|requirement| requirement.key.clone()));
    }
}
