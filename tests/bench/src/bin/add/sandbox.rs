//! Network namespaces for the pods of a benchmark.

use anyhow::{Context as _, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A namespace that is gone when the value is dropped.
pub(crate) struct Sandbox {
    /// Fit for a pod's name.
    pub(crate) name: String,
    /// No other sandbox of this run has it.
    pub(crate) number: u32,
    /// The namespace's path.
    pub(crate) path: PathBuf,
}

impl Sandbox {
    pub(crate) fn new(kind: &str, at: usize) -> Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{kind}-{at}-{number}");
        let path = Path::new("/run/netns").join(&name);
        std::fs::create_dir_all("/run/netns").context("create /run/netns")?;
        File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let target = path.clone();
        // Namespaces belong to threads: a thread of its own leaves ours where we are.
        std::thread::spawn(move || -> Result<()> {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
            let own = Some("/proc/thread-self/ns/net");
            mount(own, &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .with_context(|| format!("bind the namespace to {}", target.display()))
        })
        .join()
        .map_err(|_| anyhow::anyhow!("the thread of sandbox {name} panicked"))??;
        Ok(Self { name, number, path })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The lab takes the node's /run away in the end, with whatever could not be removed here.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_file(&self.path);
    }
}
