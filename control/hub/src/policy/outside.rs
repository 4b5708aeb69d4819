//! Pods and addresses that the index does not contain, as no policy applies to them. An agent that announces such
//! a pod receives the reason. Such addresses still count as in use.

use super::claims::Claims;
use policy_objects::{Named, Phase};
use std::{collections::BTreeMap, net::IpAddr};

/// Maximum number of remembered ended pods. An announcement of a forgotten one gets no reason.
const ENDED: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The pod uses its node's network.
    HostNetwork,
    /// The pod has succeeded or failed.
    Ended,
}

/// Pods and Services outside the index.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// By namespace and name: the reason, and the UID.
    pods: BTreeMap<String, BTreeMap<String, (Why, String)>>,
    ended: usize,
    hosts: Claims,
    services: Claims,
}

/// Holder of an address that the index does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A pod with its node's network.
    Pod(Named),
    /// A Service, beside its cluster addresses.
    Service,
}

/// Returns the reason why the index does not contain a pod.
pub(crate) fn why(host_network: bool, phase: Phase) -> Option<Why> {
    match phase {
        Phase::Ended => Some(Why::Ended),
        Phase::Live => host_network.then_some(Why::HostNetwork),
    }
}

impl Outside {
    /// Records a new or changed pod. An ended pod no longer has an address.
    pub(crate) fn put(
        &mut self,
        (namespace, name, uid): (&str, &str, &str),
        why: Option<Why>,
        addresses: &[IpAddr],
    ) {
        self.remove(namespace, name, "");
        match why {
            Some(Why::HostNetwork) => self.hosts.put(named(namespace, name), uid, addresses),
            Some(Why::Ended) if self.ended < ENDED => self.ended += 1,
            Some(Why::Ended) | None => return,
        }
        let names = self.pods.entry(namespace.to_owned()).or_default();
        names.extend(why.map(|why| (name.to_owned(), (why, uid.to_owned()))));
    }

    /// Removes a pod. With a non-empty UID, only if the pod has it.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(names) = self.pods.get_mut(namespace) else { return };
        let is = |(_, found): &(Why, String)| uid.is_empty() || found == uid;
        if names.get(name).is_some_and(is) {
            match names.remove(name) {
                Some((Why::HostNetwork, _)) => self.hosts.remove(&named(namespace, name), ""),
                Some((Why::Ended, _)) => self.ended -= 1,
                None => {}
            }
        }
        if names.is_empty() {
            self.pods.remove(namespace);
        }
    }

    /// Returns the reason why a pod is not in the index, if it is remembered.
    pub(crate) fn why(&self, namespace: &str, name: &str, uid: &str) -> Option<Why> {
        let (why, found) = self.pods.get(namespace)?.get(name)?;
        (found == uid).then_some(*why)
    }

    pub(crate) fn put_service(&mut self, namespace: &str, name: &str, uid: &str, at: &[IpAddr]) {
        self.services.put(named(namespace, name), uid, at);
    }

    /// Removes a Service. With a non-empty UID, only if the Service has it.
    pub(crate) fn remove_service(&mut self, namespace: &str, name: &str, uid: &str) {
        self.services.remove(&named(namespace, name), uid);
    }

    /// Returns the holder of an address that is not in the index.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<Holder> {
        let of_pod = || self.hosts.holder(address).cloned().map(Holder::Pod);
        self.services.holder(address).map(|_| Holder::Service).or_else(of_pod)
    }
}

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}
