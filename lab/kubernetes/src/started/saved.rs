//! The cluster's data at an earlier time, as after a disaster.

use super::{API_SERVER, Cluster, ETCD};
use anyhow::{Context as _, Result};
use std::{fs, path::Path};

impl Cluster {
    /// Keeps a copy of all data as they are now, in the place of one kept before. API server and etcd are away
    /// meanwhile.
    ///
    /// # Errors
    /// When the copy cannot be made, or as [`Cluster::start`].
    pub fn save(&mut self) -> Result<()> {
        let (data, saved) = (self.data(), self.folder.join(SAVED));
        self.without_etcd(|| replace(&data, &saved))
    }

    /// Puts back what was saved: what was written since is lost, and versions go back. API server and etcd are
    /// away meanwhile.
    ///
    /// # Errors
    /// When nothing was saved, when it cannot be copied, or as [`Cluster::start`].
    pub fn put_back(&mut self) -> Result<()> {
        let (data, saved) = (self.data(), self.folder.join(SAVED));
        self.without_etcd(|| replace(&saved, &data))
    }

    fn without_etcd(&mut self, what: impl FnOnce() -> Result<()>) -> Result<()> {
        // Without its etcd the API server would not end.
        self.stop(API_SERVER);
        self.stop(ETCD);
        what()?;
        self.launch(ETCD, self.etcd_args())?;
        self.launch_api_server()
    }
}

/// Puts a copy of a folder in the place of another.
fn replace(from: &Path, to: &Path) -> Result<()> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", to.display()));
        }
        _ => {}
    }
    copy(from, to)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let reading = || format!("read {}", from.display());
    fs::create_dir(to).with_context(|| format!("make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().with_context(reading)?.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Name of the copy's folder.
const SAVED: &str = "saved";
