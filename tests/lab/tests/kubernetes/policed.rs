//! Nodes with network policy: controller replicas, the agent on a node, and the model of a node's objects.

pub(crate) mod gate;
pub(crate) mod model;
pub(crate) mod pods;
pub(crate) mod sandbox;
pub(crate) mod traffic;

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use config_crds::{
    AGENT_ACCOUNT, CONTROLLER_ACCOUNT, NAMESPACE, agent_rbac, controller_objects, controller_rbac,
};
use config_model::{
    EnforcingMode,
    registry::{CONTROLLER_CA, CONTROLLER_NAME},
};
use datapath_node::store::{Replayed, decode, replay};
use datapath_rpc::{AgentAt, wire::StatusReply};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};
use tempfile::TempDir;
use tests_cluster::Identity;
use tests_lab::{Lab, wait_for};

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// The program, credentials and log folder of controller replicas.
pub(crate) struct Controllers {
    program: PathBuf,
    kubeconfig: PathBuf,
    folder: TempDir,
    /// Replicas send Services to nodes.
    pub(crate) services: bool,
}

/// A running replica: the production program on this machine. A drop kills it.
pub(crate) struct Replica {
    child: Child,
    /// The address of the stream.
    pub(crate) at: SocketAddr,
}

impl Controllers {
    /// Applies the RBAC manifests of controllers and agents.
    pub(crate) fn new(world: &World, bin: &Path) -> Result<Self> {
        for object in [controller_rbac(), controller_objects(), agent_rbac()].concat() {
            world.apply(&object)?;
        }
        world.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": AGENT_ACCOUNT, "namespace": NAMESPACE},
        }))?;
        let identity = Identity::service_account(NAMESPACE, CONTROLLER_ACCOUNT);
        let kubeconfig = world.cluster.kubeconfig_of("controller", &identity)?;
        let folder = tempfile::tempdir()?;
        let program = bin.join("ferrule-controller");
        Ok(Self { program, kubeconfig, folder, services: false })
    }

    /// Starts a replica, and waits until it serves nodes.
    pub(crate) fn start(&self) -> Result<Replica> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.path().join(format!("replica-{number}.log"));
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
        command.args(["--lease-lasts", "5s", "--grace", "500ms"]).env_clear();
        if self.services {
            command.args(["--services", "ebpf"]);
        }
        let child = command.stdin(Stdio::null()).stderr(File::create(&log)?).spawn();
        let child = child.with_context(|| self.program.display().to_string())?;
        let mut replica = Replica { child, at: SocketAddr::from(([0; 4], 0)) };
        let mut health = None;
        wait_for("a replica's addresses", PATIENCE, || {
            let log = fs::read_to_string(&log)?;
            let at = |flag: &str| {
                let mut lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
                let line = lines.find(|line| line["message"] == flag).context("no line yet")?;
                Ok::<SocketAddr, anyhow::Error>(line["at"].as_str().context("no address")?.parse()?)
            };
            (replica.at, health) = (at("--listen")?, Some(at("--health")?));
            Ok(true)
        })?;
        let health = health.context("no address of the health endpoint")?;
        wait_for("a replica to be ready", PATIENCE, || {
            let answer = get(health, "/readyz")?;
            ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}\n{}", fs::read_to_string(&log)?);
            Ok(true)
        })?;
        Ok(replica)
    }
}

impl Replica {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Replica {
    /// Kills the process with SIGKILL.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(at: SocketAddr, path: &str) -> Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(at)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The program, credentials and state folder of a node's agent.
pub(crate) struct AgentSite {
    node: String,
    program: PathBuf,
    folder: TempDir,
    /// The place of the metrics; `None` is a socket in the folder.
    pub(crate) metrics_at: Option<String>,
    /// The agent serves Services.
    pub(crate) services: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend<'a> {
    None,
    Ebpf {
        /// See [`tests_lab::bpf_object`].
        object: &'a Path,
    },
}

/// A running agent on its node. A drop kills it.
pub(crate) struct Agent {
    child: Child,
}

impl AgentSite {
    /// Creates the agent's pod on this node, and the files with token and authority that the kubelet would mount.
    pub(crate) fn new(world: &World, bin: &Path, node: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("ca.crt"), authority(world)?)?;
        fs::write(folder.path().join("token"), token(world, node)?)?;
        Ok(Self {
            node: node.to_owned(),
            program: bin.join("ferrule-agent"),
            folder,
            metrics_at: None,
            services: false,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the agent with the backend `none` and these arguments, and waits until it answers.
    pub(crate) fn start(&self, lab: &Lab, words: &[&str]) -> Result<Agent> {
        self.start_with(lab, Backend::None, words)
    }

    /// Starts the agent with this backend and these arguments, and waits until it answers. With the backend `ebpf` it
    /// has the capabilities of its container in the chart and no others.
    pub(crate) fn start_with(
        &self,
        lab: &Lab,
        backend: Backend<'_>,
        words: &[&str],
    ) -> Result<Agent> {
        let log = File::options().create(true).append(true).open(self.path("agent.log"))?;
        let files = [
            ("FERRULE_AGENT_STATE_DIR", self.path("state")),
            ("FERRULE_CONTROLLER_CA", self.path("ca.crt")),
            ("FERRULE_CONTROLLER_TOKEN", self.path("token")),
        ];
        let mut vars = vec![format!("MY_NODE_NAME={}", self.node)];
        vars.extend(files.iter().map(|(name, path)| format!("{name}={}", path.display())));
        let metrics = format!("unix:{}", self.path("metrics.sock").display());
        let metrics = self.metrics_at.as_deref().unwrap_or(&metrics);
        vars.push(format!("FERRULE_AGENT_METRICS={metrics}"));
        vars.push(format!("CLUSTER_ENDPOINT=https://{API_SERVER}"));
        if self.services {
            vars.push("FERRULE_SERVICES=ebpf".to_owned());
        }
        let mut call = vec!["node", "exec", &self.node, "--"];
        match backend {
            Backend::None => vars.push("FERRULE_AGENT_BACKEND=none".to_owned()),
            Backend::Ebpf { object } => {
                vars.push("FERRULE_AGENT_BACKEND=ebpf".to_owned());
                vars.push(format!("FERRULE_AGENT_BPF_OBJECT={}", object.display()));
                call.extend(["setpriv", CAPABILITIES, "--"]);
            }
        }
        call.push("env");
        call.extend(vars.iter().map(String::as_str));
        let program = self.program.display().to_string();
        call.push(&program);
        call.extend(words);
        let mut command = lab.command(&call);
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("cannot start the agent")?;
        let agent = Agent { child };
        wait_for("the agent to answer", PATIENCE, || self.status(&agent).map(|_| true))?;
        Ok(agent)
    }

    /// The agent's socket, which is in the node's own /run.
    pub(crate) fn socket(agent: &Agent) -> PathBuf {
        let root = Path::new("/proc").join(agent.child.id().to_string()).join("root");
        root.join(config_model::registry::AGENT_SOCKET.trim_start_matches('/'))
    }

    /// Returns the agent's status.
    pub(crate) fn status(&self, agent: &Agent) -> Result<StatusReply> {
        let socket = Self::socket(agent);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = AgentAt { socket, mode: EnforcingMode::Strict };
        let status = runtime.block_on(asked.status(Instant::now() + PATIENCE));
        status.with_context(|| self.log())
    }

    /// Waits until `is` accepts the agent's status.
    pub(crate) fn until(
        &self,
        agent: &Agent,
        what: &str,
        is: impl Fn(&StatusReply) -> bool,
    ) -> Result<()> {
        wait_for(what, PATIENCE, || {
            let status = self.status(agent)?;
            ensure!(is(&status), "{status:?}");
            Ok(true)
        })
    }

    /// Returns the snapshot on the disk, with which the agent would start.
    pub(crate) fn kept(&self) -> Result<Replayed> {
        let file = self.path("state/policy.log");
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        Ok(replay(decode(&bytes).records))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    /// Returns the agent's `/metrics` page.
    pub(crate) fn metrics(&self) -> Result<String> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::os::unix::net::UnixStream::connect(self.path("metrics.sock"))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }
}

impl Drop for Agent {
    /// Kills the process with SIGKILL.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the controller's certificate authority and returns it.
pub(crate) fn authority(world: &World) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), NAMESPACE);
    let mut found = None;
    wait_for("the controller's authority", PATIENCE, || {
        let map = world.runtime.block_on(maps.get_opt(CONTROLLER_CA))?.context("no ConfigMap")?;
        found = map.data.and_then(|mut data| data.remove("ca.crt"));
        Ok(found.is_some())
    })?;
    found.context("no authority")
}

/// Creates the agent's pod on the node and returns a token that is bound to it.
fn token(world: &World, node: &str) -> Result<String> {
    let name = format!("agent-{node}");
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": node, "hostNetwork": true, "serviceAccountName": AGENT_ACCOUNT,
            "containers": [{"name": "agent", "image": "none.invalid/none"}],
        },
    }))?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let made = world.runtime.block_on(pods.create(&PostParams::default(), &pod))?;
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(name),
        uid: made.uid(),
    };
    let spec = TokenRequestSpec {
        audiences: Some(vec![CONTROLLER_NAME.to_owned()]),
        bound_object_ref: Some(bound),
        expiration_seconds: Some(3_600),
    };
    let wish = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), NAMESPACE);
    let how = PostParams::default();
    let made = accounts.create_token_request(AGENT_ACCOUNT, &how, &wish);
    let made = world.runtime.block_on(made)?;
    made.status.and_then(|status| status.token).context("a token request without a token")
}

/// Root's program has the capabilities of the bounding set: those of the container `agent` with the backend `ebpf`.
const CAPABILITIES: &str = "--bounding-set=-all,+bpf,+net_admin,+perfmon";
/// The address of the API server for the lab's nodes.
pub(crate) const API_SERVER: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 0, 2);
