//! The seam: what the daemon wants of a cloud.

use async_trait::async_trait;
use config_model::{CardIndex, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, VpcId};
use ipamd_core::{CardLimits, CloudAnswer, CloudCall, CloudFault, Limits, SeenEni, Witness};
use ipnet::{Ipv4Net, Ipv6Net};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A cloud that gives ENIs to this instance.
///
/// Every method may be called side by side with every other and repeats nothing by itself.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// Carries out one call of the core.
    ///
    /// # Errors
    /// Sorted by what the core can do next.
    async fn execute(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault>;

    /// All ENIs attached to the instance, as the witness shows them now; all of them or a fault.
    ///
    /// # Errors
    /// When one of the questions was not answered.
    async fn look(
        &self,
        witness: Witness,
        instance: &InstanceId,
    ) -> Result<Vec<SeenEni>, CloudFault>;

    /// The node as the metadata service describes it.
    ///
    /// # Errors
    /// When something that each node has is not told.
    async fn node(&self) -> Result<Node, CloudFault>;

    /// The VPC's IPv4 ranges as they are now.
    ///
    /// # Errors
    /// When the metadata service does not tell.
    async fn vpc_v4_cidrs(&self) -> Result<Vec<Ipv4Net>, CloudFault> {
        Ok(self.node().await?.vpc_v4_cidrs)
    }

    /// What an instance type allows.
    ///
    /// # Errors
    /// When there is no such type, or the question was not answered.
    async fn type_limits(&self, instance_type: &str) -> Result<TypeLimits, CloudFault>;
}

/// The node, its primary ENI and its VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The instance.
    pub instance: InstanceId,
    /// Its type, such as `c5.xlarge`.
    pub instance_type: String,
    /// The region.
    pub region: String,
    /// The availability zone.
    pub availability_zone: String,
    /// The node's address: the primary one of its primary ENI.
    pub local_ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub local_ipv6: Option<Ipv6Addr>,
    /// The primary ENI.
    pub primary_eni: EniId,
    /// Its MAC address.
    pub primary_mac: Mac,
    /// Its subnet.
    pub subnet: SubnetId,
    /// The subnet's IPv4 addresses.
    pub subnet_cidr: Option<Ipv4Net>,
    /// The subnet's IPv6 addresses.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// Its security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// The VPC.
    pub vpc: VpcId,
    /// The VPC's IPv4 ranges.
    pub vpc_v4_cidrs: Vec<Ipv4Net>,
    /// The VPC's IPv6 ranges.
    pub vpc_v6_cidrs: Vec<Ipv6Net>,
}

/// What an instance type allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeLimits {
    /// ENIs of each network card; card 0 is always among them.
    pub enis: BTreeMap<CardIndex, u16>,
    /// IPv4 addresses of one ENI, its primary address among them.
    pub ipv4_per_eni: u16,
    /// IPv6 addresses of one ENI; 0 where the type has none.
    pub ipv6_per_eni: u16,
    /// Whether ENIs can have prefixes: Nitro and bare metal.
    pub prefixes: bool,
    /// Whether an ENI can be a trunk.
    pub trunk: bool,
}

impl TypeLimits {
    /// The same in the core's words. EC2 does not tell how many branch ENIs a trunk carries; the
    /// resource controller knows, and tells the scheduler.
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
