//! Objects of the API server as an [`Observation`].

use super::{
    LABEL, SWITCHED, manifest,
    observation::{
        Agent, Cleaner, FerruleSet, KubeProxySet, Mode, Node, Observation, OtherProxy, ProxyPod,
        ServiceView, Serving, TargetKind, Unread,
    },
};
use serde_json::Value;
use service_objects::{ObjectName, Protocol, Service, ServiceKind, Slice};
use std::collections::{BTreeMap, BTreeSet};

/// The objects that the caller has read.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Ferrule's DaemonSet.
    pub ferrule: Option<Value>,
    /// kube-proxy's DaemonSet.
    pub kube_proxy: Option<Value>,
    /// The document of the kind KubeProxyConfiguration.
    pub kube_proxy_config: Option<Value>,
    /// The saved manifest of kube-proxy's DaemonSet.
    pub saved: Option<Value>,
    /// The DaemonSet that removes kube-proxy's rules.
    pub cleaner: Option<Value>,
    /// The DaemonSets of all namespaces.
    pub daemon_sets: Vec<Value>,
    /// The ConfigMap of Cilium.
    pub cilium: Option<Value>,
    /// The pods of Ferrule, of kube-proxy and of the cleaner.
    pub pods: Vec<Value>,
    pub nodes: Vec<Value>,
    pub services: Vec<Value>,
    /// The EndpointSlices of Services with SCTP.
    pub slices: Vec<Value>,
    /// TargetGroupBindings of the AWS Load Balancer Controller.
    pub target_groups: Vec<Value>,
    pub unread: Vec<Unread>,
}

impl Objects {
    /// Returns the observation. No agent was asked.
    pub fn observation(&self) -> Observation {
        let mut unread = self.unread.clone();
        let kube_proxy = self.kube_proxy.as_ref();
        let saved_now = kube_proxy.map(manifest::saved);
        let mut seen = Observation {
            ferrule: self.ferrule.as_ref().map(ferrule_set),
            kube_proxy: kube_proxy.map(|set| kube_proxy_set(set, self.kube_proxy_config.as_ref())),
            is_saved: self.saved.is_some(),
            is_saved_current: saved_now.is_some() && saved_now == self.saved,
            has_cleaner: self.cleaner.is_some(),
            other_proxies: self.other_proxies(),
            nodes: self.nodes.iter().filter(|node| is_linux(node)).map(node).collect(),
            services: self.services(&mut unread),
            ..Observation::default()
        };
        for pod in &self.pods {
            self.add_pod(&mut seen, pod);
        }
        seen.unread = unread;
        seen
    }

    fn services(&self, unread: &mut Vec<Unread>) -> BTreeMap<ObjectName, ServiceView> {
        let mut found = BTreeMap::new();
        for object in &self.services {
            match Service::read(object) {
                Ok(service) => {
                    let targets = self.targets(&service, object);
                    let view = ServiceView { slice_ports: Vec::new(), targets, service };
                    found.insert(view.service.name.clone(), view);
                }
                Err(error) => unread.push(Unread {
                    object: format!("Service {}", name_of(object)),
                    cause: error.to_string(),
                }),
            }
        }
        for object in &self.slices {
            // A slice that cannot be read has no endpoint on any node.
            let Ok(slice) = Slice::read(object) else { continue };
            if let Some(view) = found.get_mut(&slice.service) {
                view.slice_ports.extend(slice.ports);
            }
        }
        found
    }

    fn targets(&self, service: &Service, object: &Value) -> Option<TargetKind> {
        let kind = |ip: bool| if ip { TargetKind::Ip } else { TargetKind::Instance };
        let is_of = |group: &&Value| {
            group["metadata"]["namespace"] == service.name.namespace.as_str()
                && group["spec"]["serviceRef"]["name"] == service.name.name.as_str()
        };
        let groups: Vec<&Value> = self.target_groups.iter().filter(is_of).collect();
        if !groups.is_empty() {
            return Some(kind(groups.iter().all(|group| group["spec"]["targetType"] == "ip")));
        }
        if service.kind != ServiceKind::LoadBalancer {
            return None;
        }
        let annotations = &object["metadata"]["annotations"];
        Some(kind(annotations[TARGET_TYPE] == "ip" || annotations[LB_TYPE] == "nlb-ip"))
    }

    fn other_proxies(&self) -> Vec<OtherProxy> {
        let own = self.kube_proxy.as_ref().map(name_of);
        let mut found: Vec<OtherProxy> = self
            .daemon_sets
            .iter()
            .filter(|set| own.as_ref() != Some(&name_of(set)))
            .filter_map(|set| self.other_proxy(set))
            .collect();
        found.sort();
        found
    }

    fn other_proxy(&self, set: &Value) -> Option<OtherProxy> {
        let spec = &set["spec"]["template"]["spec"];
        let found = |reason: String, conflicts| {
            Some(OtherProxy { object: format!("daemonset {}", name_of(set)), reason, conflicts })
        };
        for container in list(&spec["containers"]) {
            match container["name"].as_str().unwrap_or_default() {
                "cilium-agent" => {
                    let replaces = self.cilium.as_ref().map(|config| {
                        config["data"]["kube-proxy-replacement"].as_str().unwrap_or("false")
                    });
                    return match replaces {
                        Some("false" | "disabled") => None,
                        Some(value) => found(format!("kube-proxy-replacement is {value}"), true),
                        None => found("its ConfigMap cilium-config was not read".to_owned(), true),
                    };
                }
                "kube-router" if argument(container, "run-service-proxy") != Some("false") => {
                    return found("--run-service-proxy is on".to_owned(), true);
                }
                "antrea-agent" => return found("AntreaProxy is on by default".to_owned(), true),
                "calico-node" if variable(container, "FELIX_BPFENABLED") == Some("true") => {
                    return found("FELIX_BPFENABLED is true".to_owned(), true);
                }
                "kube-proxy" if spec["nodeSelector"]["kubernetes.io/os"] != "windows" => {
                    return found("it runs kube-proxy too".to_owned(), true);
                }
                "node-cache" => {
                    return found("it is NodeLocal DNSCache".to_owned(), false);
                }
                _ => {}
            }
        }
        None
    }

    /// Adds a pod to its node. During a replacement the pod that stays counts.
    fn add_pod(&self, seen: &mut Observation, pod: &Value) {
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        // A pod that has ended, such as an evicted one, does not run.
        if ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase) {
            return;
        }
        let (Some(name), Some(pod_name)) = (node_name(spec), metadata["name"].as_str()) else {
            return;
        };
        let Some(node) = seen.nodes.get_mut(name) else { return };
        let leaves = metadata["deletionTimestamp"].is_string();
        let is_ready = list(&status["conditions"])
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        match self.role(pod) {
            Some(Role::KubeProxy) if node.kube_proxy.is_none_or(|other| other.leaves) => {
                node.kube_proxy = Some(ProxyPod { is_ready, leaves });
            }
            Some(Role::StaticKubeProxy) => {
                let object = format!("{}/{pod_name}", text(&metadata["namespace"]));
                seen.static_proxies.insert(name.to_owned(), object);
            }
            Some(Role::Cleaner) => {
                let runs = status["phase"] == "Running";
                let state = match (is_ready, runs) {
                    (true, _) => Cleaner::Clean,
                    (false, true) => Cleaner::Waiting,
                    (false, false) => Cleaner::Starting,
                };
                if !leaves {
                    node.cleaner = Some(state);
                }
            }
            Some(Role::Ferrule) if node.agent.as_ref().is_none_or(|other| other.leaves) => {
                let agent = container(spec, AGENT);
                node.agent = Some(Agent {
                    pod: pod_name.to_owned(),
                    uid: text(&metadata["uid"]),
                    serves: agent.and_then(|agent| variable(agent, SERVICES)) == Some("ebpf"),
                    is_ready,
                    leaves,
                    serving: Serving::NotAsked,
                });
            }
            Some(Role::KubeProxy | Role::Ferrule) | None => {}
        }
    }

    /// Returns the role of a pod; `None` for a pod of another program.
    fn role(&self, pod: &Value) -> Option<Role> {
        let set = list(&pod["metadata"]["ownerReferences"]).find(|it| it["kind"] == "DaemonSet");
        let named = |name: &str| container(&pod["spec"], name).is_some();
        // A pod of a deleted DaemonSet is known by its container only.
        let is_old = pod["metadata"]["deletionTimestamp"].is_string();
        let is_of = |own: Option<&Value>, name: &str| match (own, set) {
            (_, None) => false,
            (None, Some(_)) => named(name),
            (Some(own), Some(owner)) => {
                owner["uid"] == own["metadata"]["uid"] || (is_old && named(name))
            }
        };
        if is_of(self.kube_proxy.as_ref(), KUBE_PROXY) {
            Some(Role::KubeProxy)
        } else if set.is_none() && named(KUBE_PROXY) {
            Some(Role::StaticKubeProxy)
        } else if is_of(self.cleaner.as_ref(), CLEANER) {
            Some(Role::Cleaner)
        } else {
            is_of(self.ferrule.as_ref(), DAEMON).then_some(Role::Ferrule)
        }
    }
}

/// The programs whose pods are part of the observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ferrule,
    KubeProxy,
    /// kube-proxy in a pod that no DaemonSet owns.
    StaticKubeProxy,
    Cleaner,
}

/// Returns the Services whose EndpointSlices are needed.
pub fn services_with_sctp(services: &[Value]) -> BTreeSet<ObjectName> {
    let read = services.iter().filter_map(|object| Service::read(object).ok());
    let has_sctp =
        |service: &Service| service.ports.iter().any(|port| port.protocol == Protocol::Sctp);
    read.filter(has_sctp).map(|service| service.name).collect()
}

/// Returns the ConfigMaps that the DaemonSet's pods mount.
pub fn config_maps(set: &Value) -> BTreeSet<String> {
    let volumes = list(&set["spec"]["template"]["spec"]["volumes"]);
    volumes.filter_map(|it| it["configMap"]["name"].as_str()).map(str::to_owned).collect()
}

/// Returns the image of Ferrule's pods.
pub fn image(ferrule: &Value) -> Option<&str> {
    container(&ferrule["spec"]["template"]["spec"], DAEMON)?["image"].as_str()
}

/// Returns the port of the agent's metrics in a pod of Ferrule; `None` if they are off.
pub fn metrics_port(pod: &Value) -> Option<u16> {
    let ports = list(&container(&pod["spec"], AGENT)?["ports"]);
    let metrics = |port: &&Value| port["name"].as_str().is_some_and(|it| it.ends_with("metrics"));
    let port = ports.filter(metrics).find_map(|port| port["containerPort"].as_u64())?;
    u16::try_from(port).ok()
}

fn ferrule_set(set: &Value) -> FerruleSet {
    let agent = container(&set["spec"]["template"]["spec"], AGENT);
    let value = |name| agent.and_then(|agent| variable(agent, name)).map(str::to_owned);
    FerruleSet {
        name: name_of(set),
        serves: value(SERVICES).as_deref() == Some("ebpf"),
        has_ebpf: value("FERRULE_AGENT_BACKEND").as_deref() == Some("ebpf"),
        endpoint: value("CLUSTER_ENDPOINT").filter(|url| !url.is_empty()),
        health: value("FERRULE_AGENT_HEALTHZ"),
        replaces_pods: set["spec"]["updateStrategy"]["type"] != "OnDelete",
        desired: set["status"]["desiredNumberScheduled"].as_u64().unwrap_or_default(),
    }
}

fn kube_proxy_set(set: &Value, config: Option<&Value>) -> KubeProxySet {
    let spec = &set["spec"]["template"]["spec"];
    let flag = |name| list(&spec["containers"]).find_map(|it| argument(it, name));
    // With a configuration file kube-proxy does not use this flag (`cmd/kube-proxy/app/options.go`).
    let of_args = flag("proxy-mode").filter(|_| flag("config").is_none());
    let of_config = config.map(|config| config["mode"].as_str().unwrap_or_default());
    KubeProxySet {
        name: name_of(set),
        uid: text(&set["metadata"]["uid"]),
        mode: of_args.or(of_config).map(|mode| match mode {
            "" | "iptables" => Mode::Iptables,
            "nftables" => Mode::Nftables,
            other => Mode::Other(other.to_owned()),
        }),
        is_kept_off: manifest::is_kept_off(set),
        has_changes: manifest::release(set) != *set,
        manager: manager(set),
        node_port_addresses: config
            .map(|config| list(&config["nodePortAddresses"]).map(text).collect())
            .unwrap_or_default(),
        conntrack: config.map(|config| conntrack(&config["conntrack"])).unwrap_or_default(),
    }
}

/// Returns the tool that may undo changes of an object.
fn manager(set: &Value) -> Option<String> {
    let metadata = &set["metadata"];
    if list(&metadata["managedFields"]).any(|fields| fields["manager"] == "eks") {
        return Some("the EKS add-on kube-proxy".to_owned());
    }
    let helm = metadata["annotations"]["meta.helm.sh/release-name"].as_str();
    let label = metadata["labels"]["app.kubernetes.io/managed-by"].as_str();
    let named = helm.map(|release| format!("the Helm release {release}"));
    named.or_else(|| label.filter(|name| !name.is_empty()).map(str::to_owned))
}

/// Returns the settings of connection tracking that differ from the defaults of kube-proxy.
fn conntrack(config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, default) in CONNTRACK {
        let value = &config[*name];
        if value.is_null() {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !default.contains(&value.as_str()) {
            found.push(format!("{name}={value}"));
        }
    }
    found
}

fn is_linux(node: &Value) -> bool {
    let os = node["metadata"]["labels"]["kubernetes.io/os"].as_str();
    os.is_none_or(|os| os == "linux")
}

fn node(node: &Value) -> (String, Node) {
    let metadata = &node["metadata"];
    let view = Node {
        kernel: text(&node["status"]["nodeInfo"]["kernelVersion"]),
        is_switched: metadata["labels"][LABEL] == SWITCHED,
        ..Node::default()
    };
    (text(&metadata["name"]), view)
}

/// Returns the node of a pod. A pod of a DaemonSet that is not scheduled yet names it in its affinity.
fn node_name(spec: &Value) -> Option<&str> {
    let affinity = &spec["affinity"]["nodeAffinity"];
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    let mut fields = list(&required["nodeSelectorTerms"]).flat_map(|it| list(&it["matchFields"]));
    let of_field = || {
        let field = fields.find(|field| field["key"] == "metadata.name")?;
        field["values"][0].as_str()
    };
    spec["nodeName"].as_str().or_else(of_field)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]))
}

fn container<'a>(spec: &'a Value, name: &str) -> Option<&'a Value> {
    list(&spec["containers"]).find(|container| container["name"] == name)
}

/// Returns the value of a variable; `None` if it is missing or in another object.
fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    list(&container["env"]).filter(|it| it["name"] == name).last()?["value"].as_str()
}

/// Returns the value of a flag. A flag without a value is `true`.
fn argument<'a>(container: &'a Value, flag: &str) -> Option<&'a str> {
    let words: Vec<&str> = ["command", "args"]
        .iter()
        .flat_map(|field| list(&container[*field]))
        .filter_map(Value::as_str)
        .collect();
    let at = |word: &&str| word.trim_start_matches('-').split('=').next() == Some(flag);
    let index = words.iter().rposition(|word| word.starts_with('-') && at(word))?;
    let word = words.get(index)?;
    match (word.split_once('='), words.get(index + 1)) {
        (Some((_, value)), _) => Some(value),
        (None, Some(value)) if !value.starts_with('-') => Some(value),
        (None, _) => Some("true"),
    }
}

/// The containers that identify pods whose DaemonSet does not exist.
const DAEMON: &str = "ipamd";
const AGENT: &str = "agent";
const KUBE_PROXY: &str = "kube-proxy";
/// The container of the pods that remove kube-proxy's rules.
pub const CLEANER: &str = "rules";
const SERVICES: &str = "FERRULE_SERVICES";
const TARGET_TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type";
const LB_TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";
/// The settings of `conntrack` in kube-proxy 1.36 with the spellings of their defaults.
const CONNTRACK: &[(&str, &[&str])] = &[
    ("maxPerCore", &["32768"]),
    ("min", &["131072"]),
    ("tcpEstablishedTimeout", &["24h0m0s", "24h", "86400s"]),
    ("tcpCloseWaitTimeout", &["1h0m0s", "1h", "60m", "3600s"]),
    ("tcpBeLiberal", &["false"]),
    ("udpTimeout", &["0s", "0"]),
    ("udpStreamTimeout", &["0s", "0"]),
];
