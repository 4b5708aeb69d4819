//! The source ports of Services, among the reserved ports of the node.
//!
//! [`plan_reservation`] decides. The kernel reports no change of the setting, so this task reads it each second. A file in
//! the state folder records the ports that the agent has added, so that a later agent without Services removes only these.

use crate::metrics::Metrics;
use config_model::{
    causes,
    registry::{
        CONTROLLER_HEALTH_PORT, CONTROLLER_PORT, INTROSPECTION_PORT, METRICS_PORT, SOURCE_PORTS,
    },
};
use datapath_sockets::{DiagError, Listener, Sockets};
use service_core::{AddedPorts, BadPorts, PortSet, Reservation, plan_reservation};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// Cause for which the ports cannot be reserved or released.
#[derive(Debug, thiserror::Error)]
enum PortsError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot use {}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        cause: BadPorts,
    },
    #[error("cannot write {}: mount the host's folder there, or set FERRULE_PROC_SYS_NET to its mount", path.display())]
    Write {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "cannot reserve the ports {wanted}: net.ipv4.ip_local_port_range {local} would have no other port; set it to \
         ports below {}", SOURCE_PORTS.start()
    )]
    NoLocalPort { wanted: PortSet, local: PortSet },
    #[error("cannot change {}: run as root", path.display())]
    Record {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// The files of the node.
#[derive(Clone, Debug)]
pub(crate) struct NodePorts {
    reserved: PathBuf,
    local: PathBuf,
    boot: PathBuf,
    record: PathBuf,
}

/// The result of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reserved {
    /// The ports that this pass has added.
    added: PortSet,
    /// The source ports in the range from which the kernel gives ports to processes.
    common: PortSet,
}

impl NodePorts {
    /// `net` stands for `/proc/sys/net`, and is not used if it does not exist.
    pub(crate) fn of(net: &Path, state: &Path) -> Self {
        let is_mounted = net.join("ipv4").is_dir();
        let ipv4 = if is_mounted { net } else { Path::new("/proc/sys/net") }.join("ipv4");
        Self {
            reserved: ipv4.join("ip_local_reserved_ports"),
            local: ipv4.join("ip_local_port_range"),
            boot: "/proc/sys/kernel/random/boot_id".into(),
            record: state.join(RECORD),
        }
    }

    /// Adds the ports that are not reserved.
    fn reserve(&self, wanted: &PortSet) -> Result<Reserved, PortsError> {
        let reserved = parse(&self.reserved, |text| text.parse())?;
        let local = parse(&self.local, PortSet::of_local_range)?;
        let common = local.intersection(wanted);
        let added = match plan_reservation(wanted, &reserved, &local) {
            Reservation::Complete => PortSet::default(),
            Reservation::NoLocalPort { local } => {
                return Err(PortsError::NoLocalPort { wanted: wanted.clone(), local });
            }
            Reservation::Write { value, added } => {
                // Before the ports: a record without its ports removes nothing.
                if let Err(error) = self.record(&added) {
                    tracing::warn!(
                        error = causes(&error),
                        "cannot record the reserved ports: they stay reserved until a boot after Services are switched off"
                    );
                }
                self.write(&value)?;
                added
            }
        };
        Ok(Reserved { added, common })
    }

    /// Removes the ports that an agent has added since the boot. Returns them; the empty set if there are none.
    fn release(&self) -> Result<PortSet, PortsError> {
        let Some(added) = self.added()? else { return Ok(PortSet::default()) };
        let reserved = parse(&self.reserved, |text| text.parse())?;
        let left = added.release(self.boot()?.trim(), &reserved);
        if let Some(left) = &left {
            self.write(left)?;
        }
        let fault = |cause| PortsError::Record { path: self.record.clone(), cause };
        fs::remove_file(&self.record).map_err(fault)?;
        Ok(left.map_or_else(PortSet::default, |left| reserved.without(&left)))
    }

    /// Removes the ports that an agent has added since the boot, if the node has some.
    pub(crate) fn release_and_log(&self) {
        match self.release() {
            Ok(released) if released.is_empty() => {}
            Ok(released) => {
                tracing::info!(ports = %released, "source ports of Services are no longer reserved");
            }
            Err(error) => tracing::warn!(
                error = causes(&error),
                "cannot release the source ports of Services: they stay reserved until the next boot"
            ),
        }
    }

    fn boot(&self) -> Result<String, PortsError> {
        read(&self.boot).map_err(|cause| PortsError::Read { path: self.boot.clone(), cause })
    }

    /// The record; `None` if there is none.
    fn added(&self) -> Result<Option<AddedPorts>, PortsError> {
        match read(&self.record) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(PortsError::Read { path: self.record.clone(), cause }),
            Ok(text) => match text.parse() {
                Ok(added) => Ok(Some(added)),
                Err(cause) => Err(PortsError::Content { path: self.record.clone(), cause }),
            },
        }
    }

    fn record(&self, added: &PortSet) -> Result<(), PortsError> {
        let earlier = self.added().unwrap_or_else(|error| {
            tracing::warn!(error = causes(&error), "cannot read the record of reserved ports");
            None
        });
        let record = AddedPorts::after(earlier.as_ref(), self.boot()?.trim(), added);
        // Another program can undo the reservation each second.
        if earlier.as_ref() == Some(&record) {
            return Ok(());
        }
        let new = self.record.with_extension("new");
        let written = fs::write(&new, record.to_string());
        let written = written.and_then(|()| fs::rename(&new, &self.record));
        written.map_err(|cause| PortsError::Record { path: self.record.clone(), cause })
    }

    fn write(&self, value: &PortSet) -> Result<(), PortsError> {
        let written = fs::write(&self.reserved, format!("{value}\n"));
        written.map_err(|cause| PortsError::Write { path: self.reserved.clone(), cause })
    }
}

/// The task that keeps the ports reserved.
pub(crate) struct ReservedPorts {
    node: NodePorts,
    wanted: PortSet,
    metrics: Arc<Metrics>,
    /// True once all ports were reserved.
    is_reserved: bool,
    /// The last fault, which is logged once.
    fault: Option<String>,
    /// The common ports that were logged last.
    common: PortSet,
    /// The passes since the last list of sockets.
    passes: u32,
    /// The sockets that were logged last.
    listeners: Vec<Listener>,
    listeners_fault: Option<String>,
}

impl ReservedPorts {
    pub(crate) fn new(node: NodePorts, metrics: Arc<Metrics>) -> Self {
        Self {
            node,
            wanted: SOURCE_PORTS.into(),
            metrics,
            is_reserved: false,
            fault: None,
            common: PortSet::default(),
            passes: 0,
            listeners: Vec::new(),
            listeners_fault: None,
        }
    }

    /// Runs until the agent ends. The ports stay reserved.
    pub(crate) async fn keep(mut self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let pass = spawn_blocking(move || {
                self.pass();
                self
            });
            match pass.await {
                Ok(same) => self = same,
                Err(error) => {
                    tracing::error!(error = causes(&error), "cannot keep the reserved ports");
                    return;
                }
            }
        }
    }

    fn pass(&mut self) {
        let reserved = self.node.reserve(&self.wanted);
        self.metrics.reserved_ports_failing(reserved.is_err());
        self.settle(reserved);
        if self.passes == 0 {
            let found = Sockets::open().and_then(|mut sockets| {
                sockets.listeners(|local| {
                    is_foreign(local.port()) && self.wanted.contains(local.port())
                })
            });
            self.settle_listeners(found);
        }
        self.passes = (self.passes + 1) % LISTENERS_EVERY;
    }

    /// Logs and counts the result of a pass.
    fn settle(&mut self, reserved: Result<Reserved, PortsError>) {
        let Reserved { added, common } = match reserved {
            Ok(reserved) => reserved,
            Err(error) => {
                let why = causes(&error);
                if self.fault.as_ref() != Some(&why) {
                    tracing::error!(why, "the source ports of Services are not reserved");
                }
                self.fault = Some(why);
                return;
            }
        };
        if !added.is_empty() {
            let ports = added.to_string();
            if self.is_reserved {
                self.metrics.reserved_ports_repaired();
                tracing::warn!(ports, "the reserved ports were changed by another process");
            }
            tracing::info!(ports, "the source ports of Services are reserved");
        } else if self.fault.is_some() {
            tracing::info!(ports = %self.wanted, "the source ports of Services are reserved");
        }
        self.is_reserved = true;
        self.fault = None;
        if !common.is_empty() && common != self.common {
            tracing::warn!(
                ports = %common,
                "net.ipv4.ip_local_port_range has source ports of Services: the kernel gives them to no further process, and \
                 sockets that have one keep it; set the range to ports below 61000"
            );
        }
        self.common = common;
    }

    /// Logs and counts the sockets that listen at source ports of Services.
    fn settle_listeners(&mut self, found: Result<Vec<Listener>, DiagError>) {
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                let why = causes(&error);
                if self.listeners_fault.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot look for sockets at source ports of Services");
                }
                self.listeners_fault = Some(why);
                return;
            }
        };
        self.listeners_fault = None;
        found.sort_unstable();
        found.dedup();
        self.metrics.source_port_listeners(found.len());
        if !found.is_empty() && found != self.listeners {
            let text = |of: &Listener| format!("{} {}", of.transport, of.local);
            let listeners: Vec<String> = found.iter().take(LOGGED).map(text).collect();
            tracing::warn!(
                sockets = found.len(),
                ?listeners,
                "processes listen at source ports of Services, and can lose packets of a backend with the same port; give \
                 them ports below 61000"
            );
        }
        self.listeners = found;
    }
}

/// True for a port at which no program of Ferrule listens by default.
fn is_foreign(port: u16) -> bool {
    ![METRICS_PORT, INTROSPECTION_PORT, CONTROLLER_PORT, CONTROLLER_HEALTH_PORT].contains(&port)
}

fn parse<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, BadPorts>) -> Result<T, PortsError> {
    let text = read(path).map_err(|cause| PortsError::Read { path: path.to_owned(), cause })?;
    parse(&text).map_err(|cause| PortsError::Content { path: path.to_owned(), cause })
}

/// Reads a file with one call. The kernel cuts a list of ports at the size of the buffer, and has nothing for a second call.
fn read(path: &Path) -> io::Result<String> {
    for size in SIZES {
        let mut text = vec![0; size];
        let length = File::open(path)?.read(&mut text)?;
        if length < size {
            text.truncate(length);
            return String::from_utf8(text).map_err(io::Error::other);
        }
    }
    Err(io::Error::other("the value is longer than each list of ports"))
}

/// Two of them are within the time of a repair, which is 2 s.
const EVERY: Duration = Duration::from_secs(1);
/// The passes from one list of sockets to the next one.
const LISTENERS_EVERY: u32 = 30;
/// The number of sockets that one line of the log names.
const LOGGED: usize = 8;
/// The usual length of a setting, and more than that of the longest list of ports.
const SIZES: [usize; 2] = [4 << 10, 256 << 10];
/// The file with the ports that the agent has added.
const RECORD: &str = "reserved-ports";

#[cfg(test)]
mod tests;
