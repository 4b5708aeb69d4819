//! Pods whose Namespace is not read yet.
//!
//! Each kind is read separately, so a pod may be known before its Namespace, whose labels policies select.
//! Its node does not receive the pod before that. Otherwise the entry would mean that no policy applies to the
//! pod, and the pod could start.

use super::Hub;
use crate::queue::Transition;
use control_wire::ObjectId;
use policy_core::index::Member;
use policy_objects::Kind;

impl Hub {
    /// True if a pod may be sent to its node. Otherwise it is sent once the pod's Namespace is read. A replica that
    /// reads no Namespaces at all does not wait for one.
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
