//! Clusters that outlive the command that started them.

use crate::{
    Cluster, ClusterSpec,
    component::Component,
    launch::Launch,
    started::{API_SERVER, ETCD, wait_until_ready},
};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Starts a cluster that keeps its state in `folder` and stays.
///
/// # Errors
/// As [`Cluster::start`]; [`down`] ends what was started before.
pub fn up(folder: &Path, wanted: &ClusterSpec) -> Result<Cluster> {
    Cluster::start_to_stay(folder, wanted)
}

/// Ends the cluster of this folder; the components that ran.
pub fn down(folder: &Path) -> Vec<&'static str> {
    // The last first: without its etcd the API server would not end.
    let running = COMPONENTS.into_iter().rev().filter_map(|name| Component::found(name, folder));
    let stop = |mut component: Component| {
        component.stop();
        component.name()
    };
    running.map(stop).collect()
}

/// Ends one component; its data stay.
///
/// # Errors
/// When there is none of this name.
pub fn stop(folder: &Path, name: &str) -> Result<()> {
    if let Some(mut component) = Component::found(known(name)?, folder) {
        component.stop();
    }
    Ok(())
}

/// Starts a component again as it was started before, and waits until the API server is ready.
///
/// # Errors
/// When it does not start.
pub fn start(folder: &Path, name: &str) -> Result<()> {
    let name = known(name)?;
    if Component::found(name, folder).is_none() {
        let launch = Launch::load(folder, name)?;
        let mut component = Component::start(&launch.program, name, &launch.args, folder, true)?;
        component.note(folder)?;
        if name == API_SERVER {
            return wait_until_ready(&kubeconfig(folder), || component.must_run());
        }
        // A program that cannot run ends soon.
        thread::sleep(FIRST_LOOK);
        return component.must_run();
    }
    if name == API_SERVER { wait_until_ready(&kubeconfig(folder), || Ok(())) } else { Ok(()) }
}

/// The components of this folder that run.
pub fn what_runs(folder: &Path) -> Vec<&'static str> {
    let names = COMPONENTS.into_iter();
    names.filter(|name| Component::found(name, folder).is_some()).collect()
}

/// A component that was started, whether it runs or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentStatus {
    pub name: &'static str,
    /// Its process, if it runs.
    pub pid: Option<i32>,
    /// File for its output.
    pub log: PathBuf,
}

/// All components that were started in this folder.
pub fn components(folder: &Path) -> Vec<ComponentStatus> {
    let started = COMPONENTS.into_iter().filter(|name| Launch::is_recorded(folder, name));
    let kept = |name| ComponentStatus {
        name,
        pid: Component::found(name, folder).map(|component| component.pid()),
        log: folder.join(format!("{name}.log")),
    };
    started.map(kept).collect()
}

/// The kubeconfig of one who may do everything.
pub fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("access/admin.kubeconfig")
}

/// Removes the files of a cluster that has ended.
///
/// # Errors
/// When they cannot be removed.
pub fn forget(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn known(name: &str) -> Result<&'static str> {
    match COMPONENTS.into_iter().find(|known| *known == name) {
        Some(known) => Ok(known),
        None => bail!("there is no component {name}; there are {}", COMPONENTS.join(", ")),
    }
}

/// In the order of their start.
const COMPONENTS: [&str; 4] = [ETCD, API_SERVER, "kube-controller-manager", "kube-scheduler"];

/// A component that cannot run has ended by then.
const FIRST_LOOK: Duration = Duration::from_millis(500);
