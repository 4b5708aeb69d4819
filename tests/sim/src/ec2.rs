//! EC2 and IMDS: the lab's pure model behind a network with latency, losses and faults.

pub(crate) use crate::translate::{answer, blocks, request, seen_by_ec2, seen_by_imds};

use crate::{
    iam::Iam,
    plan::{Mode, Setup, Weather},
    random::draw,
};
use config_model::{EniId, InstanceId, SecurityGroupId, Span, SubnetId, Time, VpcId};
use ipamd_core::{CloudFault, Ec2ErrorResponse, Remedy};
use ipnet::{Ipv4Net, Ipv6Net};
use lab_cloud::{
    Action, CallError, Caller, Cloud, CloudSpec, Ec2Error, Fault, FaultId, Launch,
    NetworkInterface, OperateError, Request, Response, SubnetSpec, Throttling,
};
use std::{collections::BTreeMap, sync::Arc};

/// The cloud of one node.
pub(crate) struct Ec2 {
    pub(crate) cloud: Cloud,
    pub(crate) caller: Caller,
    pub(crate) instance: InstanceId,
    /// The node's own subnet.
    pub(crate) subnet: SubnetId,
    /// The preferred subnet of new ENIs.
    pub(crate) growth: SubnetId,
    growth_name: &'static str,
    cidrs: BTreeMap<SubnetId, (Ipv4Net, Option<Ipv6Net>)>,
    pub(crate) vpc: VpcId,
    pub(crate) groups: Vec<SecurityGroupId>,
    pub(crate) primary: EniId,
    seed: u64,
    trips: u64,
    /// The percentages of calls that never arrive.
    pub(crate) lost: Vec<u8>,
    /// The policy of the node's role, if it is checked.
    pub(crate) iam: Option<Iam>,
    /// ENIs of other tenants.
    pub(crate) tenants: Vec<EniId>,
    /// The node's ENIs, with the cloud's version at which they were read.
    enis: (u64, Vec<Arc<NetworkInterface>>),
}

/// The availability zone of the node.
pub(crate) const ZONE: &str = "eu-west-1a";
/// `HTTP_TIMEOUT` of the daemon.
pub(crate) const CALL_TIMEOUT: Span = Span::seconds(10);

impl Ec2 {
    pub(crate) fn new(setup: &Setup, seed: u64, now: Time) -> Result<Self, OperateError> {
        let mut cloud = Cloud::new(spec(setup), seed)?;
        let named = |name: &str| {
            let subnet = cloud.subnet_named(name).cloned();
            subnet.ok_or_else(|| OperateError::Refused(format!("the spec has no subnet {name}")))
        };
        let growth_name = setup.mode.subnet();
        let (own, growth, more) = (named("pods")?, named(growth_name)?, named("more")?);
        let cidrs = [own.clone(), more].map(|it| (it.id, (it.cidr, it.ipv6_cidr)));
        let (subnet, growth, cidrs) = (own.id, growth.id, BTreeMap::from(cidrs));
        let launch = Launch::new("node", setup.instance_type, subnet.clone());
        let role = launch.role.clone().unwrap_or_default();
        let instance = cloud.launch(now, launch)?;
        let enis = cloud.enis_of(now, &instance);
        let first = enis.first().ok_or_else(|| OperateError::NoInstance(instance.clone()))?;
        Ok(Self {
            caller: Caller::Role { role, instance: instance.clone() },
            subnet,
            growth,
            growth_name,
            cidrs,
            vpc: first.vpc_id.clone(),
            groups: first.groups.iter().map(|group| group.id.clone()).collect(),
            primary: first.id.clone(),
            instance,
            cloud,
            seed,
            trips: 0,
            lost: Vec::new(),
            iam: None,
            tenants: Vec::new(),
            enis: (u64::MAX, Vec::new()),
        })
    }

    /// The real state of the node's ENIs, cached until the cloud changes.
    pub(crate) fn enis(&mut self, now: Time) -> &[Arc<NetworkInterface>] {
        let version = self.cloud.version(now);
        if self.enis.0 != version {
            self.enis = (version, self.cloud.enis_of(now, &self.instance));
        }
        &self.enis.1
    }

    /// The latency of a call in each direction; `None` if it never arrives.
    pub(crate) fn trip(&mut self, now: Time, action: Action) -> (Option<Span>, Span) {
        self.trips += 1;
        let latency = self.cloud.latency(now, action);
        let there = Span(latency.0 * (20 + draw(self.seed, "there", self.trips) % 60) / 100);
        let back = Span(latency.0 - there.0);
        let lost = self
            .lost
            .iter()
            .any(|percent| draw(self.seed, "lost", self.trips) % 100 < u64::from(*percent));
        ((!lost).then_some(there), back)
    }

    /// Runs a request now.
    pub(crate) fn carry_out(
        &mut self,
        now: Time,
        request: Request,
    ) -> Result<Response, CloudFault> {
        let action = request.action().name();
        if let Some(iam) = &mut self.iam {
            let enis = self.cloud.all_enis(now);
            iam.admit(&request, &enis).map_err(|error| refused(action, &error))?;
        }
        self.cloud.call(now, &self.caller, request).map_err(|error| match error {
            CallError::Refused(error) => refused(action, &error),
            CallError::ReplyLost => unknown("Dispatch", "the connection was closed"),
        })
    }

    /// Starts a fault and returns its ID.
    pub(crate) fn turn(&mut self, now: Time, how: &Weather) -> Option<FaultId> {
        let fault = match how.clone() {
            Weather::Throttled { nth } => Fault::ThrottleEveryNth { action: None, nth },
            Weather::Failing { code, action } => {
                let error = Ec2Error::new(code, "the weather");
                let status = if code == "UnauthorizedOperation" { 403 } else { 500 };
                Fault::Error { action, error: error.with_status(status), times: None }
            }
            Weather::RepliesLost { times } => Fault::LoseReply { action: None, times: Some(times) },
            Weather::CallsLost { percent } => {
                self.lost.push(percent);
                return None;
            }
            Weather::Slow { latency } => Fault::Latency { action: None, latency },
            Weather::ReadsLag { lag } => Fault::ReadLag { lag },
            Weather::ImdsLags { lag } => Fault::ImdsLag { lag },
            Weather::ImdsSilent => Fault::ImdsStatus { instance: None, status: 503 },
            Weather::AttachesHang => Fault::AttachNeverCompletes { instance: None },
        };
        Some(self.cloud.set_fault(now, fault))
    }

    pub(crate) fn end_faults(&mut self, now: Time) {
        self.cloud.clear_faults(now);
        self.lost.clear();
    }

    /// The CIDRs of a subnet.
    pub(crate) fn cidrs(&self, subnet: &SubnetId) -> (Option<Ipv4Net>, Option<Ipv6Net>) {
        let known = self.cidrs.get(subnet);
        (known.map(|(v4, _)| *v4), known.and_then(|(_, v6)| *v6))
    }

    /// Assigns addresses at the start, for modes in which the daemon may not.
    pub(crate) fn provide(&mut self, now: Time, count: u16) {
        let request = lab_cloud::AssignPrivateIpAddresses {
            network_interface_id: Some(self.primary.clone()),
            secondary_private_ip_address_count: Some(count.into()),
            ..lab_cloud::AssignPrivateIpAddresses::default()
        };
        // A full subnet leaves the node without addresses.
        let _ = self.cloud.call(now, &Caller::Administrator, request);
    }

    /// The number of free addresses in the subnet.
    pub(crate) fn free_addresses(&mut self, now: Time) -> u32 {
        self.cloud.version(now);
        self.cloud
            .subnet_named(self.growth_name)
            .map_or(0, |subnet| subnet.available_ip_address_count)
    }
}

/// Converts an error with the daemon's own table.
pub(crate) fn refused(action: &str, error: &Ec2Error) -> CloudFault {
    let (code, message) = (Some(error.code.as_str()), error.message.as_str());
    Ec2ErrorResponse { action, code, message, status: error.http_status, retry_after: None }.fault()
}

/// A fault with an unknown result.
pub(crate) fn unknown(code: &str, message: &str) -> CloudFault {
    CloudFault { code: code.into(), message: message.into(), remedy: Remedy::Unknown }
}

fn spec(setup: &Setup) -> CloudSpec {
    let mut spec = CloudSpec::two_zones();
    let usable = setup.mode == Mode::Discovery;
    let role = usable.then(|| ("kubernetes.io/role/cni".to_owned(), "1".to_owned()));
    let named = |name: &str, third: u8| SubnetSpec {
        name: name.to_owned(),
        cidr: Ipv4Net::new_assert([10, 0, third, 0].into(), setup.subnet_len),
        ipv6_cidr: None,
        availability_zone: ZONE.to_owned(),
        map_public_ip_on_launch: false,
        assign_ipv6_address_on_creation: setup.mode == Mode::Ipv6,
        tags: role.clone().into_iter().collect(),
    };
    spec.subnets = vec![named("pods", 0), named("more", 64)];
    if setup.mode == Mode::Ipv6 {
        spec = spec.with_ipv6();
    }
    spec.timing.attach = setup.attach;
    if !setup.throttled {
        spec.throttling = Throttling::Off;
    }
    spec
}
