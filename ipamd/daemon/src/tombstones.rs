//! Words that DELs left while the daemon could not be reached.

use crate::checkpoint::create_durably;
use config_model::{PodKey, Tombstone, registry};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::{Mutex, MutexGuard};

/// The folder of tombstones.
#[derive(Clone, Debug)]
pub struct Tombstones {
    folder: PathBuf,
    burying: Arc<Mutex<()>>,
}

/// A tombstone and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it lies.
    pub path: PathBuf,
    /// What it says.
    pub tombstone: Tombstone,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("tombstone {}: {why}", path.display())]
pub struct Unusable {
    /// Which.
    pub path: PathBuf,
    /// Why not.
    pub why: String,
}

impl Tombstones {
    /// Those of this state folder.
    pub fn within(state: &Path) -> Self {
        Self { folder: state.join(registry::TOMBSTONE_DIR), burying: Arc::default() }
    }

    /// From looking for a tombstone to taking it away, one at a time among all clones: one that is
    /// carried out twice would, the second time, undo what its interface's next ADD has made.
    pub(crate) async fn alone(&self) -> MutexGuard<'_, ()> {
        self.burying.lock().await
    }

    /// The folder must be there for the plugin to write to.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn prepare(&self) -> io::Result<()> {
        create_durably(&self.folder)
    }

    /// All there are, in the order of their names. A file that is none is told and left alone.
    pub fn read(&self) -> (Vec<Found>, Vec<Unusable>) {
        let (mut found, mut unusable) = (Vec::new(), Vec::new());
        let mut paths = match fs::read_dir(&self.folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => {
                unusable.push(Unusable { path: self.folder.clone(), why: e.to_string() });
                Vec::new()
            }
        };
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        for path in paths.into_iter().take(AT_ONCE) {
            match read_one(&path) {
                Ok(Some(tombstone)) => found.push(Found { path, tombstone }),
                Ok(None) => {}
                Err(why) => unusable.push(Unusable { path, why }),
            }
        }
        (found, unusable)
    }

    /// The one of this key, if there is one that can be used.
    pub fn of(&self, key: &PodKey) -> Option<Found> {
        let path = self.folder.join(Tombstone::file_name(key));
        let tombstone = read_one(&path).ok().flatten()?;
        Some(Found { path, tombstone })
    }

    /// Takes one away, for good.
    ///
    /// # Errors
    /// When the file stays.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        File::open(&self.folder)?.sync_all()
    }
}

fn read_one(path: &Path) -> Result<Option<Tombstone>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let read: Tombstone = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    if read.version > Tombstone::VERSION {
        return Err(format!("it has version {}, which is newer than this daemon", read.version));
    }
    let named =
        path.file_name().is_some_and(|name| name == Tombstone::file_name(&read.key).as_str());
    if !named {
        return Err("its name is not that of its key".to_owned());
    }
    Ok(Some(read))
}

/// One pass takes this many; the next pass takes more.
const AT_ONCE: usize = 4096;
