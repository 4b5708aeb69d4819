//! The describable state, and how it was a while ago.

use crate::{
    Instance, NetworkInterface, SecurityGroup, Subnet, Vpc,
    table::{Stamp, Table, TableView},
};
use config_model::{AttachmentId, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, Time};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Everything that a Describe call can show.
#[derive(Debug)]
pub(crate) struct State {
    /// Its tags are seen without lag.
    pub(crate) vpc: Arc<Vpc>,
    pub(crate) subnets: Table<SubnetId, Subnet>,
    pub(crate) groups: Table<SecurityGroupId, SecurityGroup>,
    pub(crate) instances: Table<InstanceId, Instance>,
    pub(crate) enis: Table<EniId, NetworkInterface>,
    /// The ENIs that are tied to an instance in any way.
    plugged: Table<InstanceId, BTreeSet<EniId>>,
    attachments: BTreeMap<AttachmentId, EniId>,
    macs: BTreeSet<Mac>,
}

impl State {
    pub(crate) fn new(vpc: Vpc) -> Self {
        Self {
            vpc: Arc::new(vpc),
            subnets: Table::default(),
            groups: Table::default(),
            instances: Table::default(),
            enis: Table::default(),
            plugged: Table::default(),
            attachments: BTreeMap::new(),
            macs: BTreeSet::new(),
        }
    }

    pub(crate) fn insert_eni(&mut self, stamp: Stamp, eni: NetworkInterface) {
        self.macs.insert(eni.mac);
        let id = eni.id.clone();
        self.enis.insert(stamp, id.clone(), eni);
        self.index(stamp, &id, None);
    }

    pub(crate) fn remove_eni(&mut self, stamp: Stamp, id: &EniId) -> Option<Arc<NetworkInterface>> {
        let eni = self.enis.remove(stamp, id)?;
        self.macs.remove(&eni.mac);
        self.index(stamp, id, tie_of(&eni));
        Some(eni)
    }

    /// Changes an ENI, if it is there; its id and MAC stay.
    pub(crate) fn change_eni(
        &mut self,
        stamp: Stamp,
        id: &EniId,
        change: impl FnOnce(&mut NetworkInterface),
    ) {
        let Some(before) = self.enis.get(id).map(|eni| tie_of(eni)) else { return };
        self.enis.change(stamp, id, change);
        self.index(stamp, id, before);
    }

    /// Brings the indices up to date with an ENI that was tied so.
    fn index(&mut self, stamp: Stamp, id: &EniId, before: Option<(InstanceId, AttachmentId)>) {
        let after = self.enis.get(id).and_then(|eni| tie_of(eni));
        if before == after {
            return;
        }
        if let Some((instance, attachment)) = before {
            self.attachments.remove(&attachment);
            self.plugged.change(stamp, &instance, |enis| enis.remove(id));
            if self.plugged.get(&instance).is_some_and(|enis| enis.is_empty()) {
                self.plugged.remove(stamp, &instance);
            }
        }
        if let Some((instance, attachment)) = after {
            self.attachments.insert(attachment, id.clone());
            if self.plugged.change(stamp, &instance, |enis| enis.insert(id.clone())).is_none() {
                self.plugged.insert(stamp, instance, BTreeSet::from([id.clone()]));
            }
        }
    }

    /// The ENI of an attachment.
    pub(crate) fn eni_of(&self, attachment: &AttachmentId) -> Option<&Arc<NetworkInterface>> {
        self.enis.get(self.attachments.get(attachment)?)
    }

    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        self.macs.contains(&mac)
    }

    /// The ENIs that are tied to an instance in any way, by card and device.
    pub(crate) fn enis_of(&self, instance: &InstanceId) -> Vec<&Arc<NetworkInterface>> {
        self.at(None).enis_of(instance)
    }

    /// The state as it was then, or is.
    pub(crate) fn at(&self, then: Option<Time>) -> View<'_> {
        View {
            vpc: &self.vpc,
            subnets: self.subnets.at(then),
            groups: self.groups.at(then),
            instances: self.instances.at(then),
            enis: self.enis.at(then),
            plugged: self.plugged.at(then),
        }
    }

    /// Deletes history that reads of `then` or later do not need.
    pub(crate) fn forget_before(&mut self, then: Time) {
        self.subnets.forget_before(then);
        self.groups.forget_before(then);
        self.instances.forget_before(then);
        self.enis.forget_before(then);
        self.plugged.forget_before(then);
    }

    pub(crate) fn forget_past(&mut self) {
        self.subnets.forget_all();
        self.groups.forget_all();
        self.instances.forget_all();
        self.enis.forget_all();
        self.plugged.forget_all();
    }
}

fn tie_of(eni: &NetworkInterface) -> Option<(InstanceId, AttachmentId)> {
    eni.attachment.as_ref().map(|a| (a.instance_id.clone(), a.id.clone()))
}

/// The state at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) vpc: &'a Arc<Vpc>,
    pub(crate) subnets: TableView<'a, SubnetId, Subnet>,
    pub(crate) groups: TableView<'a, SecurityGroupId, SecurityGroup>,
    pub(crate) instances: TableView<'a, InstanceId, Instance>,
    pub(crate) enis: TableView<'a, EniId, NetworkInterface>,
    plugged: TableView<'a, InstanceId, BTreeSet<EniId>>,
}

impl<'a> View<'a> {
    /// The ENIs that are tied to an instance in any way, by card and device.
    pub(crate) fn enis_of(self, instance: &InstanceId) -> Vec<&'a Arc<NetworkInterface>> {
        let place = |eni: &NetworkInterface| {
            eni.attachment.as_ref().map(|a| (a.network_card_index, a.device_index.0))
        };
        let ids = self.plugged.get(instance);
        let mut enis: Vec<_> =
            ids.into_iter().flat_map(|ids| ids.iter()).filter_map(|id| self.enis.get(id)).collect();
        enis.sort_by_key(|eni| place(eni));
        enis
    }
}
