//! Policies in force on two nodes: the production controller, agents, daemons and plugins, with the backend `ebpf`.

use crate::{
    flows::Tool,
    policed::{
        Agent, AgentSite, Backend, Controllers,
        gate::Gate,
        sandbox::{Answer, Sandbox, Started},
    },
    proxy::{NetworkNamespace, SERVED},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, networking::v1::NetworkPolicy};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};
use tests_lab::{Lab, bpf_object, programs, wait_for};

const NODES: [&str; 2] = ["node1", "node2"];
const APPS: [&str; 3] = ["web", "db", "free"];
/// Time after which a connection without an answer counts as dropped.
const SILENCE: Duration = Duration::from_millis(700);

/// A running pod.
struct Running {
    name: String,
    app: &'static str,
    address: IpAddr,
    netns: NetworkNamespace,
}

/// A connection on which the server has answered.
pub(crate) struct Connection(TcpStream);

impl Running {
    /// Connects to a server. `None` if nothing answers.
    fn connect(&self, to: SocketAddr) -> Result<Option<Connection>> {
        connect(&self.netns, to)
    }
}

/// Connects to a server. `None` if nothing answers.
pub(crate) fn connect(from: &NetworkNamespace, to: SocketAddr) -> Result<Option<Connection>> {
    let connected = from.within(|| Ok(TcpStream::connect_timeout(&to, SILENCE)))?;
    match connected {
        Ok(stream) => {
            stream.set_read_timeout(Some(SILENCE))?;
            Ok(Some(Connection(stream)))
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The servers of the pods answer each byte.
pub(crate) fn serve(netns: &NetworkNamespace) -> Result<()> {
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVED));
    let listener = netns.within(|| Ok(std::net::TcpListener::bind(at)?))?;
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while client.read(&mut byte).is_ok_and(|count| count == 1) {
                    if client.write_all(&byte).is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}

impl Connection {
    /// True if a byte is answered.
    pub(crate) fn answers(&mut self) -> Result<bool> {
        self.0.write_all(&[7])?;
        match self.0.read(&mut [0]) {
            Ok(count) => Ok(count == 1),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn policies() -> Vec<Value> {
    let of = |app: &str| json!({"matchLabels": {"app": app}});
    let from = |app: &str| json!([{"from": [{"podSelector": of(app)}]}]);
    let policy = |name: &str, spec: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        })
    };
    vec![
        policy("web-in", json!({"podSelector": of("web"), "ingress": from("free")})),
        policy("db-in", json!({"podSelector": of("db"), "ingress": from("web")})),
        policy("web-out", json!({"podSelector": of("web"), "policyTypes": ["Egress"]})),
    ]
}

/// True if the policies allow connections between pods of these labels.
fn is_allowed(from: &str, to: &str, web_is_closed: bool) -> bool {
    let leaves = from != "web" || !web_is_closed;
    let enters = match to {
        "web" => from == "free",
        "db" => from == "web",
        _ => true,
    };
    leaves && enters
}

/// The agent of a node with the backend `ebpf`, and its way to the controller.
pub(crate) struct Site<'a> {
    lab: &'a Lab,
    node: &'static str,
    pub(crate) agent: Option<Agent>,
    pub(crate) site: AgentSite,
    gate: Gate,
}

impl<'a> Site<'a> {
    /// Starts the agent of this node, which follows the replica.
    pub(crate) fn new(
        world: &World,
        lab: &'a Lab,
        bin: &Path,
        object: &Path,
        node: &'static str,
        replica: SocketAddr,
    ) -> Result<Self> {
        Self::with(lab, object, AgentSite::new(world, bin, node)?, node, replica)
    }

    /// The same with an agent that serves Services.
    pub(crate) fn serving(
        world: &World,
        lab: &'a Lab,
        bin: &Path,
        object: &Path,
        node: &'static str,
        replica: SocketAddr,
    ) -> Result<Self> {
        let mut site = AgentSite::new(world, bin, node)?;
        site.services = true;
        Self::with(lab, object, site, node, replica)
    }

    fn with(
        lab: &'a Lab,
        object: &Path,
        site: AgentSite,
        node: &'static str,
        replica: SocketAddr,
    ) -> Result<Self> {
        let gate = Gate::open(lab, node, Ipv4Addr::LOCALHOST)?;
        gate.lead_to(Some(replica));
        let mut site = Self { lab, node, agent: None, site, gate };
        site.start(object)?;
        Ok(site)
    }

    /// Starts the agent again.
    pub(crate) fn start(&mut self, object: &Path) -> Result<()> {
        let words = ["--replica", &self.gate.at.to_string()];
        self.agent = Some(self.site.start_with(self.lab, Backend::Ebpf { object }, &words)?);
        Ok(())
    }

    /// The filters of the node's links.
    fn filters(&self) -> Result<String> {
        let script = "for link in $(ls /sys/class/net); do \
            tc filter show dev $link ingress; tc filter show dev $link egress; done";
        self.lab.on_node(self.node, &["sh", "-c", script])
    }
}

/// Creates a pod in the API and starts it as the kubelet does.
fn start(world: &World, lab: &Lab, node: &str, app: &'static str) -> Result<Running> {
    let name = format!("{app}-{node}");
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none.invalid/none"}],
        },
    }))?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let made = world.runtime.block_on(pods.create(&PostParams::default(), &pod))?;
    let started = Started { name: name.clone(), uid: made.uid().context("a pod without UID")? };
    let sandbox = Sandbox::new(lab, node, &started)?;
    let mut address = None;
    wait_for(&format!("the pod {name}"), PATIENCE, || {
        let Answer::Starts(result) = sandbox.add()? else { anyhow::bail!("the ADD fails") };
        let text = result["ips"][0]["address"].as_str().context("no address")?;
        address = Some(text.split('/').next().unwrap_or_default().parse()?);
        Ok(true)
    })?;
    let netns = sandbox.netns();
    let netns =
        lab.command(&["node", "exec", node, "--", "ip", "netns", "exec", &netns, "sleep", "60"]);
    let netns = NetworkNamespace::of(netns)?;
    serve(&netns)?;
    Ok(Running { name, app, address: address.context("no address")?, netns })
}

/// Writes the status of a running pod as the kubelet does.
fn report(world: &World, pod: &Running) -> Result<()> {
    let address = pod.address.to_string();
    let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    let patch = Patch::Merge(json!({"status": status}));
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    world.runtime.block_on(pods.patch_status(&pod.name, &PatchParams::default(), &patch))?;
    Ok(())
}

/// Fails if a connection between two pods has another result than the policies.
fn ensure_all(pods: &[Running], web_is_closed: bool) -> Result<()> {
    for from in pods {
        for to in pods.iter().filter(|to| to.name != from.name) {
            let connected = from.connect((to.address, SERVED).into())?.is_some();
            let allowed = is_allowed(from.app, to.app, web_is_closed);
            ensure!(connected == allowed, "{} to {}: {connected}", from.name, to.name);
        }
    }
    Ok(())
}

#[test]
fn policies_are_enforced_between_pods_of_two_nodes() -> Result<()> {
    let name = "policies_are_enforced_between_pods_of_two_nodes";
    let (Some(bin), Some(object)) = (programs(name), bpf_object(name)) else { return Ok(()) };
    let world = World::new()?;
    for node in NODES {
        world.make_node(node, &json!({}))?;
    }
    for policy in policies() {
        world.apply(&policy)?;
    }
    let env = ["--env", "FERRULE_POLICY=true", "--env", "NETWORK_POLICY_ENFORCING_MODE=strict"];
    let lab = world.lab(&bin, "enforced", &[&["--nodes", "2"], &env[..]].concat())?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let mut sites = Vec::new();
    for node in NODES {
        sites.push(Site::new(&world, &lab, &bin, &object, node, replica.at)?);
    }
    let mut pods = Vec::new();
    for node in NODES {
        for app in APPS {
            pods.push(start(&world, &lab, node, app)?);
        }
    }
    // The other node's members arrive a moment later.
    wait_for("the policies of both nodes", PATIENCE, || ensure_all(&pods, true).map(|()| true))?;
    let node = NetworkNamespace::node(&lab, NODES[0])?;
    for pod in &pods[..APPS.len()] {
        let at = (pod.address, SERVED).into();
        ensure!(connect(&node, at)?.is_some(), "a process of the node cannot reach {}", pod.name);
    }

    // The agent names the packets, the rules and the steps of a lookup. The kubelet's status is there by then.
    for pod in &pods {
        report(&world, pod)?;
    }
    let agent = sites[0].agent.as_ref().context("no agent")?;
    let tool = Tool { bin: &bin, world: &world, agent };
    tool.ensure_dropped("web-node1", "db-node1", "egress_isolation")?;
    tool.ensure_dropped("db-node1", "web-node1", "ingress_isolation")?;
    tool.ensure_used("web-in")?;
    for (from, to, allowed) in [("free", "web", true), ("web", "db", false), ("db", "web", false)] {
        let (from, to) = (format!("{from}-node1"), format!("{to}-node1:{SERVED}"));
        tool.ensure_agree(&from, &to, allowed)?;
    }

    // The agent has only the rights that it needs, and reads the memory of its maps.
    wait_for("the memory of maps", PATIENCE, || {
        let page = sites[0].site.metrics()?;
        let mut lines = page.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("ferrule_agent_map_memory_bytes "));
        let bytes: f64 = bytes.context("no metric")?.parse()?;
        Ok(bytes > f64::from(1 << 20))
    })?;

    // A restart changes nothing: neither connections nor filters.
    let free = &pods[2];
    let mut open = free.connect((pods[0].address, SERVED).into())?.context("no connection")?;
    ensure!(open.answers()?);
    let before = sites[0].filters()?;
    ensure!(before.contains("from_pod") && before.contains("to_wire"), "{before}");
    sites[0].agent = None;
    ensure!(open.answers()?, "the connection ended with the agent");
    ensure_all(&pods, true)?;
    sites[0].start(&object)?;
    let (site, agent) = (&sites[0].site, sites[0].agent.as_ref().context("no agent")?);
    site.until(agent, "the state to be in force", |status| {
        status.applied > 0 && status.fault.is_empty()
    })?;
    ensure!(open.answers()?, "the connection ended with the restart");
    let after = sites[0].filters()?;
    ensure!(before == after, "the filters changed:\n{before}\n{after}");

    // A removed filter is repaired.
    let link = "for link in $(ls /sys/class/net); do \
        if tc filter show dev $link ingress | grep -q from_pod; then tc qdisc del dev $link clsact; fi; done";
    lab.on_node(NODES[0], &["sh", "-c", link])?;
    wait_for("the filters to be repaired", PATIENCE, || Ok(sites[0].filters()? == before))
        .with_context(|| sites[0].site.log())?;
    ensure_all(&pods, true)?;

    // Without the policy the pods may connect, and with it again the connections end.
    let api: Api<NetworkPolicy> = Api::namespaced(world.client.clone(), "default");
    world.runtime.block_on(api.delete("web-out", &DeleteParams::default()))?;
    wait_for("the change", PATIENCE, || ensure_all(&pods, false).map(|()| true))?;
    let mut open = pods[0].connect((pods[4].address, SERVED).into())?.context("no connection")?;
    ensure!(open.answers()?);
    for policy in policies() {
        world.apply(&policy)?;
    }
    wait_for("the connection to end", PATIENCE, || Ok(!open.answers()?))?;
    ensure_all(&pods, true)?;
    lab.down()
}
