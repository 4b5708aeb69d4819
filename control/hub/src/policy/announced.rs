//! Pod addresses that agents have announced and no pod status has confirmed yet.

use policy_objects::Named;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// Lifetime of an unconfirmed announcement, in milliseconds.
pub(crate) const LIFETIME_MS: u64 = 60_000;
/// Maximum number of announced addresses of one pod: two families on two interfaces.
pub(crate) const OF_A_POD: usize = 4;
/// Maximum number of unconfirmed pods of one node.
pub(crate) const OF_A_NODE: usize = 1_024;
/// Maximum number of unconfirmed pods of all nodes.
pub(crate) const OF_ALL: usize = 65_536;

/// Announcement of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) uid: String,
    /// Node of the agent that sent the announcement.
    pub(crate) node: String,
    /// The addresses that the pod's object did not have; never none.
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses of the pod's status at that time, sorted. A status with other addresses ends the announcement.
    pub(crate) status: Vec<IpAddr>,
    /// Time of the announcement.
    pub(crate) at_ms: u64,
}

impl Announcement {
    /// Returns the pod's current addresses, announced ones included.
    pub(crate) fn all(&self) -> Vec<IpAddr> {
        let all = self.status.iter().chain(&self.addresses).copied();
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Valid announcements of all agents.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    pods: BTreeMap<Named, Announcement>,
    by_address: BTreeMap<IpAddr, Named>,
    by_age: BTreeSet<(u64, Named)>,
    nodes: BTreeMap<String, usize>,
}

impl Announced {
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn get(&self, pod: &Named) -> Option<&Announcement> {
        self.pods.get(pod)
    }

    /// Returns the pod that was announced with this address.
    pub(crate) fn of(&self, address: IpAddr) -> Option<&Named> {
        self.by_address.get(&address)
    }

    /// Returns the number of unconfirmed pods of a node.
    pub(crate) fn of_node(&self, node: &str) -> usize {
        self.nodes.get(node).copied().unwrap_or_default()
    }

    /// Replaces the pod's previous announcement.
    pub(crate) fn put(&mut self, pod: Named, announcement: Announcement) {
        self.remove(&pod);
        for address in &announcement.addresses {
            self.by_address.insert(*address, pod.clone());
        }
        self.by_age.insert((announcement.at_ms, pod.clone()));
        *self.nodes.entry(announcement.node.clone()).or_default() += 1;
        self.pods.insert(pod, announcement);
    }

    pub(crate) fn remove(&mut self, pod: &Named) -> Option<Announcement> {
        let announcement = self.pods.remove(pod)?;
        for address in &announcement.addresses {
            self.by_address.remove(address);
        }
        self.by_age.remove(&(announcement.at_ms, pod.clone()));
        if let Some(count) = self.nodes.get_mut(&announcement.node) {
            *count -= 1;
            if *count == 0 {
                self.nodes.remove(&announcement.node);
            }
        }
        Some(announcement)
    }

    /// Returns a pod whose announcement has expired.
    pub(crate) fn expired(&self, now_ms: u64) -> Option<Named> {
        let (at_ms, pod) = self.by_age.first()?;
        (now_ms.saturating_sub(*at_ms) >= LIFETIME_MS).then(|| pod.clone())
    }
}
