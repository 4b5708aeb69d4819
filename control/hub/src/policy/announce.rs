//! Pod addresses that agents announce before the cluster has them.
//!
//! An agent knows a pod's address at its ADD, long before the pod's status has it. The agent announces the address
//! to every replica, so that peers of the pod's first packets know it. An announcement adds addresses to a pod of
//! that agent's node, and is valid as long as it would be accepted. It ends if an object contains other addresses
//! of the pod or claims such an address for another object. After its end every replica has the content of the
//! objects again.

use super::{
    PolicySource,
    announced::{Announcement, OF_A_NODE, OF_A_POD, OF_ALL},
    outside::{Holder, Why, why},
    refused::AnnounceError,
};
use crate::distributor::Generation;
use control_wire::ObjectId;
use policy_core::index::{Event, KnownPod};
use policy_objects::{Kind, MIRROR, Meta, Named, Pod, page::PodView};
use std::{collections::BTreeSet, net::IpAddr};

/// Announcement of a pod by the agent of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    pub pod: Named,
    pub uid: String,
    pub addresses: Vec<IpAddr>,
}

/// Content of a pod's object, owned or borrowed.
struct PodContent<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    node: &'a str,
    why: Option<Why>,
    addresses: &'a [IpAddr],
    mirror: Option<&'a str>,
}

impl PolicySource {
    pub(crate) fn announce(
        &mut self,
        node: &str,
        announce: &Announce,
        now_ms: u64,
        generation: &mut Generation<'_>,
    ) -> Result<(), AnnounceError> {
        let announce = &self.with_api_uid(announce);
        let known = self.admitted(node, announce)?;
        let before = self
            .announced
            .get(&announce.pod)
            .filter(|announcement| announcement.uid == announce.uid);
        let status = before.map_or(known.addresses, |before| before.status.clone());
        let new = self.free(&announce.pod, &announce.addresses, &status)?;
        if new.is_empty() {
            // The pod's status already has these addresses.
            self.retract(&announce.pod, generation);
            return Ok(());
        }
        self.has_room(node, &announce.pod)?;
        let (uid, node) = (announce.uid.clone(), node.to_owned());
        let announcement = Announcement { uid, node, addresses: new, status, at_ms: now_ms };
        self.readdress(&announce.pod, &announcement.uid, &announcement.all(), generation);
        self.announced.put(announce.pod.clone(), announcement);
        Ok(())
    }

    /// Replaces the UID of a static pod by that of its mirror pod in the API.
    fn with_api_uid(&self, announce: &Announce) -> Announce {
        let Named { namespace, name } = &announce.pod;
        let known = self.index.known_pod(namespace, name).filter(|known| {
            let runtime = self.mirrors.runtime_uid(namespace, name, &known.uid);
            runtime.is_some_and(|runtime| runtime == announce.uid)
        });
        let uid = known.map_or_else(|| announce.uid.clone(), |known| known.uid);
        Announce { uid, ..announce.clone() }
    }

    /// Returns the announced pod if the node may announce it.
    fn admitted(&self, node: &str, announce: &Announce) -> Result<KnownPod, AnnounceError> {
        let (pod, uid) = (announce.pod.clone(), announce.uid.clone());
        if !self.is_loaded {
            return Err(AnnounceError::NotYet);
        }
        match announce.addresses.len() {
            1..=OF_A_POD => {}
            count => return Err(AnnounceError::Addresses { pod, count, most: OF_A_POD }),
        }
        let Some(known) = self.index.known_pod(&pod.namespace, &pod.name) else {
            return Err(match self.outside.why(&pod.namespace, &pod.name, &uid) {
                Some(Why::HostNetwork) => AnnounceError::HostNetwork { pod },
                Some(Why::Ended) => AnnounceError::Ended { pod },
                None => AnnounceError::UnknownPod { pod },
            });
        };
        match known.node.as_str() {
            _ if known.uid != uid || uid.is_empty() => Err(AnnounceError::OtherUid { pod, uid }),
            "" => Err(AnnounceError::Unbound { pod }),
            other if other != node => Err(AnnounceError::OtherNode { pod, node: node.to_owned() }),
            _ => Ok(known),
        }
    }

    /// Returns the addresses that the pod does not have yet, if it may have all of them.
    fn free(
        &self,
        pod: &Named,
        addresses: &[IpAddr],
        status: &[IpAddr],
    ) -> Result<Vec<IpAddr>, AnnounceError> {
        let all: BTreeSet<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
        let new: Vec<IpAddr> = all.into_iter().filter(|new| !status.contains(new)).collect();
        for address in new.iter().copied() {
            let pod = pod.clone();
            if !is_usable(address) {
                return Err(AnnounceError::Unusable { pod, address });
            }
            let holders = self.index.holders(address);
            if holders.node {
                return Err(AnnounceError::OfNode { pod, address });
            }
            if holders.service {
                return Err(AnnounceError::OfService { pod, address });
            }
            if let Some(holder) = holders.pods.into_iter().find(|holder| *holder != pod) {
                return Err(AnnounceError::OfPod { pod, address, holder });
            }
            match self.outside.holder(address) {
                Some(Holder::Pod(holder)) => {
                    return Err(AnnounceError::OfPod { pod, address, holder });
                }
                Some(Holder::Service) => return Err(AnnounceError::OfService { pod, address }),
                None => {}
            }
        }
        Ok(new)
    }

    fn has_room(&self, node: &str, pod: &Named) -> Result<(), AnnounceError> {
        if self.announced.get(pod).is_some_and(|announcement| announcement.node == node) {
            return Ok(());
        }
        match (self.announced.of_node(node), self.announced.len()) {
            (count, _) if count >= OF_A_NODE => {
                Err(AnnounceError::TooMany { count, of: "of the node" })
            }
            (_, count) if count >= OF_ALL => {
                Err(AnnounceError::TooMany { count, of: "of all nodes" })
            }
            _ => Ok(()),
        }
    }

    /// Ends announcements that no status has confirmed in time.
    pub(super) fn expire_announcements(&mut self, now_ms: u64, generation: &mut Generation<'_>) {
        while let Some(pod) = self.announced.expired(now_ms) {
            self.retract(&pod, generation);
        }
    }

    /// Gives a pod the addresses of its object again.
    fn retract(&mut self, pod: &Named, generation: &mut Generation<'_>) {
        if let Some(announcement) = self.announced.remove(pod) {
            self.readdress(pod, &announcement.uid, &announcement.status, generation);
        }
    }

    fn readdress(
        &mut self,
        pod: &Named,
        uid: &str,
        addresses: &[IpAddr],
        generation: &mut Generation<'_>,
    ) {
        let deltas = self.index.readdress(pod, uid, addresses);
        self.distribute(&deltas, generation);
    }

    /// Applies an event of an object that is no policy, and ends announcements that it contradicts.
    pub(super) fn object(&mut self, event: Event<'_>, generation: &mut Generation<'_>) {
        match event {
            Event::Pod(pod) => match self.of_pod(&PodContent::owned(pod), generation) {
                Some(addresses) => {
                    self.indexed(Event::Pod(&Pod { addresses, ..pod.clone() }), generation);
                }
                None => self.indexed(event, generation),
            },
            Event::PodView(pod) => match self.of_pod(&PodContent::borrowed(pod), generation) {
                Some(addresses) => {
                    let pod = PodView { addresses, ..pod.clone() };
                    self.indexed(Event::PodView(&pod), generation);
                }
                None => self.indexed(event, generation),
            },
            Event::Node(node) => {
                self.yield_to(&node.addresses, None, generation);
                self.indexed(event, generation);
                let zone = node.meta.labels.get(ZONE_LABEL).filter(|zone| !zone.is_empty());
                let facts = NodeFacts { zone: zone.cloned(), is_leaving: node.is_leaving };
                self.set_facts(&node.meta.name, Some(facts), generation);
            }
            Event::Gone { kind: Kind::Node, name, .. } => {
                self.indexed(event, generation);
                self.set_facts(name, None, generation);
            }
            Event::Service(service) => {
                if let Some(addresses) = service.cluster_ips.known() {
                    self.yield_to(addresses, None, generation);
                }
                self.yield_to(&service.outer_ips, None, generation);
                let Meta { namespace, name, uid, .. } = &service.meta;
                self.outside.put_service(namespace, name, uid, &service.outer_ips);
                self.indexed(event, generation);
            }
            Event::Gone { kind: Kind::Service, namespace, name, uid } => {
                self.outside.remove_service(namespace, name, uid);
                self.indexed(event, generation);
            }
            Event::Gone { kind: Kind::Pod, namespace, name, uid } => {
                self.indexed(event, generation);
                self.outside.remove(namespace, name, uid);
                self.mirrors.remove(namespace, name, uid);
                if self.announced.len() > 0 && self.index.known_pod(namespace, name).is_none() {
                    self.announced.remove(&named(namespace, name));
                }
            }
            Event::Namespace(namespace) => {
                self.indexed(event, generation);
                self.namespace_read(&namespace.meta.name, generation);
            }
            Event::NamespaceView(namespace) => {
                self.indexed(event, generation);
                self.namespace_read(&namespace.meta.name, generation);
            }
            Event::Gone { kind: Kind::Namespace, name, .. } => {
                self.indexed(event, generation);
                self.namespace_gone(name);
            }
            Event::Tier(_)
            | Event::Group(_)
            | Event::Policy(_)
            | Event::PolicyView(_)
            | Event::Gone { .. } => self.indexed(event, generation),
        }
    }

    /// `None` if the Node object does not exist.
    fn set_facts(&mut self, node: &str, facts: Option<NodeFacts>, generation: &mut Generation<'_>) {
        let before = match facts.clone() {
            Some(facts) => self.facts.insert(node.to_owned(), facts),
            None => self.facts.remove(node),
        };
        if before != facts {
            generation.changed(&ObjectId::node(), [&node.to_owned()]);
        }
    }

    fn indexed(&mut self, event: Event<'_>, generation: &mut Generation<'_>) {
        let deltas = self.index.apply(event);
        self.distribute(&deltas, generation);
    }

    /// Handles a new or changed pod object. Returns the pod's addresses with the announced ones if the announcement is
    /// still valid.
    fn of_pod(
        &mut self,
        content: &PodContent<'_>,
        generation: &mut Generation<'_>,
    ) -> Option<Vec<IpAddr>> {
        let PodContent { namespace, name, uid, node, why, addresses, mirror } = *content;
        self.outside.put((namespace, name, uid), why, addresses);
        self.mirrors.put((namespace, name, uid), mirror.filter(|_| why.is_none()));
        if self.announced.len() == 0 {
            return None;
        }
        let pod = named(namespace, name);
        if why != Some(Why::Ended) {
            self.yield_to(addresses, Some(&pod), generation);
        }
        let announcement = self.announced.get(&pod)?;
        let status: BTreeSet<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
        let is_new = !status.iter().eq(&announcement.status);
        if why.is_some() || is_new || announcement.uid != uid || announcement.node != node {
            self.announced.remove(&pod);
            return None;
        }
        Some(announcement.all())
    }

    /// Ends announcements of addresses that an object claims.
    fn yield_to(
        &mut self,
        addresses: &[IpAddr],
        own: Option<&Named>,
        generation: &mut Generation<'_>,
    ) {
        if self.announced.len() == 0 {
            return;
        }
        for address in addresses.iter().map(IpAddr::to_canonical) {
            let other = self.announced.of(address).filter(|pod| Some(*pod) != own).cloned();
            let Some((pod, mut announcement)) = other.and_then(|pod| {
                let announcement = self.announced.remove(&pod)?;
                Some((pod, announcement))
            }) else {
                continue;
            };
            announcement.addresses.retain(|announced| *announced != address);
            self.readdress(&pod, &announcement.uid, &announcement.all(), generation);
            if !announcement.addresses.is_empty() {
                self.announced.put(pod, announcement);
            }
        }
    }
}

/// The facts about a node that policies do not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// The zone that EndpointSlices name in their hints.
    pub(super) zone: Option<String>,
    /// The node is about to be deleted.
    pub(super) is_leaving: bool,
}

impl<'a> PodContent<'a> {
    fn owned(pod: &'a Pod) -> Self {
        let Pod { meta: Meta { namespace, name, uid, .. }, node, addresses, .. } = pod;
        let why = why(pod.host_network, pod.phase);
        let mirror = pod.meta.annotations.get(MIRROR).map(String::as_str);
        PodContent { namespace, name, uid, node, why, addresses, mirror }
    }

    fn borrowed(pod: &'a PodView<'_>) -> Self {
        let why = why(pod.host_network, pod.phase);
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let (uid, node) = (&*pod.meta.uid, &*pod.node);
        let mirror = pod.mirror.as_deref();
        PodContent { namespace, name, uid, node, why, addresses: &pod.addresses, mirror }
    }
}

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// True if other pods can reach a pod at this address.
fn is_usable(address: IpAddr) -> bool {
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(of_link || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// The label of a node that EndpointSlices name in their hints.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
