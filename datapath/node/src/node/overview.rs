//! The agent's state for people and metrics.

use super::*;

/// The agent's state for people and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The epoch of the replica that sent the generation.
    pub epoch: Vec<u8>,
    /// The snapshot's generation.
    pub generation: u64,
    /// The resourceVersion of each kind up to which the replica had read.
    pub reached: BTreeMap<String, u64>,
    /// The replica that the node follows.
    pub replica: Option<SocketAddr>,
    /// True if the replica has read less than the node's snapshot, because no other replica had read more.
    pub behind: bool,
    /// The reason why the node follows no replica.
    pub disconnected: Option<String>,
    /// This process's count of states.
    pub revision: u64,
    /// The last revision that the backend has put into force.
    pub applied: u64,
    /// The reason why the backend puts no state into force.
    pub fault: Option<String>,
    /// The numbers of policies, address groups, applied-to groups and pods in the snapshot.
    pub counts: [usize; 4],
    /// The number of Services in the snapshot, and of EndpointSlices.
    pub services: usize,
    pub slices: usize,
    /// Services that are not in force as they should be, each with the cause.
    pub failing_services: BTreeMap<ObjectName, String>,
    /// Policies that are not in force, or not on every pod: UID, name, cause.
    pub failing: Vec<(String, String, String)>,
    /// Pods that are not in force although the rest of the state is, each with the cause.
    pub failing_endpoints: Vec<(PodId, String)>,
    /// The last difference that was observed between the backend's state and the one that was applied.
    pub drift: Option<String>,
    /// Pods that wait, each with the cause.
    pub waiting: Vec<(PodId, String)>,
    /// The number of pods that were started on this node.
    pub local: usize,
}

impl Node {
    /// The agent's state.
    pub fn overview(&self) -> Overview {
        let held = &self.held;
        let (replica, behind, disconnected) = match &self.contact {
            Contact::None(why) => (None, false, Some(why.clone())),
            Contact::With { at, lacks } => (Some(*at), !lacks.is_empty(), None),
        };
        let name = |uid: &String| held.policies.get(uid).map(|policy| policy.key.to_string());
        let failing = self
            .reports
            .failing()
            .map(|(uid, why)| (uid.clone(), name(uid).unwrap_or_default(), why.clone()));
        Overview {
            epoch: held.epoch.clone(),
            generation: held.generation,
            reached: held.reached.clone(),
            replica,
            behind,
            disconnected,
            revision: self.revision,
            applied: self.applied,
            fault: self.fault.clone(),
            counts: [
                held.policies.len(),
                held.addresses.len(),
                held.applied.len(),
                held.pods.len(),
            ],
            services: held.services.len(),
            slices: held.slices.len(),
            failing_services: self.failing_services.clone(),
            failing: failing.collect(),
            failing_endpoints: self.failing_endpoints().collect(),
            drift: self.drift.clone(),
            waiting: self.waiting.values().map(|one| (one.pod.clone(), self.why(one))).collect(),
            local: self.local.len(),
        }
    }

    /// The last difference that was observed between the backend's state and the one that was applied, and the number of
    /// times that one was observed.
    pub fn drift(&self) -> (Option<&str>, u64) {
        (self.drift.as_deref(), self.drifts)
    }

    fn failing_endpoints(&self) -> impl Iterator<Item = (PodId, String)> + '_ {
        let failing = self.failing_endpoints.iter();
        failing
            .filter_map(|(uid, why)| Some((self.endpoints.get(uid)?.pod.pod.clone(), why.clone())))
    }
}
