//! EC2's error codes and texts, and the errors of operators.

use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// An error as EC2 answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Ec2Error {
    /// For example `InvalidNetworkInterfaceID.NotFound`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The status of the HTTP answer.
    pub http_status: u16,
}

/// Reason for a call without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// EC2 refused the call.
    #[error(transparent)]
    Refused(#[from] Ec2Error),
    /// EC2 has acted, but the answer never arrives: close the connection without one.
    #[error("the action was carried out, but its reply was lost")]
    ReplyLost,
}

/// An order that the operator cannot give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum OperateError {
    #[error("there is no instance {0}")]
    NoInstance(InstanceId),
    #[error("there is no ENI {0}")]
    NoEni(EniId),
    #[error("ENI {0} is not attached")]
    NotAttached(EniId),
    #[error("ENI {0} is the primary one of its instance")]
    PrimaryEni(EniId),
    #[error("there is no subnet {0}")]
    NoSubnet(SubnetId),
    #[error("there is no security group {0}")]
    NoGroup(SecurityGroupId),
    #[error("{name:?} is not an instance type that the lab knows; {hint}")]
    NoType { name: String, hint: String },
    #[error("instance {instance} is {state}, but should be {wanted}")]
    WrongState { instance: InstanceId, state: &'static str, wanted: &'static str },
    #[error("VPC {cidr} {why}")]
    BadVpc { cidr: Ipv4Net, why: &'static str },
    #[error("subnet {cidr} {why}")]
    BadSubnet { cidr: Ipv4Net, why: &'static str },
    #[error("subnet {cidr} {why}")]
    BadIpv6Subnet { cidr: Ipv6Net, why: &'static str },
    #[error("the VPC already has a security group {0:?}")]
    GroupExists(String),
    #[error("subnet {0} has no free address")]
    SubnetFull(SubnetId),
    #[error("EC2 would refuse this: {0}")]
    Refused(String),
    #[error("there is no public address left in {0}")]
    PublicPoolEmpty(Ipv4Net),
}

impl Ec2Error {
    /// An error with status 400.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), http_status: 400 }
    }

    /// An error with another status.
    pub fn with_status(self, http_status: u16) -> Self {
        Self { http_status, ..self }
    }

    /// `InvalidAction`.
    pub fn invalid_action(name: &str) -> Self {
        Self::new(
            "InvalidAction",
            format!("The action {name} is not valid for this web service (the lab's EC2)."),
        )
    }

    /// `MissingParameter`, naming the parameter.
    pub fn missing_parameter(name: &str) -> Self {
        Self::new("MissingParameter", format!("The request must contain the parameter {name}"))
    }

    /// `InvalidParameterValue`.
    pub fn invalid_value(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterValue", message)
    }

    /// `InvalidParameterCombination`.
    pub fn invalid_combination(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterCombination", message)
    }

    /// `AuthFailure`, status 401: unknown credentials.
    pub fn auth_failure() -> Self {
        Self::new("AuthFailure", "AWS was not able to validate the provided access credentials")
            .with_status(401)
    }

    /// `RequestLimitExceeded`, status 503.
    pub fn request_limit_exceeded() -> Self {
        Self::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503)
    }

    /// `DryRunOperation`, status 412.
    pub(crate) fn dry_run() -> Self {
        Self::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
            .with_status(412)
    }

    /// `UnauthorizedOperation`, status 403.
    pub(crate) fn unauthorized(caller: &str, action: &str) -> Self {
        Self::new(
            "UnauthorizedOperation",
            format!(
                "You are not authorized to perform this operation. User: {caller} is not authorized \
                 to perform: ec2:{action} because no identity-based policy allows the \
                 ec2:{action} action"
            ),
        )
        .with_status(403)
    }

    /// `InvalidNetworkInterfaceID.NotFound`.
    pub(crate) fn no_such_eni(id: impl Display) -> Self {
        Self::new(
            "InvalidNetworkInterfaceID.NotFound",
            format!("The networkInterface ID '{id}' does not exist"),
        )
    }

    /// `InvalidNetworkInterfaceID.NotFound` for several ENIs, which EC2 lists.
    pub(crate) fn no_such_enis(ids: &str) -> Self {
        Self::new(
            "InvalidNetworkInterfaceID.NotFound",
            format!("The networkInterface IDs '{ids}' do not exist"),
        )
    }

    /// `InvalidAttachmentID.NotFound`.
    pub(crate) fn no_such_attachment(id: impl Display) -> Self {
        Self::new(
            "InvalidAttachmentID.NotFound",
            format!("The attachment ID '{id}' does not exist"),
        )
    }

    /// `InvalidInstanceID.NotFound`, or `.Malformed` if it is no id at all.
    pub(crate) fn no_such_instance(id: impl Display) -> Self {
        if !is_id(&id.to_string(), "i-") {
            return Self::new("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""));
        }
        Self::new("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
    }

    /// `InvalidSubnetID.NotFound`.
    pub(crate) fn no_such_subnet(id: impl Display) -> Self {
        Self::new("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist"))
    }

    /// `InvalidVpcID.NotFound`.
    pub(crate) fn no_such_vpc(id: impl Display) -> Self {
        Self::new("InvalidVpcID.NotFound", format!("The vpc ID '{id}' does not exist"))
    }

    /// `InvalidGroup.NotFound`.
    pub(crate) fn no_such_group(id: impl Display) -> Self {
        Self::new("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))
    }

    /// `InvalidID`: a resource that can carry no tags, or does not exist.
    pub(crate) fn no_such_resource(id: impl Display) -> Self {
        Self::new("InvalidID", format!("The ID '{id}' is not valid"))
    }

    /// `PrivateIpAddressLimitExceeded`.
    pub(crate) fn too_many_addresses() -> Self {
        Self::new("PrivateIpAddressLimitExceeded", "Number of private addresses will exceed limit.")
    }

    /// `InsufficientFreeAddressesInSubnet`.
    pub(crate) fn subnet_full() -> Self {
        Self::new(
            "InsufficientFreeAddressesInSubnet",
            "The specified subnet does not have enough free addresses to satisfy the request.",
        )
    }

    /// `InsufficientCidrBlocks`.
    pub(crate) fn no_cidr_blocks() -> Self {
        Self::new(
            "InsufficientCidrBlocks",
            "The specified subnet does not have enough free cidr blocks to satisfy the request.",
        )
    }

    /// Answer of CreateNetworkInterface where AssignPrivateIpAddresses answers `InsufficientCidrBlocks`. Code and
    /// text are from amazon-vpc-cni-k8s issue 3105.
    pub(crate) fn no_blocks_for_creation() -> Self {
        Self::invalid_value("There aren't sufficient free Ipv4 addresses or prefixes")
    }

    /// An address for an ENI that has no network device. EC2's code for it is not documented.
    pub(crate) fn no_addresses_on_efa_only() -> Self {
        Self::invalid_combination("An EFA-only network interface can have no IP addresses.")
    }

    /// `AttachmentLimitExceeded`.
    pub(crate) fn too_many_attachments(count: usize, instance_type: &str) -> Self {
        Self::new(
            "AttachmentLimitExceeded",
            format!("Interface count {count} exceeds the limit for {instance_type}"),
        )
    }

    /// `InvalidNetworkInterface.InUse`.
    pub(crate) fn eni_in_use(id: impl Display) -> Self {
        Self::new("InvalidNetworkInterface.InUse", format!("Interface: {id} in use."))
    }

    /// `OperationNotPermitted`.
    pub(crate) fn not_permitted(message: impl Into<String>) -> Self {
        Self::new("OperationNotPermitted", message)
    }

    /// `IncorrectState`.
    pub(crate) fn incorrect_state(message: impl Into<String>) -> Self {
        Self::new("IncorrectState", message)
    }
}

/// True for a prefix and hexadecimal digits.
pub(crate) fn is_id(text: &str, prefix: &str) -> bool {
    let digits = text.strip_prefix(prefix).unwrap_or("");
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit())
}
