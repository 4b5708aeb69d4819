//! Pods that start while the state cannot come into force.

use crate::pods::Pods;
use config_model::HostLink;
use datapath_abi::{Held, Pod, Row, is_new};
use datapath_node::{Desired, Endpoint, LocalPod};
use datapath_plan::PodSets;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// True for a pod that the plugin reported and that a link of it does not have yet.
pub(crate) fn is_starting(held: &Held, endpoint: &Endpoint) -> bool {
    let LocalPod { pod, container, .. } = &endpoint.pod;
    let is_new = |link: &HostLink| is_new(held, link.ifindex, &pod.uid);
    !container.is_empty() && endpoint.links.iter().any(is_new)
}

/// The pods that start, by their links: each is closed in the directions for which it has rules, and open in the others.
/// `links` are those that exist, with the addresses that the host routes to each. A pod whose policies are not known
/// stays as it is.
pub(crate) fn starting(
    held: &Held,
    desired: &Desired,
    sets: &BTreeMap<String, PodSets>,
    links: &BTreeMap<u32, BTreeSet<IpAddr>>,
) -> BTreeMap<u32, Pod> {
    let mut pods = Pods::default();
    for (uid, endpoint) in desired.endpoints.iter() {
        let pod = &endpoint.pod.pod;
        let row = if is_starting(held, endpoint) {
            let entry = desired.state.entry(&pod.uid, &pod.namespace, &pod.name);
            entry.and_then(|entry| sets.get(&entry.uid)).map(Row::closed_where_judged)
        } else {
            // It may have the link of a pod that starts.
            Some(Row::CLOSED)
        };
        if let Some(row) = row {
            // A link that does not exist has no packets.
            let _ = pods.add(uid, endpoint, links, row);
        }
    }
    let mut starting = pods.by_link;
    starting.retain(|link, pod| {
        is_new(held, *link, &pod.uid)
            && desired.endpoints.get(&pod.uid).is_some_and(|of| is_starting(held, of))
    });
    starting
}
