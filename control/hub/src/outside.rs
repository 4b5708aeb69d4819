//! What the index does not know, as no policy is about it: pods of which an agent that speaks of them is told why,
//! and addresses that are in use all the same.

use crate::claims::Claims;
use policy_objects::{Named, Phase};
use std::{collections::BTreeMap, net::IpAddr};

/// How many pods that have ended are remembered. Of the others it is not said why they are not known.
const ENDED: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has its node's network.
    HostNetwork,
    /// It has succeeded or failed.
    Ended,
}

/// By namespace and name: why, and the UID.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    pods: BTreeMap<String, BTreeMap<String, (Why, String)>>,
    ended: usize,
    hosts: Claims,
    services: Claims,
}

/// Who has an address that the index does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A pod with its node's network.
    Pod(Named),
    /// A Service, beside its cluster addresses.
    Service,
}

/// Why policy does not know a pod.
pub(crate) fn why(host_network: bool, phase: Phase) -> Option<Why> {
    match phase {
        Phase::Ended => Some(Why::Ended),
        Phase::Live => host_network.then_some(Why::HostNetwork),
    }
}

impl Outside {
    /// A pod is new or has changed. One that has ended has no address any more.
    pub(crate) fn hear(
        &mut self,
        (namespace, name, uid): (&str, &str, &str),
        why: Option<Why>,
        addresses: &[IpAddr],
    ) {
        self.gone(namespace, name, "");
        match why {
            Some(Why::HostNetwork) => self.hosts.put(named(namespace, name), uid, addresses),
            Some(Why::Ended) if self.ended < ENDED => self.ended += 1,
            Some(Why::Ended) | None => return,
        }
        let names = self.pods.entry(namespace.to_owned()).or_default();
        names.extend(why.map(|why| (name.to_owned(), (why, uid.to_owned()))));
    }

    /// A pod is gone; with a UID, if it is that one.
    pub(crate) fn gone(&mut self, namespace: &str, name: &str, uid: &str) {
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

    /// Why a pod is not known, if that is remembered.
    pub(crate) fn why(&self, namespace: &str, name: &str, uid: &str) -> Option<Why> {
        let (why, found) = self.pods.get(namespace)?.get(name)?;
        (found == uid).then_some(*why)
    }

    /// A Service is new or has changed.
    pub(crate) fn hear_service(&mut self, namespace: &str, name: &str, uid: &str, at: &[IpAddr]) {
        self.services.put(named(namespace, name), uid, at);
    }

    /// A Service is gone; with a UID, if it is that one.
    pub(crate) fn service_gone(&mut self, namespace: &str, name: &str, uid: &str) {
        self.services.remove(&named(namespace, name), uid);
    }

    /// Whose an address is, of those that the index does not know.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<Holder> {
        let of_pod = || self.hosts.holder(address).cloned().map(Holder::Pod);
        self.services.holder(address).map(|_| Holder::Service).or_else(of_pod)
    }
}

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}
