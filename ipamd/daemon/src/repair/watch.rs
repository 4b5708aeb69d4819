//! The sources of repair requests: kernel events, and sysctls, which change without an event.

use crate::trigger::Trigger;
use routing_netlink::Monitor;
use routing_plan::SysctlName;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// A readable and possibly writable `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcSys {
    root: PathBuf,
}

impl ProcSys {
    /// The parent of the host's `net` folder. If that is not mounted, the container's own `/proc/sys`, which is at
    /// least readable.
    pub fn at(net: &Path) -> Self {
        let usable = net.join("ipv4").is_dir();
        match net.parent().filter(|_| usable) {
            Some(root) => Self { root: root.to_owned() },
            None => {
                tracing::warn!(
                    "FERRULE_PROC_SYS_NET: {} does not exist; host sysctls can be read but perhaps \
                     not written",
                    net.display()
                );
                Self { root: PathBuf::from("/proc/sys") }
            }
        }
    }

    /// The folder that contains `net`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn has(&self, name: &SysctlName) -> bool {
        self.root.join(name.as_str()).exists()
    }

    pub(crate) fn read(&self, name: &SysctlName) -> Option<String> {
        fs::read_to_string(self.root.join(name.as_str())).ok()
    }
}

/// Requests a pass after each kernel event. Never returns.
pub async fn watch_kernel(trigger: Trigger) {
    loop {
        match Monitor::open() {
            Ok(mut monitor) => {
                // Events before the subscription are unknown.
                trigger.pull();
                while monitor.changed().await {
                    trigger.pull();
                }
                tracing::warn!("the stream of kernel events ended; reopening it");
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::error!(error = format!("{error:#}"), "cannot receive kernel events");
            }
        }
        sleep(LISTEN_ANEW).await;
    }
}

/// Polls the sysctls every second and requests a pass if one has another value than desired. Never returns.
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
