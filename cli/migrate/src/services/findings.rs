//! The conditions in the cluster under which Ferrule can serve all Services without kube-proxy.

use super::{
    observation::{
        FerruleSet, KubeProxySet, Mode, Node, Observation, ServiceView, Serving, TargetKind,
    },
    request::{Goal, Request},
};
use config_model::KernelVersion;
use serde::Serialize;
use service_objects::{ObjectName, Protocol, ServiceKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub level: Level,
    pub object: String,
    pub cause: String,
    /// Empty if the operator has to do nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// The worst level is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No step is applied.
    Blocker,
    /// Some clients can be affected.
    Warning,
    Ok,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocker => "BLOCKER",
            Self::Warning => "WARNING",
            Self::Ok => "OK",
        })
    }
}

/// Checks the cluster. A rollback has no blockers: it starts kube-proxy before it stops the programs of Ferrule.
pub(super) fn findings(seen: &Observation, request: &Request) -> Vec<Finding> {
    let mut found = Findings::default();
    for unread in &seen.unread {
        found.warning(
            &unread.object,
            &unread.cause,
            "grant the right to read it, and run plan again",
        );
    }
    if request.goal == Goal::Ferrule {
        match &seen.ferrule {
            Some(set) => ferrule(set, seen, &mut found),
            None => found.blocker(
                "Ferrule's DaemonSet",
                "the cluster does not have it",
                "install the chart, or name the DaemonSet with --daemonset and --ferrule-namespace",
            ),
        }
        match &seen.kube_proxy {
            Some(set) => kube_proxy(set, seen, &mut found),
            None => found.ok("kube-proxy's DaemonSet", "the cluster does not have it"),
        }
        others(seen, &mut found);
        services(seen, &mut found);
    }
    nodes(seen, request, &mut found);
    found.0.sort();
    found.0.dedup();
    found.0
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, object: &str, cause: &str, next: &str) {
        let (object, cause, next) = (object.to_owned(), cause.to_owned(), next.to_owned());
        self.0.push(Finding { level, object, cause, next });
    }

    fn blocker(&mut self, object: &str, cause: &str, next: &str) {
        self.add(Level::Blocker, object, cause, next);
    }

    fn warning(&mut self, object: &str, cause: &str, next: &str) {
        self.add(Level::Warning, object, cause, next);
    }

    fn ok(&mut self, object: &str, cause: &str) {
        self.add(Level::Ok, object, cause, "");
    }
}

fn ferrule(set: &FerruleSet, seen: &Observation, found: &mut Findings) {
    let object = format!("daemonset {}", set.name);
    if !set.has_ebpf {
        found.blocker(
            &object,
            "its agents do not have the backend ebpf",
            "set enableNetworkPolicy=true and policy.backend=ebpf in the chart",
        );
    }
    if set.serves {
        found.ok(&object, "FERRULE_SERVICES is ebpf");
    } else {
        found.blocker(
            &object,
            "FERRULE_SERVICES is not ebpf",
            "set updateStrategy.type=OnDelete and env.FERRULE_SERVICES=ebpf in the chart; apply then switches one node \
             after the other",
        );
    }
    if set.replaces_pods {
        found.warning(
            &object,
            "its update strategy is not OnDelete: the DaemonSet controller switches nodes in its own order",
            "set updateStrategy.type=OnDelete in the chart before env.FERRULE_SERVICES=ebpf",
        );
    }
    if set.health.as_deref() == Some("") {
        found.warning(
            &object,
            "FERRULE_AGENT_HEALTHZ is empty: no program answers at port 10256 without kube-proxy",
            "remove env.FERRULE_AGENT_HEALTHZ if health checks of a load balancer use the port",
        );
    }
    match set.endpoint.as_deref() {
        None => found.blocker(
            "CLUSTER_ENDPOINT",
            "it is not set, and the nodes themselves serve the Service of the API server",
            "set env.CLUSTER_ENDPOINT to the URL of the API server",
        ),
        Some(url) => match endpoint_fault(url, &seen.services) {
            Some(fault) => found.blocker(
                "CLUSTER_ENDPOINT",
                &format!("{url} {fault}"),
                "set env.CLUSTER_ENDPOINT to the URL of the API server; kubectl cluster-info prints it",
            ),
            None => found.ok("CLUSTER_ENDPOINT", &format!("{url} is not the address of a Service")),
        },
    }
}

/// Returns the reason why the nodes reach an endpoint by a Service only; `None` if they do not.
fn endpoint_fault(url: &str, services: &BTreeMap<ObjectName, ServiceView>) -> Option<String> {
    let Some(host) = host(url) else { return Some("is not a URL".to_owned()) };
    if let Ok(address) = host.parse::<IpAddr>() {
        let has = |view: &&ServiceView| {
            let service = &view.service;
            service.cluster_ips.contains(&address) || service.external_ips.contains(&address)
        };
        let owner = services.values().find(has)?;
        return Some(format!("is an address of the Service {}", owner.service.name));
    }
    let labels: Vec<&str> = host.trim_end_matches('.').split('.').collect();
    let is_service =
        matches!(labels.as_slice(), ["kubernetes"] | ["kubernetes", "default"] | [_, _, "svc", ..]);
    is_service.then(|| "is the name of a Service".to_owned())
}

/// Returns the host of a URL in lower case.
fn host(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    let is_name = |it: char| it.is_ascii_alphanumeric() || ".-:".contains(it);
    let is_valid = !host.is_empty() && host.chars().all(is_name);
    is_valid.then(|| host.to_ascii_lowercase())
}

fn kube_proxy(set: &KubeProxySet, seen: &Observation, found: &mut Findings) {
    let object = format!("daemonset {}", set.name);
    match &set.mode {
        Some(Mode::Iptables) => found.ok(&object, "its mode is iptables"),
        Some(Mode::Nftables) => found.ok(&object, "its mode is nftables"),
        Some(Mode::Other(mode)) => found.blocker(
            &object,
            &format!("its mode is {mode}, whose rules this command does not remove"),
            "set the mode nftables or iptables, and wait until its pods have restarted",
        ),
        None => found.warning(
            &object,
            "its mode is unknown: no ConfigMap of its pods is a KubeProxyConfiguration",
            "check that it is iptables or nftables: kube-proxy logs it at its start",
        ),
    }
    if let Some(manager) = &set.manager {
        found.warning(
            &object,
            &format!("{manager} may undo changes of the DaemonSet"),
            match manager.contains("EKS") {
                true => {
                    "if `aws eks describe-addon --addon-name kube-proxy` finds the add-on, remove it with \
                     `aws eks delete-addon --addon-name kube-proxy --preserve`, which keeps the DaemonSet"
                }
                false => "let it ignore the DaemonSet until the replacement is complete",
            },
        );
    }
    if !set.node_port_addresses.is_empty() {
        found.warning(
            &object,
            &format!(
                "nodePortAddresses is {}: Ferrule serves node ports at all addresses of the node's links",
                set.node_port_addresses.join(",")
            ),
            "restrict node ports by the security groups of the nodes",
        );
    }
    if !set.conntrack.is_empty() {
        found.warning(
            &object,
            &format!(
                "conntrack has {}: Ferrule keeps the defaults of kube-proxy after a reboot",
                set.conntrack.join(", ")
            ),
            "set the corresponding net.netfilter.nf_conntrack_* by /etc/sysctl.d in the image of the nodes",
        );
    }
    if set.is_kept_off && !seen.is_saved {
        found.warning(
            &object,
            "its manifest is not saved",
            "apply saves it; the way back needs it",
        );
    }
}

fn others(seen: &Observation, found: &mut Findings) {
    for proxy in &seen.other_proxies {
        if proxy.conflicts {
            found.blocker(
                &proxy.object,
                &format!("it serves Services as well: {}", proxy.reason),
                "turn that off, or keep FERRULE_SERVICES=none",
            );
        } else {
            found.warning(
                &proxy.object,
                &format!(
                    "{}: queries of pods and processes go to endpoints of the Service",
                    proxy.reason
                ),
                "point the kubelet's clusterDNS to the cache's own address, or remove the cache",
            );
        }
    }
    for (node, pod) in &seen.static_proxies {
        found.blocker(
            &format!("pod {pod}"),
            &format!("kube-proxy runs on {node} without a DaemonSet"),
            "remove its manifest from the node, or run kube-proxy as a DaemonSet first",
        );
    }
}

fn services(seen: &Observation, found: &mut Findings) {
    let mut owners: BTreeMap<IpAddr, Vec<&ServiceView>> = BTreeMap::new();
    for view in seen.services.values().filter(|view| view.service.other_proxy.is_none()) {
        sctp(view, found);
        targets(view, seen, found);
        let ingress = view.service.ingress.iter().map(|it| it.address);
        let addresses: BTreeSet<IpAddr> =
            view.service.external_ips.iter().copied().chain(ingress).collect();
        for address in addresses {
            owners.entry(address).or_default().push(view);
        }
    }
    for (address, views) in owners {
        for (index, one) in views.iter().enumerate() {
            for other in views.iter().skip(index + 1) {
                let shared = shared_port(one, other);
                if let Some((protocol, port)) = shared {
                    found.warning(
                        &format!("service {}", other.service.name),
                        &format!(
                            "{address} port {port}/{protocol} belongs to {} too; the older Service is served",
                            one.service.name
                        ),
                        "give one of the Services another address or port",
                    );
                }
            }
        }
    }
    found.ok("services", &format!("{} checked", seen.services.len()));
}

fn shared_port(one: &ServiceView, other: &ServiceView) -> Option<(Protocol, u16)> {
    let ports = |view: &ServiceView| -> BTreeSet<(Protocol, u16)> {
        view.service.ports.iter().map(|port| (port.protocol, port.port)).collect()
    };
    ports(one).intersection(&ports(other)).next().copied()
}

/// An SCTP port is served only for endpoints with the same port.
fn sctp(view: &ServiceView, found: &mut Findings) {
    let service = &view.service;
    let object = format!("service {}", service.name);
    for port in service.ports.iter().filter(|port| port.protocol == Protocol::Sctp) {
        let of_port = view
            .slice_ports
            .iter()
            .filter(|it| it.protocol == Protocol::Sctp && it.name == port.name);
        let others: BTreeSet<u16> =
            of_port.map(|it| it.port).filter(|it| *it != port.port).collect();
        if let Some(other) = others.first() {
            found.blocker(
                &object,
                &format!(
                    "SCTP port {} leads to port {other}, which Ferrule does not serve",
                    port.port
                ),
                "give the Service the port of its endpoints, or keep kube-proxy",
            );
        } else if port.node_port.is_some_and(|at| at != port.port) {
            found.warning(
                &object,
                &format!("the SCTP node port of port {} is not served", port.port),
                "set allocateLoadBalancerNodePorts=false or the type ClusterIP if no client uses it",
            );
        }
        found.warning(
            &object,
            "SCTP sockets of the node's processes and of pods with host networking do not reach it",
            "let these clients use the addresses of the endpoints",
        );
    }
}

fn targets(view: &ServiceView, seen: &Observation, found: &mut Findings) {
    let service = &view.service;
    let object = format!("service {}", service.name);
    match view.targets {
        None => {}
        Some(TargetKind::Ip) => {
            found.ok(&object, "targets of its load balancer are pods, which need no proxy");
        }
        Some(TargetKind::Instance) => {
            let is_silent =
                seen.ferrule.as_ref().is_some_and(|set| set.health.as_deref() == Some(""));
            if is_silent && service.health_check_node_port.is_none() {
                found.warning(
                    &object,
                    "targets of its load balancer are nodes, whose port 10256 has no answer without kube-proxy",
                    "remove env.FERRULE_AGENT_HEALTHZ if its health check uses the port",
                );
            } else {
                found.ok(
                    &object,
                    "targets of its load balancer are node ports, which Ferrule serves",
                );
            }
            if service.kind == ServiceKind::LoadBalancer
                && service.ports.iter().any(|port| port.node_port.is_none())
            {
                found.warning(
                    &object,
                    "targets of its load balancer are nodes, but a port has no node port",
                    "set allocateLoadBalancerNodePorts=true, or targets of the type ip",
                );
            }
        }
    }
}

fn nodes(seen: &Observation, request: &Request, found: &mut Findings) {
    for name in request.nodes.iter().filter(|name| !seen.nodes.contains_key(*name)) {
        found.blocker(
            &format!("node {name}"),
            "the cluster has no such node with Linux",
            "see kubectl get nodes",
        );
    }
    for (name, node) in request.of(seen) {
        let object = format!("node {name}");
        if request.goal == Goal::Ferrule {
            let is_complete = seen.missing_pods() == 0;
            node_for_ferrule(&object, node, request.remove, is_complete, found);
        }
        if let Some(Serving::Unknown(why)) = node.agent.as_ref().map(|agent| &agent.serving) {
            found.warning(&object, why, "the command waits until the agent's metrics are readable");
        }
    }
}

/// `is_complete` is false while a pod of Ferrule is missing on a node that has to have one.
fn node_for_ferrule(
    object: &str,
    node: &Node,
    removes: bool,
    is_complete: bool,
    found: &mut Findings,
) {
    if is_too_old(&node.kernel) {
        let oldest = KernelVersion::OLDEST_FOR_EBPF;
        found.blocker(
            object,
            &format!("its kernel is {}, and the backend ebpf needs {oldest}", node.kernel),
            "replace the node by one with a newer image",
        );
    }
    match (&node.agent, node.kube_proxy) {
        (None, _) if !is_complete => {}
        (None, Some(_)) => {
            let cause = "it has no pod of Ferrule; kube-proxy serves it";
            if removes {
                let next = "let Ferrule's DaemonSet run there, or leave out --remove-kube-proxy";
                found.blocker(object, cause, next);
            } else {
                found.warning(object, cause, "let Ferrule's DaemonSet run there; kube-proxy stays");
            }
        }
        (None, None) => found.ok(object, "it has neither Ferrule nor kube-proxy"),
        (Some(agent), _) => {
            if let Serving::Known { failing, .. } = agent.serving
                && failing > 0
            {
                found.warning(
                    object,
                    &format!("{failing} Services are not in force"),
                    "ferrule service --node NODE lists them with the cause; the command waits for them",
                );
            }
        }
    }
}

/// An unknown version is not too old: the agent checks it again.
fn is_too_old(kernel: &str) -> bool {
    KernelVersion::of_release(kernel).is_some_and(|it| it < KernelVersion::OLDEST_FOR_EBPF)
}
