//! One node's trunk and branches.

use super::{ControllerEvent, PodEni, TrunkRequest};
use crate::{
    AssociateTrunkInterface, AttachNetworkInterface, AttachmentStatus, CallError, Caller, Cloud,
    CreateNetworkInterface, DeleteNetworkInterface, DisassociateTrunkInterface, InstanceType,
    InterfaceKind, NetworkInterface, Request, Response, Tag, TagSpecification, TrunkAssociation,
};
use config_model::{EniId, InstanceId, PodName, SecurityGroupId, Span, SubnetId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// VLAN 0 is not used; 121 slots a trunk.
const VLANS: std::ops::RangeInclusive<u16> = 1..=120;
/// Time for which a branch stays after its pod; its VLAN is not reused in that time.
pub(super) const BRANCH_COOLDOWN: Span = Span::seconds(60);
/// The controller's state of one node.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) trunk_request: Option<TrunkRequest>,
    /// The trunk, once EC2 has made it.
    trunk: Option<EniId>,
    /// Number of branches that were announced with it.
    announced: Option<u16>,
    /// Pods that wait for a branch, with their groups, in the order of their names.
    pub(super) waiting: BTreeMap<PodName, Vec<SecurityGroupId>>,
    pub(super) branches: BTreeMap<PodName, PodEni>,
    /// Branches whose pods are gone, with the time from which on they may go too.
    pub(super) cooling: Vec<(Time, PodEni)>,
    /// The branch that is being made.
    making: Option<PendingBranch>,
    pub(super) retry_at: Option<Time>,
    /// Counts what was asked for, so that each request has a token of its own.
    asked: u64,
}

/// A branch that is being made: whatever EC2 was asked for it is asked again in the same words.
#[derive(Debug)]
struct PendingBranch {
    pod: PodName,
    groups: Vec<SecurityGroupId>,
    vlan: u16,
    /// Number of the request, for its client tokens.
    number: u64,
    trunk: EniId,
    subnet: SubnetId,
    /// Once EC2 has made it.
    eni: Option<NetworkInterface>,
}

/// A refusal of EC2, with the pod whose branch needed the call; `None` for the node itself.
pub(super) struct Refused {
    pub(super) pod: Option<PodName>,
    pub(super) why: String,
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self { pod: None, why: error.to_string() }
    }
}

impl Node {
    /// Handles the end of the instance: its branches go at once, and nothing is desired.
    ///
    /// Returns the trunk that it had, and a branch that was half created.
    pub(super) fn abandon(&mut self, now: Time) -> Vec<EniId> {
        self.trunk_request = None;
        self.waiting.clear();
        let branches = std::mem::take(&mut self.branches).into_values().map(|b| (now, b));
        self.cooling.extend(branches);
        self.cooling.iter_mut().for_each(|(at, _)| *at = now.min(*at));
        let half = self.making.take().and_then(|making| making.eni).map(|eni| eni.id);
        self.trunk.take().into_iter().chain(half).collect()
    }

    pub(super) fn step(
        &mut self,
        now: Time,
        instance: &InstanceId,
        cloud: &mut Cloud,
        news: &mut Vec<ControllerEvent>,
    ) -> Result<(), Refused> {
        self.collect(now, cloud)?;
        let Some(trunk_request) = self.trunk_request.clone() else { return Ok(()) };
        let enis = cloud.enis_of(now, instance);
        let own = enis.iter().find(|eni| eni.kind == InterfaceKind::Trunk);
        let Some(own) = own else {
            let enis: Vec<&NetworkInterface> = enis.iter().map(AsRef::as_ref).collect();
            return self.make_trunk(now, instance, &trunk_request, &enis, cloud);
        };
        let attached = |eni: &NetworkInterface| {
            eni.attachment.as_ref().is_some_and(|a| a.status == AttachmentStatus::Attached)
        };
        if !attached(own) {
            return Ok(());
        }
        self.trunk = Some(own.id.clone());
        let most = branches_of(cloud, instance);
        if self.announced.replace(most) != Some(most) {
            news.push(ControllerEvent::TrunkAttached {
                instance: instance.clone(),
                trunk: own.id.clone(),
                branches: most,
            });
        }
        while self.making.is_some() || self.begin_branch(own, most)? {
            let finished = self.finish_branch(now, own, cloud);
            let Some(PendingBranch { pod, .. }) = &self.making else { break };
            let pod = pod.clone();
            let branch =
                finished.map_err(|refused| Refused { pod: Some(pod.clone()), ..refused })?;
            self.making = None;
            if self.waiting.remove(&pod).is_none() {
                // The pod has gone meanwhile.
                self.cooling.push((now + BRANCH_COOLDOWN, branch));
                continue;
            }
            self.branches.insert(pod.clone(), branch.clone());
            let instance = instance.clone();
            news.push(ControllerEvent::Annotated { instance, pod, branch });
        }
        Ok(())
    }

    /// Number of branches of the attached trunk; `None` before that.
    pub(super) fn announced(&self) -> Option<u16> {
        self.announced
    }

    /// Deletes the branches that have cooled.
    fn collect(&mut self, now: Time, cloud: &mut Cloud) -> Result<(), Refused> {
        while let Some(at) = self.cooling.iter().position(|(at, _)| *at <= now) {
            let Some((_, branch)) = self.cooling.get(at).cloned() else { break };
            let part = DisassociateTrunkInterface {
                association_id: Some(branch.association.clone()),
                ..DisassociateTrunkInterface::default()
            };
            gone_is_fine(call(cloud, now, part))?;
            let delete = DeleteNetworkInterface {
                network_interface_id: Some(branch.eni.clone()),
                ..DeleteNetworkInterface::default()
            };
            gone_is_fine(call(cloud, now, delete))?;
            self.cooling.remove(at);
        }
        Ok(())
    }

    /// Creates the trunk and starts to attach it, at the highest free place of card 0.
    fn make_trunk(
        &mut self,
        now: Time,
        instance: &InstanceId,
        trunk_request: &TrunkRequest,
        enis: &[&NetworkInterface],
        cloud: &mut Cloud,
    ) -> Result<(), Refused> {
        let refuse = |why: &str| Err(Refused { pod: None, why: why.to_owned() });
        let Some(primary) = enis.first() else { return refuse("the node has no ENI") };
        if branches_of(cloud, instance) == 0 {
            return refuse("the instance type can have no trunk");
        }
        let used: BTreeSet<u16> = enis
            .iter()
            .filter_map(|eni| eni.attachment.as_ref())
            .filter(|attachment| attachment.network_card_index.0 == 0)
            .map(|attachment| attachment.device_index.0)
            .collect();
        let places = type_of(cloud, instance).and_then(|kind| kind.interfaces_of_card(0));
        let free = (0..places.unwrap_or(0)).rev().find(|device| !used.contains(device));
        let Some(device) = free else { return refuse("card 0 has no free place for a trunk") };
        let trunk = match self.trunk.clone() {
            Some(trunk) => trunk,
            None => {
                let groups = primary.groups.iter().map(|group| group.id.clone());
                let groups = if trunk_request.groups.is_empty() {
                    groups.collect()
                } else {
                    trunk_request.groups.clone()
                };
                let subnet =
                    trunk_request.subnet.clone().unwrap_or_else(|| primary.subnet_id.clone());
                let tags = vec![Tag::new("node.k8s.amazonaws.com/instance_id", instance.as_str())];
                let request = CreateNetworkInterface {
                    interface_type: Some(InterfaceKind::Trunk.as_str().to_owned()),
                    client_token: Some(format!("trunk-{instance}-{}", self.asked)),
                    ..new_eni("trunk-eni", subnet, groups, tags)
                };
                let trunk = create(cloud, now, request)?.id;
                self.asked += 1;
                self.trunk.insert(trunk).clone()
            }
        };
        let attach = AttachNetworkInterface {
            network_interface_id: Some(trunk.clone()),
            instance_id: Some(instance.clone()),
            device_index: Some(device),
            ..AttachNetworkInterface::default()
        };
        match call(cloud, now, attach) {
            Ok(_) | Err(CallError::ReplyLost) => {}
            Err(CallError::Refused(error))
                if error.code == "InvalidNetworkInterfaceID.NotFound" =>
            {
                self.trunk = None;
                return Err(CallError::Refused(error).into());
            }
            Err(error @ CallError::Refused(_)) => return Err(error.into()),
        }
        let kept = cloud.set_delete_on_termination(now, &trunk, true);
        kept.map_err(|error| Refused { pod: None, why: error.to_string() })
    }

    /// Decides how the branch of the next pod is made, if there is one and room for it.
    fn begin_branch(&mut self, trunk: &NetworkInterface, most: u16) -> Result<bool, Refused> {
        let Some((pod, groups)) = self.waiting.first_key_value() else { return Ok(false) };
        if self.branches.len() + self.cooling.len() >= usize::from(most) {
            return Ok(false);
        }
        let cooling = self.cooling.iter().map(|(_, branch)| branch);
        let taken: BTreeSet<u16> =
            self.branches.values().chain(cooling).map(|branch| branch.vlan).collect();
        let vlan = VLANS.into_iter().find(|vlan| !taken.contains(vlan)).ok_or_else(|| Refused {
            pod: None,
            why: "every VLAN of the trunk is in use".to_owned(),
        })?;
        let of_trunk = || trunk.groups.iter().map(|group| group.id.clone()).collect();
        let groups = if groups.is_empty() { of_trunk() } else { groups.clone() };
        self.asked += 1;
        let (pod, trunk, subnet) = (pod.clone(), trunk.id.clone(), trunk.subnet_id.clone());
        let number = self.asked;
        self.making = Some(PendingBranch { pod, groups, vlan, number, trunk, subnet, eni: None });
        Ok(true)
    }

    /// Creates the started branch. Repeats use the same tokens, so that a repeat gets a lost answer.
    fn finish_branch(
        &mut self,
        now: Time,
        trunk: &NetworkInterface,
        cloud: &mut Cloud,
    ) -> Result<PodEni, Refused> {
        let Some(making) = &mut self.making else { return Err(unexpected()) };
        let (vlan, number) = (making.vlan, making.number);
        let eni = match making.eni.clone() {
            Some(eni) => eni,
            None => {
                let tags = vec![
                    Tag::new("vpcresources.k8s.aws/vlan-id", vlan.to_string()),
                    Tag::new("vpcresources.k8s.aws/trunk-eni-id", making.trunk.as_str()),
                ];
                let request = CreateNetworkInterface {
                    client_token: Some(format!("branch-{}-{number}", making.trunk)),
                    ..new_eni("branch-eni", making.subnet.clone(), making.groups.clone(), tags)
                };
                making.eni.insert(create(cloud, now, request)?).clone()
            }
        };
        let associate = AssociateTrunkInterface {
            branch_interface_id: Some(eni.id.clone()),
            trunk_interface_id: Some(trunk.id.clone()),
            vlan_id: Some(vlan),
            client_token: Some(format!("vlan-{}-{number}", trunk.id)),
            dry_run: false,
        };
        let Response::AssociateTrunkInterface { association, .. } = call(cloud, now, associate)?
        else {
            return Err(unexpected());
        };
        pod_eni(cloud, &eni, &association).ok_or_else(unexpected)
    }
}

fn pod_eni(
    cloud: &Cloud,
    eni: &NetworkInterface,
    association: &TrunkAssociation,
) -> Option<PodEni> {
    let subnet = cloud.state.subnets.get(&eni.subnet_id)?;
    Some(PodEni {
        eni: eni.id.clone(),
        mac: eni.mac,
        private_ip: eni.primary_address()?,
        ipv6: eni.ipv6_addresses.first().copied(),
        vlan: association.vlan,
        subnet_cidr: subnet.cidr,
        subnet_v6_cidr: subnet.ipv6_cidr,
        association: association.id.clone(),
    })
}

fn new_eni(
    what: &str,
    subnet: SubnetId,
    groups: Vec<SecurityGroupId>,
    mut tags: Vec<Tag>,
) -> CreateNetworkInterface {
    tags.push(Tag::new("eks:eni:owner", "eks-vpc-resource-controller"));
    CreateNetworkInterface {
        subnet_id: Some(subnet),
        groups,
        description: format!("aws-k8s-{what}"),
        tag_specifications: vec![TagSpecification {
            resource_type: "network-interface".to_owned(),
            tags,
        }],
        ..CreateNetworkInterface::default()
    }
}

fn create(
    cloud: &mut Cloud,
    now: Time,
    request: CreateNetworkInterface,
) -> Result<NetworkInterface, Refused> {
    let Response::CreateNetworkInterface { network_interface, .. } = call(cloud, now, request)?
    else {
        return Err(unexpected());
    };
    Ok(*network_interface)
}

pub(super) fn call(
    cloud: &mut Cloud,
    now: Time,
    request: impl Into<Request>,
) -> Result<Response, CallError> {
    cloud.call(now, &Caller::Administrator, request)
}

/// An object that is gone already need not be removed; a lost answer counts as an answer.
fn gone_is_fine(outcome: Result<Response, CallError>) -> Result<(), CallError> {
    match outcome {
        Ok(_) | Err(CallError::ReplyLost) => Ok(()),
        Err(CallError::Refused(error)) if error.code.ends_with(".NotFound") => Ok(()),
        Err(error @ CallError::Refused(_)) => Err(error),
    }
}

fn type_of(cloud: &Cloud, instance: &InstanceId) -> Option<&'static InstanceType> {
    cloud.state.instances.get(instance)?.limits()
}

fn branches_of(cloud: &Cloud, instance: &InstanceId) -> u16 {
    type_of(cloud, instance).map_or(0, |kind| kind.branch_interfaces)
}

fn unexpected() -> Refused {
    Refused { pod: None, why: "EC2 answered something else".to_owned() }
}
