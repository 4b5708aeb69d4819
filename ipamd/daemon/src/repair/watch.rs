//! Who pulls the trigger: the kernel's own words, and settings that change without one.

use super::Trigger;
use routing_netlink::Monitor;
use routing_plan::SysctlName;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Where `/proc/sys` can be written, or at least read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcSys {
    root: PathBuf,
}

impl ProcSys {
    /// The parent of the host's `net` folder; if that is not mounted, our own `/proc/sys`, which
    /// can be read at least.
    pub fn at(net: &Path) -> Self {
        let usable = net.join("ipv4").is_dir();
        match net.parent().filter(|_| usable) {
            Some(root) => Self { root: root.to_owned() },
            None => {
                tracing::warn!(
                    "FERRULE_PROC_SYS_NET: {} is not there; settings of the host can be read but \
                     perhaps not written",
                    net.display()
                );
                Self { root: PathBuf::from("/proc/sys") }
            }
        }
    }

    /// The folder that holds `net`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the kernel has the setting.
    pub fn has(&self, name: &SysctlName) -> bool {
        self.root.join(name.as_str()).exists()
    }

    fn read(&self, name: &SysctlName) -> Option<String> {
        fs::read_to_string(self.root.join(name.as_str())).ok()
    }
}

/// Pulls the trigger at every event of the kernel, for ever.
pub async fn watch_kernel(trigger: Trigger) {
    loop {
        match Monitor::open() {
            Ok(mut monitor) => {
                // Whatever happened while nobody listened.
                trigger.pull();
                while monitor.changed().await {
                    trigger.pull();
                }
                tracing::warn!("the kernel's events have ended; listening anew");
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::error!(error = format!("{error:#}"), "cannot listen to the kernel");
            }
        }
        sleep(LISTEN_ANEW).await;
    }
}

/// Pulls the trigger when one of the settings has another value than a second ago, for ever.
pub(crate) async fn watch_sysctls(
    trigger: Trigger,
    proc_sys: ProcSys,
    wanted: BTreeMap<SysctlName, String>,
) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let drifted = wanted
            .iter()
            .any(|(name, value)| proc_sys.read(name).is_some_and(|found| found.trim() != value));
        if drifted {
            trigger.pull();
        }
    }
}

const LISTEN_ANEW: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_secs(1);
