//! Network namespaces for the pods of a benchmark.

use anyhow::{Context as _, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use serde::Deserialize;
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A pod of the API.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A network namespace that is removed on drop.
pub(crate) struct Sandbox {
    pub(crate) pod: Pod,
    /// Unique within a run.
    pub(crate) number: u32,
    /// Path below `/run/netns`.
    pub(crate) path: PathBuf,
}

impl Sandbox {
    /// A sandbox of a pod that no API server knows.
    pub(crate) fn new(kind: &str, at: usize) -> Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (name, uid) = (format!("bench-{kind}-{at}-{number}"), format!("uid-{number}"));
        Self::with(number, Pod { namespace: "bench".to_owned(), name, uid })
    }

    /// A sandbox of this pod.
    pub(crate) fn of(pod: &Pod) -> Result<Self> {
        Self::with(COUNT.fetch_add(1, Ordering::Relaxed), pod.clone())
    }

    fn with(number: u32, pod: Pod) -> Result<Self> {
        let name = format!("bench-{number}-{}", pod.name);
        let path = Path::new("/run/netns").join(&name);
        std::fs::create_dir_all("/run/netns").context("create /run/netns")?;
        File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let target = path.clone();
        // A namespace belongs to a thread. A separate thread leaves the namespace of the caller unchanged.
        std::thread::spawn(move || -> Result<()> {
            unshare(CloneFlags::CLONE_NEWNET).context("create a network namespace")?;
            let own = Some("/proc/thread-self/ns/net");
            mount(own, &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .with_context(|| format!("bind the namespace to {}", target.display()))
        })
        .join()
        .map_err(|_| anyhow::anyhow!("the thread of sandbox {name} panicked"))??;
        Ok(Self { pod, number, path })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The lab removes the node's `/run` at the end, including entries that remain here.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_file(&self.path);
    }
}
