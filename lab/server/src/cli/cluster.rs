//! The cluster of a lab: its control plane on this machine, and its nodes as nodes of Kubernetes.

use super::{
    Cli, Tool,
    args::{ClientProgram, ClusterUp, ClusterVerb, Network, Proxy, UpArgs, Verb},
    cluster_view::{ClusterView, ProgramView, WithCluster},
    say, segment, show,
};
use crate::{
    control::{DaemonOrder, NodeView, StatusView},
    serve::Layout,
};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use config_crds::{NAMESPACE, SERVICE_ACCOUNT};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node as ClusterNode};
use kube::{Api, Client, api::ListParams};
use lab_cloud::InstanceType;
use lab_fabric::{Fabric, Node};
use lab_kubernetes::{
    Access, ClusterSpec, Identity, InLab, Part, Program, VERSION, image, keep,
    node::{self, Machine, NodeConfig, ProxyMode},
    objects,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::task::spawn_blocking;

/// Data that later commands need.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ClusterRecord {
    network: Network,
    proxy: ProxyMode,
    /// The API server's address as nodes see it.
    server: String,
    /// Name prefix of the nodes' cgroups.
    cgroups: String,
}

impl ClusterRecord {
    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(KEPT);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).context("understand the cluster's facts")
    }
}

impl Tool {
    pub(super) async fn cluster(&self, name: &str, verb: ClusterVerb) -> Result<ExitCode> {
        match verb {
            ClusterVerb::Up(args) => self.cluster_up(name, &args).await,
            ClusterVerb::Down => self.down(name).await,
            ClusterVerb::Kubeconfig => {
                let path = keep::kubeconfig(&self.there(name)?);
                self.print(&json!({ "kubeconfig": path }), |_| path.display().to_string())
            }
            ClusterVerb::Status => {
                self.there(name)?;
                let view = self.cluster_of().context("the lab has no cluster")?;
                self.print(&view, show::cluster)
            }
            ClusterVerb::Program { program } => {
                let program = match program {
                    ClientProgram::Kubectl => spawn_blocking(Program::kubectl).await??,
                    ClientProgram::Helm => spawn_blocking(Program::helm).await??,
                };
                self.print(&json!({ "program": program.path() }), |_| {
                    program.path().display().to_string()
                })
            }
            ClusterVerb::LoadImage { archive, nodes } => {
                let folder = self.there(name)?;
                let archive = std::path::absolute(&archive)
                    .with_context(|| format!("find {}", archive.display()))?;
                let loaded = self.load(&folder, vec![archive], &nodes).await?;
                self.print(&json!({ "nodes": loaded }), |_| {
                    format!("loaded on {}", loaded.join(", "))
                })
            }
            ClusterVerb::Join { node } => {
                let folder = self.there(name)?;
                let view: Vec<NodeView> = self.client.get("/nodes").await?;
                let view = view.into_iter().find(|view| view.name == node);
                let view = view.with_context(|| format!("there is no node {node}"))?;
                self.join(&folder, vec![view]).await?;
                if ClusterRecord::read(&folder)?.network == Network::Ferrule {
                    self.install(&node).await?;
                }
                self.print(&json!({ "joined": node }), |_| format!("{node} has joined"))
            }
            ClusterVerb::Exec { node, command } => {
                let folder = self.there(name)?;
                let node = Fabric::open(&self.layout.fabric())?.node(&node)?;
                let (program, args) = command.split_first().context("no command was given")?;
                let mut command = Machine::of(&node, &folder).command(program)?;
                command.args(args).stdin(std::process::Stdio::inherit());
                Err(command.exec()).context("enter the node")
            }
            ClusterVerb::Stop { component } => {
                keep::stop(&self.there(name)?, &component)?;
                self.print(&json!({ "stopped": component }), |_| format!("{component} has ended"))
            }
            ClusterVerb::Start { component } => {
                let folder = self.there(name)?;
                let started = component.clone();
                spawn_blocking(move || keep::start(&folder, &started)).await??;
                self.print(&json!({ "started": component }), |_| format!("{component} runs"))
            }
        }
    }

    /// The folder of the cluster that is to be there.
    fn there(&self, name: &str) -> Result<PathBuf> {
        let folder = self.layout.cluster();
        ensure!(
            folder.join(KEPT).is_file(),
            "lab {name} has no cluster; make one: ferrule-lab --name {name} cluster up"
        );
        Ok(folder)
    }

    /// Running parts of the cluster, even if the lab's server is dead.
    pub(super) fn cluster_of(&self) -> Option<ClusterView> {
        let folder = self.layout.cluster();
        let components = keep::components(&folder);
        if components.is_empty() {
            return None;
        }
        let mut programs: Vec<_> = components
            .into_iter()
            .map(|of| ProgramView {
                name: of.name.to_owned(),
                node: None,
                pid: of.pid,
                log: of.log,
            })
            .collect();
        let nodes = Fabric::open(&self.layout.fabric()).and_then(|fabric| fabric.nodes());
        for node in nodes.unwrap_or_default() {
            for of in Machine::of(&node, &folder).running() {
                let node = Some(node.name().to_owned());
                programs.push(ProgramView {
                    name: of.name.to_owned(),
                    node,
                    pid: of.pid,
                    log: of.log,
                });
            }
        }
        let kubeconfig = keep::kubeconfig(&folder);
        Some(ClusterView { version: VERSION.to_owned(), kubeconfig, programs })
    }

    async fn cluster_up(&self, name: &str, args: &ClusterUp) -> Result<ExitCode> {
        let _one = self.make_room(name).await?;
        if self.layout.dir().exists() {
            say("removing what a lab of this name left behind");
            self.remove().await?;
        }
        let interrupted = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = self.raise_cluster(name, args) => match outcome {
                Ok(status) => {
                    let whole = WithCluster { status, cluster: self.cluster_of() };
                    self.print(&whole, show::whole)
                }
                Err(err) if args.keep => Err(err),
                Err(err) => {
                    if let Err(also) = self.remove().await {
                        say(&format!("{also:#}; run: ferrule-lab --name {name} down"));
                    }
                    Err(err)
                }
            },
            _ = interrupted => {
                say("interrupted: taking the lab down");
                self.remove().await?;
                Ok(ExitCode::from(130))
            }
        }
    }

    async fn raise_cluster(&self, name: &str, args: &ClusterUp) -> Result<StatusView> {
        node::tools_are_there()?;
        let folder = self.layout.cluster();
        let nothing = folder.join("no-programs");
        fs::create_dir_all(&nothing).with_context(|| format!("make {}", nothing.display()))?;
        // Of the folder: another may have a lab of this name.
        let whose = fingerprint(self.layout.dir());
        let listen = SocketAddr::from((loopback(whose), API_SERVER_PORT));
        let kubeconfig = folder.join("access/ferrule.kubeconfig");
        let mut words: Vec<OsString> = vec!["--nodes".into(), args.nodes.to_string().into()];
        words.extend(["--api-server".into(), listen.to_string().into()]);
        words.extend(["--kubeconfig".into(), kubeconfig.into()]);
        if args.ipv6 {
            words.push("--ipv6".into());
        }
        if args.cni == Network::None {
            words.extend(["--no-daemon".into(), "--bin-dir".into(), nothing.into()]);
        }
        words.extend(args.lab.iter().map(OsString::from));
        let up = up_args(name, &words)?;
        let advertised = up.subnets.first().context("the VPC has no subnet")?.cidr.network();
        let advertised = Ipv4Addr::from(u32::from(advertised) + 2);
        let kept = ClusterRecord {
            network: args.cni,
            proxy: match args.proxy {
                Proxy::Iptables => ProxyMode::Iptables,
                Proxy::Nftables => ProxyMode::Nftables,
                Proxy::None => ProxyMode::None,
            },
            server: format!("https://{advertised}:{API_SERVER_PORT}"),
            cgroups: lab_fabric::cgroup_prefix(&self.layout.fabric()),
        };
        self.control_plane(&folder, loopback(whose), advertised, &kept, args.ipv6).await?;
        self.check(&up)?;
        let client = lab_kubernetes::client(&keep::kubeconfig(&folder)).await?;
        prepare(&client, args.cni).await?;
        let server = ["--name".into(), name.into(), "serve".into()].into_iter().chain(words);
        let status = self.raise_by(name, &up, server.collect()).await?;
        self.join(&folder, status.nodes.clone()).await?;
        if args.cni == Network::Ferrule {
            for node in &status.nodes {
                self.install(&node.name).await?;
            }
        }
        say("waiting for the nodes");
        wait_for_nodes(&client, args.nodes, args.cni == Network::Ferrule).await?;
        if args.cni == Network::Ferrule && args.nodes > 0 {
            wait_for_name_server(&client).await?;
        }
        Ok(status)
    }

    /// Runs the production installer on the node. The plugins of the node's image are in place by then.
    async fn install(&self, node: &str) -> Result<()> {
        let path = format!("/nodes/{}/daemon", segment(node));
        let _: NodeView = self.client.post(&path, &DaemonOrder::Install).await?;
        Ok(())
    }

    async fn control_plane(
        &self,
        folder: &Path,
        at: Ipv4Addr,
        advertised: Ipv4Addr,
        kept: &ClusterRecord,
        has_v6: bool,
    ) -> Result<()> {
        let text = serde_json::to_string_pretty(kept).context("write the cluster's facts")?;
        let path = folder.join(KEPT);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let wanted = ClusterSpec {
            parts: vec![Part::ControllerManager, Part::Scheduler],
            lab: Some(InLab { at, advertised, api_proxy: self.layout.api_proxy() }),
            has_v6,
            ..ClusterSpec::default()
        };
        let folder = folder.to_owned();
        spawn_blocking(move || {
            // All at once, so that a missing program is reported now and not after minutes.
            Program::ready()?;
            Program::plugins()?;
            image::usual(&folder.join("images"))?;
            say(&format!("Kubernetes {VERSION}: the control plane"));
            let cluster = keep::up(&folder, &wanted)?;
            let daemon = Identity::service_account(NAMESPACE, SERVICE_ACCOUNT);
            cluster.kubeconfig_of("ferrule", &daemon).map(drop)
        })
        .await?
    }

    /// Makes these nodes the cluster's.
    async fn join(&self, folder: &Path, views: Vec<NodeView>) -> Result<()> {
        let kept = ClusterRecord::read(folder)?;
        let plugins = spawn_blocking(Program::plugins).await??;
        let mut tasks = tokio::task::JoinSet::new();
        let names: Vec<String> = views.iter().map(|view| view.name.clone()).collect();
        for view in views {
            let node = Fabric::open(&self.layout.fabric())?.node(&view.name)?;
            let config = config(&view, &kept, &node, plugins.path())?;
            let folder = folder.to_owned();
            tasks.spawn_blocking(move || {
                let access = Access::open(&folder.join("access"))?;
                let machine = Machine::of(&node, &folder);
                machine.start(&Program::ready()?, &access, &config)
            });
        }
        while let Some(joined) = tasks.join_next().await {
            joined??;
        }
        let images = fs::read_dir(folder.join("images")).context("list the usual images")?;
        let images = images.map(|entry| Ok(entry?.path().join("image.tar")));
        let images =
            images.collect::<std::io::Result<Vec<_>>>().context("list the usual images")?;
        self.load(folder, images, &names).await.map(drop)
    }

    /// Loads images on these nodes, or on all; the nodes' names.
    async fn load(
        &self,
        folder: &Path,
        images: Vec<PathBuf>,
        names: &[String],
    ) -> Result<Vec<String>> {
        let fabric = Fabric::open(&self.layout.fabric())?;
        let nodes = match names {
            [] => fabric.nodes()?,
            names => names.iter().map(|name| fabric.node(name)).collect::<Result<_, _>>()?,
        };
        let mut tasks = tokio::task::JoinSet::new();
        let mut loaded = Vec::new();
        for node in nodes {
            let (folder, images) = (folder.to_owned(), images.clone());
            loaded.push(node.name().to_owned());
            tasks.spawn_blocking(move || {
                let machine = Machine::of(&node, &folder);
                images.iter().try_for_each(|image| machine.load(image))
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(loaded)
    }
}

/// The options of `up` that these words are.
fn up_args(name: &str, words: &[OsString]) -> Result<UpArgs> {
    let line = ["ferrule-lab", "--name", name, "up"].map(OsString::from);
    let cli = Cli::try_parse_from(line.into_iter().chain(words.iter().cloned()))?;
    let Verb::Up(args) = cli.verb else { bail!("these are no options of up") };
    Ok(args)
}

fn config(
    view: &NodeView,
    kept: &ClusterRecord,
    node: &Node,
    plugins: &Path,
) -> Result<NodeConfig> {
    let kind = InstanceType::require(&view.instance_type)?;
    let enis = u32::from(kind.interfaces_of_card(0).unwrap_or(1));
    Ok(NodeConfig {
        name: view.name.clone(),
        address: view.address.with_context(|| format!("{} has no address", view.name))?,
        address_v6: view.enis.first().and_then(|eni| eni.ipv6_addresses.first().copied()),
        instance: view.instance.clone(),
        instance_type: view.instance_type.clone(),
        zone: view.zone.clone(),
        // As amazon-vpc-cni's list of instance types: two pods share the node's address.
        max_pods: enis * (u32::from(kind.ipv4_per_interface) - 1) + 2,
        server: kept.server.clone(),
        proxy: kept.proxy,
        cgroup: node.cgroup_name(),
        cgroup_root: node.cgroup_root(),
        plugins: plugins.to_owned(),
    })
}

/// Creates the initial objects of the cluster.
async fn prepare(client: &Client, cni: Network) -> Result<()> {
    let mut all = objects::usual();
    if cni == Network::Ferrule {
        // Otherwise a chart would install these.
        all.extend([config_crds::eni_config_crd(), config_crds::cni_node_crd()]);
        all.extend(config_crds::rbac());
    }
    for object in all {
        // The first namespaces come a moment after the API server.
        wait_for(async || objects::apply(client, &object).await).await?;
    }
    Ok(())
}

async fn wait_for_nodes(client: &Client, count: usize, ready: bool) -> Result<()> {
    let nodes: Api<ClusterNode> = Api::all(client.clone());
    wait_for(async || {
        let all = nodes.list(&ListParams::default()).await.context("list nodes")?;
        let is_ready = |node: &&ClusterNode| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|of| of.type_ == "Ready" && of.status == "True")
        };
        let there = all.items.iter().filter(|node| !ready || is_ready(node)).count();
        let what = if ready { "ready" } else { "registered" };
        ensure!(there >= count, "{there} of {count} nodes are {what}");
        Ok(())
    })
    .await
}

async fn wait_for_name_server(client: &Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    wait_for(async || {
        let found = deployments.get("coredns").await.context("get the name server")?;
        let available = found.status.and_then(|status| status.available_replicas);
        ensure!(available.unwrap_or(0) > 0, "CoreDNS is not available");
        Ok(())
    })
    .await
}

async fn wait_for(what: impl AsyncFn() -> Result<()>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match what().await {
            Ok(()) => return Ok(()),
            Err(err) if Instant::now() > until => return Err(err),
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// An address of loopback for the API server of this lab.
fn loopback(whose: u32) -> Ipv4Addr {
    let [a, b, c, _] = whose.to_be_bytes();
    Ipv4Addr::new(127, 64 | (a & 63), b, c | 1)
}

/// Distinguishes the labs of the machine (FNV-1a).
fn fingerprint(dir: &Path) -> u32 {
    dir.as_os_str()
        .as_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Ends what would otherwise write to the lab's files while they are removed.
pub(super) fn before_removal(layout: &Layout) {
    let folder = layout.cluster();
    let nodes = Fabric::open(&layout.fabric()).and_then(|fabric| fabric.nodes());
    for node in nodes.unwrap_or_default() {
        Machine::of(&node, &folder).stop();
    }
    keep::down(&folder);
}

/// Removes what the nodes left in the machine's cgroups.
pub(super) fn after_removal(layout: &Layout) -> Result<()> {
    let folder = layout.cluster();
    if !folder.join(KEPT).exists() {
        return Ok(());
    }
    node::remove_cgroups(&ClusterRecord::read(&folder)?.cgroups)
}

/// The file of what later commands must know.
const KEPT: &str = "cluster.json";
const API_SERVER_PORT: u16 = crate::lab::API_SERVER_PORT;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_has_an_address_of_loopback_for_each_lab() {
        let at = |dir| loopback(fingerprint(Path::new(dir)));
        let (one, other) = (at("/run/one/lab"), at("/run/other/lab"));
        assert!(one.is_loopback() && other.is_loopback());
        assert_ne!(one, other);
    }
}
