//! The endpoints of this node and their links.

use super::*;
use config_model::HostLink;

/// The links of pods as they were observed, by the container ID in their alias.
pub type Links = BTreeMap<String, Vec<HostLink>>;

impl Node {
    /// The pods' links were observed. A pod whose links are not among them keeps those it has: it may be newer than the
    /// observation.
    pub fn links_observed(&mut self, links: &Links, now: Time) {
        let mut found = Vec::new();
        for (uid, endpoint) in self.endpoints.iter() {
            let Some(seen) = links.get(&endpoint.pod.container) else { continue };
            let merged = merge(&endpoint.links, seen);
            if merged != endpoint.links {
                found.push((endpoint.pod.clone(), uid.clone(), merged));
            }
        }
        let is_new = !found.is_empty();
        for (pod, uid, links) in found {
            self.set_endpoint(uid, Endpoint { pod, links });
        }
        if is_new {
            self.changed(now);
        }
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
        self.in_force.remove(uid);
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
