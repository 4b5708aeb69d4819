//! The installer's report about the node's network, in a file. The daemon reads it, because the installer serves
//! no metrics.

use config_settings::Settings;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The installer's observations since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkReport {
    /// The reason why amazon-vpc-cni still manages the node's network.
    pub(crate) not_taken_over: Option<String>,
    /// The number of times that changed programs or conflists were restored.
    pub(crate) restored: u64,
    /// The error of the last check.
    pub(crate) failing: Option<String>,
    /// The last restored object.
    pub(crate) last: Option<String>,
    /// Notes for people.
    pub(crate) notes: Vec<String>,
}

impl NetworkReport {
    /// The last report; `None` if no installer stays.
    pub(crate) fn read(settings: &Settings) -> Option<Self> {
        serde_json::from_slice(&fs::read(file(settings)?).ok()?).ok()
    }

    /// Writes the report atomically.
    pub(super) fn write(&self, settings: &Settings) -> io::Result<()> {
        let Some(file) = file(settings) else { return Ok(()) };
        let half = file.with_extension("json.new");
        fs::write(&half, serde_json::to_vec(self)?)?;
        fs::rename(half, file)
    }

    /// Removes the report when the installer exits.
    pub(super) fn forget(settings: &Settings) {
        // A remaining report is outdated but was true.
        let _ = file(settings).map(fs::remove_file);
    }
}

/// The folder of the socket: both processes have it, and a reboot empties it.
fn file(settings: &Settings) -> Option<PathBuf> {
    settings.socket.parent().map(|folder: &Path| folder.join("network.json"))
}
