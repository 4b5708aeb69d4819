//! Pods that no policy is about: the index does not know them, and an agent that speaks of one is told why.

use policy_objects::Phase;
use std::collections::BTreeMap;

/// How many are remembered. Of the others it is not said why they are not known.
const REMEMBERED: usize = 16_384;

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
    len: usize,
}

/// Why policy does not know a pod.
pub(crate) fn why(host_network: bool, phase: Phase) -> Option<Why> {
    match phase {
        Phase::Ended => Some(Why::Ended),
        Phase::Live => host_network.then_some(Why::HostNetwork),
    }
}

impl Outside {
    /// A pod is new or has changed.
    pub(crate) fn hear(&mut self, namespace: &str, name: &str, uid: &str, why: Option<Why>) {
        self.gone(namespace, name, "");
        if let Some(why) = why.filter(|_| self.len < REMEMBERED) {
            let names = self.pods.entry(namespace.to_owned()).or_default();
            names.insert(name.to_owned(), (why, uid.to_owned()));
            self.len += 1;
        }
    }

    /// A pod is gone; with a UID, if it is that one.
    pub(crate) fn gone(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(names) = self.pods.get_mut(namespace) else { return };
        let is = |(_, found): &(Why, String)| uid.is_empty() || found == uid;
        if names.get(name).is_some_and(is) {
            names.remove(name);
            self.len -= 1;
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
}
