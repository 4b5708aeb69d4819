//! Trunks and their branches.

mod associations;

pub(crate) use associations::Trunks;

use crate::{
    AssociateTrunkInterface, Cloud, DescribeTrunkInterfaceAssociations, DisassociateTrunkInterface,
    Ec2Error, EniStatus, InterfaceKind, NetworkInterface, Response, TrunkAssociation, filter,
    filter::Filtered, paging,
};
use config_model::EniId;
use std::{collections::BTreeMap, sync::Arc};

/// VLAN ids on the wire, 802.1Q's all ones and 0 left out.
const LAST_VLAN: u16 = 4094;
/// EC2's largest page here.
const MOST: u32 = 255;

impl Cloud {
    pub(crate) fn associate_trunk(
        &mut self,
        request: &AssociateTrunkInterface,
    ) -> Result<Response, Ec2Error> {
        let needed =
            |id: &Option<EniId>, name| id.clone().ok_or_else(|| Ec2Error::missing_parameter(name));
        let branch = self.eni(Some(&needed(&request.branch_interface_id, "branchInterfaceId")?))?;
        let trunk = self.eni(Some(&needed(&request.trunk_interface_id, "trunkInterfaceId")?))?;
        let vlan = request.vlan_id.ok_or_else(|| Ec2Error::missing_parameter("vlanId"))?;
        let answer = |association: TrunkAssociation| Response::AssociateTrunkInterface {
            association,
            client_token: request.client_token.clone(),
        };
        if let Some(there) = self.trunks.of_branch(&branch.id)
            && there.trunk == trunk.id
            && there.vlan == vlan
            && request.client_token.is_some()
        {
            return Ok(answer(there.clone()));
        }
        self.check_association(&branch, &trunk, vlan)?;
        let association = TrunkAssociation {
            id: self.rng.id("trunk-assoc"),
            branch: branch.id.clone(),
            trunk: trunk.id.clone(),
            vlan,
        };
        self.trunks.add(association.clone());
        self.edit_eni(&branch.id, |eni| {
            eni.kind = InterfaceKind::Branch;
            eni.status = EniStatus::Associated;
        });
        Ok(answer(association))
    }

    /// EC2's codes for these refusals are not documented.
    fn check_association(
        &self,
        branch: &Arc<NetworkInterface>,
        trunk: &Arc<NetworkInterface>,
        vlan: u16,
    ) -> Result<(), Ec2Error> {
        if !(1..=LAST_VLAN).contains(&vlan) {
            return Err(Ec2Error::invalid_value(format!("Value ({vlan}) for vlanId is invalid.")));
        }
        if trunk.kind != InterfaceKind::Trunk {
            let message = format!("Network interface '{}' is not a trunk.", trunk.id);
            return Err(Ec2Error::invalid_value(message));
        }
        if branch.attachment.is_some() || self.trunks.of_branch(&branch.id).is_some() {
            return Err(Ec2Error::eni_in_use(&branch.id));
        }
        if !matches!(branch.kind, InterfaceKind::Interface | InterfaceKind::Branch) {
            let message = format!("Network interface '{}' cannot be a branch.", branch.id);
            return Err(Ec2Error::invalid_value(message));
        }
        if branch.availability_zone != trunk.availability_zone {
            return Err(Ec2Error::invalid_combination(
                "Branch and trunk are not in the same availability zone.",
            ));
        }
        if self.trunks.branches(&trunk.id).any(|other| other.vlan == vlan) {
            let message = format!("VLAN {vlan} is already in use on '{}'.", trunk.id);
            return Err(Ec2Error::invalid_value(message));
        }
        let kind = trunk
            .attachment
            .as_ref()
            .and_then(|a| self.state.instances.get(&a.instance_id))
            .and_then(|instance| instance.limits());
        let most = kind.map(|kind| usize::from(kind.branch_interfaces));
        if most.is_some_and(|most| self.trunks.branches(&trunk.id).count() >= most) {
            return Err(Ec2Error::not_permitted(format!(
                "The trunk '{}' has as many branches as its instance type allows.",
                trunk.id
            )));
        }
        Ok(())
    }

    pub(crate) fn disassociate_trunk(
        &mut self,
        request: &DisassociateTrunkInterface,
    ) -> Result<Response, Ec2Error> {
        let id = request.association_id.as_deref();
        let id = id.ok_or_else(|| Ec2Error::missing_parameter("associationId"))?;
        if !self.part(id) {
            let message = format!("The association ID '{id}' does not exist");
            return Err(Ec2Error::new("InvalidAssociationID.NotFound", message));
        }
        Ok(Response::DisassociateTrunkInterface { client_token: request.client_token.clone() })
    }

    /// Ends an association; the branch is a plain ENI again.
    fn part(&mut self, id: &str) -> bool {
        let Some(association) = self.trunks.remove(id) else { return false };
        self.edit_eni(&association.branch, |eni| {
            eni.kind = InterfaceKind::Interface;
            eni.status = EniStatus::Available;
        });
        true
    }

    /// Ends all associations of an ENI that goes.
    pub(crate) fn part_from_trunk(&mut self, eni: &EniId) {
        let mine = self.trunks.by_branch.get(eni).cloned();
        let branches: Vec<String> = self.trunks.branches(eni).map(|a| a.id.clone()).collect();
        for id in mine.into_iter().chain(branches) {
            self.part(&id);
        }
    }

    pub(crate) fn describe_trunks(
        &self,
        request: &DescribeTrunkInterfaceAssociations,
    ) -> Result<Response, Ec2Error> {
        filter::check::<TrunkAssociation>(&request.filters)?;
        let ids = &request.association_ids;
        if let Some(id) = ids.iter().find(|id| !self.trunks.all.contains_key(*id)) {
            let message = format!("The association ID '{id}' does not exist");
            return Err(Ec2Error::new("InvalidAssociationID.NotFound", message));
        }
        let found = self
            .trunks
            .all
            .values()
            .filter(|association| ids.is_empty() || ids.contains(&association.id))
            .filter(|association| filter::passes(*association, &request.filters))
            .cloned()
            .collect();
        let (associations, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |a| a.id.clone())?;
        Ok(Response::DescribeTrunkInterfaceAssociations { associations, next_token })
    }
}

static NO_TAGS: BTreeMap<String, String> = BTreeMap::new();

impl Filtered for TrunkAssociation {
    const NAMES: &'static [&'static str] = &[
        "association-id",
        "interface-protocol",
        "trunk-interface-association.branch-interface-id",
        "trunk-interface-association.trunk-interface-id",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        vec![match name {
            "association-id" => self.id.clone(),
            "interface-protocol" => "VLAN".to_owned(),
            "trunk-interface-association.branch-interface-id" => self.branch.to_string(),
            "trunk-interface-association.trunk-interface-id" => self.trunk.to_string(),
            _ => return Vec::new(),
        }]
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &NO_TAGS
    }
}
