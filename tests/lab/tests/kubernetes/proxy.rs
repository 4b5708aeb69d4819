//! Services with a real kube-proxy and every netfilter backend of SNAT and connection marks.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd as _, unix::fs::symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tests_cluster::{ClusterSpec, Identity, Program};
use tests_lab::{Lab, programs, wait_for};

/// The address of the API server for the lab's nodes.
const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The lab's one host on the internet. It answers the primary addresses of ENIs only.
const OUTSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);
/// The port of the test's servers in pods.
pub(crate) const SERVED: u16 = 7000;
/// A type with three ENIs of three addresses, so that a few pods use two ENIs.
const TYPE: &str = "t3.small";
const PODS: &str = "5";

/// The netfilter backends of kube-proxy and the daemon on a node.
struct Case {
    node: &'static str,
    mode: &'static str,
    /// The variant of iptables in kube-proxy's PATH.
    tools: &'static str,
    /// `FERRULE_NAT_BACKEND`.
    asked: &'static str,
    /// The expected backend of the daemon.
    backend: &'static str,
}

const CASES: [Case; 4] = [
    Case { node: "native", mode: "nftables", tools: "nft", asked: "auto", backend: "nftables" },
    Case { node: "mixed", mode: "iptables", tools: "nft", asked: "auto", backend: "nftables" },
    Case {
        node: "compat",
        mode: "iptables",
        tools: "nft",
        asked: "iptables-nft",
        backend: "iptables-nft",
    },
    Case {
        node: "legacy",
        mode: "iptables",
        tools: "legacy",
        asked: "auto",
        backend: "iptables-legacy",
    },
];

/// A process that a drop kills.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An open network namespace of the lab.
pub(crate) struct NetworkNamespace(File);

impl NetworkNamespace {
    /// Opens the namespace of a process that this command starts.
    pub(crate) fn of(mut command: Command) -> Result<Self> {
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let process = Running(command.stdout(Stdio::null()).spawn()?);
        let path = PathBuf::from(format!("/proc/{}/ns/net", process.0.id()));
        // The process enters the namespace before it executes `sleep`.
        wait_for("a process to enter its namespace", PATIENCE, || {
            let name = std::fs::read_to_string(path.with_file_name("../comm"))?;
            Ok(name.trim() == "sleep" && std::fs::read_link(&path)? != ours)
        })?;
        Ok(Self(File::open(path)?))
    }

    pub(crate) fn node(lab: &Lab, node: &str) -> Result<Self> {
        Self::of(lab.command(&["node", "exec", node, "--", "sleep", "60"]))
    }

    fn pod(lab: &Lab, pod: &str) -> Result<Self> {
        Self::of(lab.command(&["exec", pod, "--", "sleep", "60"]))
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Runs `what` in the namespace, on a separate thread.
    pub(crate) fn within<T: Send>(&self, what: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?;
                what()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a server in the namespace that sends each client its source address. It runs until the test exits.
    pub(crate) fn serve(&self) -> Result<()> {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVED));
        let listener = self.within(|| Ok(TcpListener::bind(at)?))?;
        std::thread::spawn(move || {
            while let Ok((mut client, from)) = listener.accept() {
                let _ = client.write_all(from.ip().to_string().as_bytes());
            }
        });
        Ok(())
    }

    /// Connects to a server from the namespace and returns the first bytes of its answer.
    fn ask(&self, server: SocketAddr) -> Result<String> {
        const ANSWER: Duration = Duration::from_secs(3);
        let mut stream = self.within(|| Ok(TcpStream::connect_timeout(&server, ANSWER)?))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"hello")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eni {
    Primary,
    Secondary,
}

/// A pod with its namespace.
struct Pod {
    name: String,
    address: IpAddr,
    namespace: NetworkNamespace,
}

/// Returns a pod of this node on its primary or on a secondary ENI.
fn pod_on(lab: &Lab, node: &str, eni: Eni) -> Result<Pod> {
    let pods = lab.pods(node)?;
    let pod = pods.iter().find(|pod| (pod["device"] == 0) == (eni == Eni::Primary));
    let pod = pod.with_context(|| format!("no pod of {node} on a {eni:?} ENI"))?;
    let name = pod["name"].as_str().context("a pod without a name")?.to_owned();
    let address = pod["address"].as_str().context("a pod without an address")?.parse()?;
    Ok(Pod { namespace: NetworkNamespace::pod(lab, &name)?, name, address })
}

/// Creates a Service with one Service endpoint. Returns its address and its node port.
pub(crate) fn service(
    world: &World,
    name: &str,
    spec: &Value,
    end: Value,
    port: u16,
) -> Result<(SocketAddr, u16)> {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"port": 80, "protocol": "TCP", "targetPort": port}]);
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }))?;
    world.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4", "endpoints": [end],
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
    }))?;
    let api: Api<Service> = Api::namespaced(world.client.clone(), "default");
    let spec = world.runtime.block_on(api.get(name))?.spec.context("a Service without a spec")?;
    let address = spec.cluster_ip.context("a Service without an address")?.parse()?;
    let ports = spec.ports.unwrap_or_default();
    let port = ports.first().and_then(|port| port.node_port).unwrap_or_default();
    Ok((SocketAddr::new(address, 80), u16::try_from(port)?))
}

/// Starts kube-proxy on this node in this mode, with this variant of iptables first in PATH. Its log is in the folder.
pub(crate) fn kube_proxy(
    world: &World,
    lab: &Lab,
    folder: &Path,
    (node, mode, tools): (&str, &str, &str),
) -> Result<Running> {
    let bin = folder.join(tools);
    if !bin.exists() {
        std::fs::create_dir(&bin)?;
        for tool in ["iptables", "iptables-save", "iptables-restore"] {
            symlink(format!("/usr/sbin/xtables-{tools}-multi"), bin.join(tool))?;
        }
    }
    let who = Identity::user("system:kube-proxy");
    let kubeconfig = format!("https://{API_SERVER}");
    let kubeconfig = world.cluster.kubeconfig_at("kube-proxy", &who, &kubeconfig)?;
    let kubernetes = Program::ready()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))?;
    let program = kubernetes.path().to_str().context("the path is not UTF-8")?;
    let log = File::create(folder.join(format!("{node}.log")))?;
    let mut command = lab.command(&["node", "exec", node, "--", program, "kube-proxy"]);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--hostname-override={node}"))
        .arg(format!("--proxy-mode={mode}"))
        // This sysctl belongs to the machine, not to the namespace.
        .arg("--conntrack-max-per-core=0")
        .env("PATH", path)
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(Running(command.spawn().context("cannot start kube-proxy")?))
}

#[test]
fn services_reach_their_endpoints_with_every_netfilter_backend() -> Result<()> {
    let name = "services_reach_their_endpoints_with_every_netfilter_backend";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::of(&ClusterSpec { also_at: vec![API_SERVER], ..ClusterSpec::default() })?;
    let folder = TempDir::new()?;
    let lab = world.lab(&bin, "t-proxy", &["--nodes", "0"])?;
    let add = |node: &str, more: &[&str]| -> Result<()> {
        world.make_node(node, &json!({}))?;
        lab.run(&[&["node", "add", node, "--type", TYPE], more].concat())?;
        let address = lab.node(node)?["address"].clone();
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        world.patch_node_status(node, &json!({"status": {"addresses": addresses}}))
    };
    add("peer", &[])?;
    lab.run(&["pod", "add", "peer", "--count", "1"])?;
    let peer = NetworkNamespace::node(&lab, "peer")?;
    let served = pod_on(&lab, "peer", Eni::Primary)?;
    served.namespace.serve()?;
    let end = |address: IpAddr, node: &str| json!({"addresses": [address], "nodeName": node});
    let cluster_ip = json!({"type": "ClusterIP"});
    // With the policy `Local` kube-proxy keeps the client's source address, so the reply must leave through the right
    // ENI.
    let node_port = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    let (inside, _) = service(&world, "inside", &cluster_ip, end(served.address, "peer"), SERVED)?;
    let outside = json!({"addresses": [OUTSIDE.ip()]});
    let (outside, _) = service(&world, "outside", &cluster_ip, outside, OUTSIDE.port())?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("not a string");
    let peer_address = text(&lab.node("peer")?["address"])?;

    for case in &CASES {
        let Case { node, backend, asked, .. } = case;
        let asked = format!("FERRULE_NAT_BACKEND={asked}");
        add(node, &["--env", &asked])?;
        lab.run(&["pod", "add", node, "--count", PODS])?;
        let _proxy = kube_proxy(&world, &lab, folder.path(), (node, case.mode, case.tools))?;
        let with_log = |err| {
            let log = std::fs::read_to_string(folder.path().join(format!("{node}.log")));
            let log = log.unwrap_or_default();
            let from = log.lines().count().saturating_sub(20);
            let log: Vec<&str> = log.lines().skip(from).collect();
            anyhow::Error::context(err, format!("{node}; log of kube-proxy:\n{}", log.join("\n")))
        };
        let expect_answer =
            |namespace: &NetworkNamespace, server: SocketAddr, what: &str, answer: &str| {
                let what = format!("{node}: {what} at {server}");
                let received = || {
                    let received = namespace.ask(server)?;
                    ensure!(received == answer, "received {received:?}, not {answer:?}");
                    Ok(true)
                };
                wait_for(&what, PATIENCE, received).map_err(with_log)
            };
        let address: IpAddr = text(&lab.node(node)?["address"])?.parse()?;
        let host = NetworkNamespace::node(&lab, node)?;
        for eni in [Eni::Primary, Eni::Secondary] {
            let pod = pod_on(&lab, node, eni)?;
            pod.namespace.serve()?;
            let Pod { name, address: own, namespace } = &pod;
            expect_answer(
                namespace,
                inside,
                &format!("{name} asks a pod by its Service"),
                &own.to_string(),
            )?;
            expect_answer(
                namespace,
                outside,
                &format!("{name} asks the outside by a Service"),
                "hello",
            )?;
            expect_answer(namespace, OUTSIDE, &format!("{name} asks the outside"), "hello")?;
            let (web, port) = service(&world, name, &node_port, end(*own, node), SERVED)?;
            let by_port = SocketAddr::new(address, port);
            expect_answer(
                &peer,
                by_port,
                &format!("a node asks {name} by a node port"),
                &peer_address,
            )?;
            if eni == Eni::Secondary {
                let what = format!("the node asks {name} by its Service");
                expect_answer(&host, web, &what, &address.to_string())?;
            }
        }
        let labels = [&*format!("backend=\"{backend}\"")];
        wait_for(&format!("{node} uses {backend}"), PATIENCE, || {
            Ok(lab.metric(node, "ferrule_netfilter_backend", &labels)? == Some(1.0))
        })?;
    }
    lab.down()
}
