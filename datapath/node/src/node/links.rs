//! The endpoints of this node and their links.

use super::*;
use config_model::HostLink;
use control_wire::model::Pod;
use std::net::IpAddr;

/// The links of pods as they were observed, by the container ID in their alias. Links without an alias, to which the host
/// routes addresses, have the empty key: another plugin has created them.
pub type Links = BTreeMap<String, Vec<HostLink>>;

impl Node {
    /// The pods' links were observed. A pod whose links are not among them keeps those it has: it may be newer than the
    /// observation.
    pub fn links_observed(&mut self, links: &Links, now: Time) {
        let mut found = Vec::new();
        for (uid, endpoint) in self.endpoints.iter() {
            let container = Some(&endpoint.pod.container).filter(|of| !of.is_empty());
            let Some(seen) = container.and_then(|of| links.get(of)) else { continue };
            let merged = merge(&endpoint.links, seen);
            if merged != endpoint.links {
                found.push((endpoint.pod.clone(), uid.clone(), merged));
            }
        }
        let is_new = !found.is_empty();
        for (pod, uid, links) in found {
            self.set_endpoint(uid, Endpoint { pod, links });
        }
        self.seen.clone_from(links);
        if self.adopt() || is_new {
            self.changed(now);
        }
    }

    /// Makes endpoints of pods that were not admitted: they are older than policy on this node, or another plugin has
    /// created them. Their links are those to which the host routes their addresses. Returns true if an endpoint changes.
    pub(super) fn adopt(&mut self) -> bool {
        let is_local = |uid: &str| self.local.contains_key(uid);
        let owned: BTreeSet<u32> = self
            .endpoints
            .iter()
            .filter(|(uid, _)| is_local(uid))
            .flat_map(|(_, endpoint)| endpoint.links.iter().map(|link| link.ifindex))
            .collect();
        let mut by_address: BTreeMap<IpAddr, &HostLink> = BTreeMap::new();
        for link in self.seen.values().flatten().filter(|link| !owned.contains(&link.ifindex)) {
            by_address.extend(link.addresses.iter().map(|address| (*address, link)));
        }
        let mut adopted = BTreeMap::new();
        for pod in self.held.pods.values() {
            let uid = if pod.runtime_uid.is_empty() { &pod.uid } else { &pod.runtime_uid };
            if is_local(uid) || is_local(&pod.uid) {
                continue;
            }
            let mut of_pod = BTreeMap::new();
            for link in pod.addresses.iter().filter_map(|address| by_address.get(address)) {
                of_pod.insert(link.ifindex, (*link).clone());
            }
            if !of_pod.is_empty() {
                let Pod { namespace, name, addresses, .. } = pod.as_ref();
                let id =
                    PodId { uid: uid.clone(), namespace: namespace.clone(), name: name.clone() };
                let addresses = addresses.iter().copied().collect();
                let pod = LocalPod { pod: id, container: String::new(), addresses };
                let links = of_pod.into_values().collect();
                adopted.insert(uid.clone(), Endpoint { pod, links });
            }
        }
        let gone = self.endpoints.keys();
        let gone = gone.filter(|uid| !is_local(uid) && !adopted.contains_key(*uid));
        let gone: Vec<String> = gone.cloned().collect();
        adopted
            .retain(|uid, endpoint| self.endpoints.get(uid).map(AsRef::as_ref) != Some(endpoint));
        let is_changed = !gone.is_empty() || !adopted.is_empty();
        for uid in &gone {
            self.remove_endpoint(uid);
        }
        for (uid, endpoint) in adopted {
            self.set_endpoint(uid, endpoint);
        }
        is_changed
    }

    /// Adds or changes an endpoint. A link number that another endpoint had is this one's now: the kernel has reused it.
    pub(super) fn set_endpoint(&mut self, uid: String, endpoint: Endpoint) {
        let is_taken =
            |link: &HostLink| endpoint.links.iter().any(|own| own.ifindex == link.ifindex);
        let robbed = self
            .endpoints
            .iter()
            .filter(|(other, of)| **other != uid && of.links.iter().any(is_taken));
        let robbed: Vec<_> = robbed.map(|(other, of)| (other.clone(), of.clone())).collect();
        // A pod that waits needs the state with its endpoint of now.
        self.waiting.values_mut().filter(|one| one.pod.uid == uid).for_each(|one| one.needs = None);
        let endpoints = Arc::make_mut(&mut self.endpoints);
        for (other, mut of) in robbed {
            Arc::make_mut(&mut of).links.retain(|link| !is_taken(link));
            endpoints.insert(other.clone(), of);
            self.changed.endpoints.insert(other);
        }
        endpoints.insert(uid.clone(), Arc::new(endpoint));
        self.changed.endpoints.insert(uid);
    }

    pub(super) fn remove_endpoint(&mut self, uid: &str) {
        Arc::make_mut(&mut self.endpoints).remove(uid);
        self.changed.endpoints.insert(uid.to_owned());
        self.failing_endpoints.remove(uid);
        self.lose(uid);
    }
}

/// The links as observed now, with the facts about the same links that only the plugin knows.
fn merge(known: &[HostLink], seen: &[HostLink]) -> Vec<HostLink> {
    let one = |seen: &HostLink| match known.iter().find(|known| known.ifindex == seen.ifindex) {
        Some(known) => HostLink { name: seen.name.clone(), mac: seen.mac, ..known.clone() },
        None => seen.clone(),
    };
    seen.iter().map(one).collect()
}
