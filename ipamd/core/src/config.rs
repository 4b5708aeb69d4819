//! What the core is told once: the pool's targets, the instance's limits, the node.

use config_model::{CardIndex, EniId, InstanceId, SecurityGroupId, Span, SubnetId, VpcId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;

/// Which addresses pods get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6, out of one /80 for each ENI.
    V6,
}

impl Family {
    /// Whether the block is of it, and no larger than EC2's prefixes.
    pub(crate) fn has(self, block: IpNet) -> bool {
        match block {
            IpNet::V4(net) => self == Self::V4 && net.prefix_len() >= 28,
            IpNet::V6(net) => self == Self::V6 && net.prefix_len() >= 80,
        }
    }
}

/// The pool's targets and modes, after the settings were read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// `ENABLE_IPv6`: which addresses pods get.
    pub family: Family,
    /// `ENABLE_PREFIX_DELEGATION`: ask for /28 prefixes instead of single addresses. Without effect
    /// where the instance type or the family does not have them.
    pub prefixes: bool,
    /// `WARM_ENI_TARGET`: free addresses to keep, as a multiple of what one ENI holds. Without
    /// effect when one of the two address targets is set.
    pub warm_eni_target: u32,
    /// `WARM_IP_TARGET`: free addresses to keep. `None` and `Some(0)` mean *not set*.
    pub warm_ip_target: Option<u32>,
    /// `MINIMUM_IP_TARGET`: addresses to hold at least. `None` and `Some(0)` mean *not set*.
    pub minimum_ip_target: Option<u32>,
    /// `WARM_PREFIX_TARGET`: with `prefixes`, free addresses to keep, as a multiple of 16. Without
    /// effect when one of the two address targets is set. `None` means 1, as the settings have it.
    pub warm_prefix_target: Option<u32>,
    /// `MAX_ENI`: ENIs to use at most; counts only if it is at least 1 and below the limit.
    pub max_eni: Option<u32>,
    /// Pods that the kubelet runs at most: the pool does not grow beyond as many addresses. What
    /// the node itself says ([`ClusterFact::MaxPods`](crate::ClusterFact::MaxPods)) outweighs it.
    pub max_pods: u32,
    /// `IP_COOLDOWN_PERIOD`: how long a released address rests.
    pub cooldown: Span,
    /// How long a reservation waits for its confirmation.
    pub reservation_lifetime: Span,
    /// `ENABLE_MULTI_NIC`: network cards beside card 0 have pools too.
    pub multi_nic: bool,
    /// Not `DISABLE_NETWORK_RESOURCE_PROVISIONING`: EC2 is asked for changes.
    pub provisioning: bool,
    /// `ENABLE_IMDS_ONLY_MODE`: EC2 is not asked at all.
    pub imds_only: bool,
    /// `MANAGE_UNTAGGED_ENI`: an ENI without our tags is used for pods all the same.
    pub manage_untagged: bool,
    /// `ENABLE_SUBNET_DISCOVERY`: new ENIs go into any subnet of the zone whose tags allow it.
    pub subnet_discovery: bool,
    /// `CLUSTER_NAME`: whose subnets count, and whose forgotten ENIs are ours to collect.
    pub cluster_name: Option<String>,
    /// `AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG`: new ENIs are as the node's ENIConfig says, and the
    /// primary ENI gives pods no addresses.
    pub custom_networking: bool,
    /// `ENABLE_POD_ENI`: pods may have branch ENIs; a place is kept for their trunk.
    pub pod_enis: bool,
    /// `AWS_MANAGE_ENIS_NON_SCHEDULABLE`: the pool grows and shrinks on unschedulable nodes too.
    pub manage_unschedulable: bool,
    /// Not `DISABLE_LEAKED_ENI_CLEANUP`: the elected collector deletes forgotten ENIs.
    pub collect_leaks: bool,
    /// How many calls EC2 may get of this node.
    pub calls: CallLimits,
}

/// How many calls of one action EC2 may get of one node while it does not object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// `FERRULE_EC2_BURST`: as many at once.
    pub burst: u32,
    /// `FERRULE_EC2_CHANGES_PER_SECOND`: for actions that change something.
    pub changes_per_second: u32,
    /// `FERRULE_EC2_READS_PER_SECOND`: for actions that describe something.
    pub reads_per_second: u32,
}

impl Default for CallLimits {
    /// EC2 gives an account bursts of 50 to 100 and 5 to 20 calls per second for all its nodes; one
    /// node stays well below.
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
        }
    }
}

/// What the instance type allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its network cards, by index; card 0 is always among them.
    pub cards: Vec<CardLimits>,
    /// IPv4 addresses of one ENI, its primary address among them. A prefix counts as one.
    pub ipv4_per_eni: u16,
    /// IPv6 addresses of one ENI. A prefix counts as one.
    pub ipv6_per_eni: u16,
    /// Whether ENIs can have prefixes: Nitro and bare metal.
    pub prefixes: bool,
    /// Whether an ENI can be a trunk.
    pub trunk: bool,
    /// How many branch ENIs the trunk carries.
    pub branch_enis: u16,
}

/// What one network card allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLimits {
    /// The card.
    pub card: CardIndex,
    /// ENIs, on card 0 the primary one among them.
    pub enis: u16,
}

impl Limits {
    /// A type with card 0 alone, on Nitro, without trunk.
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

    /// ENIs of one card; 0 if there is no such card.
    pub fn enis_on(&self, card: CardIndex) -> u16 {
        self.cards.iter().find(|of| of.card == card).map_or(0, |of| of.enis)
    }

    /// Addresses or prefixes of one ENI that pods can use: all but the primary address.
    pub fn secondary_per_eni(&self) -> u32 {
        u32::from(self.ipv4_per_eni.saturating_sub(1))
    }
}

/// The node as it was found at start, and what its ENIs are to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The instance.
    pub instance_id: InstanceId,
    /// Its primary ENI: never freed.
    pub primary_eni: EniId,
    /// Its VPC.
    pub vpc: VpcId,
    /// Its availability zone, such as `eu-central-1a`.
    pub zone: String,
    /// The subnet of the primary ENI, in which new ENIs are made unless something else is set.
    pub subnet: SubnetId,
    /// The IPv4 addresses of that subnet.
    pub subnet_cidr: Option<Ipv4Net>,
    /// The IPv6 addresses of that subnet.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// The security groups of the primary ENI, which new ENIs get too.
    pub security_groups: Vec<SecurityGroupId>,
    /// The description of new ENIs.
    pub description: String,
    /// The tags of new ENIs, that of the instance (`node.k8s.amazonaws.com/instance_id`) among them:
    /// an ENI with it counts as made by us, unless another tag says that we adopted it.
    pub tags: BTreeMap<String, String>,
}

/// What differs from one start of the process to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The kernel's boot id: assignments of another boot are void.
    pub boot_id: String,
    /// Drawn anew at each start; jitter and client tokens derive from it.
    pub seed: u64,
}
