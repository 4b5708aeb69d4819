//! The file that a DEL leaves if it cannot reach the daemon.

use crate::{PodKey, PodName};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The content of `<state>/tombstones/<key.digest()>.json`: this interface is gone.
///
/// The plugin writes it (durably) when the daemon does not answer a DEL. The daemon releases the
/// key as the DEL would have done, and deletes the file once that is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The version of this format.
    pub version: u32,
    /// The interface that is gone.
    pub key: PodKey,
    /// Its pod, if the runtime named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodName>,
    /// The addresses that the plugin knew of; the daemon's own book counts, if it knows better.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

impl Tombstone {
    /// The version that [`Tombstone::new`] writes.
    pub const VERSION: u32 = 1;

    /// A tombstone of the present version.
    pub fn new(key: PodKey, pod: Option<PodName>, addresses: Vec<IpAddr>) -> Self {
        Self { version: Self::VERSION, key, pod, addresses }
    }

    /// The name of its file within the tombstone folder.
    pub fn file_name(key: &PodKey) -> String {
        format!("{}.json", key.digest())
    }
}
