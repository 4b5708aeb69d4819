//! What agents say of their pods' addresses before the cluster does, judged by looking at every object anew.

use crate::made::Made;
use policy_objects::{Named, Object, Phase, Pod};
use proptest::{collection::vec, prelude::*, sample::Index, sample::select};
use std::{collections::BTreeSet, net::IpAddr};

/// What an agent says, or one that lies.
#[derive(Clone, Debug)]
pub struct Says {
    /// Which pod of those that there are.
    which: Index,
    /// It is of another node.
    other_node: bool,
    /// It means another pod of that name.
    other_uid: bool,
    addresses: Vec<IpAddr>,
}

/// What was said, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Who says so.
    pub node: String,
    /// The pod.
    pub pod: Named,
    /// Its UID.
    pub uid: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Word that stands.
#[derive(Clone, Debug)]
struct Word {
    said: Said,
    status: BTreeSet<IpAddr>,
    at_ms: u64,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<Word>);

/// Anything that may be said: mostly of a pod of the node, and mostly free addresses.
pub fn says() -> impl Strategy<Value = Says> {
    let free = ["10.0.0.1", "10.0.0.4", "10.0.1.6", "10.0.2.7", "10.0.2.8", "fd00::2", "fd00::9"];
    let taken = ["172.20.0.1", "172.20.0.2", "192.168.0.1", "192.168.0.2", "127.0.0.1"];
    let address = prop_oneof![9 => select(free.to_vec()), 1 => select(taken.to_vec())];
    let address = address.prop_map(|text| text.parse().expect("an address"));
    let odd = || prop::bool::weighted(0.1);
    (any::<Index>(), odd(), odd(), vec(address, 1..=2)).prop_map(
        |(which, other_node, other_uid, addresses)| Says {
            which,
            other_node,
            other_uid,
            addresses,
        },
    )
}

impl Says {
    /// In a world: `None` if there is no pod to speak of.
    pub fn said(&self, made: &Made) -> Option<Said> {
        let pods: Vec<&Pod> = pods(made).collect();
        let pod = (!pods.is_empty()).then(|| *self.which.get(&pods))?;
        let other = if pod.node == "n1" { "n2" } else { "n1" };
        let node = if self.other_node { other.to_owned() } else { pod.node.clone() };
        let uid = if self.other_uid { "another".to_owned() } else { pod.meta.uid.clone() };
        Some(Said { node, pod: name(pod), uid, addresses: self.addresses.clone() })
    }
}

impl Words {
    /// Takes what was said, if it is to be taken.
    pub fn hear(&mut self, made: &Made, said: &Said, now_ms: u64) -> bool {
        let Some(pod) = pods(made).find(|pod| name(pod) == said.pod) else { return false };
        let is_its = is_known(pod) && pod.meta.uid == said.uid && !pod.node.is_empty();
        if !is_its || pod.node != said.node {
            return false;
        }
        let status: BTreeSet<IpAddr> = pod.addresses.iter().copied().collect();
        let mut addresses = said.addresses.clone();
        addresses.retain(|address| !status.contains(address));
        let words = self.0.iter().filter(|word| word.said.pod != said.pod);
        let announced: BTreeSet<IpAddr> =
            words.flat_map(|word| word.said.addresses.clone()).collect();
        let is_free = |address: &IpAddr| {
            !address.is_loopback()
                && !announced.contains(address)
                && !is_said(made, *address, &said.pod)
        };
        if !addresses.iter().all(is_free) {
            return false;
        }
        self.0.retain(|word| word.said.pod != said.pod);
        if !addresses.is_empty() {
            let said = Said { addresses, ..said.clone() };
            self.0.push(Word { said, status, at_ms: now_ms });
        }
        true
    }

    /// Keeps what the objects leave.
    pub fn settle(&mut self, made: &Made) {
        self.0.retain(|Word { said, status, .. }| {
            pods(made).any(|pod| {
                let its: BTreeSet<IpAddr> = pod.addresses.iter().copied().collect();
                let is_it = name(pod) == said.pod && pod.meta.uid == said.uid;
                is_it && is_known(pod) && pod.node == said.node && its == *status
            })
        });
        for Word { said: Said { pod, addresses, .. }, .. } in &mut self.0 {
            addresses.retain(|address| !is_said(made, *address, pod));
        }
        self.0.retain(|word| !word.said.addresses.is_empty());
    }

    /// Keeps what was said less than a minute ago.
    pub fn lapse(&mut self, now_ms: u64) {
        self.0.retain(|word| word.at_ms + 60_000 > now_ms);
    }

    /// How many pods wait for their status.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A world in which all that stands were said by the objects.
    pub fn with(&self, made: &Made) -> Made {
        let mut made = made.clone();
        for object in &mut made.objects {
            let Object::Pod(pod) = object else { continue };
            let words = self.0.iter().filter(|word| word.said.pod == name(pod));
            let more: Vec<IpAddr> = words.flat_map(|word| word.said.addresses.clone()).collect();
            pod.addresses.extend(more);
        }
        made
    }
}

fn pods(made: &Made) -> impl Iterator<Item = &Pod> {
    made.objects.iter().filter_map(
        |object| {
            if let Object::Pod(pod) = object { Some(pod) } else { None }
        },
    )
}

fn name(pod: &Pod) -> Named {
    Named { namespace: pod.meta.namespace.clone(), name: pod.meta.name.clone() }
}

fn is_known(pod: &Pod) -> bool {
    !pod.host_network && pod.phase == Phase::Live
}

/// Whether an object other than this pod says that an address is its own.
fn is_said(made: &Made, address: IpAddr, own: &Named) -> bool {
    made.objects.iter().any(|object| match object {
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
