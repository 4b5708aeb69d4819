//! Operations of the command line on the cloud: subnets, ENIs, groups, permissions.

use super::{Lab, LabError, desired::subnets};
use crate::control::{
    EniOrder, EniSpec, GroupSpec, GroupView, IamView, InterfaceView, SubnetOrder, SubnetSpec,
    SubnetView,
};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lab_cloud::{
    AttachNetworkInterface, Caller, CreateNetworkInterface, CreateSubnetCidrReservation,
    CreateTags, DeleteTags, Iam, NetworkInterface, Request, Response, Rule, SecurityGroupSpec, Tag,
    TagSpecification, TagToDelete,
};
use lab_fabric::{BALANCER_ADDRESSES, INTERNET_ADDRESSES};
use std::collections::{BTreeMap, BTreeSet};

impl Lab {
    pub(crate) fn subnet_views(&self) -> Vec<SubnetView> {
        let truth = self.cloud.truth();
        let views = subnets(&truth).into_iter().map(|subnet| {
            self.cloud.with(|cloud, _| {
                let shown = cloud.subnet_named(&subnet.name);
                SubnetView {
                    name: subnet.name.clone(),
                    id: subnet.id.to_string(),
                    cidr: subnet.cidr.to_string(),
                    ipv6_cidr: subnet.ipv6_cidr.map(|cidr| cidr.to_string()),
                    zone: subnet.availability_zone.clone(),
                    free: shown.map_or(0, |subnet| subnet.available_ip_address_count),
                    free_prefixes: cloud.free_prefixes(&subnet.id),
                    taken: cloud.taken_addresses(&subnet.id).len(),
                    tags: shown.map(|subnet| subnet.tags.clone()).unwrap_or_default(),
                }
            })
        });
        views.collect()
    }

    /// The subnet of this name or id.
    pub(super) fn subnet_id(&self, subnet: &str) -> Result<SubnetId, LabError> {
        let truth = self.cloud.truth();
        let named = truth.subnets.iter().find(|s| s.name == subnet || s.id.as_str() == subnet);
        named.map(|subnet| subnet.id.clone()).ok_or_else(|| {
            let names = subnets(&truth).into_iter().map(|subnet| subnet.name.clone());
            let known = names.collect::<Vec<_>>().join(", ");
            LabError::NoSubnetNamed { name: subnet.to_owned(), known }
        })
    }

    /// Adds a subnet, and a block of the VPC for it if no block contains it.
    pub(crate) async fn add_subnet(&self, spec: SubnetSpec) -> Result<SubnetView, LabError> {
        let SubnetSpec { cidr, zone, tags } = spec;
        let overlaps = |block: Ipv4Net| cidr.contains(&block) || block.contains(&cidr);
        if overlaps(INTERNET_ADDRESSES) || overlaps(BALANCER_ADDRESSES) {
            return Err(LabError::BlockOfTheInternet { cidr });
        }
        let blocks = self.cloud.truth().vpc_cidrs;
        let id = self.cloud.with(|cloud, now| -> Result<SubnetId, LabError> {
            let letter = ('a'..='z').find(|it| cloud.subnet_named(&it.to_string()).is_none());
            let letter = letter.ok_or(LabError::NoLetterLeft)?;
            let zone = format!("{}{}", cloud.region(), zone.unwrap_or(letter));
            if !blocks.iter().any(|block| block.contains(&cidr)) {
                cloud.associate_block(now, cidr)?;
            }
            let subnet = lab_cloud::SubnetSpec {
                map_public_ip_on_launch: true,
                tags,
                ..lab_cloud::SubnetSpec::new(letter, cidr, zone)
            };
            Ok(cloud.add_subnet(now, subnet)?)
        })?;
        self.settled().await?;
        self.subnet_view(&id)
    }

    fn subnet_view(&self, id: &SubnetId) -> Result<SubnetView, LabError> {
        let view = self.subnet_views().into_iter().find(|view| view.id == id.as_str());
        let gone = || LabError::NoSubnetNamed { name: id.to_string(), known: String::new() };
        view.ok_or_else(gone)
    }

    pub(crate) fn order_subnet(
        &self,
        subnet: &str,
        order: SubnetOrder,
    ) -> Result<SubnetView, LabError> {
        let id = self.subnet_id(subnet)?;
        self.cloud.with(|cloud, now| -> Result<(), LabError> {
            match order {
                SubnetOrder::Fragment => drop(cloud.fragment_subnet(now, &id)?),
                SubnetOrder::Take { count } => drop(cloud.take_addresses(now, &id, count)?),
                SubnetOrder::Free { count } => drop(cloud.free_addresses(now, &id, count)?),
                SubnetOrder::Tag { key, value } => {
                    cloud.set_subnet_tag(now, &id, &key, Some(&value))?;
                }
                SubnetOrder::Untag { key } => cloud.set_subnet_tag(now, &id, &key, None)?,
                SubnetOrder::Reserve { cidr } => {
                    let request = CreateSubnetCidrReservation {
                        subnet_id: Some(id.clone()),
                        cidr: Some(cidr),
                        reservation_type: Some("prefix".to_owned()),
                        ..CreateSubnetCidrReservation::default()
                    };
                    cloud.call(now, &Caller::Administrator, request)?;
                }
            }
            Ok(())
        })?;
        self.subnet_view(&id)
    }

    /// Every ENI of the VPC, attached or not, as it is now.
    pub(crate) fn interface_views(&self) -> Vec<InterfaceView> {
        let names: BTreeMap<String, String> = self
            .nodes()
            .iter()
            .map(|(name, entry)| (entry.instance.to_string(), name.clone()))
            .collect();
        let enis = self.cloud.with(|cloud, now| cloud.every_eni(now));
        enis.iter().map(|eni| interface_view(eni, &names)).collect()
    }

    pub(crate) fn order_eni(&self, eni: &str, order: EniOrder) -> Result<InterfaceView, LabError> {
        let id = EniId::new(eni);
        match order {
            EniOrder::Tag { key, value } => {
                let (resources, tags) = (vec![eni.to_owned()], vec![Tag::new(key, value)]);
                self.ask(CreateTags { resources, tags, ..CreateTags::default() })?;
            }
            EniOrder::Untag { key } => {
                let (resources, tags) =
                    (vec![eni.to_owned()], vec![TagToDelete { key, value: None }]);
                self.ask(DeleteTags { resources, tags, ..DeleteTags::default() })?;
            }
            EniOrder::Groups { groups } => {
                let groups = self.group_ids(&groups)?;
                self.cloud.with(|cloud, now| cloud.set_security_groups(now, &id, &groups))?;
            }
            EniOrder::DeleteOnTermination { goes } => {
                self.cloud.with(|cloud, now| cloud.set_delete_on_termination(now, &id, goes))?;
            }
        }
        self.interface_view(&id)
    }

    /// Makes an ENI as others than the daemon do, and attaches it if a node is named.
    pub(crate) fn add_eni(&self, spec: EniSpec) -> Result<InterfaceView, LabError> {
        let node = spec.node.as_deref().map(|name| self.entry(name)).transpose()?;
        let tags: Vec<Tag> =
            spec.tags.into_iter().map(|(key, value)| Tag::new(key, value)).collect();
        let resource_type = "network-interface".to_owned();
        // EC2 takes no empty list of tags.
        let tagged = (!tags.is_empty()).then_some(TagSpecification { resource_type, tags });
        let request = CreateNetworkInterface {
            subnet_id: Some(self.subnet_id(&spec.subnet)?),
            description: spec.description,
            groups: self.group_ids(&spec.groups)?,
            secondary_private_ip_address_count: Some(spec.addresses).filter(|count| *count > 0),
            tag_specifications: tagged.into_iter().collect(),
            ..CreateNetworkInterface::default()
        };
        let Response::CreateNetworkInterface { network_interface: made, .. } = self.ask(request)?
        else {
            unreachable!("EC2 answers what it was asked")
        };
        if let Some(node) = node {
            self.attach_eni(&made.id, &node.instance)?;
        }
        self.interface_view(&made.id)
    }

    /// At the first free place of card 0.
    fn attach_eni(&self, eni: &EniId, instance: &InstanceId) -> Result<(), LabError> {
        let attached = self.cloud.with(|cloud, now| cloud.enis_of(now, instance));
        let places = attached.iter().filter_map(|eni| eni.attachment.as_ref());
        let taken: BTreeSet<u16> = places
            .filter(|place| place.network_card_index.0 == 0)
            .map(|place| place.device_index.0)
            .collect();
        let request = AttachNetworkInterface {
            network_interface_id: Some(eni.clone()),
            instance_id: Some(instance.clone()),
            device_index: (1..u16::MAX).find(|device| !taken.contains(device)),
            ..AttachNetworkInterface::default()
        };
        self.ask(request).map(drop)
    }

    /// Asks EC2 as one who may do everything.
    fn ask(&self, request: impl Into<Request>) -> Result<Response, LabError> {
        let asked = self.cloud.with(|cloud, now| cloud.call(now, &Caller::Administrator, request));
        Ok(asked?)
    }

    fn interface_view(&self, id: &EniId) -> Result<InterfaceView, LabError> {
        let mut views = self.interface_views().into_iter();
        let found = views.find(|view| view.id == id.as_str());
        found.ok_or_else(|| lab_cloud::OperateError::NoEni(id.clone()).into())
    }

    /// Security groups by their names or ids.
    pub(super) fn group_ids(&self, groups: &[String]) -> Result<Vec<SecurityGroupId>, LabError> {
        let truth = self.cloud.truth();
        let find = |text: &String| {
            let mut all = truth.security_groups.values();
            let found = all.find(|group| group.name == *text || group.id.as_str() == text);
            found.map(|group| group.id.clone()).ok_or_else(|| LabError::NoGroup(text.clone()))
        };
        groups.iter().map(find).collect()
    }

    pub(crate) fn group_views(&self) -> Vec<GroupView> {
        let truth = self.cloud.truth();
        let views = truth.security_groups.into_values();
        views.map(|group| GroupView { id: group.id.to_string(), name: group.name }).collect()
    }

    pub(crate) fn add_group(&self, spec: GroupSpec) -> Result<GroupView, LabError> {
        let all = || vec![Rule::all(Ipv4Net::default()), Rule::all6(Ipv6Net::default())];
        let group = SecurityGroupSpec {
            name: spec.name.clone(),
            description: "made by ferrule-lab".to_owned(),
            ingress: if spec.open { all() } else { Vec::new() },
            egress: all(),
        };
        let id = self.cloud.with(|cloud, now| cloud.add_security_group(now, group))?;
        Ok(GroupView { id: id.to_string(), name: spec.name })
    }

    pub(crate) fn iam_views(&self) -> Vec<IamView> {
        self.cloud.with(|cloud, _| {
            let roles = cloud.iam().iter();
            let views = roles.map(|(role, iam)| IamView {
                role: role.clone(),
                deny: iam.deny.iter().cloned().collect(),
            });
            views.collect()
        })
    }

    pub(crate) fn set_iam(&self, spec: &IamView) -> Vec<IamView> {
        let deny = spec.deny.iter().cloned().collect();
        self.cloud.with(|cloud, _| cloud.set_iam(&spec.role, Iam { deny }));
        self.iam_views()
    }
}

fn interface_view(eni: &NetworkInterface, nodes: &BTreeMap<String, String>) -> InterfaceView {
    let attachment = eni.attachment.as_ref();
    let prefixes = eni.ipv4_prefixes.iter().map(|prefix| IpNet::V4(*prefix));
    let node_of = |instance: &str| nodes.get(instance).cloned().unwrap_or(instance.to_owned());
    InterfaceView {
        id: eni.id.to_string(),
        kind: eni.kind.as_str().to_owned(),
        status: eni.status.as_str().to_owned(),
        node: attachment.map(|a| node_of(a.instance_id.as_str())),
        card: attachment.map(|a| a.network_card_index.0),
        device: attachment.map(|a| a.device_index.0),
        delete_on_termination: attachment.map(|a| a.delete_on_termination),
        subnet: eni.subnet_id.to_string(),
        mac: eni.mac.to_string(),
        addresses: eni.private_addresses.iter().map(|a| a.address).collect(),
        prefixes: prefixes.chain(eni.ipv6_prefixes.iter().map(|p| IpNet::V6(*p))).collect(),
        ipv6_addresses: eni.ipv6_addresses.clone(),
        groups: eni.groups.iter().map(|group| group.name.clone()).collect(),
        description: eni.description.clone(),
        tags: eni.tags.clone(),
    }
}
