//! The model itself: the questions that can be put to it.

use crate::{
    Action, CallError, CloudSpec, Fault, FaultId, Iam, Launch, OperateError, Request, Response,
    Rule, SecurityGroupSpec, Subnet, SubnetSpec, Truth,
};
use config_model::{EniId, InstanceId, SecurityGroupId, Span, SubnetId, Time};

/// Who calls the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The account's administrator: may do everything, but is throttled like all.
    Administrator,
    /// The role of an instance, by credentials from its IMDS.
    Role {
        /// The role.
        role: String,
        /// The instance.
        instance: InstanceId,
    },
}

/// EC2 and IMDS of one account, one region, one VPC.
///
/// Time never goes back: a `now` before the latest one is taken as the latest one.
#[derive(Debug)]
pub struct Cloud;

#[expect(unused_variables, reason = "bodies follow")]
impl Cloud {
    /// The cloud of a spec. Ids, MACs and addresses follow from the seed.
    ///
    /// # Errors
    /// If the spec contradicts itself.
    pub fn new(spec: CloudSpec, seed: u64) -> Result<Self, OperateError> {
        todo!()
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
        todo!()
    }

    /// How long a call of this action takes now: sleep so long around [`Cloud::call`].
    pub fn latency(&mut self, now: Time, action: Action) -> Span {
        todo!()
    }

    /// Whose access key this is; `None` means `AuthFailure` ([`crate::Ec2Error::auth_failure`]).
    /// [`Cloud::ADMINISTRATOR_KEY`] is the administrator's.
    pub fn caller_of(&self, access_key_id: &str) -> Option<Caller> {
        todo!()
    }

    /// The administrator's access key id; its secret is not checked.
    pub const ADMINISTRATOR_KEY: &'static str = "AKIALABADMINISTRATOR";

    /// What IMDS answers to an instance; `None` is 404. The path is the URL's, such as
    /// `/latest/meta-data/mac`; the token dance is the HTTP layer's.
    pub fn imds(&mut self, now: Time, instance: &InstanceId, path: &str) -> Option<String> {
        todo!()
    }

    /// The HTTP status with which IMDS fails for this instance now, if a fault says so.
    pub fn imds_outage(&self, instance: &InstanceId) -> Option<u16> {
        todo!()
    }

    /// The network as it really is now.
    pub fn truth(&mut self, now: Time) -> Truth {
        todo!()
    }

    /// Grows with every change of the truth that is visible at `now`.
    pub fn version(&mut self, now: Time) -> u64 {
        todo!()
    }

    /// When something that is under way will be visible next, if nobody does anything.
    pub fn next_change_at(&mut self, now: Time) -> Option<Time> {
        todo!()
    }

    /// The subnet that the operator called so.
    pub fn subnet_named(&self, name: &str) -> Option<&Subnet> {
        todo!()
    }

    /// The security group of this name.
    pub fn group_named(&self, name: &str) -> Option<SecurityGroupId> {
        todo!()
    }

    /// The instance whose `Name` tag this is and that is not terminated.
    pub fn instance_named(&self, name: &str) -> Option<InstanceId> {
        todo!()
    }

    /// Launches an instance with its primary ENI.
    ///
    /// # Errors
    /// If type, subnet or groups do not exist, or the subnet is full.
    pub fn launch(&mut self, now: Time, launch: Launch) -> Result<InstanceId, OperateError> {
        todo!()
    }

    /// Boots a running instance again; it stays `running`, its boot count grows.
    ///
    /// # Errors
    /// If it is not running.
    pub fn reboot(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        todo!()
    }

    /// Stops an instance; ENIs and private addresses stay, the public address goes.
    ///
    /// # Errors
    /// If it is not running.
    pub fn stop(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        todo!()
    }

    /// Starts a stopped instance.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn start(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        todo!()
    }

    /// Terminates an instance: ENIs with DeleteOnTermination go, the others become available.
    ///
    /// # Errors
    /// If there is none.
    pub fn terminate(&mut self, now: Time, instance: &InstanceId) -> Result<(), OperateError> {
        todo!()
    }

    /// Sets the IP TTL of IMDS answers.
    ///
    /// # Errors
    /// If there is no such instance.
    pub fn set_hop_limit(
        &mut self,
        now: Time,
        instance: &InstanceId,
        hops: u8,
    ) -> Result<(), OperateError> {
        todo!()
    }

    /// Adds a subnet.
    ///
    /// # Errors
    /// If it lies outside of the VPC or overlaps another.
    pub fn add_subnet(&mut self, now: Time, spec: SubnetSpec) -> Result<SubnetId, OperateError> {
        todo!()
    }

    /// Adds a security group.
    ///
    /// # Errors
    /// If its name is taken.
    pub fn add_security_group(
        &mut self,
        now: Time,
        spec: SecurityGroupSpec,
    ) -> Result<SecurityGroupId, OperateError> {
        todo!()
    }

    /// Replaces the rules of a security group.
    ///
    /// # Errors
    /// If there is none.
    pub fn set_security_group_rules(
        &mut self,
        now: Time,
        group: &SecurityGroupId,
        ingress: Vec<Rule>,
        egress: Vec<Rule>,
    ) -> Result<(), OperateError> {
        todo!()
    }

    /// Says what a role may not do.
    pub fn set_iam(&mut self, role: &str, iam: Iam) {
        todo!()
    }

    /// Pulls an ENI out of its instance behind the daemon's back.
    ///
    /// # Errors
    /// If it is not attached, or is the primary.
    pub fn pull_eni(&mut self, now: Time, eni: &EniId) -> Result<(), OperateError> {
        todo!()
    }

    /// Makes something go wrong.
    pub fn set_fault(&mut self, now: Time, fault: Fault) -> FaultId {
        todo!()
    }

    /// Ends a fault; false if it was not set.
    pub fn clear_fault(&mut self, now: Time, id: FaultId) -> bool {
        todo!()
    }

    /// Ends all faults.
    pub fn clear_faults(&mut self, now: Time) {
        todo!()
    }

    /// The faults that are set; counted ones show what is left of them.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        todo!()
    }
}
