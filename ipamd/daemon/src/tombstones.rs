//! Tombstones: files that the plugin writes if a DEL cannot reach the daemon.

use crate::{
    checkpoint::create_durably,
    inbox::{Ended, Inbox},
    messages::Question,
    policy,
};
use config_model::{PodKey, Tombstone, registry};
use datapath_rpc::AgentAt;
use ipamd_core::ReleaseCause;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{sync::Mutex, task::spawn_blocking};

/// The folder of tombstones.
#[derive(Clone, Debug)]
pub struct Tombstones {
    folder: PathBuf,
    draining: Arc<Mutex<()>>,
}

/// A tombstone and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    pub tombstone: Tombstone,
}

/// A file that is not a valid tombstone.
#[derive(Debug, thiserror::Error)]
#[error("tombstone {}: {why}", path.display())]
pub struct Unusable {
    pub path: PathBuf,
    pub why: String,
}

impl Tombstones {
    /// The tombstones in this state folder.
    pub fn within(state: &Path) -> Self {
        Self { folder: state.join(registry::TOMBSTONE_DIR), draining: Arc::default() }
    }

    /// Releases the reservation of the key's tombstone, then removes the tombstone. Without a tombstone, another caller
    /// has done so.
    ///
    /// All clones drain one tombstone at a time: a second release of the same key would undo its next ADD.
    pub(crate) async fn drain(
        &self,
        inbox: &Inbox,
        key: &PodKey,
        agent: Option<&AgentAt>,
    ) -> Result<(), Ended> {
        let _one_at_a_time = self.draining.lock().await;
        let Some(Found { path, tombstone }) = self.of(key) else { return Ok(()) };
        let cause = ReleaseCause::PodDeleted;
        inbox.ask(Question::Release { key: tombstone.key.clone(), cause }).await?;
        policy::forget(agent, inbox, key, tombstone.pod.as_ref()).await;
        // The disk must not delay the event loop, which runs on the same thread as a plugin's request.
        let (own, file) = (self.clone(), path.clone());
        let removed = spawn_blocking(move || own.remove(&file)).await;
        match removed.map_err(io::Error::other).flatten() {
            Ok(()) => tracing::info!(key = %tombstone.key, "completed the DEL of a tombstone"),
            Err(error) => tracing::warn!(%error, "cannot remove tombstone {}", path.display()),
        }
        Ok(())
    }

    /// Creates the folder, to which the plugin writes.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn prepare(&self) -> io::Result<()> {
        create_durably(&self.folder)
    }

    /// The tombstones by file name. Other files stay and are returned as unusable.
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

    /// The valid tombstone of this key.
    pub fn of(&self, key: &PodKey) -> Option<Found> {
        let path = self.folder.join(Tombstone::file_name(key));
        let tombstone = read_one(&path).ok().flatten()?;
        Some(Found { path, tombstone })
    }

    /// Removes a tombstone durably.
    ///
    /// # Errors
    /// If the file may still exist after a power cut.
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
        return Err(format!("its version {} is newer than this daemon", read.version));
    }
    let named =
        path.file_name().is_some_and(|name| name == Tombstone::file_name(&read.key).as_str());
    if !named {
        return Err("its file name does not match its key".to_owned());
    }
    Ok(Some(read))
}

/// The most tombstones of one repair pass; the next pass reads more.
const AT_ONCE: usize = 4096;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::messages::Input;
    use ipamd_core::Answer;
    use tokio::sync::mpsc;

    /// The next request and the channel of its answer.
    async fn next(
        inputs: &mut mpsc::Receiver<Input>,
    ) -> (Question, tokio::sync::oneshot::Sender<Answer>) {
        let Some(Input::Ask { question, reply, .. }) = inputs.recv().await else { panic!() };
        (question, reply)
    }

    #[tokio::test]
    async fn a_tombstone_is_drained_once_though_an_add_and_a_repair_pass_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let tombstones = Tombstones::within(folder.path());
        tombstones.prepare().unwrap();
        let key = PodKey::new("aws-cni", "a1", "eth0").unwrap();
        let tombstone = Tombstone::new(key.clone(), None, Vec::new());
        let file = folder.path().join("tombstones").join(Tombstone::file_name(&key));
        std::fs::write(file, serde_json::to_vec(&tombstone).unwrap()).unwrap();

        let (inbox, mut inputs) = Inbox::open();
        let both = [(inbox.clone(), tombstones.clone()), (inbox.clone(), tombstones.clone())];
        let both = both.map(|(inbox, tombstones)| {
            let key = key.clone();
            tokio::spawn(async move { tombstones.drain(&inbox, &key, None).await })
        });
        let (question, reply) = next(&mut inputs).await;
        assert!(matches!(question, Question::Release { key: of, .. } if of == key));
        // The other task gets a chance to ask as well.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(inputs.try_recv().is_err(), "the next ADD's reservation would be released");
        reply.send(Answer::Released { known: true, addresses: Vec::new() }).unwrap();
        for task in both {
            task.await.unwrap().unwrap();
        }
        assert!(inputs.try_recv().is_err(), "the next ADD's reservation would be released");
        assert!(tombstones.of(&key).is_none());
    }
}
