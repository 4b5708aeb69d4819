//! A lock that allows one `migrate` per node at a time, because each run acts on what it observed.

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
};

/// The lock. The kernel releases it when the process exits.
pub(super) struct RunLock {
    _lock: Flock<File>,
}

impl RunLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// The owner of the lock.
    pub(super) fn take(state_dir: &Path, verb: &str) -> Result<Self> {
        let path = state_dir.join(FILE);
        let opened = fs::create_dir_all(state_dir).and_then(|()| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)
        });
        let file =
            opened.with_context(|| format!("cannot open {}; run this as root", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let owner = format!("ferrule migrate {verb}, process {}", process::id());
                lock.set_len(0)
                    .and_then(|()| lock.write_all(owner.as_bytes()))
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Ok(Self { _lock: lock })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut owner = String::new();
                // The owner may not have written its name yet.
                if file.read_to_string(&mut owner).is_err() || owner.is_empty() {
                    "another ferrule migrate".clone_into(&mut owner);
                }
                bail!(
                    "cannot lock {path}: {owner} runs on this node; wait until it has stopped, or \
                     stop it, and run this again",
                    path = path.display()
                )
            }
            Err((_, errno)) => {
                Err(anyhow!(errno).context(format!("cannot lock {}", path.display())))
            }
        }
    }
}

const FILE: &str = "migrate.lock";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn a_second_call_names_the_owner_and_starts_after_its_end() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        let first = RunLock::take(&state, "apply").unwrap();
        for _ in 0..2 {
            let owner = RunLock::take(&state, "rollback").err().unwrap().to_string();
            let who = format!("migrate.lock: ferrule migrate apply, process {} ", process::id());
            assert!(owner.contains(&who), "{owner}");
        }
        drop(first);
        let _second = RunLock::take(&state, "rollback").unwrap();
        let owner = RunLock::take(&state, "apply").err().unwrap().to_string();
        assert!(owner.contains("migrate.lock: ferrule migrate rollback, process"), "{owner}");
    }
}
