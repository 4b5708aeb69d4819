//! The pods of the node by their links.

use config_model::HostLink;
use datapath_abi::{Pod, Row};
use datapath_node::Endpoint;
use datapath_plan::Address;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The pods that the desired state names. A link is that of one pod.
#[derive(Default)]
pub(crate) struct Pods {
    pub(crate) by_link: BTreeMap<u32, Pod>,
    /// The causes for which pods are not in force, by UID: another pod has the link.
    pub(crate) conflicts: BTreeMap<String, String>,
    /// True for links to which the host routes an address of their pod.
    routed: BTreeMap<u32, bool>,
}

impl Pods {
    /// Adds the links of an endpoint. `links` are those that exist, with the addresses that the host routes to each.
    pub(crate) fn add(
        &mut self,
        uid: &str,
        endpoint: &Endpoint,
        links: &BTreeMap<u32, BTreeSet<IpAddr>>,
        row: Row,
    ) -> Result<(), String> {
        if endpoint.links.is_empty() {
            return Err("its host link is not known".to_owned());
        }
        let mut missing = Ok(());
        for link in &endpoint.links {
            let Some(routed) = links.get(&link.ifindex) else {
                missing = Err(format!("its host link {} does not exist", link.name));
                continue;
            };
            let addresses = addresses(link, endpoint);
            // A pod with egress by the other family has a second address, which the host routes to its link.
            let of = |is_v6: bool| {
                let mut all = addresses.iter().chain(routed);
                all.find(|address| address.is_ipv6() == is_v6)
            };
            let of = |is_v6: bool| of(is_v6).map(|address| Address::from(*address));
            let pod = Pod { uid: uid.to_owned(), row, v4: of(false), v6: of(true) };
            self.put(link, !addresses.is_disjoint(routed), pod);
        }
        missing
    }

    /// Of two pods that name a link the host knows the right one: it routes the pod's address to the link. If it routes
    /// neither or both, the link is closed.
    fn put(&mut self, link: &HostLink, is_routed: bool, pod: Pod) {
        let Some(earlier) = self.by_link.get_mut(&link.ifindex) else {
            self.by_link.insert(link.ifindex, pod);
            self.routed.insert(link.ifindex, is_routed);
            return;
        };
        let why = |other: &str| {
            format!(
                "its host link {} is also that of the pod {other}; delete the pod that does not run",
                link.name
            )
        };
        let has_this = is_routed;
        let has_earlier = self.routed.insert(link.ifindex, is_routed).unwrap_or_default();
        if has_earlier == has_this || has_earlier {
            self.conflicts.insert(pod.uid.clone(), why(&earlier.uid));
        }
        if has_earlier == has_this || has_this {
            self.conflicts.insert(earlier.uid.clone(), why(&pod.uid));
        }
        if has_earlier == has_this {
            earlier.row = Row::CLOSED;
        } else if has_this {
            *earlier = pod;
        } else {
            self.routed.insert(link.ifindex, has_earlier);
        }
    }
}

/// The addresses of a link. A link that was observed may have no route yet: then the pod's own count.
fn addresses<'a>(link: &'a HostLink, endpoint: &'a Endpoint) -> &'a BTreeSet<IpAddr> {
    if link.addresses.is_empty() { &endpoint.pod.addresses } else { &link.addresses }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config_model::HostEnd;
    use datapath_node::{LocalPod, PodId};

    fn endpoint(uid: &str, address: &str) -> Endpoint {
        let addresses: BTreeSet<IpAddr> = address.parse().into_iter().collect();
        let link = HostLink {
            name: "eni7".to_owned(),
            ifindex: 7,
            mac: None,
            addresses: addresses.clone(),
            number: 0,
            table: None,
            mark: None,
            eni: None,
            host_end: HostEnd::Routed,
        };
        let pod = PodId { uid: uid.to_owned(), namespace: "x".to_owned(), name: uid.to_owned() };
        let pod = LocalPod { pod, container: String::new(), addresses };
        Endpoint { pod, links: vec![link] }
    }

    /// The pod of the link and its row, and the pods that are not in force.
    fn of(routed: &[&str], pods: [(&str, &str); 2]) -> (Pod, Vec<String>) {
        let routed = routed.iter().flat_map(|address| address.parse()).collect();
        let links = BTreeMap::from([(7, routed)]);
        let mut found = Pods::default();
        let row = Row([1; 4]);
        for (uid, address) in pods {
            assert_eq!(found.add(uid, &endpoint(uid, address), &links, row), Ok(()));
        }
        let pod = found.by_link.remove(&7);
        (pod.unwrap_or_default(), found.conflicts.into_keys().collect())
    }

    #[test]
    fn of_two_pods_with_one_link_the_routed_one_has_it() {
        let both = [("a", "10.0.0.1"), ("b", "10.0.0.2")];
        let (pod, conflicts) = of(&["10.0.0.2"], both);
        assert_eq!((&*pod.uid, conflicts), ("b", vec!["a".to_owned()]));
        assert_ne!(pod.row, Row::CLOSED);
        let (pod, conflicts) = of(&["10.0.0.1"], both);
        assert_eq!((&*pod.uid, conflicts), ("a", vec!["b".to_owned()]));
        assert_ne!(pod.row, Row::CLOSED);
        for routed in [&[][..], &["10.0.0.1", "10.0.0.2"]] {
            let (pod, conflicts) = of(routed, both);
            assert_eq!(pod.row, Row::CLOSED, "the pod of the link is not known");
            assert_eq!(conflicts, ["a", "b"]);
        }
    }
}
