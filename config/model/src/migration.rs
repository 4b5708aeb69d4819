//! Direction of a migration between amazon-vpc-cni and Ferrule.

use serde::{Deserialize, Serialize};

/// File that `ferrule migrate` leaves in the state folder. The daemon reads it: it does not manage a node that was
/// given back until the node is taken over again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// [`Migration::VERSION`] of the writer.
    pub version: u32,
    /// Owner of the node after the migration.
    pub owner: Owner,
    /// True if the files of the other side are complete: that side may start from now on.
    pub handed_over: bool,
    /// True if all steps are complete.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// Ours.
    #[serde(rename = "ferrule")]
    Ferrule,
    /// amazon-vpc-cni's.
    #[serde(rename = "amazon-vpc-cni")]
    AmazonVpcCni,
}

impl Migration {
    /// The version of the file.
    pub const VERSION: u32 = 1;
    /// Its name in the state folder.
    pub const FILE: &'static str = "migration.json";

    /// A migration to this owner, before its first step.
    pub fn to(owner: Owner) -> Self {
        Self { version: Self::VERSION, owner, handed_over: false, done: false }
    }
}
