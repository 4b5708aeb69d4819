//! The model itself: what it holds, and how a call of the API runs.

use crate::{
    Action, CallError, CloudSpec, Ec2Error, OperateError, Request, Reservation, Response, Vpc,
    clock::Epoch,
    fault::Faults,
    filter,
    idempotency::Tokens,
    ipv6::AddressPool6,
    rng::{Rng, mix},
    spec::check_vpc,
    state::{State, View},
    subnet::AddressPool,
    table::Stamp,
    throttle::Buckets,
    transition::TransitionQueue,
    trunk::Trunks,
};
use config_model::{InstanceId, Span, SubnetId, Time, VpcId};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// Caller of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The account's administrator: may do everything, but is throttled like all.
    Administrator,
    /// The role of an instance, by credentials from its IMDS.
    Role { role: String, instance: InstanceId },
}

/// Actions that a role may not do; all others are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iam {
    /// Action names without `ec2:`, `*` at the end allowed, such as `Describe*`.
    pub deny: BTreeSet<String>,
}

/// EC2 and IMDS of one account, one region, one VPC.
///
/// Time never goes back: a `now` before the latest one is taken as the latest one.
#[derive(Debug)]
pub struct Cloud {
    pub(crate) spec: CloudSpec,
    pub(crate) seed: u64,
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) state: State,
    pub(crate) version: u64,
    pub(crate) agenda: TransitionQueue,
    pub(crate) pools: BTreeMap<SubnetId, AddressPool>,
    pub(crate) pools6: BTreeMap<SubnetId, AddressPool6>,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) trunks: Trunks,
    pub(crate) public: BTreeSet<Ipv4Addr>,
    pub(crate) tokens: Tokens,
    pub(crate) buckets: Buckets,
    pub(crate) faults: Faults,
    pub(crate) iam: BTreeMap<String, Iam>,
}

impl Cloud {
    /// The administrator's access key id; its secret is not checked.
    pub const ADMINISTRATOR_KEY: &'static str = "AKIALABADMINISTRATOR";

    /// The cloud of a spec. Ids, MACs and addresses follow from the seed.
    ///
    /// # Errors
    /// If the spec contradicts itself.
    pub fn new(spec: CloudSpec, seed: u64) -> Result<Self, OperateError> {
        spec.vpc_cidrs.iter().try_for_each(|&cidr| check_vpc(cidr))?;
        let mut rng = Rng::new(mix(seed ^ 0xfe44_01e5));
        let vpc = Vpc {
            id: VpcId::new(rng.id("vpc")),
            owner_id: spec.account.clone(),
            cidrs: spec.vpc_cidrs.clone(),
            ipv6_cidrs: spec.vpc_ipv6_cidr.into_iter().collect(),
            tags: BTreeMap::new(),
        };
        let mut cloud = Self {
            seed,
            now: Time::default(),
            rng,
            state: State::new(vpc),
            version: 0,
            agenda: TransitionQueue::default(),
            pools: BTreeMap::new(),
            pools6: BTreeMap::new(),
            reservations: BTreeMap::new(),
            trunks: Trunks::default(),
            public: BTreeSet::new(),
            tokens: Tokens::default(),
            buckets: Buckets::default(),
            faults: Faults::default(),
            iam: BTreeMap::new(),
            spec: spec.clone(),
        };
        cloud.add_default_group();
        for subnet in spec.subnets {
            cloud.add_subnet(Time::default(), subnet)?;
        }
        for group in spec.security_groups {
            cloud.add_security_group(Time::default(), group)?;
        }
        Ok(cloud)
    }

    /// Its region, such as `eu-west-1`.
    pub fn region(&self) -> &str {
        &self.spec.region
    }

    /// The EC2 API.
    ///
    /// # Errors
    /// As EC2 would, and as faults ask.
    pub fn call(
        &mut self,
        now: Time,
        caller: &Caller,
        request: impl Into<Request>,
    ) -> Result<Response, CallError> {
        let request = request.into();
        let action = request.action();
        self.advance(now);
        self.admit(caller, &request)?;
        if request.dry_run() {
            return Err(Ec2Error::dry_run().into());
        }
        let response = self.dispatch(caller, request)?;
        self.settle();
        if self.faults.loses_reply(action) { Err(CallError::ReplyLost) } else { Ok(response) }
    }

    /// Throttling comes first, then permission, then whatever else goes wrong.
    fn admit(&mut self, caller: &Caller, request: &Request) -> Result<(), Ec2Error> {
        let action = request.action();
        if !self.take_token(action, request.is_unfiltered()) {
            return Err(Ec2Error::request_limit_exceeded());
        }
        self.authorize(caller, action)?;
        if request.tags_on_creation() {
            self.authorize(caller, Action::CreateTags)?;
        }
        self.faults.error_for(action).map_or(Ok(()), Err)
    }

    fn take_token(&mut self, action: Action, unfiltered: bool) -> bool {
        match self.faults.throttles(self.now, action) {
            Some(verdict) => verdict,
            None => self.buckets.take_by(self.now, &self.spec.throttling, action, unfiltered),
        }
    }

    fn authorize(&self, caller: &Caller, action: Action) -> Result<(), Ec2Error> {
        let Caller::Role { role, .. } = caller else { return Ok(()) };
        let denied = self
            .iam
            .get(role)
            .is_some_and(|iam| iam.deny.iter().any(|deny| filter::wildcard(deny, action.name())));
        if denied {
            Err(Ec2Error::unauthorized(&self.arn_of(caller), action.name()))
        } else {
            Ok(())
        }
    }

    /// EC2's name for a caller.
    pub(crate) fn arn_of(&self, caller: &Caller) -> String {
        let account = &self.spec.account;
        match caller {
            Caller::Administrator => format!("arn:aws:iam::{account}:root"),
            Caller::Role { role, instance } => {
                format!("arn:aws:sts::{account}:assumed-role/{role}/{instance}")
            }
        }
    }

    fn dispatch(&mut self, caller: &Caller, request: Request) -> Result<Response, Ec2Error> {
        match request {
            Request::AssignIpv6Addresses(r) => self.assign_ipv6(&r),
            Request::AssignPrivateIpAddresses(r) => self.assign_addresses(&r),
            Request::AssociateTrunkInterface(r) => self.associate_trunk(&r),
            Request::AttachNetworkInterface(r) => self.attach(&r),
            Request::CreateNetworkInterface(r) => self.create_eni(caller, &r),
            Request::CreateSubnetCidrReservation(r) => self.create_reservation(&r),
            Request::CreateTags(r) => self.create_tags(r),
            Request::DeleteNetworkInterface(r) => self.delete_eni(&r),
            Request::DeleteSubnetCidrReservation(r) => self.delete_reservation(&r),
            Request::DeleteTags(r) => self.delete_tags(r),
            Request::DescribeInstanceTypes(r) => self.describe_instance_types(&r),
            Request::DescribeInstances(r) => self.describe_instances(&r),
            Request::DescribeNetworkInterfaces(r) => self.describe_enis(&r),
            Request::DescribeSecurityGroups(r) => self.describe_groups(&r),
            Request::DescribeSubnets(r) => self.describe_subnets(&r),
            Request::DescribeTags(r) => self.describe_tags(&r),
            Request::DescribeTrunkInterfaceAssociations(r) => self.describe_trunks(&r),
            Request::DescribeVpcs(r) => self.describe_vpcs(&r),
            Request::DetachNetworkInterface(r) => self.detach(&r),
            Request::DisassociateTrunkInterface(r) => self.disassociate_trunk(&r),
            Request::GetSubnetCidrReservations(r) => self.get_reservations(&r),
            Request::ModifyNetworkInterfaceAttribute(r) => self.modify_eni(&r),
            Request::UnassignIpv6Addresses(r) => self.unassign_ipv6(&r),
            Request::UnassignPrivateIpAddresses(r) => self.unassign_addresses(&r),
        }
    }

    /// Duration of a call of this action now: sleep so long around [`Cloud::call`].
    ///
    /// A fault's latency is exact. The spec's latency varies by a quarter, and the seed determines the variation.
    pub fn latency(&mut self, now: Time, action: Action) -> Span {
        self.advance(now);
        if let Some(latency) = self.faults.latency(action) {
            return latency;
        }
        let timing = &self.spec.timing;
        let usual =
            if action.is_mutating() { timing.mutate_latency } else { timing.describe_latency };
        let percent = 75 + mix(self.seed ^ self.now.0) % 51;
        Span(usual.0 * percent / 100)
    }

    /// Owner of this access key; `None` means `AuthFailure` ([`crate::Ec2Error::auth_failure`]).
    /// [`Cloud::ADMINISTRATOR_KEY`] is the administrator's.
    pub fn caller_of(&self, access_key_id: &str) -> Option<Caller> {
        if access_key_id == Self::ADMINISTRATOR_KEY {
            return Some(Caller::Administrator);
        }
        let instance = self.state.instances.values().find(|instance| {
            instance.state != crate::InstanceState::Terminated
                && self.access_key_of(&instance.id) == access_key_id
        })?;
        Some(Caller::Role { role: instance.role.clone()?, instance: instance.id.clone() })
    }

    /// Wall-clock time at which the model's clock starts.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.spec.epoch_unix_ms)
    }

    /// Changes the state; reads of an earlier time still get the old state.
    pub(crate) fn edit<R>(&mut self, change: impl FnOnce(&mut State, Stamp) -> R) -> R {
        self.version += 1;
        if self.furthest_lag() == Span(0) {
            self.state.forget_past();
            return change(&mut self.state, None);
        }
        change(&mut self.state, Some(self.now))
    }

    /// The state that a reader sees who is behind by `lag`.
    pub(crate) fn lagged(&self, lag: Span) -> View<'_> {
        self.state.at((lag > Span(0)).then(|| self.now - lag))
    }

    /// Current age of the answers of Describe calls.
    pub(crate) fn read_lag(&self) -> Span {
        self.faults.read_lag().unwrap_or(self.spec.timing.read_lag)
    }

    /// Current age of the answers of IMDS.
    pub(crate) fn imds_lag(&self) -> Span {
        self.faults.imds_lag().unwrap_or(self.spec.timing.imds_lag)
    }

    pub(crate) fn furthest_lag(&self) -> Span {
        self.read_lag().max(self.imds_lag())
    }
}

impl Request {
    /// True if a read asks for everything at once, which EC2 throttles harder.
    fn is_unfiltered(&self) -> bool {
        match self {
            Self::DescribeInstances(r) => {
                r.instance_ids.is_empty() && r.filters.is_empty() && r.page.max_results.is_none()
            }
            Self::DescribeNetworkInterfaces(r) => {
                r.network_interface_ids.is_empty()
                    && r.filters.is_empty()
                    && r.page.max_results.is_none()
            }
            Self::DescribeSecurityGroups(r) => {
                r.group_ids.is_empty() && r.filters.is_empty() && r.page.max_results.is_none()
            }
            Self::AssignIpv6Addresses(_)
            | Self::AssignPrivateIpAddresses(_)
            | Self::AssociateTrunkInterface(_)
            | Self::AttachNetworkInterface(_)
            | Self::CreateNetworkInterface(_)
            | Self::CreateSubnetCidrReservation(_)
            | Self::CreateTags(_)
            | Self::DeleteNetworkInterface(_)
            | Self::DeleteSubnetCidrReservation(_)
            | Self::DeleteTags(_)
            | Self::DescribeInstanceTypes(_)
            | Self::DescribeSubnets(_)
            | Self::DescribeTags(_)
            | Self::DescribeTrunkInterfaceAssociations(_)
            | Self::DescribeVpcs(_)
            | Self::DetachNetworkInterface(_)
            | Self::DisassociateTrunkInterface(_)
            | Self::GetSubnetCidrReservations(_)
            | Self::ModifyNetworkInterfaceAttribute(_)
            | Self::UnassignIpv6Addresses(_)
            | Self::UnassignPrivateIpAddresses(_) => false,
        }
    }

    fn tags_on_creation(&self) -> bool {
        matches!(self, Self::CreateNetworkInterface(r)
            if r.tag_specifications.iter().any(|spec| !spec.tags.is_empty()))
    }
}
