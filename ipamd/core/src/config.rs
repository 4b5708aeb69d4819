//! What the core is told once: the pool's targets, the instance's limits, the node.

use config_model::{EniId, InstanceId, SecurityGroupId, Span, SubnetId};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;

/// The pool's targets, after the settings were read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// `WARM_ENI_TARGET`: free addresses to keep, as a multiple of what one ENI holds. Without
    /// effect when one of the two address targets is set.
    pub warm_eni_target: u32,
    /// `WARM_IP_TARGET`: free addresses to keep. `None` and `Some(0)` mean *not set*.
    pub warm_ip_target: Option<u32>,
    /// `MINIMUM_IP_TARGET`: addresses to hold at least. `None` and `Some(0)` mean *not set*.
    pub minimum_ip_target: Option<u32>,
    /// `MAX_ENI`: ENIs to use at most; counts only if it is at least 1 and below the limit.
    pub max_eni: Option<u32>,
    /// Pods that the kubelet runs at most: the pool does not grow beyond as many addresses.
    pub max_pods: u32,
    /// `IP_COOLDOWN_PERIOD`: how long a released address rests.
    pub cooldown: Span,
    /// How long a reservation waits for its confirmation.
    pub reservation_lifetime: Span,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            warm_eni_target: 1,
            warm_ip_target: None,
            minimum_ip_target: None,
            max_eni: None,
            max_pods: 110,
            cooldown: Span::seconds(30),
            reservation_lifetime: Span::seconds(60),
        }
    }
}

/// What the instance type allows on network card 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// ENIs, the primary one among them.
    pub enis: u16,
    /// IPv4 addresses of one ENI, its primary address among them.
    pub ipv4_per_eni: u16,
}

impl Limits {
    /// Addresses of one ENI that pods can use: all but the primary one.
    pub fn secondary_per_eni(self) -> u32 {
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
    /// The subnet of the primary ENI, in which new ENIs are made.
    pub subnet: SubnetId,
    /// The addresses of that subnet.
    pub subnet_cidr: Ipv4Net,
    /// The security groups of the primary ENI, which new ENIs get too.
    pub security_groups: Vec<SecurityGroupId>,
    /// The description of new ENIs.
    pub description: String,
    /// The tags of new ENIs. An ENI that carries all of them counts as made by us.
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
