//! The describable state, and how it was a while ago.

use crate::{Instance, NetworkInterface, SecurityGroup, Subnet, Vpc};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId, Time};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Everything that a Describe call can show; cheap to copy, as copies share the objects.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) vpc: Arc<Vpc>,
    pub(crate) subnets: BTreeMap<SubnetId, Arc<Subnet>>,
    pub(crate) groups: BTreeMap<SecurityGroupId, Arc<SecurityGroup>>,
    pub(crate) instances: BTreeMap<InstanceId, Arc<Instance>>,
    pub(crate) enis: BTreeMap<EniId, Arc<NetworkInterface>>,
}

impl State {
    /// The ENIs that are tied to an instance in any way, by card and device.
    pub(crate) fn enis_of<'a>(&'a self, instance: &InstanceId) -> Vec<&'a Arc<NetworkInterface>> {
        let place = |eni: &NetworkInterface| {
            eni.attachment.as_ref().map(|a| (a.network_card_index, a.device_index.0))
        };
        let mut enis: Vec<_> = self
            .enis
            .values()
            .filter(|eni| eni.attachment.as_ref().is_some_and(|a| a.instance_id == *instance))
            .collect();
        enis.sort_by_key(|eni| place(eni));
        enis
    }
}

/// Past states, as far back as someone may still look.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<(Time, Arc<State>)>);

impl History {
    /// From `at` on the state is this one.
    pub(crate) fn record(&mut self, at: Time, state: Arc<State>) {
        if self.0.back().is_some_and(|(time, _)| *time == at) {
            self.0.pop_back();
        }
        self.0.push_back((at, state));
    }

    /// The state as it was then; the oldest one known if that is too long ago.
    pub(crate) fn at(&self, then: Time) -> Option<&Arc<State>> {
        let after = self.0.partition_point(|(time, _)| *time <= then);
        self.0.get(after.saturating_sub(1)).map(|(_, state)| state)
    }

    /// Forgets what nobody asks for who looks no further back than `then`.
    pub(crate) fn forget_before(&mut self, then: Time) {
        while self.0.get(1).is_some_and(|(time, _)| *time <= then) {
            self.0.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
