//! The seam between the daemon and a cloud.

use async_trait::async_trait;
use config_model::{CardIndex, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, VpcId};
use ipamd_core::{CardLimits, CloudAnswer, CloudCall, CloudFault, Limits, SeenEni, Witness};
use ipnet::{Ipv4Net, Ipv6Net};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A cloud that attaches ENIs to this instance.
///
/// All methods may run concurrently, and none retries by itself.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// Executes one call of the core.
    ///
    /// # Errors
    /// By the core's next step.
    async fn execute(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault>;

    /// Returns all ENIs attached to the instance, as the witness lists them now.
    ///
    /// # Errors
    /// If one of the requests failed. A partial list is never returned.
    async fn look(
        &self,
        witness: Witness,
        instance: &InstanceId,
    ) -> Result<Vec<SeenEni>, CloudFault>;

    /// Returns the node's data from the metadata service.
    ///
    /// # Errors
    /// If a value that each node has is missing.
    async fn node(&self) -> Result<Node, CloudFault>;

    /// Returns the present IPv4 CIDRs of the VPC.
    ///
    /// # Errors
    /// If the metadata service does not answer.
    async fn vpc_v4_cidrs(&self) -> Result<Vec<Ipv4Net>, CloudFault> {
        Ok(self.node().await?.vpc_v4_cidrs)
    }

    /// Returns the limits of an instance type.
    ///
    /// # Errors
    /// If the type does not exist, or the request failed.
    async fn type_limits(&self, instance_type: &str) -> Result<TypeLimits, CloudFault>;
}

/// The node, its primary ENI and its VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub instance: InstanceId,
    /// Such as `c5.xlarge`.
    pub instance_type: String,
    pub region: String,
    pub availability_zone: String,
    /// The primary address of the primary ENI.
    pub local_ipv4: Option<Ipv4Addr>,
    pub local_ipv6: Option<Ipv6Addr>,
    pub primary_eni: EniId,
    pub primary_mac: Mac,
    /// The subnet of the primary ENI.
    pub subnet: SubnetId,
    pub subnet_cidr: Option<Ipv4Net>,
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// The security groups of the primary ENI.
    pub security_groups: Vec<SecurityGroupId>,
    pub vpc: VpcId,
    pub vpc_v4_cidrs: Vec<Ipv4Net>,
    pub vpc_v6_cidrs: Vec<Ipv6Net>,
}

/// The limits of an instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeLimits {
    /// ENIs per network card; card 0 is always present.
    pub enis: BTreeMap<CardIndex, u16>,
    /// IPv4 addresses per ENI, including its primary address.
    pub ipv4_per_eni: u16,
    /// IPv6 addresses per ENI; 0 if the type has none.
    pub ipv6_per_eni: u16,
    /// ENIs can have prefixes: Nitro and bare metal.
    pub prefixes: bool,
    /// An ENI can be a trunk.
    pub trunk: bool,
}

impl TypeLimits {
    /// The limits as the core uses them. EC2 does not report the number of branch ENIs per trunk; the VPC resource
    /// controller knows it and informs the scheduler.
    pub fn limits(&self) -> Limits {
        let cards = self.enis.iter().map(|(card, enis)| CardLimits { card: *card, enis: *enis });
        Limits {
            cards: cards.collect(),
            ipv4_per_eni: self.ipv4_per_eni,
            ipv6_per_eni: self.ipv6_per_eni,
            prefixes: self.prefixes,
            trunk: self.trunk,
            branch_enis: 0,
        }
    }
}
