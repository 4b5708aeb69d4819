//! Where does a new ENI go? Its subnet by the tags, by ENIConfig or beside the node, and the
//! security groups that come with it.

#[cfg(test)]
mod tests;

use crate::{EniConfig, NodeFacts, PoolConfig, SeenSubnet};
use config_model::{SecurityGroupId, SubnetId};
use std::{cmp::Reverse, collections::BTreeMap};

/// `0`: no pods in this subnet. Any other value: pods may use it. Absent or empty: the node's own
/// subnet may be used, others not.
const TAG_ROLE: &str = "kubernetes.io/role/cni";
/// With one of these tags, a subnet is for the clusters that it names.
const TAG_CLUSTER: &str = "cni.networking.k8s.aws/cluster/";

/// Where a new ENI may go, best first, and the groups that it gets there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) subnets: Vec<SubnetId>,
    pub(crate) groups: Vec<SecurityGroupId>,
}

/// Why there is no place for a new ENI now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nowhere {
    /// The node's ENIConfig is not known yet.
    EniConfigUnknown,
    /// The node has no ENIConfig that can be used.
    EniConfigMissing { name: String, why: String },
    /// The subnets of the zone are not known yet.
    SubnetsUnknown,
    /// Every subnet's tags forbid it.
    AllForbidden,
}

impl Nowhere {
    /// What it is, for people.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::EniConfigUnknown => "the node's ENIConfig is not known yet".to_owned(),
            Self::EniConfigMissing { name, why } => {
                format!("ENIConfig {name} cannot be used: {why}")
            }
            Self::SubnetsUnknown => "the zone's subnets are not known yet".to_owned(),
            Self::AllForbidden => "no subnet of the zone may be used for pods".to_owned(),
        }
    }

    /// What a person can do.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::EniConfigUnknown => "see that the API server answers".to_owned(),
            Self::EniConfigMissing { name, .. } => format!(
                "create ENIConfig {name} with the id of a subnet in the node's zone, or point the \
                 node's label or annotation at another"
            ),
            Self::SubnetsUnknown => "allow ec2:DescribeSubnets to the node's role".to_owned(),
            Self::AllForbidden => {
                "tag a subnet kubernetes.io/role/cni=1, and for this cluster if it has cluster tags"
                    .to_owned()
            }
        }
    }
}

/// What is known of the zone's subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zone {
    /// EC2 was not asked yet.
    #[default]
    Unknown,
    /// EC2 does not tell: the node's own subnet is all there is.
    Untold,
    /// These are all.
    Known(Vec<SeenSubnet>),
}

/// Where the next ENI goes.
pub(crate) fn place(
    config: &PoolConfig,
    node: &NodeFacts,
    eni_config: &EniConfig,
    zone: &Zone,
) -> Result<Placement, Nowhere> {
    let groups = node.security_groups.clone();
    if config.custom_networking {
        return match eni_config {
            EniConfig::Unknown => Err(Nowhere::EniConfigUnknown),
            EniConfig::Missing { name, why } => {
                Err(Nowhere::EniConfigMissing { name: name.clone(), why: why.clone() })
            }
            EniConfig::Found { subnet, groups: own, .. } => Ok(Placement {
                subnets: vec![subnet.clone()],
                groups: if own.is_empty() { groups } else { own.clone() },
            }),
        };
    }
    let own = Placement { subnets: vec![node.subnet.clone()], groups };
    if !config.subnet_discovery {
        return Ok(own);
    }
    let seen = match zone {
        Zone::Unknown => return Err(Nowhere::SubnetsUnknown),
        Zone::Untold => return Ok(own),
        Zone::Known(seen) => seen,
    };
    let cluster = config.cluster_name.as_deref();
    let mut usable: Vec<&SeenSubnet> = seen
        .iter()
        .filter(|subnet| is_usable(&subnet.tags, subnet.id == node.subnet, cluster))
        .collect();
    usable.sort_by_key(|s| (Reverse(s.free_addresses), s.id != node.subnet, s.id.clone()));
    let subnets: Vec<SubnetId> = usable.into_iter().map(|subnet| subnet.id.clone()).collect();
    if subnets.is_empty() {
        return Err(Nowhere::AllForbidden);
    }
    Ok(Placement { subnets, ..own })
}

/// Whether pods get no addresses in the subnet, those of ENIs that are there already included.
pub(crate) fn is_shut(subnet: &SeenSubnet) -> bool {
    role(&subnet.tags) == Some("0")
}

/// Whether a new ENI may go into a subnet with these tags.
fn is_usable(tags: &BTreeMap<String, String>, is_own: bool, cluster: Option<&str>) -> bool {
    match role(tags) {
        Some("0") => false,
        None => is_own,
        Some(_) => is_for(tags, cluster),
    }
}

fn role(tags: &BTreeMap<String, String>) -> Option<&str> {
    tags.get(TAG_ROLE).map(String::as_str).filter(|role| !role.is_empty())
}

/// Whether the subnet is for this cluster: for all of them, if it names none.
fn is_for(tags: &BTreeMap<String, String>, cluster: Option<&str>) -> bool {
    let Some(cluster) = cluster else { return true };
    let mut named = tags.keys().filter_map(|tag| tag.strip_prefix(TAG_CLUSTER)).peekable();
    named.peek().is_none() || named.any(|name| name == cluster)
}
