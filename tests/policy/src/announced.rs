//! A reference model of announcements: the addresses that agents announce for their pods before the API
//! server has them. It scans every object for each question.

use crate::scenario::Scenario;
use policy_objects::{Named, Object, Phase, Pod};
use proptest::{collection::vec, prelude::*, sample::Index, sample::select};
use std::{collections::BTreeSet, net::IpAddr};

/// An announcement of an agent, valid or not, before a world is known. Resolved by `resolve`.
#[derive(Clone, Debug)]
pub struct AnnouncementSketch {
    /// Index into the pods of the world.
    which: Index,
    /// True if another node than the pod's own sends it.
    other_node: bool,
    /// True if it names another pod (UID) of the same name.
    other_uid: bool,
    addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The node that announces.
    pub node: String,
    pub pod: Named,
    pub uid: String,
    pub addresses: Vec<IpAddr>,
}

/// An accepted announcement.
#[derive(Clone, Debug)]
struct Accepted {
    announcement: Announcement,
    status: BTreeSet<IpAddr>,
    at_ms: u64,
}

/// The announcements that are in force.
#[derive(Clone, Debug, Default)]
pub struct Announcements(Vec<Accepted>);

/// Any announcement: mostly for a pod of the announcing node, and mostly with free addresses.
pub fn announcement() -> impl Strategy<Value = AnnouncementSketch> {
    let free = ["10.0.0.1", "10.0.0.4", "10.0.1.6", "10.0.2.7", "10.0.2.8", "fd00::2", "fd00::9"];
    let taken = ["172.20.0.1", "172.20.0.2", "192.168.0.1", "192.168.0.2", "127.0.0.1"];
    let address = prop_oneof![9 => select(free.to_vec()), 1 => select(taken.to_vec())];
    let address = address.prop_map(|text| text.parse().expect("an address"));
    let odd = || prop::bool::weighted(0.1);
    (any::<Index>(), odd(), odd(), vec(address, 1..=2)).prop_map(
        |(which, other_node, other_uid, addresses)| AnnouncementSketch {
            which,
            other_node,
            other_uid,
            addresses,
        },
    )
}

impl AnnouncementSketch {
    /// Resolves the announcement in a world. `None` if the world has no pod.
    pub fn resolve(&self, scenario: &Scenario) -> Option<Announcement> {
        let pods: Vec<&Pod> = pods(scenario).collect();
        let pod = (!pods.is_empty()).then(|| *self.which.get(&pods))?;
        let other = if pod.node == "n1" { "n2" } else { "n1" };
        let node = if self.other_node { other.to_owned() } else { pod.node.clone() };
        let uid = if self.other_uid { "another".to_owned() } else { pod.meta.uid.clone() };
        Some(Announcement { node, pod: name(pod), uid, addresses: self.addresses.clone() })
    }
}

impl Announcements {
    /// Adds the announcement if it is valid, and returns whether it was.
    pub fn accept(
        &mut self,
        scenario: &Scenario,
        announcement: &Announcement,
        now_ms: u64,
    ) -> bool {
        let Some(pod) = pods(scenario).find(|pod| name(pod) == announcement.pod) else {
            return false;
        };
        let is_same_pod =
            is_eligible(pod) && pod.meta.uid == announcement.uid && !pod.node.is_empty();
        if !is_same_pod || pod.node != announcement.node {
            return false;
        }
        let status: BTreeSet<IpAddr> = pod.addresses.iter().copied().collect();
        let mut addresses = announcement.addresses.clone();
        addresses.retain(|address| !status.contains(address));
        let entries = self.0.iter().filter(|entry| entry.announcement.pod != announcement.pod);
        let announced: BTreeSet<IpAddr> =
            entries.flat_map(|entry| entry.announcement.addresses.clone()).collect();
        let is_free = |address: &IpAddr| {
            !address.is_loopback()
                && !announced.contains(address)
                && !is_taken(scenario, *address, &announcement.pod)
        };
        if !addresses.iter().all(is_free) {
            return false;
        }
        self.0.retain(|entry| entry.announcement.pod != announcement.pod);
        if !addresses.is_empty() {
            let announcement = Announcement { addresses, ..announcement.clone() };
            self.0.push(Accepted { announcement, status, at_ms: now_ms });
        }
        true
    }

    /// Drops announcements and addresses that the objects have overtaken.
    pub fn retain_valid(&mut self, scenario: &Scenario) {
        self.0.retain(|Accepted { announcement, status, .. }| {
            pods(scenario).any(|pod| {
                let its: BTreeSet<IpAddr> = pod.addresses.iter().copied().collect();
                let is_it = name(pod) == announcement.pod && pod.meta.uid == announcement.uid;
                is_it && is_eligible(pod) && pod.node == announcement.node && its == *status
            })
        });
        for Accepted { announcement: Announcement { pod, addresses, .. }, .. } in &mut self.0 {
            addresses.retain(|address| !is_taken(scenario, *address, pod));
        }
        self.0.retain(|entry| !entry.announcement.addresses.is_empty());
    }

    /// Drops announcements that are a minute old.
    pub fn expire(&mut self, now_ms: u64) {
        self.0.retain(|entry| entry.at_ms + 60_000 > now_ms);
    }

    /// Number of pods that wait for their status.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no pod waits for its status.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the world in which each announced address is in its pod's status.
    pub fn apply_to(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        for object in &mut scenario.objects {
            let Object::Pod(pod) = object else { continue };
            let entries = self.0.iter().filter(|entry| entry.announcement.pod == name(pod));
            let more: Vec<IpAddr> =
                entries.flat_map(|entry| entry.announcement.addresses.clone()).collect();
            pod.addresses.extend(more);
        }
        scenario
    }
}

fn pods(scenario: &Scenario) -> impl Iterator<Item = &Pod> {
    scenario.objects.iter().filter_map(
        |object| {
            if let Object::Pod(pod) = object { Some(pod) } else { None }
        },
    )
}

fn name(pod: &Pod) -> Named {
    Named { namespace: pod.meta.namespace.clone(), name: pod.meta.name.clone() }
}

fn is_eligible(pod: &Pod) -> bool {
    !pod.host_network && pod.phase == Phase::Live
}

/// True if an object other than this pod has the address.
fn is_taken(scenario: &Scenario, address: IpAddr, own: &Named) -> bool {
    scenario.objects.iter().any(|object| match object {
        Object::Pod(pod) => {
            pod.phase == Phase::Live && name(pod) != *own && pod.addresses.contains(&address)
        }
        Object::Node(node) => node.addresses.contains(&address),
        Object::Service(service) => {
            let of_cluster = service.cluster_ips.known();
            of_cluster.into_iter().chain([&service.outer_ips]).flatten().any(|its| *its == address)
        }
        Object::Namespace(_) | Object::Tier(_) | Object::Group(_) => false,
        Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => false,
    })
}
