//! The place of a new ENI: its subnet by tags, by ENIConfig or next to the node, and its security groups.

#[cfg(test)]
mod tests;

use crate::{EniConfig, NodeFacts, PoolConfig, SeenSubnet};
use config_model::{SecurityGroupId, SubnetId};
use std::{cmp::Reverse, collections::BTreeMap};

/// `0`: no pods in this subnet. Another value: pods may use it. Absent or empty: only the node's own subnet may be
/// used.
const TAG_ROLE: &str = "kubernetes.io/role/cni";
/// A subnet with one of these tags is reserved for the clusters that they name.
const TAG_CLUSTER: &str = "cni.networking.k8s.aws/cluster/";

/// The subnets for a new ENI, best first, and its security groups there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) subnets: Vec<SubnetId>,
    pub(crate) groups: Vec<SecurityGroupId>,
}

/// The reason why there is no place for a new ENI now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NoPlacement {
    /// The node's ENIConfig has not been read yet.
    EniConfigUnknown,
    /// The node has no usable ENIConfig.
    EniConfigMissing { name: String, why: String },
    /// The subnets of the zone are not known yet.
    SubnetsUnknown,
    /// Every subnet's tags forbid it.
    AllForbidden,
}

impl NoPlacement {
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

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::EniConfigUnknown => "check that the API server answers".to_owned(),
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

/// The known subnets of the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ZoneSubnets {
    /// EC2 has not been asked yet.
    #[default]
    Unknown,
    /// EC2 does not answer; only the node's own subnet is used.
    Unavailable,
    Known(Vec<SeenSubnet>),
}

/// Finds the place of the next ENI.
pub(crate) fn place(
    config: &PoolConfig,
    node: &NodeFacts,
    eni_config: &EniConfig,
    zone: &ZoneSubnets,
) -> Result<Placement, NoPlacement> {
    let groups = node.security_groups.clone();
    if config.custom_networking {
        return match eni_config {
            EniConfig::Unknown => Err(NoPlacement::EniConfigUnknown),
            EniConfig::Missing { name, why } => {
                Err(NoPlacement::EniConfigMissing { name: name.clone(), why: why.clone() })
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
        ZoneSubnets::Unknown => return Err(NoPlacement::SubnetsUnknown),
        ZoneSubnets::Unavailable => return Ok(own),
        ZoneSubnets::Known(seen) => seen,
    };
    let cluster = config.cluster_name.as_deref();
    let mut usable: Vec<&SeenSubnet> = seen
        .iter()
        .filter(|subnet| is_usable(&subnet.tags, subnet.id == node.subnet, cluster))
        .collect();
    usable.sort_by_key(|s| (Reverse(s.free_addresses), s.id != node.subnet, s.id.clone()));
    let subnets: Vec<SubnetId> = usable.into_iter().map(|subnet| subnet.id.clone()).collect();
    if subnets.is_empty() {
        return Err(NoPlacement::AllForbidden);
    }
    Ok(Placement { subnets, ..own })
}

/// Returns whether pods get no addresses in the subnet, not even those of attached ENIs.
pub(crate) fn is_shut(subnet: &SeenSubnet) -> bool {
    role(&subnet.tags) == Some("0")
}

/// Returns whether a new ENI may use a subnet with these tags.
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

/// Returns whether the subnet is for this cluster. A subnet that names no cluster is for all.
fn is_for(tags: &BTreeMap<String, String>, cluster: Option<&str>) -> bool {
    let Some(cluster) = cluster else { return true };
    let mut named = tags.keys().filter_map(|tag| tag.strip_prefix(TAG_CLUSTER)).peekable();
    named.peek().is_none() || named.any(|name| name == cluster)
}
