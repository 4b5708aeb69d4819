//! The record of a component's command line, so that a later command can start the component again.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The command line of a component.
#[derive(Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

impl Launch {
    /// Writes the record into the cluster's folder.
    pub(crate) fn save(&self, folder: &Path, component: &str) -> Result<()> {
        let path = path(folder, component);
        let text = serde_json::to_string_pretty(self).context("encode a command line")?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn load(folder: &Path, component: &str) -> Result<Self> {
        let path = path(folder, component);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
    }

    pub(crate) fn is_recorded(folder: &Path, component: &str) -> bool {
        path(folder, component).is_file()
    }
}

fn path(folder: &Path, component: &str) -> PathBuf {
    folder.join(format!("{component}.launch"))
}
