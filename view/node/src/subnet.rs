//! A subnet of the node's zone in EC2's last answer.

use serde::{Deserialize, Serialize};

/// The daemon makes no calls to EC2 for these counts, so they can be old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subnet {
    pub id: String,
    pub zone: String,
    pub cidr: String,
    /// Addresses that EC2 can assign, free or not.
    pub total: u64,
    /// EC2's count of free addresses, those of fragmented ranges included.
    pub available: u32,
    /// The age of the count.
    pub seconds_ago: u64,
    /// New ENIs of the node may use it.
    pub for_pods: bool,
    /// Its tag `kubernetes.io/role/cni` is 0.
    pub excluded: bool,
    /// The node has an ENI there.
    pub in_use: bool,
    /// EC2 refused the node's last request for a prefix there.
    pub fragmented: bool,
    /// Earlier counts and the last one, oldest first. Empty for subnets that the node does not use.
    pub samples: Vec<Sample>,
}

/// A count of free addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32)", into = "(u64, u32)")]
pub struct Sample {
    /// The age of the count in the document.
    pub seconds_ago: u64,
    pub available: u32,
}

impl From<(u64, u32)> for Sample {
    fn from((seconds_ago, available): (u64, u32)) -> Self {
        Self { seconds_ago, available }
    }
}

impl From<Sample> for (u64, u32) {
    fn from(sample: Sample) -> Self {
        (sample.seconds_ago, sample.available)
    }
}
