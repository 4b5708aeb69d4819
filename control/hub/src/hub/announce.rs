//! Pod addresses that agents announce before the cluster has them.
//!
//! An agent knows a pod's address at its ADD, long before the pod's status has it. The agent announces the address
//! to every replica, so that peers of the pod's first packets know it. An announcement adds addresses to a pod of
//! that agent's node, and is valid as long as it would be accepted. It ends if an object contains other addresses
//! of the pod or claims such an address for another object. After its end every replica has the content of the
//! objects again.

use super::Hub;
use crate::{
    announced::{OF_A_NODE, OF_A_POD, OF_ALL, Word},
    outside::{Holder, Why, why},
    refused::AnnounceError,
};
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
struct Said<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    node: &'a str,
    why: Option<Why>,
    addresses: &'a [IpAddr],
    mirror: Option<&'a str>,
}

impl Hub {
    /// Adds the addresses that a node's agent announces for a pod of that node. They end if the pod's status has
    /// others or another object claims them. [`tidy`](Self::tidy) also ends them if the status has not
    /// come for a minute. A repeated announcement restarts that minute.
    ///
    /// # Errors
    /// Returns the reason if the announcement is refused; nothing changes then. The caller retries if
    /// [`AnnounceError::is_retryable`] is true, for example if the pod or its node is not known here yet.
    pub fn announce(
        &mut self,
        node: &str,
        said: &Announce,
        now_ms: u64,
    ) -> Result<(), AnnounceError> {
        let said = &self.of_the_api(said);
        let known = self.admitted(node, said)?;
        let status = match self.announced.get(&said.pod).filter(|word| word.uid == said.uid) {
            Some(word) => word.status.clone(),
            None => known.addresses,
        };
        let new = self.free(&said.pod, &said.addresses, &status)?;
        if new.is_empty() {
            // The pod's status already has these addresses.
            self.retract(&said.pod);
            return Ok(());
        }
        self.has_room(node, &said.pod)?;
        let (uid, node) = (said.uid.clone(), node.to_owned());
        let word = Word { uid, node, addresses: new, status, at_ms: now_ms };
        self.readdress(&said.pod, &word.uid, &word.all());
        self.announced.put(said.pod.clone(), word);
        Ok(())
    }

    /// A static pod by the UID of what stands for it in the API.
    fn of_the_api(&self, said: &Announce) -> Announce {
        let Named { namespace, name } = &said.pod;
        let known = self.index.known_pod(namespace, name).filter(|known| {
            let runtime = self.mirrors.runtime_uid(namespace, name, &known.uid);
            runtime.is_some_and(|runtime| runtime == said.uid)
        });
        let uid = known.map_or_else(|| said.uid.clone(), |known| known.uid);
        Announce { uid, ..said.clone() }
    }

    /// The pod, if it is the node's to speak of.
    fn admitted(&self, node: &str, said: &Announce) -> Result<KnownPod, AnnounceError> {
        let (pod, uid) = (said.pod.clone(), said.uid.clone());
        if self.loading {
            return Err(AnnounceError::NotYet);
        }
        match said.addresses.len() {
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
        if self.announced.get(pod).is_some_and(|word| word.node == node) {
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
    pub(super) fn lapse(&mut self, now_ms: u64) {
        while let Some(pod) = self.announced.lapsed(now_ms) {
            self.retract(&pod);
        }
    }

    /// Gives a pod the addresses of its object again.
    fn retract(&mut self, pod: &Named) {
        if let Some(word) = self.announced.remove(pod) {
            self.readdress(pod, &word.uid, &word.status);
        }
    }

    fn readdress(&mut self, pod: &Named, uid: &str, addresses: &[IpAddr]) {
        let deltas = self.index.readdress(pod, uid, addresses);
        self.deltas(&deltas);
    }

    /// Takes in what happened to an object that is no policy, and what that makes of agents' word.
    pub(super) fn object(&mut self, event: Event<'_>) {
        match event {
            Event::Pod(pod) => match self.of_pod(&Said::of(pod)) {
                Some(addresses) => {
                    self.indexed(Event::Pod(&Pod { addresses, ..pod.clone() }));
                }
                None => self.indexed(event),
            },
            Event::PodView(pod) => match self.of_pod(&Said::lent(pod)) {
                Some(addresses) => {
                    self.indexed(Event::PodView(&PodView { addresses, ..pod.clone() }));
                }
                None => self.indexed(event),
            },
            Event::Node(node) => {
                self.yield_to(&node.addresses, None);
                self.indexed(event);
            }
            Event::Service(service) => {
                if let Some(addresses) = service.cluster_ips.known() {
                    self.yield_to(addresses, None);
                }
                self.yield_to(&service.outer_ips, None);
                let Meta { namespace, name, uid, .. } = &service.meta;
                self.outside.hear_service(namespace, name, uid, &service.outer_ips);
                self.indexed(event);
            }
            Event::Gone { kind: Kind::Service, namespace, name, uid } => {
                self.outside.service_gone(namespace, name, uid);
                self.indexed(event);
            }
            Event::Gone { kind: Kind::Pod, namespace, name, uid } => {
                self.indexed(event);
                self.outside.gone(namespace, name, uid);
                self.mirrors.gone(namespace, name, uid);
                if self.announced.len() > 0 && self.index.known_pod(namespace, name).is_none() {
                    self.announced.remove(&named(namespace, name));
                }
            }
            Event::Namespace(namespace) => {
                self.indexed(event);
                self.namespace_read(&namespace.meta.name);
            }
            Event::NamespaceView(namespace) => {
                self.indexed(event);
                self.namespace_read(&namespace.meta.name);
            }
            Event::Gone { kind: Kind::Namespace, name, .. } => {
                self.indexed(event);
                self.namespace_gone(name);
            }
            Event::Tier(_)
            | Event::Group(_)
            | Event::Policy(_)
            | Event::PolicyView(_)
            | Event::Gone { .. } => self.indexed(event),
        }
    }

    fn indexed(&mut self, event: Event<'_>) {
        let deltas = self.index.apply(event);
        self.deltas(&deltas);
    }

    /// Handles a new or changed pod object. Returns the pod's addresses with the announced ones if the announcement is
    /// still valid.
    fn of_pod(&mut self, said: &Said<'_>) -> Option<Vec<IpAddr>> {
        let Said { namespace, name, uid, node, why, addresses, mirror } = *said;
        self.outside.hear((namespace, name, uid), why, addresses);
        self.mirrors.hear((namespace, name, uid), mirror.filter(|_| why.is_none()));
        if self.announced.len() == 0 {
            return None;
        }
        let pod = named(namespace, name);
        if why != Some(Why::Ended) {
            self.yield_to(addresses, Some(&pod));
        }
        let word = self.announced.get(&pod)?;
        let status: BTreeSet<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
        let is_news = !status.iter().eq(&word.status);
        if why.is_some() || is_news || word.uid != uid || word.node != node {
            self.announced.remove(&pod);
            return None;
        }
        Some(word.all())
    }

    /// Ends announcements of addresses that an object claims.
    fn yield_to(&mut self, addresses: &[IpAddr], own: Option<&Named>) {
        if self.announced.len() == 0 {
            return;
        }
        for address in addresses.iter().map(IpAddr::to_canonical) {
            let other = self.announced.of(address).filter(|pod| Some(*pod) != own).cloned();
            let Some((pod, mut word)) = other.and_then(|pod| {
                let word = self.announced.remove(&pod)?;
                Some((pod, word))
            }) else {
                continue;
            };
            word.addresses.retain(|announced| *announced != address);
            self.readdress(&pod, &word.uid, &word.all());
            if !word.addresses.is_empty() {
                self.announced.put(pod, word);
            }
        }
    }
}

impl<'a> Said<'a> {
    fn of(pod: &'a Pod) -> Self {
        let Pod { meta: Meta { namespace, name, uid, .. }, node, addresses, .. } = pod;
        let why = why(pod.host_network, pod.phase);
        let mirror = pod.meta.annotations.get(MIRROR).map(String::as_str);
        Said { namespace, name, uid, node, why, addresses, mirror }
    }

    fn lent(pod: &'a PodView<'_>) -> Self {
        let why = why(pod.host_network, pod.phase);
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let (uid, node) = (&*pod.meta.uid, &*pod.node);
        let mirror = pod.mirror.as_deref();
        Said { namespace, name, uid, node, why, addresses: &pod.addresses, mirror }
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
