//! Which way a node was told to go, between amazon-vpc-cni and us.

use serde::{Deserialize, Serialize};

/// What `ferrule migrate` leaves in the state folder. The daemon reads it: a node that was given back
/// is not ours until it is taken over again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// [`Migration::VERSION`] of the writer.
    pub version: u32,
    /// Whose the node is to be.
    pub owner: Owner,
    /// Whether the other side's files are complete: from here on it may start.
    pub handed_over: bool,
    /// Whether all came to its end.
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

    /// The way to this owner, begun.
    pub fn to(owner: Owner) -> Self {
        Self { version: Self::VERSION, owner, handed_over: false, done: false }
    }
}
