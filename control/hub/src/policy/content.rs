//! The objects of policy that a node needs, and their encodings.

use super::{PolicySource, group_cache::EncodedGroup, model::uid_text};
use crate::{
    distributor::{Generation, Pending},
    source::{Recipient, Source},
};
use control_wire::{
    Digest, Entry, KnownId, ObjectId, ObjectKind, digest_of, encode, entry, model,
    proto::{self, change},
};
use policy_core::index::{GroupId, Member, Needs, NodeState, Role};
use std::collections::BTreeMap;

impl Source for PolicySource {
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)> {
        let Needs { own, applied, address, policies } = self.index.needs_of(recipient.node);
        let mut needs = Vec::new();
        for (id, _) in &policies {
            let uid = uid_text(id);
            let policy = self.policies.get_mut(&uid);
            let entry = policy.map(|policy| policy.for_features(recipient.features));
            needs.extend(entry.map(|entry| (ObjectId::policy(&uid), entry.digest())));
        }
        for id in address {
            needs.extend(self.group(id).map(|group| (ObjectId::address(id), group.digest)));
        }
        for (id, members) in &applied {
            let pods = members.iter().map(|member| member.uid.clone()).collect();
            let digest = digest_of(&encode::applied_group(*id, &pods));
            needs.push((ObjectId::applied(*id), digest));
        }
        needs.push((ObjectId::node(), digest_of(&self.sent_node(recipient.node, &own))));
        for pod in own.pods.values() {
            if self.has_namespace(pod, recipient) {
                needs.push((ObjectId::pod(&pod.uid), digest_of(&self.sent_pod(pod))));
            }
        }
        needs
    }

    fn encode(
        &mut self,
        recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    ) {
        // The node's own objects: most updates have none of them.
        let is_own = |(object, _): &(ObjectId, Pending)| {
            matches!(object.kind, ObjectKind::APPLIED_GROUP | ObjectKind::POD | ObjectKind::NODE)
        };
        let own = if objects.iter().any(is_own) {
            self.index.node_state(recipient.node)
        } else {
            NodeState::default()
        };
        for (object, pending) in objects {
            match object.known() {
                Some(KnownId::Policy(uid)) => {
                    let policy = self.policies.get_mut(uid);
                    changes.extend(policy.map(|policy| policy.for_features(recipient.features)));
                }
                Some(KnownId::Node) => {
                    changes.push(entry(&self.sent_node(recipient.node, &own)));
                }
                Some(KnownId::Pod(uid)) => {
                    let pod = own.pods.values().find(|pod| pod.uid == uid);
                    let pod = pod.filter(|pod| self.has_namespace(pod, recipient));
                    changes.extend(pod.map(|pod| entry(&self.sent_pod(pod))));
                }
                Some(KnownId::Address(id)) => {
                    let group = self.group(id);
                    changes.extend(group.iter().flat_map(|group| group.entries.iter().cloned()));
                }
                Some(KnownId::Applied(id)) if pending.is_whole() => {
                    changes.push(entry(&encode::applied_group(id, &self.applied_on(&own, id))));
                }
                Some(KnownId::Applied(id)) => {
                    changes.push(applied_change(id, pending.elements()));
                }
                Some(KnownId::Service(_) | KnownId::Slice(_)) | None => {}
            }
        }
    }

    fn loaded(&mut self) {
        self.complete();
    }

    fn expire(&mut self, now_ms: u64, generation: &mut Generation<'_>) {
        self.expire_announcements(now_ms, generation);
    }
}

impl PolicySource {
    /// Returns the pods of a node in an applied-to group.
    fn applied_on(&self, own: &NodeState, id: GroupId) -> model::AppliedGroup {
        let members =
            own.pods.keys().filter(|pod| self.index.is_about(id, &pod.namespace, &pod.name));
        members.map(|pod| pod.uid.clone()).collect()
    }

    /// Returns a group encoded for a node that does not have it.
    fn group(&mut self, id: GroupId) -> Option<EncodedGroup> {
        let Self { groups, index, .. } = self;
        groups.get(id, || index.group_state(Role::Address, id))
    }

    /// A node without a Node object has been deleted.
    fn sent_node(&self, name: &str, own: &NodeState) -> proto::Change {
        let facts = self.facts.get(name);
        let zone = facts.and_then(|facts| facts.zone.as_deref());
        encode::node(&own.addresses, zone, facts.is_none_or(|facts| facts.is_leaving))
    }

    fn sent_pod(&self, pod: &Member) -> proto::Change {
        let Member { namespace, name, uid, addresses, ports, .. } = pod.clone();
        let runtime_uid = self.mirrors.runtime_uid(&namespace, &name, &uid).unwrap_or_default();
        let runtime_uid = runtime_uid.to_owned();
        (&model::Pod { uid, namespace, name, addresses, ports, runtime_uid }).into()
    }
}

/// Encodes the pods of a node that came into an applied-to group (true) or left it (false).
fn applied_change(id: GroupId, pods: &BTreeMap<String, bool>) -> Entry {
    let of = |is_in: bool| {
        pods.iter().filter(|(_, of)| **of == is_in).map(|(uid, _)| uid.clone()).collect()
    };
    let change = proto::AppliedChange { id: id.0.to_vec(), added: of(true), removed: of(false) };
    entry(&change::Of::AppliedChange(change).into())
}
