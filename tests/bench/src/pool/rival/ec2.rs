//! amazon-vpc-cni's calls of EC2: the SDK tries three times, and amazon-vpc-cni's own loops repeat that.

use super::{call_slot::CallSlot, ipamd::Ipamd};
use config_model::{AttachmentId, EniId, Span};
use ipnet::Ipv4Net;
use lab_cloud::{
    AssignPrivateIpAddresses, AttachNetworkInterface, AttachmentChange, CallError,
    CreateNetworkInterface, CreateTags, DeleteNetworkInterface, DescribeInstances,
    DescribeNetworkInterfaces, DescribeSubnets, DetachNetworkInterface, Ec2Error, Filter,
    ModifyNetworkInterfaceAttribute, NetworkInterface, Request, Response, Tag, TagSpecification,
    UnassignPrivateIpAddresses,
};
use std::net::Ipv4Addr;

/// Attempts of the SDK, and its longest pause between two (aws-sdk-go-v2, `retry.Standard`).
const SDK_ATTEMPTS: u32 = 3;
const SDK_LONGEST_PAUSE: Span = Span::seconds(20);
/// The SDK retries only within a quota of 500: a retry takes 5 until it succeeds, and a success returns 1.
pub(super) const SDK_QUOTA: u32 = 500;
const SDK_REPETITION: u32 = 5;
const SDK_SUCCESS: u32 = 1;
/// Attempts of amazon-vpc-cni's own loops, and their longest pause.
const OWN_ATTEMPTS: u32 = 12;
const OWN_LONGEST_PAUSE: Span = Span::seconds(60);
/// Pause between detach and delete.
const AFTER_DETACH: Span = Span::seconds(2);
/// Upper bound (exclusive) of the device indexes.
const DEVICE_INDEXES: u16 = 100;

/// After these codes amazon-vpc-cni requests one address, and pauses.
const INSUFFICIENT: [&str; 2] = ["InsufficientCidrBlocks", "InsufficientFreeAddressesInSubnet"];
const ENI_IS_FULL: &str = "PrivateIpAddressLimitExceeded";

pub(super) fn is_insufficient(error: &Ec2Error) -> bool {
    INSUFFICIENT.contains(&error.code.as_str())
}

pub(super) fn is_full(error: &Ec2Error) -> bool {
    error.code == ENI_IS_FULL
}

fn is_gone(error: &Ec2Error) -> bool {
    error.code.ends_with(".NotFound")
}

/// Pauses of a retry loop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pauses {
    /// Starts with `first`, doubles each time, and adds jitter.
    Doubling { first: Span, jitter_percent: u64 },
    /// Grows by this span each time.
    Growing { by: Span },
}

impl Pauses {
    /// The pause after the attempt, counted from 0.
    pub(super) fn after(self, attempt: u32, call_slot: &CallSlot) -> Span {
        match self {
            Self::Doubling { first, jitter_percent } => {
                let doubled = first.0.saturating_mul(1 << attempt.min(20));
                let pause = Span(doubled.min(OWN_LONGEST_PAUSE.0));
                call_slot.draw(|rng| rng.longer(pause, jitter_percent))
            }
            Self::Growing { by } => Span(by.0 * u64::from(attempt + 1)),
        }
    }
}

/// A new secondary ENI as it should be in IMDS.
pub(super) struct NewEni {
    pub(super) id: EniId,
    pub(super) slots: usize,
}

impl Ipamd {
    /// A call with the SDK's retries.
    async fn call(&self, request: impl Into<Request>) -> Result<Response, Ec2Error> {
        let request = request.into();
        let mut attempt = 0;
        loop {
            let lost = || Ec2Error::new("RequestError", "send request failed");
            let error = match self.call_slot.ec2(request.clone()).await {
                Ok(response) => {
                    let back = SDK_SUCCESS + if attempt > 0 { SDK_REPETITION } else { 0 };
                    self.sdk_quota.set((self.sdk_quota.get() + back).min(SDK_QUOTA));
                    return Ok(response);
                }
                Err(CallError::Refused(error)) => error,
                Err(CallError::ReplyLost) => lost(),
            };
            attempt += 1;
            let passes = error.http_status >= 500 || error.code == lost().code;
            let Some(quota) = self.sdk_quota.get().checked_sub(SDK_REPETITION) else {
                return Err(error);
            };
            if attempt >= SDK_ATTEMPTS || !passes {
                return Err(error);
            }
            self.sdk_quota.set(quota);
            let most = Span((1000 << (attempt - 1)).min(SDK_LONGEST_PAUSE.0));
            let pause = self.call_slot.draw(|rng| rng.span(most));
            self.call_slot.sleep(pause).await;
        }
    }

    /// A call with the SDK's retries, in a loop of amazon-vpc-cni. An error `.NotFound` ends it.
    async fn call_often(
        &self,
        request: impl Into<Request>,
        attempts: u32,
        pauses: Pauses,
    ) -> Result<Response, Ec2Error> {
        let request = request.into();
        let mut attempt = 0;
        loop {
            match self.call(request.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) if is_gone(&error) => return Err(error),
                Err(error) => {
                    attempt += 1;
                    if attempt >= attempts {
                        return Err(error);
                    }
                }
            }
            let pause = pauses.after(attempt - 1, &self.call_slot);
            self.call_slot.sleep(pause).await;
        }
    }

    pub(super) async fn describe(
        &self,
        enis: Vec<EniId>,
    ) -> Result<Vec<NetworkInterface>, Ec2Error> {
        let request = DescribeNetworkInterfaces {
            network_interface_ids: enis,
            ..DescribeNetworkInterfaces::default()
        };
        let pauses = Pauses::Growing { by: Span::millis(10) };
        let response = self.call_often(request, OWN_ATTEMPTS, pauses).await?;
        let Response::DescribeNetworkInterfaces { network_interfaces, .. } = response else {
            return Err(odd());
        };
        Ok(network_interfaces)
    }

    pub(super) async fn tag(&self, eni: &EniId) -> Result<(), Ec2Error> {
        let request = CreateTags {
            resources: vec![eni.to_string()],
            tags: self.tags(),
            ..CreateTags::default()
        };
        let pauses = Pauses::Doubling { first: Span::millis(500), jitter_percent: 30 };
        self.call_often(request, 5, pauses).await.map(|_| ())
    }

    fn tags(&self) -> Vec<Tag> {
        let instance = self.node.instance.as_str();
        vec![
            Tag::new("node.k8s.amazonaws.com/instance_id", instance),
            Tag::new("node.k8s.amazonaws.com/createdAt", "2026-11-21T00:00:00Z"),
        ]
    }

    /// Called once for each ENI that is created, and once for each that is set up.
    pub(super) async fn describe_subnets(&self) -> Result<(), Ec2Error> {
        let request = DescribeSubnets {
            filters: vec![
                Filter::new("vpc-id", [self.node.vpc.as_str()]),
                Filter::new("availability-zone", [self.node.zone.as_str()]),
            ],
            ..DescribeSubnets::default()
        };
        self.call(request).await.map(|_| ())
    }

    /// Called at start, whether the groups differ or not.
    pub(super) async fn write_groups(&self, eni: &EniId) -> Result<(), Ec2Error> {
        let request = ModifyNetworkInterfaceAttribute {
            network_interface_id: Some(eni.clone()),
            groups: self.node.groups.clone(),
            ..ModifyNetworkInterfaceAttribute::default()
        };
        self.call(request).await.map(|_| ())
    }

    /// Assigns addresses or prefixes to an attached ENI.
    pub(super) async fn assign_blocks(
        &self,
        eni: &EniId,
        count: u32,
    ) -> Result<Vec<Ipv4Net>, Ec2Error> {
        let (singles, prefixes) = self.by_mode(count);
        let request = AssignPrivateIpAddresses {
            network_interface_id: Some(eni.clone()),
            secondary_private_ip_address_count: singles,
            ipv4_prefix_count: prefixes,
            ..AssignPrivateIpAddresses::default()
        };
        let Response::AssignPrivateIpAddresses(given) = self.call(request).await? else {
            return Err(odd());
        };
        let singles = given.private_ip_addresses.into_iter().map(Ipv4Net::from);
        Ok(singles.chain(given.ipv4_prefixes).collect())
    }

    fn by_mode(&self, count: u32) -> (Option<u32>, Option<u32>) {
        if self.targets.prefixes { (None, Some(count)) } else { (Some(count), None) }
    }

    /// Unassigns blocks, addresses and prefixes in separate calls. A failure is only a warning.
    pub(super) async fn unassign_blocks(&self, eni: &EniId, nets: &[Ipv4Net]) {
        let single = |net: &&Ipv4Net| net.prefix_len() == 32;
        let singles: Vec<Ipv4Addr> = nets.iter().filter(single).map(|net| net.network()).collect();
        let prefixes: Vec<Ipv4Net> = nets.iter().filter(|net| !single(net)).copied().collect();
        let request = |singles, prefixes| UnassignPrivateIpAddresses {
            network_interface_id: Some(eni.clone()),
            private_ip_addresses: singles,
            ipv4_prefixes: prefixes,
            ..UnassignPrivateIpAddresses::default()
        };
        if !prefixes.is_empty() {
            let _ = self.call(request(Vec::new(), prefixes)).await;
        }
        if !singles.is_empty() {
            let _ = self.call(request(singles, Vec::new())).await;
        }
    }

    /// Creates an ENI, finds a free device index, attaches the ENI, and sets DeleteOnTermination.
    pub(super) async fn make_eni(&self, slots: u32) -> Result<NewEni, Ec2Error> {
        self.describe_subnets().await?;
        let eni = self.create(slots).await?;
        let attachment = match self.attach(&eni).await {
            Ok(attachment) => attachment,
            Err(error) => {
                self.delete(&eni).await;
                return Err(error);
            }
        };
        let request = ModifyNetworkInterfaceAttribute {
            network_interface_id: Some(eni.clone()),
            attachment: Some(AttachmentChange {
                attachment_id: Some(attachment),
                delete_on_termination: Some(true),
            }),
            ..ModifyNetworkInterfaceAttribute::default()
        };
        if let Err(error) = self.call(request).await {
            self.free_eni(&eni).await;
            return Err(error);
        }
        Ok(NewEni { id: eni, slots: usize::try_from(slots).unwrap_or(usize::MAX) })
    }

    async fn create(&self, slots: u32) -> Result<EniId, Ec2Error> {
        let (singles, prefixes) = self.by_mode(slots);
        let request = CreateNetworkInterface {
            subnet_id: Some(self.node.subnet.clone()),
            description: format!("aws-K8S-{}", self.node.instance),
            groups: self.node.groups.clone(),
            secondary_private_ip_address_count: singles,
            ipv4_prefix_count: prefixes,
            client_token: Some(format!(
                "{:016x}",
                self.call_slot.draw(super::super::rng::Rng::next)
            )),
            tag_specifications: vec![TagSpecification {
                resource_type: "network-interface".to_owned(),
                tags: self.tags(),
            }],
            ..CreateNetworkInterface::default()
        };
        let response = self.call(request).await?;
        let Response::CreateNetworkInterface { network_interface, .. } = response else {
            return Err(odd());
        };
        Ok(network_interface.id)
    }

    async fn attach(&self, eni: &EniId) -> Result<AttachmentId, Ec2Error> {
        let request = DescribeInstances {
            instance_ids: vec![self.node.instance.clone()],
            ..DescribeInstances::default()
        };
        let Response::DescribeInstances { instances, .. } = self.call(request).await? else {
            return Err(odd());
        };
        let taken: Vec<u16> = instances
            .iter()
            .flat_map(|described| &described.network_interfaces)
            .filter_map(|eni| eni.attachment.as_ref())
            .map(|attachment| attachment.device_index.0)
            .collect();
        let device = (0..DEVICE_INDEXES).find(|device| !taken.contains(device));
        let request = AttachNetworkInterface {
            network_interface_id: Some(eni.clone()),
            instance_id: Some(self.node.instance.clone()),
            device_index: device,
            network_card_index: Some(0),
            ..AttachNetworkInterface::default()
        };
        let Response::AttachNetworkInterface(attached) = self.call(request).await? else {
            return Err(odd());
        };
        Ok(attached.attachment_id)
    }

    /// Looks up the attachment, detaches, waits and deletes.
    pub(super) async fn free_eni(&self, eni: &EniId) {
        let Ok(described) = self.describe(vec![eni.clone()]).await else { return };
        let attachment = described.first().and_then(|eni| eni.attachment.as_ref());
        if let Some(attachment) = attachment {
            let request = DetachNetworkInterface {
                attachment_id: Some(attachment.id.clone()),
                ..DetachNetworkInterface::default()
            };
            let pauses = Pauses::Doubling { first: Span::millis(200), jitter_percent: 15 };
            if self.call_often(request, OWN_ATTEMPTS, pauses).await.is_err() {
                return;
            }
            self.call_slot.sleep(AFTER_DETACH).await;
        }
        self.delete(eni).await;
    }

    async fn delete(&self, eni: &EniId) {
        let request = DeleteNetworkInterface {
            network_interface_id: Some(eni.clone()),
            ..DeleteNetworkInterface::default()
        };
        let pauses = Pauses::Doubling { first: Span::millis(500), jitter_percent: 15 };
        let _ = self.call_often(request, OWN_ATTEMPTS, pauses).await;
    }
}

fn odd() -> Ec2Error {
    Ec2Error::new("Odd", "the answer is to another question")
}
