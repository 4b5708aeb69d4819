//! Encoded policies, one encoding for each set of match features that agents have.

use super::model::model;
use control_wire::{Entry, Features, entry, proto};
use policy_core::{Policy, Rule, index::PolicyState};
use std::{collections::BTreeMap, sync::Arc};

/// A policy as it is sent.
#[derive(Debug)]
pub(crate) struct EncodedPolicy {
    /// The generation of its spec.
    pub(crate) generation: i64,
    /// For agents with all features.
    pub(crate) entry: Entry,
    /// The source of the encoding, for policies that change with tiers or namespaces.
    pub(crate) form: Option<Arc<Policy>>,
    /// The features that its rules require, and the policy if there is one.
    requires: Features,
    model: Option<Arc<control_wire::model::Policy>>,
    /// The encodings for agents that lack some of these, by those that they have.
    lowered: BTreeMap<Features, Entry>,
}

impl EncodedPolicy {
    pub(crate) fn new(
        policy: &Policy,
        generation: i64,
        state: &PolicyState,
        requires: fn(&Rule) -> Vec<u32>,
        form: Option<Arc<Policy>>,
    ) -> Self {
        let model = model(policy, generation, state, requires);
        let entry = entry(&proto::Change::from(&model));
        let requires = model.requires();
        let model = (requires != Features::default()).then(|| Arc::new(model));
        Self { generation, entry, form, requires, model, lowered: BTreeMap::new() }
    }

    /// The encoding for agents with these features; all of them share it.
    pub(crate) fn for_features(&mut self, features: &Features) -> Entry {
        let has = self.requires.shared_with(features);
        let Some(model) = self.model.as_ref().filter(|_| has != self.requires) else {
            return self.entry.clone();
        };
        let lowered = || entry(&proto::Change::from(&model.for_features(features)));
        self.lowered.entry(has).or_insert_with(lowered).clone()
    }
}
