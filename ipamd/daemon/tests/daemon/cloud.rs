//! A cloud in memory that carries out and records calls, and refuses them as a test requires.

use async_trait::async_trait;
use config_model::{AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, SubnetId, VpcId};
use ipamd_cloud::{Cloud, Node, TypeLimits};
use ipamd_core::{
    Action, AttachmentState, CloudAnswer, CloudCall, CloudFault, Remedy, SeenAttachment, SeenEni,
    SeenSubnet, Witness,
};
use ipnet::IpNet;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard},
};

pub(crate) const ADDRESSES_PER_ENI: u16 = 4;

/// Clones are the same cloud, also for the next daemon.
#[derive(Clone)]
pub(crate) struct FakeCloud {
    state: Arc<Mutex<State>>,
}

pub(crate) struct State {
    pub(crate) enis: Vec<SeenEni>,
    /// Addresses that the subnet still has.
    pub(crate) free: u16,
    /// So many looks still show no secondary address.
    pub(crate) lagging_looks: u32,
    /// The fault of questions about the instance type's limits.
    pub(crate) unknown_type: Option<CloudFault>,
    /// An action that the node's role may not do.
    pub(crate) denied: Option<Action>,
    /// The metadata service answers.
    pub(crate) imds: bool,
    pub(crate) calls: Vec<Action>,
    next: u8,
}

pub(crate) fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

impl FakeCloud {
    pub(crate) fn new(free: u16) -> Self {
        let primary = eni(0, Ipv4Addr::new(10, 0, 0, 4), Some(0));
        let state = State {
            enis: vec![primary],
            free,
            lagging_looks: 0,
            unknown_type: None,
            denied: None,
            imds: true,
            calls: Vec::new(),
            next: 10,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn instance() -> InstanceId {
    InstanceId::new("i-1")
}

fn eni(n: u8, primary: Ipv4Addr, device: Option<u16>) -> SeenEni {
    SeenEni {
        id: EniId::new(format!("eni-{n}")),
        mac: mac(n),
        subnet: SubnetId::new("subnet-1"),
        subnet_cidr: Some("10.0.0.0/24".parse().unwrap()),
        subnet_cidr_v6: None,
        primary_address: Some(primary),
        ipv6_addresses: Vec::new(),
        blocks: Vec::new(),
        kind: None,
        groups: None,
        attachment: device.map(|device| attachment(n, device)),
        tags: Some(BTreeMap::new()),
    }
}

fn attachment(n: u8, device: u16) -> SeenAttachment {
    SeenAttachment {
        id: Some(AttachmentId::new(format!("eni-attach-{n}"))),
        instance: instance(),
        card: CardIndex(0),
        device: DeviceIndex(device),
        state: AttachmentState::Attached,
        delete_on_termination: Some(true),
    }
}

fn singles(addresses: &[Ipv4Addr]) -> Vec<IpNet> {
    addresses.iter().map(|address| IpNet::from(IpAddr::V4(*address))).collect()
}

fn full() -> CloudFault {
    CloudFault {
        code: "InsufficientFreeAddressesInSubnet".to_owned(),
        message: "subnet-1 has no free addresses".to_owned(),
        remedy: Remedy::TryElsewhere,
    }
}

impl State {
    fn take(&mut self, count: u16) -> Result<Vec<Ipv4Addr>, CloudFault> {
        if count > self.free {
            return Err(full());
        }
        self.free -= count;
        Ok((0..count)
            .map(|_| {
                self.next += 1;
                Ipv4Addr::new(10, 0, 0, self.next)
            })
            .collect())
    }

    fn eni(&mut self, id: &EniId) -> &mut SeenEni {
        self.enis.iter_mut().find(|eni| eni.id == *id).unwrap()
    }
}

#[async_trait]
impl Cloud for FakeCloud {
    async fn execute(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault> {
        let mut state = self.state();
        state.calls.push(call.action());
        if state.denied == Some(call.action()) {
            return Err(CloudFault {
                code: "UnauthorizedOperation".to_owned(),
                message: "You are not authorized to perform this operation.".to_owned(),
                remedy: Remedy::NotifyOperator,
            });
        }
        match call {
            CloudCall::Assign { eni, want } => {
                let blocks = singles(&state.take(want.blocks())?);
                state.eni(&eni).blocks.extend(blocks.iter().copied());
                Ok(CloudAnswer::Assigned { blocks })
            }
            CloudCall::CreateEni { want, tags, .. } => {
                let addresses = state.take(want.blocks() + 1)?;
                let n = u8::try_from(state.enis.len()).unwrap();
                let mut made = eni(n, addresses[0], None);
                made.blocks = singles(&addresses[1..]);
                made.tags = Some(tags);
                state.enis.push(made.clone());
                Ok(CloudAnswer::Created(made))
            }
            CloudCall::AttachEni { eni, device, .. } => {
                let found = state.eni(&eni);
                let n = found.mac.0[5];
                found.attachment = Some(attachment(n, device.0));
                let attachment = AttachmentId::new(format!("eni-attach-{n}"));
                Ok(CloudAnswer::Attached { attachment })
            }
            CloudCall::Unassign { eni, blocks } => {
                state.eni(&eni).blocks.retain(|block| !blocks.contains(block));
                Ok(CloudAnswer::Done)
            }
            CloudCall::DescribeEni { eni } => Ok(CloudAnswer::Described(state.eni(&eni).clone())),
            CloudCall::KeepUntilTermination { .. }
            | CloudCall::DetachEni { .. }
            | CloudCall::DeleteEni { .. }
            | CloudCall::SetGroups { .. }
            | CloudCall::TagEni { .. } => Ok(CloudAnswer::Done),
            CloudCall::DescribeSubnets { .. } => {
                let own = SeenSubnet {
                    id: SubnetId::new("subnet-1"),
                    cidr: "10.0.0.0/24".parse().ok(),
                    cidr_v6: None,
                    free_addresses: state.free.into(),
                    tags: BTreeMap::new(),
                };
                Ok(CloudAnswer::Subnets(vec![own]))
            }
            CloudCall::DescribeBranches { .. } => Ok(CloudAnswer::Branches(Vec::new())),
            CloudCall::FindLeftovers { .. } => Ok(CloudAnswer::Leftovers(Vec::new())),
        }
    }

    async fn look(&self, _: Witness, _: &InstanceId) -> Result<Vec<SeenEni>, CloudFault> {
        let mut state = self.state();
        let attached = state.enis.iter().filter(|eni| eni.attachment.is_some()).cloned();
        let mut seen: Vec<SeenEni> = attached.collect();
        if state.lagging_looks > 0 {
            state.lagging_looks -= 1;
            seen.iter_mut().for_each(|eni| eni.blocks.clear());
        }
        Ok(seen)
    }

    async fn node(&self) -> Result<Node, CloudFault> {
        let state = self.state();
        if !state.imds {
            return Err(CloudFault {
                code: "Timeout".to_owned(),
                message: "the metadata service does not answer".to_owned(),
                remedy: Remedy::RetryAfter { wait: None },
            });
        }
        let primary = &state.enis[0];
        Ok(Node {
            instance: instance(),
            instance_type: "c5.tiny".to_owned(),
            region: "eu-central-1".to_owned(),
            availability_zone: "eu-central-1a".to_owned(),
            local_ipv4: primary.primary_address,
            local_ipv6: None,
            primary_eni: primary.id.clone(),
            primary_mac: primary.mac,
            subnet: primary.subnet.clone(),
            subnet_cidr: "10.0.0.0/24".parse().ok(),
            subnet_cidr_v6: None,
            security_groups: Vec::new(),
            vpc: VpcId::new("vpc-1"),
            vpc_v4_cidrs: vec!["10.0.0.0/16".parse().unwrap()],
            vpc_v6_cidrs: Vec::new(),
        })
    }

    async fn type_limits(&self, _: &str) -> Result<TypeLimits, CloudFault> {
        if let Some(fault) = &self.state().unknown_type {
            return Err(fault.clone());
        }
        Ok(TypeLimits {
            enis: BTreeMap::from([(CardIndex(0), 2)]),
            ipv4_per_eni: ADDRESSES_PER_ENI + 1,
            ipv6_per_eni: ADDRESSES_PER_ENI + 1,
            prefixes: true,
            trunk: false,
        })
    }
}
