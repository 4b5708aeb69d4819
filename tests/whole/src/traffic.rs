//! Connections between pods and of clients outside the VPC, from processes of this machine in their network namespaces.
//! They do not need the API server or a kubelet, so both may stop.

#![expect(clippy::print_stdout, reason = "the counts of connections are printed")]

use crate::{Pod, installed::retry};
use anyhow::{Context as _, Result, ensure};
use lab_kubernetes::Program;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tests_eventually::{PATIENCE, within};
use tests_lab::Lab;

/// The place of a client's processes.
#[derive(Clone, Copy)]
pub enum Client<'a> {
    Pod(&'a Pod),
    /// A process of a node, by the node's name.
    Node(&'a Lab, &'a str),
    /// Outside the VPC.
    Outside(&'a Lab),
}

impl Client<'_> {
    fn name(self) -> String {
        match self {
            Self::Pod(pod) => pod.name.clone(),
            Self::Node(_, node) => format!("a process of {node}"),
            Self::Outside(_) => "outside".to_owned(),
        }
    }

    /// Returns true if a server at an address and a port answers.
    ///
    /// # Errors
    /// If the probe cannot be started.
    pub fn is_answered(self, to: &str) -> Result<bool> {
        Ok(self.answer(to)?.is_some())
    }

    /// Returns the line with which a server at an address and a port answers, which starts with its host name. `None`
    /// without an answer.
    ///
    /// # Errors
    /// If the probe cannot be started.
    pub fn answer(self, to: &str) -> Result<Option<String>> {
        let output = self.probe()?.args(["tcp", to]).stdin(Stdio::null()).output();
        let output = output.context("cannot start the probe")?;
        let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(output.status.success().then_some(line))
    }

    /// Returns a command that runs the probe there. It becomes the probe, so a signal reaches the probe.
    pub(crate) fn probe(self) -> Result<Command> {
        let probe = Program::probe()?;
        let probe = probe.path().to_str().context("the path of the probe is not UTF-8")?;
        let mut command = match self {
            Self::Pod(pod) => return inside(pod),
            Self::Node(lab, node) => lab.command(&["node", "exec", node, "--", probe]),
            Self::Outside(lab) => lab.command(&["client", "exec", "--", probe]),
        };
        command.stderr(Stdio::piped());
        Ok(command)
    }
}

/// Long-lived connections from one client to one address. A drop closes them.
pub struct LongConnections {
    /// The ends, for messages.
    path: String,
    holder: Option<Child>,
}

/// The result of long-lived connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The number of opened connections.
    pub connections: u64,
    /// The number of lines with an answer.
    pub answered: u64,
    /// The number of connections that were refused, closed, or silent for 30 seconds.
    pub broken: u64,
}

impl LongConnections {
    /// Opens connections. Each sends a line ten times a second and expects it back.
    ///
    /// # Errors
    /// If a program is missing, or the pod's namespace is not found.
    pub fn between(from: &Pod, to: &Pod, connections: u32) -> Result<Self> {
        Self::from(Client::Pod(from), &format!("{}:8081", to.address), connections)
    }

    /// As [`LongConnections::between`], to an address and a port.
    ///
    /// # Errors
    /// As [`LongConnections::between`].
    pub fn from(client: Client<'_>, to: &str, connections: u32) -> Result<Self> {
        let path = format!("connections from {} to {to}", client.name());
        let holder = client
            .probe()?
            .args(["hold", to, &connections.to_string(), "100ms"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot open {path}"))?;
        Ok(Self { path, holder: Some(holder) })
    }

    /// Closes all connections and returns their counts.
    ///
    /// # Errors
    /// If the process with the connections has exited, or prints no counts.
    pub fn end(mut self) -> Result<Counts> {
        let path = || self.path.clone();
        let mut holder = self.holder.take().context("the connections are closed already")?;
        let has_ended = holder.try_wait().with_context(path)?;
        ensure!(has_ended.is_none(), "the process of {} has exited: {has_ended:?}", path());
        terminate(&holder)?;
        let output = holder.wait_with_output().with_context(path)?;
        let counts: Value = serde_json::from_slice(&output.stdout).with_context(path)?;
        let of = |name: &str| counts[name].as_u64().with_context(|| format!("{name} in {counts}"));
        Ok(Counts {
            connections: of("connections")?,
            answered: of("answered")?,
            broken: of("broken")?,
        })
    }
}

impl Drop for LongConnections {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// The number of answered connections, and the errors of the others.
pub type ShortCounts = (u64, Vec<String>);

/// A stream of short connections, one after the other.
pub struct ShortConnections {
    /// The ends, for messages.
    path: String,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    opener: Option<JoinHandle<Result<ShortCounts>>>,
}

impl ShortConnections {
    /// Starts the stream. Each connection sends a line and reads the answer.
    pub fn between(from: &Pod, to: &Pod) -> Self {
        let from = from.clone();
        let path = format!("connections from {} to {}", from.name, to.name);
        Self::start(path, format!("{}:8081", to.address), move || inside(&from))
    }

    /// As [`ShortConnections::between`], to an address and a port. The client stays where it is.
    ///
    /// # Errors
    /// As [`LongConnections::between`].
    pub fn from(client: Client<'_>, to: &str) -> Result<Self> {
        let probe = client.probe()?;
        let program = probe.get_program().to_owned();
        let args: Vec<_> = probe.get_args().map(ToOwned::to_owned).collect();
        let path = format!("connections from {} to {to}", client.name());
        Ok(Self::start(path, to.to_owned(), move || {
            let mut probe = Command::new(&program);
            probe.args(&args).stdin(Stdio::null()).stderr(Stdio::piped());
            Ok(probe)
        }))
    }

    /// Waits until the stream has this number of answers.
    ///
    /// # Errors
    /// After a timeout.
    pub fn wait_for_answers(&self, wanted: u64) -> Result<()> {
        within(&format!("{wanted} answered {}", self.path), PATIENCE, || {
            let answered = self.answered.load(Ordering::Relaxed);
            if answered >= wanted { Ok(()) } else { Err(format!("{answered} are answered")) }
        })?;
        Ok(())
    }

    fn start(
        path: String,
        address: String,
        probe: impl Fn() -> Result<Command> + Send + 'static,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let (over, count) = (is_over.clone(), answered.clone());
        let opener = std::thread::spawn(move || {
            let mut failed = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let output = probe()?.args(["tcp", &address]).output();
                let output = output.with_context(|| format!("cannot connect to {address}"))?;
                if output.status.success() {
                    count.fetch_add(1, Ordering::Relaxed);
                } else {
                    failed.push(String::from_utf8_lossy(&output.stderr).into_owned());
                }
                std::thread::sleep(PACE);
            }
            Ok((count.load(Ordering::Relaxed), failed))
        });
        Self { path, is_over, answered, opener: Some(opener) }
    }

    /// Stops the stream and returns its answers and errors.
    ///
    /// # Errors
    /// If a connection could not be tried.
    pub fn end(mut self) -> Result<ShortCounts> {
        self.is_over.store(true, Ordering::Relaxed);
        let opener = self.opener.take().context("the stream is stopped already")?;
        opener.join().map_err(|_| anyhow::anyhow!("the thread of the stream panicked"))?
    }
}

impl Drop for ShortConnections {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Long-lived connections, and a stream of short ones for each client.
pub struct Flows {
    /// With the number of connections of each client.
    held: Vec<(u32, LongConnections)>,
    short: Vec<ShortConnections>,
}

impl Flows {
    /// Opens fifty connections between two pods, half of them in each direction, and starts a stream in each direction.
    ///
    /// # Errors
    /// As [`LongConnections::between`].
    pub fn between(one: &Pod, other: &Pod) -> Result<Self> {
        let ways = [(one, other), (other, one)];
        let held = |(from, to)| Ok((EACH_WAY, LongConnections::between(from, to, EACH_WAY)?));
        Ok(Self {
            held: ways.into_iter().map(held).collect::<Result<_>>()?,
            short: ways.map(|(from, to)| ShortConnections::between(from, to)).into(),
        })
    }

    /// Opens this number of connections of each client to an address and a port, and starts a stream of each client.
    ///
    /// # Errors
    /// As [`LongConnections::between`].
    pub fn from(clients: &[(Client<'_>, u32)], to: &str) -> Result<Self> {
        let held = |(client, count): &(Client<'_>, u32)| {
            Ok((*count, LongConnections::from(*client, to, *count)?))
        };
        let short = |(client, _): &(Client<'_>, u32)| ShortConnections::from(*client, to);
        Ok(Self {
            held: clients
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(held)
                .collect::<Result<_>>()?,
            short: clients.iter().map(short).collect::<Result<_>>()?,
        })
    }

    /// Waits until each stream of short connections has this number of answers.
    ///
    /// # Errors
    /// After a timeout.
    pub fn wait_for_answers(&self, wanted: u64) -> Result<()> {
        self.short.iter().try_for_each(|short| short.wait_for_answers(wanted))
    }

    /// Waits until each stream has this number of answers more than now.
    ///
    /// # Errors
    /// After a timeout.
    pub fn wait_for_more_answers(&self, more: u64) -> Result<()> {
        self.short.iter().try_for_each(|short| {
            short.wait_for_answers(short.answered.load(Ordering::Relaxed) + more)
        })
    }

    /// Closes all connections and prints their counts.
    ///
    /// # Errors
    /// If a connection was broken or not answered.
    pub fn end(self) -> Result<()> {
        let mut faults = Vec::new();
        for (expected, held) in self.held {
            let path = held.path.clone();
            let Counts { connections, answered, broken } = held.end()?;
            println!("{path}: {connections}, {answered} lines answered, {broken} broken");
            let is_complete = connections == u64::from(expected) && answered > connections;
            if !is_complete || broken > 0 {
                faults.push(format!("{path}: {broken} of {connections} lost, {answered} lines"));
            }
        }
        for short in self.short {
            let path = short.path.clone();
            let (answered, failed) = short.end()?;
            println!("{path}: {answered} new, {} failed", failed.len());
            if answered == 0 || !failed.is_empty() {
                faults.push(format!("{path}: {answered} new; errors: {failed:?}"));
            }
        }
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    }
}

/// Returns a command that runs the probe in a pod's network namespace.
pub(crate) fn inside(pod: &Pod) -> Result<Command> {
    let namespace = retry(|| namespace_of(pod))?;
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display())).arg(Program::probe()?.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// Returns the namespace of a process with the pod's address. Processes of other labs have the same addresses, and the
/// test's own processes enter the namespace too. Neither is in a cgroup of this lab's nodes.
fn namespace_of(pod: &Pod) -> Result<PathBuf> {
    ensure!(!pod.address.is_empty(), "{} has no address yet", pod.name);
    let address: IpAddr =
        pod.address.parse().with_context(|| format!("the address of {}", pod.name))?;
    let nodes = format!("/ferrule-lab.{}.", pod.lab);
    let processes = fs::read_dir("/proc").context("cannot list processes")?;
    let folders = processes.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_of_pod = |folder: &PathBuf| {
        let Ok(comm) = fs::read_to_string(folder.join("comm")) else { return false };
        let Ok(cgroup) = fs::read_to_string(folder.join("cgroup")) else { return false };
        comm.trim() == "probe" && cgroup.contains(&nodes) && has_address(folder, address)
    };
    let found = folders.into_iter().find(is_of_pod);
    found
        .map(|folder| folder.join("ns/net"))
        .with_context(|| format!("no process has the address {} of {}", pod.address, pod.name))
}

/// True if the network namespace of a process has the address.
fn has_address(process: &Path, address: IpAddr) -> bool {
    let read = |file: &str| fs::read_to_string(process.join("net").join(file)).unwrap_or_default();
    match address {
        IpAddr::V4(address) => {
            let local = format!("|-- {address}\n");
            let is_local = |rest: &str| rest.trim_start().starts_with("/32 host LOCAL");
            read("fib_trie").split(&local).skip(1).any(is_local)
        }
        IpAddr::V6(address) => {
            let local = format!("{:032x} ", u128::from(address));
            read("if_inet6").lines().any(|line| line.starts_with(&local))
        }
    }
}

pub(crate) fn terminate(child: &Child) -> Result<()> {
    let id = i32::try_from(child.id()).context("a process id")?;
    kill(Pid::from_raw(id), Signal::SIGTERM).context("cannot stop the process with the connections")
}

/// The number of connections in each direction.
const EACH_WAY: u32 = 25;
const PACE: Duration = Duration::from_millis(50);
