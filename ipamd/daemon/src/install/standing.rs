//! How the network of a node stands, as the installer that stays tells the daemon: it serves no metrics itself.

use config_settings::Settings;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What the installer has seen since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Standing {
    /// Why the node's network is still amazon-vpc-cni's.
    pub(crate) not_taken_over: Option<String>,
    /// How often programs or conflist were not as they were left, and were put back.
    pub(crate) restored: u64,
    /// What it could not put right when it last looked.
    pub(crate) failing: Option<String>,
    /// What was put back last.
    pub(crate) last: Option<String>,
    /// What people should know.
    pub(crate) notes: Vec<String>,
}

impl Standing {
    /// What was told last; `None` if no installer stays.
    pub(crate) fn read(settings: &Settings) -> Option<Self> {
        serde_json::from_slice(&fs::read(file(settings)?).ok()?).ok()
    }

    /// Tells it, whole or not at all.
    pub(super) fn tell(&self, settings: &Settings) -> io::Result<()> {
        let Some(file) = file(settings) else { return Ok(()) };
        let half = file.with_extension("json.new");
        fs::write(&half, serde_json::to_vec(self)?)?;
        fs::rename(half, file)
    }

    /// There is nobody any more who looks.
    pub(super) fn forget(settings: &Settings) {
        // What is left behind says no worse than what was so.
        let _ = file(settings).map(fs::remove_file);
    }
}

/// Beside the socket: that folder both have, and it ends with the node's boot.
fn file(settings: &Settings) -> Option<PathBuf> {
    settings.socket.parent().map(|folder: &Path| folder.join("network.json"))
}
