//! A simulated node: a folder, and the agents that run on it.

use crate::replica::{Authority, NAME, Replica};
use config_model::{EnforcingMode, PodName};
use datapath_rpc::{Admitted, AgentAt, AgentError, AgentPod, wire::StatusReply};
use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tests_eventually::eventually;
use tokio::runtime::Runtime;

/// Longest wait for an event, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Node {
    pub(crate) folder: TempDir,
    pub(crate) name: String,
    runtime: Runtime,
}

/// A running agent. It is killed at the end of the test.
pub(crate) struct Agent {
    child: Child,
}

impl Node {
    pub(crate) fn new(authority: &Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.crt"), &authority.pem).unwrap();
        fs::write(folder.path().join("token"), "node:n1\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { folder, name: "n1".to_owned(), runtime }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command that starts an agent here.
    pub(crate) fn command(&self, replicas: &[SocketAddr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule-agent"));
        command
            .env_clear()
            .env("MY_NODE_NAME", &self.name)
            .env("FERRULE_AGENT_SOCKET", self.path("agent.sock"))
            .env("FERRULE_AGENT_STATE_DIR", self.path("state"))
            .env("FERRULE_AGENT_LOG_FILE", self.path("agent.log"))
            .env("FERRULE_AGENT_LOGLEVEL", "debug")
            .env("FERRULE_AGENT_METRICS", format!("unix:{}", self.path("metrics.sock").display()))
            .env("FERRULE_CONTROLLER_CA", self.path("ca.crt"))
            .env("FERRULE_CONTROLLER_TOKEN", self.path("token"))
            .env("FERRULE_CONTROLLER_NAME", NAME)
            .args(["--backend", "none"])
            .stdin(Stdio::null());
        for at in replicas {
            command.arg("--replica").arg(at.to_string());
        }
        command
    }

    pub(crate) fn start(&self, replicas: &[&Replica]) -> Agent {
        let at: Vec<SocketAddr> = replicas.iter().map(|replica| replica.at).collect();
        self.start_at(&at)
    }

    pub(crate) fn start_at(&self, replicas: &[SocketAddr]) -> Agent {
        self.spawn(self.command(replicas))
    }

    /// Starts an agent by this command, and waits until it answers.
    pub(crate) fn spawn(&self, mut command: Command) -> Agent {
        let agent = Agent { child: command.spawn().unwrap() };
        self.until("the agent answers", |_| true);
        agent
    }

    pub(crate) fn at(&self, mode: EnforcingMode) -> AgentAt {
        AgentAt { socket: self.path("agent.sock"), mode }
    }

    pub(crate) fn admit(
        &self,
        name: &str,
        uid: &str,
        mode: EnforcingMode,
    ) -> Result<Admitted, AgentError> {
        let addresses = ["10.0.0.9".parse().unwrap()];
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.at(mode).admit(&pod(name, uid), &addresses, &[], deadline))
    }

    /// Asks for several pods at once.
    pub(crate) fn admit_all(&self, pods: &[(String, String)]) -> Vec<Admitted> {
        let deadline = Instant::now() + PATIENCE;
        let at = self.at(EnforcingMode::Strict);
        self.runtime.block_on(async {
            let asked = pods.iter().map(|(name, uid)| {
                let (at, pod) = (at.clone(), pod(name, uid));
                tokio::spawn(async move {
                    at.admit(&pod, &["10.0.0.9".parse().unwrap()], &[], deadline).await.unwrap()
                })
            });
            let asked: Vec<_> = asked.collect();
            let mut answers = Vec::new();
            for one in asked {
                answers.push(one.await.unwrap());
            }
            answers
        })
    }

    pub(crate) fn forget(&self, name: &str, uid: &str) {
        let deadline = Instant::now() + PATIENCE;
        let (at, pod) = (self.at(EnforcingMode::Strict), pod(name, uid));
        self.runtime.block_on(at.forget(&pod, deadline)).unwrap();
    }

    pub(crate) fn status(&self) -> Result<StatusReply, AgentError> {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.at(EnforcingMode::Strict).status(deadline))
    }

    /// Waits for this state of the agent.
    pub(crate) fn until(
        &self,
        what: &str,
        mut is: impl FnMut(&StatusReply) -> bool,
    ) -> StatusReply {
        let mut last = None;
        eventually(what, PATIENCE, || {
            last = self.status().ok();
            last.as_ref().is_some_and(&mut is).then(|| last.clone().unwrap())
        })
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    pub(crate) fn until_log(&self, text: &str) {
        eventually(&format!("the log has {text:?}"), PATIENCE, || {
            self.log().contains(text).then_some(())
        });
    }

    /// `/metrics` as it is now.
    pub(crate) fn page(&self, path: &str) -> String {
        use std::io::{Read as _, Write as _};
        let socket = self.path("metrics.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }
}

impl Agent {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the agent like a power cut.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the agent as the kubelet does; whether it exited with 0.
    pub(crate) fn terminate(mut self) -> bool {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut status = None;
        eventually("the agent ends", PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.map(|_| ())
        });
        status.unwrap().success()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pod(name: &str, uid: &str) -> AgentPod {
    let name = PodName { namespace: "shop".to_owned(), name: name.to_owned() };
    AgentPod { uid: uid.to_owned(), name, container: String::new() }
}
