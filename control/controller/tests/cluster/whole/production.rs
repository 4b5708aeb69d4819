//! Nodes with the production agent, `ferrule-agent --backend none`. Their content is read from the agent's store on the
//! disk.

use super::bounds::Bounds;
use control_wire::NodeSnapshot;
use datapath_node::store::{decode, replay};
use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tests_support::Program;
use tokio::time::sleep;

/// Interval of reads from the disk.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) struct Production {
    pub(crate) name: String,
    folder: TempDir,
    replicas: [SocketAddr; 2],
    child: Mutex<Child>,
    bounds: Mutex<Arc<Bounds>>,
}

impl Production {
    pub(crate) fn start(name: &str, token: &str, bundle: &str, replicas: [SocketAddr; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), token).unwrap();
        fs::write(folder.path().join("ca.crt"), bundle).unwrap();
        let child = Mutex::new(spawn(folder.path(), name, replicas));
        Self { name: name.to_owned(), folder, replicas, child, bounds: Mutex::default() }
    }

    /// Kills the agent as an out-of-memory kernel does, and starts it again on its store.
    pub(crate) fn kill_and_restart(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        *child = spawn(self.folder.path(), &self.name, self.replicas);
    }

    /// Returns the stored content.
    pub(crate) fn held(&self) -> NodeSnapshot {
        let file = fs::read(self.folder.path().join("state/policy.log")).unwrap_or_default();
        // The agent may be writing: an incomplete record is skipped.
        let replayed = replay(decode(&file).records);
        assert_eq!(replayed.stopped, None, "{}", self.name);
        replayed.held
    }

    /// Sets the bounds from now on.
    pub(crate) fn may_hold(&self, bounds: Arc<Bounds>) {
        *self.bounds.lock().unwrap() = bounds;
    }

    /// Checks the stored content, forever.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            // The content is read before the bounds, which change only while the cluster is quiet.
            let held = self.held();
            let bounds = self.bounds.lock().unwrap().clone();
            if held.node.is_some() {
                assert_eq!(bounds.wrong(&held), None, "{} at {}", self.name, held.generation);
            }
            sleep(LOOK).await;
        }
    }
}

impl Drop for Production {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            // The agent may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(folder: &Path, name: &str, replicas: [SocketAddr; 2]) -> Child {
    let path = |name: &str| folder.join(name);
    let mut command = Command::new(program());
    command
        .env_clear()
        .env("MY_NODE_NAME", name)
        .env("FERRULE_AGENT_SOCKET", path("agent.sock"))
        .env("FERRULE_AGENT_STATE_DIR", path("state"))
        .env("FERRULE_AGENT_LOG_FILE", path("agent.log"))
        .env("FERRULE_AGENT_METRICS", format!("unix:{}", path("metrics.sock").display()))
        .env("FERRULE_CONTROLLER_CA", path("ca.crt"))
        .env("FERRULE_CONTROLLER_TOKEN", path("token"))
        .args(["--backend", "none"])
        .stdin(Stdio::null());
    for at in replicas {
        command.arg("--replica").arg(at.to_string());
    }
    command.spawn().unwrap()
}

/// Returns the program.
pub(crate) fn program() -> &'static Path {
    static AGENT: Program = Program::new("FERRULE_AGENT", "datapath-agent", "ferrule-agent");
    AGENT.path()
}
