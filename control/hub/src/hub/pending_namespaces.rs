//! Pods whose Namespace is not read yet.
//!
//! Kinds are read each by itself, so a pod may be known before its Namespace is, by whose labels policies choose it. Its
//! node is not told of it before: an entry would say that no policy is about the pod, and let it start.

use super::Hub;
use crate::queue::Transition;
use control_wire::ObjectId;
use policy_core::index::Member;
use policy_objects::Kind;

impl Hub {
    /// Whether a node may be told of a pod; if not, it is once the pod's Namespace is read. Who reads no Namespaces at
    /// all does not wait for one.
    pub(super) fn may_be_told(&mut self, pod: &Member) -> bool {
        let waits = self.reached.kinds().contains_key(Kind::Namespace.text());
        if !waits || self.index.knows_namespace(&pod.namespace) {
            return true;
        }
        let unread = self.unread.entry(pod.namespace.clone()).or_default();
        unread.insert((pod.node.clone(), pod.uid.clone()));
        false
    }

    /// A Namespace is read.
    pub(super) fn namespace_read(&mut self, name: &str) {
        let Some(pods) = self.unread.remove(name) else { return };
        self.generation += 1;
        for (node, uid) in pods {
            self.turn_all(&ObjectId::pod(&uid), [&node], Transition::Changed);
        }
    }

    /// A Namespace is gone: none of its pods is waited for.
    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.unread.remove(name);
    }
}
