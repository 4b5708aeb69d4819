//! The lab's server from its first namespace to its last.

use crate::{
    api_proxy, ec2, forward, http, imds,
    lab::{
        API_SERVER_PORT, Cluster, Lab, LabError, balance, control as control_branches, control_in,
        follow, vpc,
    },
    live::LiveCloud,
    routes,
};
use lab_cloud::CloudSpec;
use lab_fabric::{Fabric, FabricError, InternetHost, process};
use std::{
    fs::Permissions,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServeSpec {
    /// The lab's name.
    pub name: String,
    /// The lab's folder; it exists and holds no other lab.
    pub dir: PathBuf,
    /// Folder of the production programs.
    pub bin_dir: PathBuf,
    /// The cloud of the first day.
    pub cloud: CloudSpec,
    /// The Kubernetes API server that nodes are to reach.
    pub cluster: Option<Cluster>,
}

/// A server that could not start, or not end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServeError(String);

/// The files of a lab's folder.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// Of the lab in this folder.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Socket of the API server's proxy to nodes.
    pub fn api_proxy(&self) -> PathBuf {
        self.dir.join("vpc.sock")
    }

    /// The folder of the cluster whose nodes these are, if the lab has one.
    pub fn cluster(&self) -> PathBuf {
        self.dir.join("cluster")
    }

    /// File for the server's output.
    pub fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// The fabric's folder: namespaces, mounts, processes, the nodes' disks.
    pub fn fabric(&self) -> PathBuf {
        self.dir.join("fabric")
    }
}

/// Serves a lab until SIGTERM or SIGINT, then removes it.
///
/// # Errors
/// The part that could not be started or removed, with its causes.
pub async fn serve(spec: ServeSpec) -> Result<(), ServeError> {
    let layout = Layout::new(&spec.dir);
    // First of all, so that no signal from now on ends the server without the end of its lab.
    let ended = ended().map_err(|err| ServeError(format!("watch for signals: {err}")))?;
    let outcome = run(&spec, &layout, ended).await.map_err(|err| ServeError(err.chain()));
    let fabric = layout.fabric();
    let removed = tokio::task::spawn_blocking(move || Fabric::remove(&fabric)).await;
    match removed {
        Ok(Ok(removed)) => {
            tracing::info!(removed.processes, removed.mounts, "the lab is down");
            let _ = std::fs::remove_file(layout.socket());
            outcome
        }
        Ok(Err(err)) => Err(ServeError(LabError::from(err).chain())),
        Err(err) => Err(ServeError(err.to_string())),
    }
}

async fn run(
    spec: &ServeSpec,
    layout: &Layout,
    ended: impl Future<Output = ()>,
) -> Result<(), LabError> {
    let cloud = LiveCloud::new(spec.cloud.clone(), seed(&spec.name))?;
    let started = start(spec, layout, &cloud).await?;
    let (lab, fabric) = (started.lab, started.fabric);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(Arc::clone(&lab), fabric));
    tasks.spawn(control_branches(Arc::clone(&lab)));
    tasks.spawn(balance(Arc::clone(&lab)));
    let endpoint = ec2::Endpoint::new(cloud.clone());
    tasks.spawn(async move {
        http::serve(started.ec2, endpoint).await;
    });
    let metadata = imds::Metadata::new(cloud, imds::Callers::BySource);
    tasks.spawn(async move {
        http::serve(started.imds, metadata).await;
    });
    if let Some(controller) = started.controller {
        tasks.spawn(control_in(controller, Arc::clone(&lab)));
    }
    if let (Some(listener), Some(cluster)) = (started.api_server, spec.cluster.clone()) {
        tasks.spawn(forward::serve(listener, cluster.api_server));
        let (fabric, from) = started.api_proxy;
        let socket = owners_socket(&layout.api_proxy())?;
        if let Some(from) = from {
            tasks.spawn(api_proxy::serve(socket, fabric, from));
        }
    }
    let socket = owners_socket(&layout.socket())?;
    let router = routes::router(Arc::clone(&lab));
    tasks.spawn(async move {
        let _ = axum::serve(socket, router).await;
    });
    tracing::info!(name = spec.name, ec2 = lab.ec2_url(), "the lab is up");
    tokio::select! {
        () = ended => tracing::info!("asked to end"),
        _ = tasks.join_next() => tracing::error!("a server ended by itself"),
    }
    lab.stop_daemons().await;
    tasks.shutdown().await;
    Ok(())
}

struct Started {
    lab: Arc<Lab>,
    fabric: Fabric,
    ec2: TcpListener,
    imds: TcpListener,
    api_server: Option<TcpListener>,
    /// And the address from which it leads.
    api_proxy: (Fabric, Option<Ipv4Addr>),
    controller: Option<crate::resource_controller::Cluster>,
    _internet: InternetHost,
}

async fn start(spec: &ServeSpec, layout: &Layout, cloud: &LiveCloud) -> Result<Started, LabError> {
    let controller = match spec.cluster.as_ref().and_then(|cluster| cluster.controller.as_ref()) {
        Some(kubeconfig) => Some(crate::resource_controller::Cluster::new(kubeconfig).await?),
        None => None,
    };
    let vpc = vpc(&cloud.truth()).ok_or(LabError::NoSubnet { index: 0, count: 0 })?;
    let (state_dir, endpoint) = (layout.fabric(), vpc.ec2_endpoint);
    let api_server = vpc.api_server.filter(|_| spec.cluster.is_some());
    let made = move || -> Result<_, FabricError> {
        let fabric = Fabric::create(&state_dir, &vpc)?;
        if let Some(server) = me() {
            process::record(&state_dir, &server)?;
        }
        let ec2 = fabric.listen_in_vpc(SocketAddr::from((endpoint, 80)))?;
        let imds = fabric.listen_in_vpc(SocketAddr::from((IMDS, 80)))?;
        let forwarded = api_server
            .map(|address| fabric.listen_in_vpc(SocketAddr::from((address, API_SERVER_PORT))))
            .transpose()?;
        let internet = fabric.serve_internet()?;
        let looking = Fabric::open(&state_dir)?;
        let api_proxy = Fabric::open(&state_dir)?;
        Ok((fabric, looking, api_proxy, ec2, imds, forwarded, internet))
    };
    let (fabric, looking, api_proxy, ec2, imds, forwarded, internet) =
        crate::lab::blocking(made).await?;
    let bin_dir = spec.bin_dir.clone();
    let cluster = match (api_server, &spec.cluster) {
        (Some(address), Some(cluster)) => Some(cluster.as_nodes_see_it(address)?),
        _ => None,
    };
    let lab = Lab::new(spec.name.clone(), bin_dir, endpoint, cluster, cloud.clone(), looking);
    let (ec2, imds) = (listener(ec2)?, listener(imds)?);
    let forwarded = forwarded.map(listener).transpose()?;
    Ok(Started {
        lab: Arc::new(lab),
        fabric,
        ec2,
        imds,
        api_server: forwarded,
        api_proxy: (api_proxy, api_server),
        controller,
        _internet: internet,
    })
}

/// This process, as the lab's state notes it.
fn me() -> Option<process::Recorded> {
    let pid = i32::try_from(std::process::id()).ok()?;
    process::Recorded::of(pid, "ferrule-lab serve")
}

fn listener(std: std::net::TcpListener) -> Result<TcpListener, LabError> {
    std.set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(std))
        .map_err(LabError::file("listen on", "a port in the VPC"))
}

fn owners_socket(path: &Path) -> Result<UnixListener, LabError> {
    let socket = UnixListener::bind(path).map_err(LabError::file("listen on", path))?;
    let owner_only = Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner_only).map_err(LabError::file("protect", path))?;
    Ok(socket)
}

/// Ids and MACs differ between labs of different names.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn ended() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Address of the metadata service, as instances reach it.
const IMDS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
