//! Connections between pods, held from inside their network namespaces by this machine's own
//! processes: neither the API server nor a kubelet has a hand in them, so that both may go away.

#![expect(clippy::print_stdout, reason = "what came of connections is told on standard output")]

use crate::{Pod, installed::patiently};
use anyhow::{Context as _, Result, ensure};
use lab_kubernetes::Program;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tests_eventually::{PATIENCE, within};

/// Long-lived connections from one pod to another. They end when this is dropped.
pub struct Traffic {
    from: Pod,
    to: Pod,
    holder: Option<Child>,
}

/// What came of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// How many were opened.
    pub connections: u64,
    /// Lines that were answered.
    pub answered: u64,
    /// Connections that were refused, cut off, or silent for half a minute.
    pub broken: u64,
}

impl Traffic {
    /// Opens so many connections, on each of which a line goes to and fro ten times a second.
    ///
    /// # Errors
    /// When a program is missing, or the pod's namespace is not found.
    pub fn between(from: &Pod, to: &Pod, connections: u32) -> Result<Self> {
        let address = format!("{}:8081", to.address);
        let holder = inside(from)?
            .args(["hold", &address, &connections.to_string(), "100ms"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("hold connections from {}", from.name))?;
        Ok(Self { from: from.clone(), to: to.clone(), holder: Some(holder) })
    }

    /// Ends them all.
    ///
    /// # Errors
    /// When their holder is gone, or does not say what came of them.
    pub fn end(mut self) -> Result<Counts> {
        let path = || format!("connections from {} to {}", self.from.name, self.to.name);
        let mut holder = self.holder.take().context("they have ended before")?;
        let has_ended = holder.try_wait().with_context(path)?;
        ensure!(has_ended.is_none(), "the holder of {} has ended: {has_ended:?}", path());
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

impl Drop for Traffic {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// How many were answered, and what the others said.
pub type Answers = (u64, Vec<String>);

/// A stream of new connections, one after the other.
pub struct Newcomers {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    opener: Option<JoinHandle<Result<Answers>>>,
}

impl Newcomers {
    /// Opens a connection, says a line, hears the answer; then the next.
    pub fn between(from: &Pod, to: &Pod) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let count = answered.clone();
        let (over, from, address) = (is_over.clone(), from.clone(), format!("{}:8081", to.address));
        let opener = std::thread::spawn(move || {
            let mut failed = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let output = inside(&from)?.args(["tcp", &address]).output();
                let output = output.with_context(|| format!("connect from {}", from.name))?;
                if output.status.success() {
                    count.fetch_add(1, Ordering::Relaxed);
                } else {
                    failed.push(String::from_utf8_lossy(&output.stderr).into_owned());
                }
                std::thread::sleep(PACE);
            }
            Ok((count.load(Ordering::Relaxed), failed))
        });
        Self { is_over, answered, opener: Some(opener) }
    }

    /// Ends the stream: how many were answered, and what the others said.
    ///
    /// # Errors
    /// When none could be tried any more.
    pub fn end(mut self) -> Result<Answers> {
        self.is_over.store(true, Ordering::Relaxed);
        let opener = self.opener.take().context("they have ended before")?;
        opener.join().map_err(|_| anyhow::anyhow!("the opener of connections broke off"))?
    }
}

impl Drop for Newcomers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Fifty connections between two pods, half of them each way, and streams of new ones.
pub struct Flows {
    held: Vec<Traffic>,
    newcomers: Vec<Newcomers>,
}

impl Flows {
    /// Opens them.
    ///
    /// # Errors
    /// As [`Traffic::between`].
    pub fn between(one: &Pod, other: &Pod) -> Result<Self> {
        let ways = [(one, other), (other, one)];
        let held = ways.map(|(from, to)| Traffic::between(from, to, EACH_WAY));
        Ok(Self {
            held: held.into_iter().collect::<Result<_>>()?,
            newcomers: ways.map(|(from, to)| Newcomers::between(from, to)).into(),
        })
    }

    /// Waits until each stream of new connections has this many answers. Held connections exchange lines meanwhile.
    ///
    /// # Errors
    /// When a stream does not have them in time.
    pub fn wait_for_answers(&self, wanted: u64) -> Result<()> {
        for newcomers in &self.newcomers {
            within(&format!("{wanted} answered connections"), PATIENCE, || {
                let answered = newcomers.answered.load(Ordering::Relaxed);
                if answered >= wanted { Ok(()) } else { Err(format!("{answered} are answered")) }
            })?;
        }
        Ok(())
    }

    /// Ends them all, and tells what came of them.
    ///
    /// # Errors
    /// When one was broken or not answered.
    pub fn end(self) -> Result<()> {
        for held in self.held {
            let Counts { connections, answered, broken } = held.end()?;
            println!("{connections} connections, {answered} lines answered, {broken} broken");
            ensure!((connections, broken) == (u64::from(EACH_WAY), 0), "connections were lost");
            ensure!(answered > connections, "only {answered} lines were answered");
        }
        for newcomers in self.newcomers {
            let (answered, failed) = newcomers.end()?;
            println!("{answered} new connections, {} failed", failed.len());
            ensure!(answered > 0 && failed.is_empty(), "{answered} were new; failed: {failed:?}");
        }
        Ok(())
    }
}

/// The probe in a pod's network namespace.
fn inside(pod: &Pod) -> Result<Command> {
    let namespace = patiently(|| namespace_of(pod))?;
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display())).arg(Program::probe()?.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// The namespace in which the pod's address is local: that of one of its processes. Other labs have the same
/// addresses, and what is entered from here is soon gone: neither is in a cgroup of this lab's nodes.
fn namespace_of(pod: &Pod) -> Result<PathBuf> {
    ensure!(!pod.address.is_empty(), "{} has no address yet", pod.name);
    let local = format!("|-- {}\n", pod.address);
    let nodes = format!("/ferrule-lab.{}.", pod.lab);
    let processes = fs::read_dir("/proc").context("list processes")?;
    let folders = processes.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_of_pod = |folder: &PathBuf| {
        let Ok(comm) = fs::read_to_string(folder.join("comm")) else { return false };
        let Ok(cgroup) = fs::read_to_string(folder.join("cgroup")) else { return false };
        let Ok(routes) = fs::read_to_string(folder.join("net/fib_trie")) else { return false };
        comm.trim() == "probe"
            && cgroup.contains(&nodes)
            && routes
                .split(&local)
                .skip(1)
                .any(|rest| rest.lines().next().is_some_and(|line| line.contains("host LOCAL")))
    };
    let found = folders.into_iter().find(is_of_pod);
    found
        .map(|folder| folder.join("ns/net"))
        .with_context(|| format!("no process has the address {} of {}", pod.address, pod.name))
}

fn terminate(child: &Child) -> Result<()> {
    let id = i32::try_from(child.id()).context("a process id")?;
    kill(Pid::from_raw(id), Signal::SIGTERM).context("end the holder of connections")
}

/// Connections each way.
const EACH_WAY: u32 = 25;
const PACE: Duration = Duration::from_millis(50);
