//! The hub of a replica: the distributor with all sources of this version.

use crate::{
    distributor::Distributor,
    encoded_objects::EncodedObjects,
    policy::{Announce, AnnounceError, PolicyChange, PolicyReport, PolicySource},
    services::ServiceSource,
};
use control_wire::{Entry, Features, KINDS, ObjectId, ObjectKind, SERVICE_KINDS};
use policy_core::{
    Policy, Rule,
    index::{Event, Index},
};
use service_objects::{ObjectName, Service, Slice};
use std::collections::BTreeSet;

/// The distributor of a replica. Policy is its first source, Services are the second one. The third one distributes encoded
/// objects of any kind.
pub type Hub = Distributor<(PolicySource, (ServiceSource, EncodedObjects))>;

/// Sizes of the hub's content, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// The newest generation.
    pub generation: u64,
    pub policies: usize,
    /// Groups of both roles.
    pub groups: usize,
    /// Nodes with a stream.
    pub streams: usize,
    /// Objects that are pending for nodes, or sent and not acknowledged; all nodes together.
    pub pending: usize,
    /// Bytes of recorded changes, kept for nodes that are behind.
    pub history_bytes: usize,
    /// Pods with addresses that their agents have announced and no status has confirmed.
    pub announced: usize,
}

/// The version of a replica, as far as streams depend on it.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The kinds of object that it sends.
    pub kinds: BTreeSet<ObjectKind>,
    /// The match features that its rules use.
    pub features: Features,
    /// The match features that a rule uses, beyond those of the first version of the protocol.
    pub requires: fn(&Rule) -> Vec<u32>,
}

impl Default for Capabilities {
    /// The capabilities of a replica that does not read Services. Its agents keep the Services that another replica has sent.
    fn default() -> Self {
        let mut kinds = BTreeSet::from(KINDS);
        kinds.retain(|kind| !SERVICE_KINDS.contains(kind));
        let features = Features::supported();
        Self { kinds, features, requires: |_| Vec::new() }
    }
}

impl Hub {
    /// Creates a hub without objects. They are applied until all are [`loaded`](Self::loaded). The epoch is 16 random
    /// bytes, different at each start; `seed` randomizes the hash tables of the index.
    pub fn new(epoch: [u8; 16], seed: u64) -> Self {
        let others = (ServiceSource::default(), EncodedObjects::default());
        let hub = Self::of((PolicySource::new(seed), others), epoch);
        hub.with_capabilities(Capabilities::default())
    }

    /// Returns the same replica with other capabilities. The caller does this before the first object.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        let Capabilities { kinds, features, requires } = capabilities;
        self.source_mut().0.set_requires(requires);
        self.sending(kinds, features)
    }

    /// Returns the index of group membership.
    pub fn index(&self) -> &Index {
        self.source().0.index()
    }

    /// Applies an added or changed policy. `generation` is that of its spec.
    pub fn policy(&mut self, policy: &Policy, generation: i64) {
        self.change(|(source, _), news| source.policy(policy, generation, news));
    }

    /// Applies an event of any object. Policies use [`policy`](Self::policy) instead, as a policy's converted form
    /// lacks its generation.
    pub fn apply(&mut self, event: Event<'_>) {
        self.change(|(source, _), news| source.apply(event, news));
    }

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
        announce: &Announce,
        now_ms: u64,
    ) -> Result<(), AnnounceError> {
        self.change(|(source, _), news| source.announce(node, announce, now_ms, news))
    }

    /// Adds or replaces a Service.
    pub fn set_service(&mut self, service: &Service) {
        self.change(|(_, (services, _)), news| services.set_service(service, news));
    }

    pub fn remove_service(&mut self, name: &ObjectName) {
        self.change(|(_, (services, _)), news| services.remove_service(name, news));
    }

    /// Adds or replaces an EndpointSlice.
    pub fn set_slice(&mut self, slice: &Slice) {
        self.change(|(_, (services, _)), news| services.set_slice(slice, news));
    }

    pub fn remove_slice(&mut self, name: &ObjectName) {
        self.change(|(_, (services, _)), news| services.remove_slice(name, news));
    }

    /// Adds or replaces an object that its caller has encoded, with the nodes that need it. It reaches the nodes whose
    /// agents know its kind.
    pub fn put_object(&mut self, id: &ObjectId, entry: Entry, span: BTreeSet<String>) {
        self.change(|(_, (_, objects)), news| objects.put(id, entry, span, news));
    }

    pub fn remove_object(&mut self, id: &ObjectId) {
        self.change(|(_, (_, objects)), news| objects.remove(id, news));
    }

    /// Starts to collect changes of policies for [`take_policies`](Self::take_policies). The first changes are all
    /// existing policies.
    pub fn follow_policies(&mut self) {
        self.source_mut().0.follow_policies();
    }

    /// Stops the collection of policy changes.
    pub fn leave_policies(&mut self) {
        self.source_mut().0.leave_policies();
    }

    /// Returns policy changes since the last call: as many as have so many nodes together, and at least one.
    /// Empty if all changes have been returned, and before the first lists are read.
    pub fn take_policies(&mut self, nodes: usize) -> Vec<PolicyChange> {
        self.source_mut().0.take_policies(nodes)
    }

    /// Returns at most `most` policies whose UID is greater than `uid`, in the order of their UIDs.
    pub fn policies_behind(&self, uid: &str, most: usize) -> Vec<PolicyReport> {
        self.source().0.policies_behind(uid, most)
    }

    /// Returns the policy of this UID.
    pub fn policy_report(&self, uid: &str) -> Option<PolicyReport> {
        self.source().0.policy_report(uid)
    }

    pub fn measures(&self) -> Measures {
        let policy = &self.source().0;
        Measures {
            generation: self.generation(),
            policies: policy.policies(),
            groups: policy.index().len(),
            streams: self.streams(),
            pending: self.pending(),
            history_bytes: self.history_bytes(),
            announced: policy.announced(),
        }
    }
}
