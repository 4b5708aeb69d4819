//! The properties of pods on which their policies depend.

use crate::delta::Delta;
use crate::tables::{PodSets, Tables};
use control_wire::NodeSnapshot;
use policy_core::index::GroupId;
use policy_objects::ContainerPort;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The properties of a pod on which its policy sets depend. Pods with equal ones have the same sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    /// The applied-to groups that contain the pod.
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) ports: Vec<ContainerPort>,
}

impl Subject {
    /// True if one of these groups contains the pod.
    pub(crate) fn is_in(&self, groups: &[GroupId]) -> bool {
        groups.iter().any(|group| self.groups.contains(group))
    }
}

/// The subjects of all pods of the node.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    /// By the UID of a pod that need not be known yet.
    groups: BTreeMap<String, BTreeSet<GroupId>>,
    of_pod: BTreeMap<String, Arc<Subject>>,
    states: BTreeMap<Arc<Subject>, State>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeSet<String>,
    /// `None` until the sets are compiled.
    sets: Option<PodSets>,
}

impl Subjects {
    /// Replaces the members of an applied-to group. Returns the pods that joined and left.
    pub(crate) fn set_group(
        &mut self,
        group: GroupId,
        was: Option<&BTreeSet<String>>,
        is: Option<&BTreeSet<String>>,
    ) -> BTreeSet<String> {
        let none = BTreeSet::new();
        let (was, is) = (was.unwrap_or(&none), is.unwrap_or(&none));
        for uid in was.difference(is) {
            if let Some(groups) = self.groups.get_mut(uid) {
                groups.remove(&group);
                if groups.is_empty() {
                    self.groups.remove(uid);
                }
            }
        }
        for uid in is.difference(was) {
            self.groups.entry(uid.clone()).or_default().insert(group);
        }
        was.symmetric_difference(is).cloned().collect()
    }

    /// Gives a pod the subject that it has in this snapshot. Returns the sets of an earlier subject that no pod has any
    /// longer.
    pub(crate) fn set_pod(
        &mut self,
        uid: &str,
        snapshot: &NodeSnapshot,
        tables: &mut Tables,
        delta: &mut Delta,
    ) -> Option<PodSets> {
        let subject = snapshot.pods.get(uid).map(|pod| Subject {
            groups: self.groups.get(uid).cloned().unwrap_or_default(),
            ports: pod.ports.clone(),
        });
        let was = self.of_pod.get(uid).cloned();
        if was.as_deref() == subject.as_ref() {
            return None;
        }
        self.of_pod.remove(uid);
        tables.pods.remove(uid);
        delta.pods.insert(uid.to_owned());
        if let Some(subject) = subject {
            let subject = match self.states.get_key_value(&subject) {
                Some((subject, _)) => Arc::clone(subject),
                None => Arc::new(subject),
            };
            let state = self.states.entry(Arc::clone(&subject)).or_default();
            state.pods.insert(uid.to_owned());
            if let Some(sets) = state.sets {
                tables.pods.insert(uid.to_owned(), sets);
            }
            self.of_pod.insert(uid.to_owned(), subject);
        }
        let was = was?;
        let state = self.states.get_mut(&was)?;
        state.pods.remove(uid);
        if !state.pods.is_empty() {
            return None;
        }
        self.states.remove(&was).and_then(|state| state.sets)
    }

    /// Discards the sets of the subjects that are in one of these groups, and returns them.
    pub(crate) fn take_sets(&mut self, groups: &BTreeSet<GroupId>) -> Vec<PodSets> {
        if groups.is_empty() {
            return Vec::new();
        }
        let of = |subject: &Subject| !groups.is_disjoint(&subject.groups);
        let states = self.states.iter_mut().filter(|(subject, _)| of(subject));
        states.filter_map(|(_, state)| state.sets.take()).collect()
    }

    /// The subjects whose sets are to be compiled.
    pub(crate) fn without_sets(&self) -> Vec<Arc<Subject>> {
        let states = self.states.iter().filter(|(_, state)| state.sets.is_none());
        states.map(|(subject, _)| Arc::clone(subject)).collect()
    }

    /// Gives a subject its sets.
    pub(crate) fn set_sets(
        &mut self,
        subject: &Subject,
        sets: PodSets,
        tables: &mut Tables,
        delta: &mut Delta,
    ) {
        let Some(state) = self.states.get_mut(subject) else { return };
        state.sets = Some(sets);
        for uid in &state.pods {
            if tables.pods.get(uid) != Some(&sets) {
                tables.pods.insert(uid.clone(), sets);
                delta.pods.insert(uid.clone());
            }
        }
    }
}
