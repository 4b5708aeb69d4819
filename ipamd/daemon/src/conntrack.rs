//! The settings of connection tracking on a node whose Services ferrule-agent serves: without kube-proxy no other program
//! makes them after a reboot.

use crate::repair::ProcSys;
use ipamd_node::conntrack::{cpus, names, plan};
use routing_plan::SysctlName;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// Observes and changes the settings once a minute. Never returns.
///
/// The kernel has the settings once a rule needs connections. kube-proxy makes its own when it starts.
pub(crate) async fn keep(proc_sys: ProcSys) {
    let count = fs::read_to_string(CPUS).ok().and_then(|list| cpus(&list));
    let mut failed: BTreeSet<SysctlName> = BTreeSet::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let observed: BTreeMap<SysctlName, String> =
            names().filter_map(|name| proc_sys.read(&name).map(|value| (name, value))).collect();
        for (name, value) in plan(count.unwrap_or(1), &observed) {
            match fs::write(proc_sys.root().join(name.as_str()), &value) {
                Ok(()) => {
                    tracing::info!(sysctl = %name, value, "changed a setting of connection tracking")
                }
                // In a network namespace of its own a node cannot change the limits of the machine.
                Err(error) if failed.insert(name.clone()) => {
                    tracing::info!(
                        sysctl = %name,
                        value,
                        error = config_model::causes(&error),
                        "cannot change a setting of connection tracking"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

const CPUS: &str = "/sys/devices/system/cpu/online";
const PERIOD: Duration = Duration::from_secs(60);
