//! The parameters of the core: the pool's targets, the instance type's limits, the node.

use config_model::{CardIndex, EniId, InstanceId, SecurityGroupId, Span, SubnetId, VpcId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;

/// The family of the pods' addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    #[default]
    V4,
    /// One /80 per ENI.
    V6,
}

impl Family {
    /// Returns whether the block is of this family.
    pub(crate) fn includes(self, block: IpNet) -> bool {
        matches!((self, block), (Self::V4, IpNet::V4(_)) | (Self::V6, IpNet::V6(_)))
    }

    /// Returns whether the block is of this family and no larger than EC2's prefixes.
    pub(crate) fn has(self, block: IpNet) -> bool {
        match block {
            IpNet::V4(net) => self == Self::V4 && net.prefix_len() >= 28,
            IpNet::V6(net) => self == Self::V6 && net.prefix_len() >= 80,
        }
    }
}

/// The pool's targets and modes from the resolved settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// `ENABLE_IPv6`.
    pub family: Family,
    /// `ENABLE_PREFIX_DELEGATION`: request /28 prefixes instead of single addresses. No effect if the instance type or
    /// the family does not have them.
    pub prefixes: bool,
    /// `WARM_ENI_TARGET`: free addresses to keep, as a multiple of an ENI's capacity. No effect if one of the two
    /// address targets is set.
    pub warm_eni_target: u32,
    /// `WARM_IP_TARGET`: free addresses to keep. `None` and `Some(0)` mean *not set*.
    pub warm_ip_target: Option<u32>,
    /// `MINIMUM_IP_TARGET`: the least number of addresses. `None` and `Some(0)` mean *not set*.
    pub minimum_ip_target: Option<u32>,
    /// `WARM_PREFIX_TARGET`: with `prefixes`, free addresses to keep, as a multiple of 16. No effect if one of the two
    /// address targets is set. `None` means 1.
    pub warm_prefix_target: Option<u32>,
    /// `MAX_ENI`: the most ENIs to use. It counts only if it is at least 1 and below the limit.
    pub max_eni: Option<u32>,
    /// The largest number of pods that the kubelet runs, and of the pool's addresses.
    /// [`ClusterFact::MaxPods`](crate::ClusterFact::MaxPods) overrides it.
    pub max_pods: u32,
    /// `IP_COOLDOWN_PERIOD`.
    pub cooldown: Span,
    /// The time in which a reservation must be confirmed.
    pub reservation_lifetime: Span,
    /// `ENABLE_MULTI_NIC`: network cards besides card 0 have pools too.
    pub multi_nic: bool,
    /// Not `DISABLE_NETWORK_RESOURCE_PROVISIONING`: the planner may change EC2.
    pub provisioning: bool,
    /// `ENABLE_IMDS_ONLY_MODE`: EC2 gets no calls at all.
    pub imds_only: bool,
    /// `MANAGE_UNTAGGED_ENI`: pods also use ENIs without our tags.
    pub manage_untagged: bool,
    /// `ENABLE_SUBNET_DISCOVERY`: new ENIs use any subnet of the zone whose tags allow it.
    pub subnet_discovery: bool,
    /// `CLUSTER_NAME`: selects the subnets and the leaked ENIs of this cluster.
    pub cluster_name: Option<String>,
    /// `AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG`: the node's ENIConfig defines new ENIs, and pods get no addresses of the
    /// primary ENI.
    pub custom_networking: bool,
    /// `ENABLE_POD_ENI`: pods may have branch ENIs; a place is reserved for their trunk.
    pub pod_enis: bool,
    /// `AWS_MANAGE_ENIS_NON_SCHEDULABLE`: the pool also grows and shrinks on unschedulable nodes.
    pub manage_unschedulable: bool,
    /// Not `DISABLE_LEAKED_ENI_CLEANUP`: the elected collector deletes leaked ENIs.
    pub collect_leaks: bool,
    /// The rates of this node's EC2 calls.
    pub calls: CallLimits,
    /// The node's pod CIDRs at the start; [`Event::NodeCidrs`](crate::Event::NodeCidrs) replaces them. A pod of card 0
    /// gets an address of them if no ENI has a free one. CIDRs of the other family are ignored.
    pub node_cidrs: Vec<IpNet>,
}

/// The rate of one node's calls per action as long as EC2 does not throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// `FERRULE_EC2_BURST`: calls at once.
    pub burst: u32,
    /// `FERRULE_EC2_CHANGES_PER_SECOND`: for actions that change something.
    pub changes_per_second: u32,
    /// `FERRULE_EC2_READS_PER_SECOND`: for actions that describe something.
    pub reads_per_second: u32,
}

impl Default for CallLimits {
    /// EC2 allows an account bursts of 50 to 100 calls, and 5 to 20 calls per second for all its nodes. One node stays
    /// well below.
    fn default() -> Self {
        Self { burst: 20, changes_per_second: 2, reads_per_second: 4 }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            family: Family::V4,
            prefixes: false,
            warm_eni_target: 1,
            warm_ip_target: None,
            minimum_ip_target: None,
            warm_prefix_target: None,
            max_eni: None,
            max_pods: 110,
            cooldown: Span::seconds(30),
            reservation_lifetime: Span::seconds(60),
            multi_nic: false,
            provisioning: true,
            imds_only: false,
            manage_untagged: true,
            subnet_discovery: false,
            cluster_name: None,
            custom_networking: false,
            pod_enis: false,
            manage_unschedulable: false,
            collect_leaks: false,
            calls: CallLimits::default(),
            node_cidrs: Vec::new(),
        }
    }
}

/// The limits of the instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// By index; card 0 is always present.
    pub cards: Vec<CardLimits>,
    /// IPv4 addresses of one ENI, its primary address included. A prefix counts as one.
    pub ipv4_per_eni: u16,
    /// IPv6 addresses of one ENI. A prefix counts as one.
    pub ipv6_per_eni: u16,
    /// ENIs can have prefixes: Nitro and bare metal.
    pub prefixes: bool,
    /// An ENI can be a trunk.
    pub trunk: bool,
    /// The most branch ENIs of the trunk.
    pub branch_enis: u16,
}

/// The limits of one network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLimits {
    pub card: CardIndex,
    /// The most ENIs; on card 0 the primary one counts.
    pub enis: u16,
}

impl Limits {
    /// A Nitro type with only card 0 and without trunk.
    pub fn one_card(enis: u16, ipv4_per_eni: u16) -> Self {
        Self {
            cards: vec![CardLimits { card: CardIndex(0), enis }],
            ipv4_per_eni,
            ipv6_per_eni: ipv4_per_eni,
            prefixes: true,
            trunk: false,
            branch_enis: 0,
        }
    }

    /// The most ENIs of one card; 0 if there is no such card.
    pub fn enis_on(&self, card: CardIndex) -> u16 {
        self.cards.iter().find(|of| of.card == card).map_or(0, |of| of.enis)
    }

    /// The most addresses or prefixes of one ENI that pods can use: all but the primary address.
    pub fn secondary_per_eni(&self) -> u32 {
        u32::from(self.ipv4_per_eni.saturating_sub(1))
    }
}

/// The node as found at the start, and the properties of its new ENIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub instance_id: InstanceId,
    /// Never freed.
    pub primary_eni: EniId,
    pub vpc: VpcId,
    /// The availability zone, such as `eu-central-1a`.
    pub zone: String,
    /// The subnet of the primary ENI and, by default, of new ENIs.
    pub subnet: SubnetId,
    /// The IPv4 CIDR of that subnet.
    pub subnet_cidr: Option<Ipv4Net>,
    /// The IPv6 CIDR of that subnet.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// The security groups of the primary ENI, which new ENIs get too.
    pub security_groups: Vec<SecurityGroupId>,
    /// The description of new ENIs.
    pub description: String,
    /// The tags of new ENIs. The tag `node.k8s.amazonaws.com/instance_id` among them marks an ENI as created by us,
    /// unless another tag marks it as adopted.
    pub tags: BTreeMap<String, String>,
}

/// The parameters that differ between starts of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The kernel's boot ID. Assignments of another boot are void.
    pub boot_id: String,
    /// Random at each start; jitter and client tokens derive from it.
    pub seed: u64,
}
