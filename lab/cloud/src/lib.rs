//! A pure model of EC2 and of its instance metadata service; time is an argument.
//!
//! The crate does not read a clock, a file or a socket. The owner of a [`Cloud`] passes the time with every
//! question. The model answers as EC2 would then: with delays, limits, throttling, lagging replies, and EC2's own
//! error codes.
//!
//! - [`Cloud::call`] is the EC2 API: [`Request`] in, [`Response`] or [`CallError`] out. [`Response::document`]
//!   gives the element names that EC2's XML uses.
//! - [`Cloud::imds`] is the metadata service of one instance.
//! - [`Cloud::truth`] is the state that a fabric must build: the current place of each attached ENI.
//! - [`Balancer`] is a separate state machine: the targets of a network load balancer.
//! - [`ResourceController`] is a separate state machine: trunks and branches for security groups of pods.
//! - [`Cloud::launch`] and the similar methods are the operator's actions; a [`Fault`] is an injected failure.
//!
//! Start reading at `model` for the objects, `request` and `response` for the API. Then there is one module per
//! question (`subnet`, `eni`, `instance`, `throttle`, `filter`, `imds`, `fault`, `truth`).

mod action;
mod address;
mod advance;
mod attachment;
mod balancer;
mod census;
mod clock;
mod cloud;
mod controller;
mod describe;
mod document;
mod eni;
mod error;
mod fault;
mod filter;
mod idempotency;
mod imds;
mod instance;
mod ipv6;
mod launch;
mod manual;
mod model;
mod operate;
mod paging;
mod request;
mod reservation;
mod response;
mod rng;
mod spec;
mod state;
mod subnet;
mod table;
mod tag;
mod throttle;
mod transition;
mod trunk;
mod truth;
mod types;

pub use action::Action;
pub use balancer::{Balancer, HealthCheck, HealthProbe, TargetState};
pub use cloud::{Caller, Cloud, Iam};
pub use controller::{
    ClusterSnapshot, ClusterWrite, ControllerEvent, ObservedNode, ObservedPod, PodEni,
    ResourceController, TrunkRequest,
};
pub use document::Document;
pub use error::{CallError, Ec2Error, OperateError};
pub use fault::{Fault, FaultId};
pub use launch::{Launch, LaunchInterface};
pub use model::{
    Attachment, AttachmentStatus, EniStatus, GroupIdentifier, Instance, InstanceState,
    InterfaceKind, NetworkInterface, Peer, PrivateAddress, Protocol, Reservation, ReservationKind,
    Rule, SecurityGroup, Subnet, Tag, TrunkAssociation, Vpc,
};
pub use request::{
    AssignIpv6Addresses, AssignPrivateIpAddresses, AssociateTrunkInterface, AttachNetworkInterface,
    AttachmentChange, CreateNetworkInterface, CreateSubnetCidrReservation, CreateTags,
    DeleteNetworkInterface, DeleteSubnetCidrReservation, DeleteTags, DescribeInstanceTypes,
    DescribeInstances, DescribeNetworkInterfaces, DescribeSecurityGroups, DescribeSubnets,
    DescribeTags, DescribeTrunkInterfaceAssociations, DescribeVpcs, DetachNetworkInterface,
    DisassociateTrunkInterface, Filter, GetSubnetCidrReservations, ModifyNetworkInterfaceAttribute,
    Page, PrivateAddressRequest, Request, TagSpecification, TagToDelete, UnassignIpv6Addresses,
    UnassignPrivateIpAddresses,
};
pub use response::{
    AssignedIpv6Addresses, AssignedPrivateIpAddresses, Attached, DescribedInstance, Response,
    TagDescription,
};
pub use spec::{CloudSpec, SecurityGroupSpec, SubnetSpec, Timing};
pub use throttle::{Bucket, Throttling};
pub use truth::{Truth, TruthBranch, TruthEni, TruthInstance, TruthSubnet};
pub use types::{Hypervisor, InstanceType, NetworkCard};
