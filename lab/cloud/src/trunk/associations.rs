//! The branches of all trunks.

use crate::TrunkAssociation;
use config_model::EniId;
use std::collections::BTreeMap;

/// Trunk of each branch; Describe calls see it without lag.
#[derive(Debug, Default)]
pub(crate) struct Trunks {
    pub(super) all: BTreeMap<String, TrunkAssociation>,
    by_trunk: BTreeMap<EniId, BTreeMap<u16, String>>,
    pub(super) by_branch: BTreeMap<EniId, String>,
}

impl Trunks {
    pub(crate) fn has_branches(&self, trunk: &EniId) -> bool {
        self.by_trunk.contains_key(trunk)
    }

    /// The branches of a trunk, by VLAN.
    pub(crate) fn branches<'a>(
        &'a self,
        trunk: &EniId,
    ) -> impl Iterator<Item = &'a TrunkAssociation> {
        let ids = self.by_trunk.get(trunk).into_iter().flat_map(|vlans| vlans.values());
        ids.filter_map(|id| self.all.get(id))
    }

    pub(super) fn of_branch(&self, branch: &EniId) -> Option<&TrunkAssociation> {
        self.all.get(self.by_branch.get(branch)?)
    }

    pub(super) fn add(&mut self, association: TrunkAssociation) {
        let (id, vlan) = (association.id.clone(), association.vlan);
        self.by_trunk.entry(association.trunk.clone()).or_default().insert(vlan, id.clone());
        self.by_branch.insert(association.branch.clone(), id.clone());
        self.all.insert(id, association);
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<TrunkAssociation> {
        let association = self.all.remove(id)?;
        self.by_branch.remove(&association.branch);
        if let Some(vlans) = self.by_trunk.get_mut(&association.trunk) {
            vlans.remove(&association.vlan);
            if vlans.is_empty() {
                self.by_trunk.remove(&association.trunk);
            }
        }
        Some(association)
    }
}
