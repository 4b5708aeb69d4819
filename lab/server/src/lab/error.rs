//! Errors of the lab's operations.

use lab_cloud::OperateError;
use lab_fabric::FabricError;
use std::{io, path::PathBuf};

/// One variant for each failed operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LabError {
    #[error("there is no node {0}")]
    NoNode(String),
    #[error("there is a node {0} already")]
    NodeExists(String),
    #[error(
        "{text:?} is not a valid name for a {what}; use 1 to {max} lower-case letters, digits, dashes and dots"
    )]
    BadName { what: &'static str, text: String, max: usize },
    #[error("the lab has no subnet number {index}; it has {count}, counted from 0")]
    NoSubnet { index: usize, count: usize },
    #[error("the lab has no subnet {name}; there are: {known}")]
    NoSubnetNamed { name: String, known: String },
    #[error(
        "cannot use {cidr}: it contains an address of the lab's internet; choose another block"
    )]
    BlockOfTheInternet { cidr: ipnet::Ipv4Net },
    #[error("the lab has 26 subnets already, one for each letter")]
    NoLetterLeft,
    #[error("there is no security group {0}; see: ferrule-lab group list")]
    NoGroup(String),
    #[error("there is no load balancer {0}; see: ferrule-lab nlb list")]
    NoBalancer(String),
    #[error("there is a load balancer {0} already")]
    BalancerExists(String),
    #[error("cannot create load balancer {name}: {why}")]
    BadBalancer { name: String, why: String },
    #[error(
        "cannot create a load balancer: all 254 addresses are in use; remove one: ferrule-lab nlb \
         remove NAME"
    )]
    NoBalancerAddress,
    #[error(
        "cannot deregister {target}: it is no target of load balancer {balancer}, or it is \
         draining; see: ferrule-lab nlb list"
    )]
    NoTarget { balancer: String, target: String },
    #[error("the target {0} is no address in the VPC; see: ferrule-lab eni list")]
    TargetOutside(std::net::IpAddr),
    #[error(
        "targets are nodes and addresses; use only nodes or only addresses in one load balancer"
    )]
    MixedTargets,
    #[error("there is no pod {0}")]
    NoPod(String),
    #[error("there is a pod {0} already")]
    PodExists(String),
    #[error("cannot change pod {0}: another request is in progress")]
    PodBusy(String),
    #[error("node {node} is {state}; see: ferrule-lab node list")]
    NodeNotUp { node: String, state: String },
    #[error("cannot {order} node {node}")]
    Order {
        order: &'static str,
        node: String,
        #[source]
        cause: OperateError,
    },
    #[error("timeout after {seconds} s: waiting until {what}")]
    Timeout { what: String, seconds: u64 },
    #[error("{0}")]
    BadFault(String),
    #[error("unknown order for a node: {0}")]
    BadOrder(String),
    #[error("cannot {action} {path}")]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot use the network configuration {path}: {why}")]
    BadNetconf { path: PathBuf, why: String },
    #[error("cannot install on node {node}")]
    Install {
        node: String,
        #[source]
        cause: install_disk::InstallError,
    },
    #[error("cannot install on node {node}: ferrule-ipamd install failed: {output}")]
    Installer { node: String, output: String },
    #[error("cannot run {program} on node {node}")]
    Spawn {
        program: String,
        node: String,
        #[source]
        cause: io::Error,
    },
    #[error("{verb} by {plugin} failed: {why}")]
    Plugin { verb: &'static str, plugin: String, why: String, object: Option<serde_json::Value> },
    #[error("cannot send a signal to process {pid}")]
    Signal {
        pid: u32,
        #[source]
        cause: io::Error,
    },
    #[error(
        "node {0} did not start with amazon-vpc-cni; create another: ferrule-lab node add --cni \
         amazon-vpc-cni --cni-dir DIR"
    )]
    NotVpcCni(String),
    #[error("the daemon of node {0} is not running")]
    NoDaemon(String),
    #[error("EC2 refused the call")]
    Ec2(#[from] lab_cloud::CallError),
    #[error(transparent)]
    Cloud(#[from] OperateError),
    #[error(transparent)]
    Kubernetes(#[from] crate::resource_controller::ClusterError),
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl LabError {
    /// For `map_err` on a file operation.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File { action, path, cause }
    }

    /// The message with all its causes.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}
