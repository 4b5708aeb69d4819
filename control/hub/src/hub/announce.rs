//! Addresses that agents tell of their pods before the cluster does.
//!
//! An agent knows a pod's address at its ADD, long before the pod's status has it. It tells every replica, so that
//! peers of the pod's first packets know it. Word of an agent stands as long as it would be taken: it adds
//! addresses to a pod of that agent's node, and yields to any object that says something else of the pod or
//! says that such an address is another's. What it leaves when it ends is what the objects say, on
//! every replica.

use super::Hub;
use crate::{
    announced::{OF_A_NODE, OF_A_POD, OF_ALL, Word},
    outside::{Holder, Why, why},
    refused::AnnounceError,
};
use policy_core::index::{Event, KnownPod};
use policy_objects::{Kind, MIRROR, Meta, Named, Pod, page::PodView};
use std::{collections::BTreeSet, net::IpAddr};

/// What an agent says of a pod of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The pod.
    pub pod: Named,
    /// Its UID.
    pub uid: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// What a pod's object says, owned or lent.
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
    /// A node's agent says which addresses a pod of that node has: from now on it has them, until its status says
    /// something else, another object says that they are its own, or [`tidy`](Self::tidy) finds that
    /// the status has not come for a minute. The same again begins that minute anew.
    ///
    /// # Errors
    /// If that cannot be or must not be, and nothing changes; among others if the pod or its node is not known
    /// here yet, which is to be tried again ([`AnnounceError::is_retryable`]).
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
            // The cluster says so itself.
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

    /// Which of these addresses the pod does not have yet, if they can all be its own.
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

    /// Ends what agents said that no status has confirmed in time.
    pub(super) fn lapse(&mut self, now_ms: u64) {
        while let Some(pod) = self.announced.lapsed(now_ms) {
            self.retract(&pod);
        }
    }

    /// A pod has what its object says.
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

    /// A pod's object is new or has changed: the addresses that it has with what its agent said, if that stands.
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

    /// An object says that these addresses are its own: no agent's word is against that.
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

/// Whether a pod can be reached there by others.
fn is_usable(address: IpAddr) -> bool {
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(of_link || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}
