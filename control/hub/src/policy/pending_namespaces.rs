//! Pods whose Namespace is not read yet.
//!
//! Each kind is read separately, so a pod may be known before its Namespace, whose labels policies select.
//! Its node does not receive the pod before that. Otherwise the entry would mean that no policy applies to the
//! pod, and the pod could start.

use super::PolicySource;
use crate::{distributor::Generation, source::Recipient};
use control_wire::ObjectId;
use policy_core::index::Member;
use policy_objects::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// By Namespace that is not read: nodes, and the UIDs of their pods that wait for it.
pub(super) type PendingNamespaces = BTreeMap<String, BTreeSet<(String, String)>>;

impl PolicySource {
    /// True if a pod may be sent to its node. Otherwise it is sent once the pod's Namespace is read. A replica that
    /// reads no Namespaces at all does not wait for one.
    pub(super) fn has_namespace(&mut self, pod: &Member, recipient: &Recipient<'_>) -> bool {
        let waits = recipient.reached.contains_key(Kind::Namespace.text());
        if !waits || self.index.knows_namespace(&pod.namespace) {
            return true;
        }
        let pods = self.pending_namespaces.entry(pod.namespace.clone()).or_default();
        pods.insert((pod.node.clone(), pod.uid.clone()));
        false
    }

    pub(super) fn namespace_read(&mut self, name: &str, generation: &mut Generation<'_>) {
        for (node, uid) in self.pending_namespaces.remove(name).into_iter().flatten() {
            generation.changed(&ObjectId::pod(&uid), [&node]);
        }
    }

    /// A removed Namespace: its pods no longer wait.
    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.pending_namespaces.remove(name);
    }
}
