//! How the node is.

use super::*;

/// How the node is, for people and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The run of the replica that the generation is of.
    pub epoch: Vec<u8>,
    /// The generation that is held.
    pub generation: u64,
    /// How far each kind had been read for it.
    pub reached: BTreeMap<String, u64>,
    /// The replica that is followed.
    pub replica: Option<SocketAddr>,
    /// It has read less than this node held when it was taken, since none had read more, and has not caught up yet.
    pub behind: bool,
    /// Why none is followed.
    pub alone: Option<String>,
    /// This process's count of states, and the last that the backend has put into force.
    pub revision: u64,
    /// See `revision`.
    pub applied: u64,
    /// Why the backend puts nothing into force.
    pub trouble: Option<String>,
    /// Policies, address groups, applied-to groups and pods that are held.
    pub counts: [usize; 4],
    /// Policies that are not in force: UID, name, reason.
    pub failing: Vec<(String, String, String)>,
    /// Pods that wait, with why.
    pub waiting: Vec<(PodId, String)>,
    /// Pods that were started here.
    pub local: usize,
}

impl Node {
    /// How the node is.
    pub fn overview(&self) -> Overview {
        let held = &self.held;
        let (replica, behind, alone) = match &self.contact {
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
            alone,
            revision: self.revision,
            applied: self.applied,
            trouble: self.trouble.clone(),
            counts: [
                held.policies.len(),
                held.addresses.len(),
                held.applied.len(),
                held.pods.len(),
            ],
            failing: failing.collect(),
            waiting: self.waiting.values().map(|one| (one.pod.clone(), self.why(one))).collect(),
            local: self.local.len(),
        }
    }
}
