//! A cluster that runs: what a test needs of it, and its end.

mod saved;

use crate::{
    Access, Identity, Program, access::FRONT, component::Component, free_ports, launch::Launch,
};
use anyhow::{Context as _, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A part that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Makes service accounts, pods of deployments, garbage collection.
    ControllerManager,
    /// Binds pods to nodes.
    Scheduler,
}

/// Components to start beside etcd and the API server, and their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Components in addition to etcd and the API server.
    pub parts: Vec<Part>,
    /// Additional arguments of the API server.
    pub api_server_args: Vec<String>,
    /// Additional addresses in the API server's certificate, for proxies.
    pub also_at: Vec<Ipv4Addr>,
    /// Its addresses in a lab; `None` if no nodes join.
    pub lab: Option<InLab>,
    /// True for Services of both families.
    pub has_v6: bool,
}

/// Addresses of a control plane beside a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InLab {
    /// The loopback address on which the API server listens, at the port that nodes use.
    pub at: Ipv4Addr,
    /// The address of the API server for nodes and pods.
    pub advertised: Ipv4Addr,
    /// The socket of a proxy for its connections to nodes.
    pub api_proxy: PathBuf,
}

/// A running cluster. Drop stops it and removes its files.
pub struct Cluster {
    program: Program,
    access: Access,
    folder: PathBuf,
    at: Ipv4Addr,
    port: u16,
    etcd_port: u16,
    wanted: ClusterSpec,
    /// In the order of their start.
    running: Vec<Component>,
    kubeconfig: PathBuf,
    outlives: bool,
    temporary: Option<TempDir>,
}

impl Cluster {
    /// Starts a cluster on free ports of 127.0.0.1 and waits until the API server is ready.
    ///
    /// # Errors
    /// When the program cannot be built, or a component ends or does not get ready within three minutes;
    /// with the end of its log.
    pub fn start(wanted: &ClusterSpec) -> Result<Self> {
        let temporary =
            TempDir::with_prefix("ferrule-cluster-").context("make a folder for the cluster")?;
        let folder = temporary.path().to_owned();
        Self::start_in(&folder, wanted, false, Some(temporary))
    }

    /// Starts one that keeps its files in `folder` and outlives this process.
    pub(crate) fn start_to_stay(folder: &Path, wanted: &ClusterSpec) -> Result<Self> {
        Self::start_in(folder, wanted, true, None)
    }

    fn start_in(
        folder: &Path,
        wanted: &ClusterSpec,
        outlives: bool,
        temporary: Option<TempDir>,
    ) -> Result<Self> {
        let program = Program::ready()?;
        let beside = wanted.lab.iter().flat_map(|lab| [lab.at, lab.advertised]);
        let also_at: Vec<_> = wanted.also_at.iter().copied().chain(beside).collect();
        let access = Access::create(&folder.join("access"), &also_at)?;
        let [free, etcd_port] = free_ports()?;
        let (at, port) = match &wanted.lab {
            Some(lab) => (lab.at, NODES_KNOW),
            None => (Ipv4Addr::LOCALHOST, free),
        };
        let server = format!("https://{at}:{port}");
        let kubeconfig = access.kubeconfig("admin", &Identity::admin(), &server)?;
        let (folder, wanted) = (folder.to_owned(), wanted.clone());
        let running = Vec::new();
        let mut cluster = Self {
            program,
            access,
            folder,
            at,
            port,
            etcd_port,
            wanted,
            running,
            kubeconfig,
            outlives,
            temporary,
        };
        cluster.launch(ETCD, cluster.etcd_args())?;
        cluster.launch_api_server()?;
        for part in cluster.wanted.parts.clone() {
            let (name, args) = match part {
                Part::ControllerManager => ("kube-controller-manager", cluster.manager_args()?),
                Part::Scheduler => ("kube-scheduler", cluster.scheduler_args()?),
            };
            cluster.launch(name, args)?;
        }
        Ok(cluster)
    }

    /// The kubeconfig of one who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Port of the API server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A kubeconfig of this user, for whom a certificate is made.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn kubeconfig_of(&self, name: &str, who: &Identity) -> Result<PathBuf> {
        self.kubeconfig_at(name, who, &format!("https://{}:{}", self.at, self.port))
    }

    /// The same for an API server that is reached at another URL, for example through a forwarder.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn kubeconfig_at(&self, name: &str, who: &Identity, server: &str) -> Result<PathBuf> {
        self.access.kubeconfig(name, who, server)
    }

    /// A client of one who may do everything.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// Ends the API server; etcd and its data stay.
    pub fn stop_api_server(&mut self) {
        self.stop(API_SERVER);
    }

    fn stop(&mut self, name: &str) {
        let mut rest = Vec::new();
        for mut component in self.running.drain(..) {
            if component.name() == name {
                component.stop();
            } else {
                rest.push(component);
            }
        }
        self.running = rest;
    }

    /// Starts the API server again at the same place, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_api_server(&mut self) -> Result<()> {
        self.launch_api_server()
    }

    fn launch(&mut self, name: &'static str, args: Vec<String>) -> Result<()> {
        let program = self.program.path().to_owned();
        let component = Component::start(&program, name, &args, &self.folder, self.outlives)?;
        if self.outlives {
            component.note(&self.folder)?;
            Launch { program, args }.save(&self.folder, name)?;
        }
        self.running.push(component);
        Ok(())
    }

    fn launch_api_server(&mut self) -> Result<()> {
        let args = self.api_server_args()?;
        self.launch(API_SERVER, args)?;
        wait_until_ready(&self.kubeconfig, || {
            self.running.iter_mut().try_for_each(Component::must_run)
        })
    }

    fn data(&self) -> PathBuf {
        self.folder.join(ETCD)
    }

    fn etcd_args(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port);
        // The cluster has one member, so any free port will do.
        let peers = "http://127.0.0.1:0";
        flags(&[
            ("data-dir", &self.data().display().to_string()),
            ("listen-client-urls", &clients),
            ("advertise-client-urls", &clients),
            ("listen-peer-urls", peers),
            ("initial-advertise-peer-urls", peers),
            ("initial-cluster", &format!("default={peers}")),
            // The data of a test does not have to survive the machine.
            ("unsafe-no-fsync", "true"),
        ])
    }

    fn api_server_args(&self) -> Result<Vec<String>> {
        let file = |name: &str| self.access.file(name).display().to_string();
        let (accounts, authority) = (file("accounts.key"), file("ca.crt"));
        let mut args = flags(&[
            ("etcd-servers", &format!("http://127.0.0.1:{}", self.etcd_port)),
            ("bind-address", &self.at.to_string()),
            ("secure-port", &self.port.to_string()),
            ("tls-cert-file", &file("server.crt")),
            ("tls-private-key-file", &file("server.key")),
            ("client-ca-file", &authority),
            ("requestheader-client-ca-file", &file("front-ca.crt")),
            ("requestheader-allowed-names", FRONT),
            ("requestheader-username-headers", "X-Remote-User"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("proxy-client-cert-file", &file("front.crt")),
            ("proxy-client-key-file", &file("front.key")),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            ("service-account-key-file", &file("accounts.pub")),
            ("service-account-signing-key-file", &accounts),
            ("service-cluster-ip-range", &self.service_ranges()),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", "NodeRestriction"),
            ("allow-privileged", "true"),
        ]);
        match &self.wanted.lab {
            Some(lab) => args.extend(self.ways_to_nodes(lab)?),
            None => args.extend(flags(&[
                ("advertise-address", "127.0.0.1"),
                // That is no address that Endpoints may have.
                ("endpoint-reconciler-type", "none"),
            ])),
        }
        args.extend(self.wanted.api_server_args.iter().cloned());
        Ok(args)
    }

    fn service_ranges(&self) -> String {
        let v6 = self.wanted.has_v6.then_some(SERVICES_V6);
        [SERVICES].into_iter().chain(v6).collect::<Vec<_>>().join(",")
    }

    /// Flags with which nodes and pods reach the API server, and it reaches them.
    fn ways_to_nodes(&self, lab: &InLab) -> Result<Vec<String>> {
        let who = Identity::user(KUBELETS_CLIENT);
        let certificate = self.access.client_of("kubelets-client", &who)?;
        // A connection to a node starts in the VPC.
        let selector = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{
                "name": "cluster",
                "connection": {
                    "proxyProtocol": "HTTPConnect",
                    "transport": {"uds": {"udsName": lab.api_proxy}},
                },
            }],
        });
        let path = self.folder.join("egress.yaml");
        fs::write(&path, selector.to_string())
            .with_context(|| format!("write {}", path.display()))?;
        let file = |name: &str| self.access.file(name).display().to_string();
        Ok(flags(&[
            ("advertise-address", &lab.advertised.to_string()),
            ("egress-selector-config-file", &path.display().to_string()),
            ("kubelet-preferred-address-types", "InternalIP"),
            // Services have no proxy here. As on EKS, the API server calls an APIService's server at its endpoints.
            ("enable-aggregator-routing", "true"),
            ("kubelet-certificate-authority", &file("ca.crt")),
            (
                "kubelet-client-certificate",
                &certificate.with_extension("crt").display().to_string(),
            ),
            ("kubelet-client-key", &certificate.with_extension("key").display().to_string()),
        ]))
    }

    fn manager_args(&self) -> Result<Vec<String>> {
        let who = Identity::user("system:kube-controller-manager");
        let kubeconfig = self.kubeconfig_of("controller-manager", &who)?;
        let file = |name: &str| self.access.file(name).display().to_string();
        Ok(flags(&[
            ("kubeconfig", &kubeconfig.display().to_string()),
            ("leader-elect", "false"),
            ("bind-address", "127.0.0.1"),
            ("secure-port", "0"),
            ("use-service-account-credentials", "true"),
            ("service-account-private-key-file", &file("accounts.key")),
            ("root-ca-file", &file("ca.crt")),
        ]))
    }

    fn scheduler_args(&self) -> Result<Vec<String>> {
        let who = Identity::user("system:kube-scheduler");
        let kubeconfig = self.kubeconfig_of("scheduler", &who)?;
        Ok(flags(&[
            ("kubeconfig", &kubeconfig.display().to_string()),
            ("leader-elect", "false"),
            ("bind-address", "127.0.0.1"),
            ("secure-port", "0"),
        ]))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.outlives {
            return;
        }
        // The last first: without its etcd the API server would not end.
        while let Some(mut component) = self.running.pop() {
            component.stop();
        }
        if let Some(folder) = self.temporary.take() {
            // A folder that cannot be removed stays in the system's folder for temporary files.
            let _ = folder.close();
        }
    }
}

/// Waits until the API server of this kubeconfig is ready, as long as all is `well`.
pub(crate) fn wait_until_ready(
    kubeconfig: &Path,
    mut well: impl FnMut() -> Result<()>,
) -> Result<()> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        well()?;
        // A test may itself run in a runtime, in which one cannot wait for another.
        let ready =
            std::thread::scope(|scope| scope.spawn(|| ask_whether_ready(kubeconfig)).join());
        match ready {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if Instant::now() >= until => {
                return Err(error.context("the API server does not get ready"));
            }
            Ok(Err(_)) => std::thread::sleep(LOOK_AGAIN),
            Err(_) => bail!("the wait for the API server broke off"),
        }
    }
}

fn ask_whether_ready(kubeconfig: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("make a runtime to wait for the API server")?;
    runtime.block_on(is_ready(kubeconfig))
}

async fn is_ready(kubeconfig: &Path) -> Result<()> {
    let client = client(kubeconfig).await?;
    let request = http::Request::get("/readyz").body(Vec::new()).context("ask for readiness")?;
    client.request_text(request).await.context("GET /readyz")?;
    Ok(())
}

/// A client by a kubeconfig file.
///
/// # Errors
/// When it cannot be read or used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("use {}", kubeconfig.display()))?;
    Client::try_from(config).context("make a client")
}

fn flags(flags: &[(&str, &str)]) -> Vec<String> {
    flags.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const ETCD: &str = "etcd";
/// The API server, as kubelets know it.
pub(crate) const KUBELETS_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The cluster IPs of Services.
const SERVICES: &str = "172.20.0.0/16";
const SERVICES_V6: &str = "fd00:172:20::/108";
/// The port of the API server in a VPC.
const NODES_KNOW: u16 = 443;
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
