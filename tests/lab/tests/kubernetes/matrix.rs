//! Forty pods on two nodes with policies of every kind, beside real kube-proxies: traffic passes if and only if
//! `verdict` allows it.

use crate::{
    enforced::Site,
    flows::Watch,
    policed::{
        API_SERVER, Controllers, model,
        pods::{self, Running},
        traffic::{Ask, ask_all},
    },
    proxy::{SERVED, kube_proxy},
    world::World,
};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use lab_programs::Program;
use policy_core::{Decision, Direction, Origin, Packet, Reason, Segment, State, Verdict, verdict};
use policy_objects::{Named, Protocol};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::{IpAddr, SocketAddr},
    process::Stdio,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tests_cluster::ClusterSpec;
use tests_lab::{Lab, bpf_object, programs};

/// The nodes, with the mode of kube-proxy on each.
const NODES: [(&str, &str); 2] = [("node1", "iptables"), ("node2", "nftables")];
const APPS: [&str; 8] = ["web", "db", "cache", "api", "ops", "batch", "mail", "free"];
const PODS: usize = 40;
/// The numbers of the pods with a host port, one on each node.
const WITH_HOST_PORT: [usize; 2] = [1, 8];
const HOST_PORT: u16 = 8090;
/// Number of pods that send at a time.
const SENDERS: usize = 4;
/// The time in which changes reach both nodes.
const SETTLED: Duration = Duration::from_secs(180);
/// An allowed request whose answer is late is repeated this many times.
const TRIES: usize = 4;

/// Policies of all kinds, in most tiers.
fn policies() -> Vec<Value> {
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let peer = |name: &str| json!({"podSelector": app(name)});
    let pods = |name: &str| json!({"pods": {"namespaceSelector": {}, "podSelector": app(name)}});
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        if ["NetworkPolicy", "ApplicationNetworkPolicy"].contains(&kind) {
            object["metadata"]["namespace"] = json!("default");
        }
        object
    };
    let (antrea, upstream, aws) = (
        "crd.antrea.io/v1beta1",
        "policy.networking.k8s.io/v1alpha2",
        "networking.k8s.aws/v1alpha1",
    );
    vec![
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "web",
            json!({
                "podSelector": app("web"),
                "ingress": [
                    {"from": [peer("free"), peer("api")], "ports": [{"port": SERVED, "protocol": "TCP"}]},
                    {"from": [peer("ops")]},
                ],
            }),
        ),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "db",
            json!({
                "podSelector": app("db"), "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [peer("web"), peer("api"), peer("db")]}],
                "egress": [{"to": [peer("cache"), peer("db")]}],
            }),
        ),
        object(
            upstream,
            "ClusterNetworkPolicy",
            "cache",
            json!({
                "tier": "Admin", "priority": 10, "subject": pods("cache"),
                "ingress": [
                    {"action": "Pass", "from": [pods("ops")]},
                    {"action": "Accept", "from": [pods("api")],
                     "protocols": [{"udp": {"destinationPort": {"number": SERVED}}}]},
                    {"action": "Deny", "from": [pods("ops"), pods("api"), pods("batch")]},
                ],
            }),
        ),
        object(
            upstream,
            "ClusterNetworkPolicy",
            "ops-baseline",
            json!({
                "tier": "Baseline", "priority": 10, "subject": pods("ops"),
                "ingress": [{"action": "Deny", "from": [pods("free"), pods("mail")]}],
            }),
        ),
        object(
            antrea,
            "ClusterNetworkPolicy",
            "api",
            json!({
                "tier": "securityops", "priority": 5, "appliedTo": [peer("api")],
                "ingress": [
                    {"action": "Drop", "from": [peer("batch")],
                     "protocols": [{"icmp": {"icmpType": 8, "icmpCode": 0}}]},
                    {"action": "Reject", "from": [peer("mail")],
                     "ports": [{"protocol": "TCP", "port": SERVED}]},
                ],
                "egress": [{"action": "Drop", "to": [peer("mail")]}],
            }),
        ),
        object(
            antrea,
            "NetworkPolicy",
            "batch",
            json!({
                "tier": "application", "priority": 5, "appliedTo": [peer("batch")],
                "egress": [{"action": "Reject", "to": [peer("free")]}],
            }),
        ),
        object(
            antrea,
            "ClusterNetworkPolicy",
            "service",
            json!({
                "tier": "application", "priority": 7, "appliedTo": [peer("mail")],
                "egress": [{"action": "Drop", "toServices": [
                    {"name": "s-3", "namespace": "default"}, {"name": "s-6", "namespace": "default"},
                ]}],
            }),
        ),
        object(
            aws,
            "ClusterNetworkPolicy",
            "free",
            json!({
                "tier": "Admin", "priority": 20, "subject": {"pods": {"namespaceSelector": {},
                    "podSelector": app("free")}},
                "ingress": [{"action": "Deny", "from": [{"pods": {"namespaceSelector": {},
                    "podSelector": app("cache")}}]}],
            }),
        ),
        object(
            aws,
            "ApplicationNetworkPolicy",
            "mail",
            json!({
                "podSelector": app("mail"), "policyTypes": ["Egress"],
                "egress": [{"to": [peer("web"), peer("api"), peer("mail"), peer("ops")]}],
            }),
        ),
    ]
}

/// The cause of a drop: its direction, and the rule; no rule for an isolated pod.
type Cause = Option<(String, Option<(String, u64)>)>;

/// The cause that an event names.
fn cause_of(event: &Value) -> Cause {
    let (direction, _) = event["reason"].as_str()?.split_once('_')?;
    let rule = event["rules"].as_array().and_then(|rules| rules.first());
    let rule = rule.map(|rule| {
        let text = |of: &str| rule[of].as_str().unwrap_or_default().to_owned();
        (format!("{} {}", text("kind"), text("policy")), rule["index"].as_u64().unwrap_or_default())
    });
    Some((direction.to_owned(), rule))
}

/// The cause that a verdict names; `None` if it allows the packet.
fn cause(verdict: &Verdict) -> Cause {
    let mut halves = verdict.egress.iter().chain(&verdict.ingress);
    let half = halves.find(|half| half.decision != Decision::Allow)?;
    let direction = match half.direction {
        Direction::Egress => "egress",
        Direction::Ingress => "ingress",
    };
    let rule = match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => {
            Some((rule.policy.to_string(), u64::try_from(rule.index).unwrap_or_default()))
        }
        Reason::Isolation { .. } | Reason::Exemption { .. } | Reason::Default => None,
    };
    Some((direction.to_owned(), rule))
}

/// One request and the decision about it.
struct Case {
    what: String,
    from: usize,
    ask: Ask,
    /// Text of the only server that may answer.
    server: String,
    is_allowed: bool,
}

struct Scene<'a> {
    world: policy_core::World,
    pods: &'a [Running<'a>],
    /// The Services of the pods: the address and the node port of each.
    services: Vec<(IpAddr, u16)>,
    nodes: BTreeMap<&'a str, IpAddr>,
}

impl Scene<'_> {
    /// Returns the decision of `verdict` about the first packet.
    fn allows(
        &self,
        origin: Origin,
        source: IpAddr,
        to: (IpAddr, Option<(Protocol, u16)>),
        service: Option<IpAddr>,
    ) -> bool {
        let (destination, port) = to;
        let segment = match port {
            Some((protocol, destination)) => {
                Segment::Ports { protocol, source: 40_000, destination }
            }
            None => Segment::Icmp { kind: 8, code: 0 },
        };
        let packet = Packet { origin, source, destination, service, segment, state: State::New };
        verdict(&self.world, &packet).decision == Decision::Allow
    }

    /// The pairs of pods of which the first may not send to the second directly.
    fn denied_directly(&self) -> BTreeSet<(String, String, Protocol)> {
        let mut denied = BTreeSet::new();
        for (from, to) in
            self.pods.iter().flat_map(|from| self.pods.iter().map(move |to| (from, to)))
        {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let end = (to.address, Some((protocol, SERVED)));
                let name = Named { namespace: "default".to_owned(), name: from.name.clone() };
                if from.name != to.name && !self.allows(Origin::Pod(name), from.address, end, None)
                {
                    denied.insert((from.name.clone(), to.name.clone(), protocol));
                }
            }
        }
        denied
    }

    /// Fails if a drop between two pods has another cause than the verdict, directly or by a Service. Returns the drops.
    fn ensure_named(&self, events: &[Value]) -> Result<BTreeSet<(String, String, Protocol)>> {
        let mut named = BTreeSet::new();
        for event in events.iter().filter(|event| event["decision"] != "allow") {
            let end = |end: &str| {
                let address = event[end]["address"].as_str()?.parse::<IpAddr>().ok()?;
                self.pods.iter().enumerate().find(|(_, pod)| pod.address == address)
            };
            let reason = event["reason"].as_str().context("a drop without a reason")?;
            let is_by_policy =
                ["_rule", "_reject", "_isolation"].iter().any(|of| reason.ends_with(of));
            let (Some((_, from)), Some((index, to)), true) =
                (end("source"), end("destination"), is_by_policy)
            else {
                continue;
            };
            let protocol = match event["protocol"].as_u64() {
                Some(6) => Some(Protocol::Tcp),
                Some(17) => Some(Protocol::Udp),
                _ => None,
            };
            let found = cause_of(event);
            let origin =
                Origin::Pod(Named { namespace: "default".to_owned(), name: from.name.clone() });
            let port =
                event["destination"]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            let segment = match (protocol, port) {
                (Some(protocol), Some(destination)) => {
                    Segment::Ports { protocol, source: 40_000, destination }
                }
                _ => Segment::Icmp { kind: 8, code: 0 },
            };
            let (service, _) = self.services[index];
            let expected = [None, Some(service)].map(|service| {
                let packet = Packet {
                    origin: origin.clone(),
                    source: from.address,
                    destination: to.address,
                    service,
                    segment,
                    state: State::New,
                };
                cause(&verdict(&self.world, &packet))
            });
            ensure!(
                expected.contains(&found),
                "{event}: the verdict names {expected:?}, not {found:?}"
            );
            if let Some(protocol) = protocol {
                named.insert((from.name.clone(), to.name.clone(), protocol));
            }
        }
        Ok(named)
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (number, from) in self.pods.iter().enumerate() {
            let origin =
                || Origin::Pod(Named { namespace: "default".to_owned(), name: from.name.clone() });
            for (index, to) in self.pods.iter().enumerate() {
                let (service, node_port) = self.services[index];
                let mut case = |what: &str, ask, is_allowed| {
                    let server =
                        if matches!(ask, Ask::Icmp(_)) { String::new() } else { to.name.clone() };
                    let what = format!("{} to {} {what}", from.name, to.name);
                    cases.push(Case { what, from: number, ask, server, is_allowed });
                };
                let is_self = number == index;
                if let (IpAddr::V4(address), false) = (to.address, is_self) {
                    let allowed = self.allows(origin(), from.address, (to.address, None), None);
                    case("by ICMP", Ask::Icmp(address), allowed);
                }
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let name = if protocol == Protocol::Tcp { "TCP" } else { "UDP" };
                    let ask = |at: SocketAddr| {
                        if protocol == Protocol::Tcp { Ask::Tcp(at) } else { Ask::Udp(at) }
                    };
                    let end = (to.address, Some((protocol, SERVED)));
                    let by_service = self.allows(origin(), from.address, end, Some(service));
                    case(
                        &format!("by the Service, {name}"),
                        ask((service, PORT).into()),
                        by_service,
                    );
                    // The source of a packet to a pod's own address through a node port is the node's.
                    if is_self {
                        continue;
                    }
                    let direct = self.allows(origin(), from.address, end, None);
                    case(&format!("directly, {name}"), ask((to.address, SERVED).into()), direct);
                    for (node, &address) in &self.nodes {
                        let by_port = if *node == from.node {
                            // The own node translates both ends. Its programs know the sender by the link. Another
                            // node knows the source address only.
                            let source = if to.node == from.node { from.address } else { address };
                            self.allows(origin(), source, end, None)
                        } else {
                            let asked = (address, Some((protocol, node_port)));
                            self.allows(origin(), from.address, asked, None)
                                && self.allows(Origin::Forwarded, address, end, None)
                        };
                        let what = format!("by the node port of {node}, {name}");
                        case(&what, ask((address, node_port).into()), by_port);
                    }
                    if WITH_HOST_PORT.contains(&index) && protocol == Protocol::Tcp {
                        let at = self.nodes[to.node];
                        let by_host = if to.node == from.node {
                            direct
                        } else {
                            let asked = (at, Some((protocol, HOST_PORT)));
                            self.allows(origin(), from.address, asked, None)
                                && self.allows(Origin::Forwarded, from.address, end, None)
                        };
                        case("by the host port", ask((at, HOST_PORT).into()), by_host);
                    }
                }
            }
        }
        cases
    }

    /// Sends these requests and returns the answers in their order.
    fn ask(&self, cases: &[&Case]) -> Result<Vec<Option<String>>> {
        let mut of_pods: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, case) in cases.iter().enumerate() {
            of_pods.entry(case.from).or_default().push(index);
        }
        let of_pods: Vec<_> = of_pods.into_iter().collect();
        let mut answers = vec![None; cases.len()];
        for group in of_pods.chunks(SENDERS) {
            let answered = std::thread::scope(|scope| {
                let running: Vec<_> = group
                    .iter()
                    .map(|(pod, indices)| {
                        let asks: Vec<Ask> =
                            indices.iter().map(|index| cases[*index].ask).collect();
                        scope.spawn(move || ask_all(&self.pods[*pod].netns, &asks))
                    })
                    .collect();
                running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
            });
            for ((_, indices), result) in group.iter().zip(answered) {
                let result = result.ok().context("a sender panicked")??;
                for (index, answer) in indices.iter().zip(result) {
                    answers[*index] = answer;
                }
            }
        }
        Ok(answers)
    }

    /// Returns the requests whose answer differs from the decision. An allowed request without an answer is repeated.
    fn differences(&self, cases: &[Case]) -> Result<Vec<String>> {
        let mut open: Vec<&Case> = cases.iter().collect();
        let mut differences = Vec::new();
        for attempt in 1..=TRIES {
            let mut late = Vec::new();
            for (case, answer) in open.iter().zip(self.ask(&open)?) {
                match answer {
                    Some(by) if !case.is_allowed => {
                        differences.push(format!("{}: denied, and {by:?} answers", case.what));
                    }
                    Some(by) if by != case.server => {
                        differences.push(format!("{}: {by:?} answers", case.what));
                    }
                    None if case.is_allowed && attempt < TRIES => late.push(*case),
                    None if case.is_allowed => {
                        differences.push(format!("{}: allowed, and nothing answers", case.what));
                    }
                    Some(_) | None => {}
                }
            }
            open = late;
            if open.is_empty() {
                break;
            }
        }
        Ok(differences)
    }
}

/// Creates a Service of node ports with these pods behind it. Returns its address and its node port.
fn service(world: &World, name: &str, behind: &[&Running]) -> Result<(IpAddr, u16)> {
    let ports = |more: Value| {
        let of = |name: &str, protocol: &str| {
            let mut port = more.clone();
            port["name"] = json!(name);
            port["protocol"] = json!(protocol);
            port
        };
        json!([of("tcp", "TCP"), of("udp", "UDP")])
    };
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "NodePort", "ports": ports(json!({"port": PORT, "targetPort": SERVED}))},
    }))?;
    let ends = behind.iter().map(|pod| json!({"addresses": [pod.address], "nodeName": pod.node}));
    world.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4", "endpoints": ends.collect::<Vec<_>>(),
        "ports": ports(json!({"port": SERVED})),
    }))?;
    let api: Api<Service> = Api::namespaced(world.client.clone(), "default");
    let spec = world.runtime.block_on(api.get(name))?.spec.context("a Service without a spec")?;
    let address = spec.cluster_ip.context("a Service without an address")?.parse()?;
    let ports = spec.ports.unwrap_or_default();
    let port = |name: &str| {
        ports.iter().find(|port| port.name.as_deref() == Some(name)).and_then(|port| port.node_port)
    };
    let (tcp, udp) = (port("tcp").context("no node port")?, port("udp").context("no node port")?);
    if tcp != udp {
        // One number for both protocols keeps the cases few.
        let api: Api<Service> = Api::namespaced(world.client.clone(), "default");
        let patch = json!({"spec": {"ports": [
            {"name": "udp", "protocol": "UDP", "port": PORT, "nodePort": tcp},
        ]}});
        let patch = kube::api::Patch::Strategic(&patch);
        world.runtime.block_on(api.patch(name, &kube::api::PatchParams::default(), &patch))?;
    }
    Ok((address, u16::try_from(tcp)?))
}

/// Calls the real plugin `portmap` for the pod, as the runtime does after the ADD.
fn host_port(lab: &Lab, pod: &Running) -> Result<()> {
    let netconf = json!({
        "cniVersion": "1.0.0", "name": "aws-cni", "type": "portmap", "snat": true,
        "runtimeConfig": {"portMappings": [
            {"hostPort": HOST_PORT, "containerPort": SERVED, "protocol": "tcp"},
        ]},
        "prevResult": pod.result,
    });
    let program = Program::plugins()?.path().join("portmap");
    let program = program.to_str().context("the path is not UTF-8")?;
    let netns = format!("CNI_NETNS=/run/netns/{}", pod.path);
    let id = format!("CNI_CONTAINERID={}", pod.path);
    let mut command = lab.command(&["node", "exec", pod.node, "--", "env"]);
    command.args(["CNI_COMMAND=ADD", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin", &netns, &id]);
    command.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start portmap")?;
    child.stdin.take().context("no standard input")?.write_all(netconf.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "portmap: {printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Asks a Service with one allowed and one denied backend, many times. Exactly the allowed one answers.
fn one_of_two_backends(scene: &Scene, world: &World) -> Result<()> {
    // The policy `web` lets pods of `batch` reach no pod of `web`; no policy denies them `ops`.
    let of = |app: &str| {
        let found =
            scene.pods.iter().enumerate().filter(|(number, _)| APPS[number % APPS.len()] == app);
        found.map(|(_, pod)| pod).collect::<Vec<_>>()
    };
    let (from, denied, allowed) = (of("batch"), of("web"), of("ops"));
    for from in &from {
        let (denied, allowed) = (denied[0], allowed[1]);
        let (address, _) = service(world, &format!("two-{}", from.name), &[denied, allowed])?;
        let asks = [Ask::Tcp((address, PORT).into()), Ask::Udp((address, PORT).into())];
        let asks: Vec<Ask> = asks.iter().cycle().take(40).copied().collect();
        let began = Instant::now();
        loop {
            let answers = ask_all(&from.netns, &asks)?;
            let by: Vec<&str> = answers.iter().flatten().map(String::as_str).collect();
            ensure!(by.iter().all(|by| *by == allowed.name), "{} is answered by {by:?}", from.name);
            if !by.is_empty() && by.len() < asks.len() {
                break;
            }
            // kube-proxy does not know both backends yet.
            ensure!(
                began.elapsed() < SETTLED,
                "{}: {} of {} answers",
                from.name,
                by.len(),
                asks.len()
            );
        }
    }
    Ok(())
}

#[test]
fn traffic_passes_exactly_where_the_verdict_allows_it() -> Result<()> {
    let name = "traffic_passes_exactly_where_the_verdict_allows_it";
    let (Some(bin), Some(object)) = (programs(name), bpf_object(name)) else { return Ok(()) };
    let world = World::of(&ClusterSpec { also_at: vec![API_SERVER], ..ClusterSpec::default() })?;
    for crd in config_crds::policy_crds() {
        world.apply(&crd)?;
    }
    for (node, _) in NODES {
        world.make_node(node, &json!({}))?;
    }
    for policy in policies() {
        world.apply(&policy)?;
    }
    let env = ["--env", "FERRULE_POLICY=true", "--env", "NETWORK_POLICY_ENFORCING_MODE=strict"];
    let lab = world.lab(&bin, "t-matrix", &[&["--nodes", "2"], &env[..]].concat())?;
    let mut nodes = BTreeMap::new();
    for (node, _) in NODES {
        let address = lab.node(node)?["address"].clone();
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        world.patch_node_status(node, &json!({"status": {"addresses": addresses}}))?;
        nodes.insert(node, address.as_str().context("a node without an address")?.parse()?);
    }
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let folder = TempDir::new()?;
    let (mut sites, mut proxies) = (Vec::new(), Vec::new());
    for (node, mode) in NODES {
        sites.push(Site::new(&world, &lab, &bin, &object, node, replica.at)?);
        proxies.push(kube_proxy(&world, &lab, folder.path(), (node, mode, "nft"))?);
    }
    let mut running = Vec::new();
    for number in 0..PODS {
        let (node, _) = NODES[number / APPS.len() % NODES.len()];
        let app = APPS[number % APPS.len()];
        let pod = pods::start(&world, &lab, node, &format!("{app}-{number}"), app)?;
        pod.serve()?;
        running.push(pod);
    }
    for number in WITH_HOST_PORT {
        host_port(&lab, &running[number])?;
    }
    let services = running.iter().enumerate();
    let services = services.map(|(number, pod)| service(&world, &format!("s-{number}"), &[pod]));
    let services = services.collect::<Result<Vec<_>>>()?;
    let judge = model::world(&world.runtime, world.cluster.kubeconfig())?;
    let scene = Scene { world: judge, pods: &running, services, nodes };
    let cases = scene.cases();
    let allowed = cases.iter().filter(|case| case.is_allowed).count();
    ensure!(
        allowed > cases.len() / 4 && allowed < cases.len() * 3 / 4,
        "{allowed} of {}",
        cases.len()
    );

    // Policies, Services and members arrive a moment later.
    let began = Instant::now();
    loop {
        let differences = scene.differences(&cases)?;
        if differences.is_empty() {
            break;
        }
        if began.elapsed() > SETTLED {
            let logs: Vec<String> = sites.iter().map(|site| tail(&site.site.log())).collect();
            bail!(
                "{} of {} requests differ:\n{}\n{}",
                differences.len(),
                cases.len(),
                differences.into_iter().take(60).collect::<Vec<_>>().join("\n"),
                logs.join("\n"),
            );
        }
    }
    // A second time: nothing that is denied passes, not even once. Each drop names the rule.
    let watch = Watch::start(&bin, sites.iter().filter_map(|site| site.agent.as_ref()))?;
    let differences = scene.differences(&cases)?;
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    let mut missing = scene.denied_directly();
    missing = &missing - &scene.ensure_named(&watch.end()?)?;
    // A pod has a limit of events in a second.
    for _ in 1..TRIES {
        let is_missing = |case: &&Case| {
            missing.iter().any(|(from, to, protocol)| {
                let protocol = if *protocol == Protocol::Tcp { "TCP" } else { "UDP" };
                case.what == format!("{from} to {to} directly, {protocol}")
            })
        };
        let again: Vec<&Case> = cases.iter().filter(is_missing).collect();
        ensure!(again.len() == missing.len(), "{} of {missing:?} are asked", again.len());
        let watch = Watch::start(&bin, sites.iter().filter_map(|site| site.agent.as_ref()))?;
        scene.ask(&again)?;
        missing = &missing - &scene.ensure_named(&watch.end()?)?;
    }
    ensure!(missing.is_empty(), "drops without an event: {missing:?}");
    one_of_two_backends(&scene, &world)?;
    drop(proxies);
    lab.down()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// The port of Services.
const PORT: u16 = 80;
