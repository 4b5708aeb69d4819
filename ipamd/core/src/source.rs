//! The source of a block: the ENI that EC2 assigned it to, or a pod CIDR of the node.

use config_model::EniId;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The source of a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSource {
    /// EC2 assigned the block to this ENI. Witnesses observe it, and the pool's targets change it.
    Eni(EniId),
    /// The block is this pod CIDR of the node. Only a change of the node's CIDRs adds or removes it.
    NodeCidr(IpNet),
}

impl BlockSource {
    /// `None` for a pod CIDR of the node.
    pub fn eni(&self) -> Option<&EniId> {
        match self {
            Self::Eni(eni) => Some(eni),
            Self::NodeCidr(_) => None,
        }
    }

    pub(crate) fn is_eni(&self, id: &EniId) -> bool {
        self.eni() == Some(id)
    }
}

impl fmt::Display for BlockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eni(eni) => write!(f, "{eni}"),
            Self::NodeCidr(cidr) => write!(f, "the node's pod CIDR {cidr}"),
        }
    }
}
