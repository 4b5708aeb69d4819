//! The resolved settings: types that cannot contradict themselves.

use config_model::{EnforcingMode, Mark, RuleLayout, Span};
use ipnet::Ipv4Net;
use serde_json::Value;
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

/// All settings of the daemon, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub family: Family,
    /// True if addresses are assigned in prefixes, if the instance type supports them; always with IPv6.
    pub prefixes: bool,
    /// Numbers of addresses, prefixes and ENIs to keep ready.
    pub warm: Warm,
    /// The most ENIs to use; `None` is as many as the instance type allows.
    pub max_enis: Option<u32>,
    /// Time for which a released address is not reused.
    pub cooldown: Span,
    /// The MTU of the primary and of secondary ENIs, in bytes.
    pub eni_mtu: u32,
    /// The MTU of pods' links, in bytes.
    pub pod_mtu: u32,
    /// True if the plugin `bandwidth` is chained.
    pub bandwidth: bool,
    /// The configurations of further plugins that are chained; each is an object with a `type`.
    pub chained_plugins: Vec<Value>,
    /// True if answers of node ports are kept on the primary ENI by mark.
    pub node_port_support: bool,
    /// The mark of such traffic.
    pub connmark: Mark,
    /// True if another component translates the pods' addresses towards the internet.
    pub external_snat: bool,
    /// Destinations towards which pods keep their own address.
    pub exclude_snat_cidrs: Vec<Ipv4Net>,
    /// Choice of source ports in address translation.
    pub randomize_snat: RandomizeSnat,
    /// True if pods reach destinations of the other family with a translated address.
    pub egress: bool,
    /// True if the kernel may look for a TCP packet's socket before its route.
    pub tcp_early_demux: bool,
    /// Program that writes the netfilter rules; `None`: the one that the node uses.
    pub nat_backend: Option<NatBackend>,
    /// True if packets of pods with another source address are dropped.
    pub source_check: bool,
    /// Layout of the host's rules for pods.
    pub rules: RuleLayout,
    /// Destinations that are always routed by table main.
    pub external_service_cidrs: Vec<Ipv4Net>,
    /// Prefix of the names of host veths.
    pub veth_prefix: String,
    /// Tags for the ENIs that we create, beside our own.
    pub eni_tags: BTreeMap<String, String>,
    /// The cluster's name, for tags.
    pub cluster_name: Option<String>,
    /// The node group's name, for tags and the election of the collector of leaked ENIs.
    pub node_group: String,
    /// True if ENIs without this instance's tag are used.
    pub manage_untagged: bool,
    /// Annotation and label with the node's ENIConfig; `None`: ENIs do not follow an ENIConfig.
    pub custom_networking: Option<CustomNetworking>,
    /// True if network cards beyond the first are used.
    pub multi_nic: bool,
    /// Routing of branch ENIs; `None`: pods have no branch ENIs.
    pub pod_enis: Option<PodEniMode>,
    /// True if the daemon creates, attaches, assigns or tags resources in EC2.
    pub provisioning: bool,
    /// True if the daemon never reads the node's state from EC2; implies no provisioning.
    pub imds_only: bool,
    /// True if the daemon searches for leaked ENIs. Never with IPv6 or without provisioning.
    pub collect_leaks: bool,
    /// True if subnets are discovered by tag.
    pub subnet_discovery: bool,
    /// True if ENIs of an unschedulable node are changed.
    pub manage_enis_non_schedulable: bool,
    /// The least severe log line that is written.
    pub log_level: LogLevel,
    pub log_to: LogTo,
    /// Where the plugin's log lines go, as the host has it, or `stderr`.
    pub plugin_log_file: String,
    /// The least severe line of the plugin's log.
    pub plugin_log_level: String,
    /// The host's folder of plugins, as an installer has it.
    pub host_bin_dir: PathBuf,
    /// The host's folder of networks, as an installer has it.
    pub host_conf_dir: PathBuf,
    /// Listen address of introspection; `None` if it is off.
    pub introspection: Option<Bind>,
    /// True if `/metrics` is served.
    pub metrics: bool,
    /// The time limit of one call to EC2.
    pub http_timeout: Span,
    /// The node's name in Kubernetes.
    pub node_name: Option<String>,
    /// The daemon's pod's name in Kubernetes.
    pub pod_name: Option<String>,
    /// Use of the API server.
    pub kubernetes: Kubernetes,
    /// The API server's URL, where it is not to be found as usual.
    pub cluster_endpoint: Option<String>,
    /// True if a pod's address is written to its annotation.
    pub annotate_pod_ip: bool,
    /// True if pods that are bound to this node and have no address yet count as demand.
    pub anticipate_pods: bool,
    /// The key of the taint that is taken off the node once the pool can serve.
    pub startup_taint: String,
    /// amazon-vpc-cni's checkpoint of network card 0.
    pub backing_store: PathBuf,
    /// Rule of the policy agent for a pod that no policy names; `None`: the setting is `none`.
    pub policy_mode: Option<EnforcingMode>,
    /// True if aws-network-policy-agent is served, besides `backing_store`.
    pub policy_agent: bool,
    /// True if ferrule-agent enforces policy on the node.
    pub policy: bool,
    pub agent: Agent,
    /// The longest that an ADD waits for an address.
    pub add_wait: Span,
    /// Limit of this node's calls to EC2, for each action.
    pub calls: CallBudget,
    /// The folder of checkpoint and tombstones.
    pub state_dir: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Writable path of the host's `/proc/sys/net`.
    pub proc_sys_net: PathBuf,
}

/// Limit of one node's calls of one EC2 action, while EC2 does not throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBudget {
    /// As many at once.
    pub burst: u32,
    /// Calls per second that change something.
    pub changes: u32,
    /// Calls per second that describe something.
    pub reads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, from prefixes.
    V6,
}

/// Place of a node's ENIConfig name. The label `vpc.amazonaws.com/externalEniConfig` has priority over
/// both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomNetworking {
    pub annotation: String,
    /// The label that is looked at next.
    pub label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEniMode {
    /// All of a pod's traffic goes by its branch ENI.
    Strict,
    /// Traffic that leaves the VPC, and traffic from the node, uses the primary ENI.
    Standard,
}

/// Use of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubernetes {
    /// When there are credentials for it and the node's name is known.
    Auto,
    /// Never.
    Off,
}

impl Settings {
    /// True if a mode does not work without the API server: the daemon then waits for
    /// it before it serves. Annotations do not need that, since they are written later.
    pub fn needs_kubernetes(&self) -> bool {
        self.custom_networking.is_some() || self.pod_enis.is_some()
    }
}

/// The warm targets. The two address targets go before the others when either is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// Free addresses to keep, counted in whole ENIs; without prefixes only.
    pub enis: u32,
    /// Free prefixes to keep; with prefixes only.
    pub prefixes: u32,
    /// Free addresses to keep; 0 is off.
    pub ips: u32,
    /// The fewest addresses to hold in all; 0 is off.
    pub minimum: u32,
}

/// The least severe log line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Choice of source ports in address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomizeSnat {
    None,
    Hash,
    Prng,
}

/// Program that writes the netfilter rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatBackend {
    /// `iptables-legacy`.
    IptablesLegacy,
    /// `iptables-nft`.
    IptablesNft,
    /// `nft`, in a table of our own.
    Nftables,
}

/// Backend that enforces policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyBackend {
    None,
    /// eBPF programs at the host veths of pods.
    Ebpf,
}

impl fmt::Display for PolicyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Ebpf => "ebpf",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub socket: PathBuf,
    /// Backend that enforces policies.
    pub backend: PolicyBackend,
    /// Object file of the compiled eBPF programs.
    pub bpf_object: PathBuf,
    /// Folder of the pinned eBPF maps, on a bpffs.
    pub bpf_pins: PathBuf,
    /// Root of cgroup v2, or the folder with all cgroup trees.
    pub cgroup: PathBuf,
    /// Connections in the backend `ebpf`.
    pub connections: Connections,
    /// Logs each verdict.
    pub policy_event_logs: bool,
    /// Folder of the received policy.
    pub state_dir: PathBuf,
    /// Listen address of metrics and health.
    pub metrics: Option<Bind>,
    /// Listen address of the node's health for load balancers, if the agent serves Services.
    pub healthz: Option<SocketAddr>,
    pub log_to: LogTo,
    /// The least severe line of it.
    pub log_level: LogLevel,
    /// Namespace and name of the controller's Service.
    pub service: (String, String),
    /// The file with the addresses of the controller's replicas.
    pub replicas: PathBuf,
    /// Name in the controller's certificates.
    pub server_name: String,
    /// The file of the controller's authority.
    pub authority: PathBuf,
    /// The file of the agent's token.
    pub token: PathBuf,
}

/// The connection tracking of the backend `ebpf`, and the memory of its maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// The limit of open connections of the node.
    pub limit: u32,
    /// The part of the limit that one pod may have, in percent.
    pub share: u32,
    /// The time between two removals of ended connections.
    pub sweep: Span,
    pub timeouts: Timeouts,
    /// The time in which connections may be older than the enforcement of their pods, where the kernel tracks none.
    pub untracked_window: Span,
    /// The limit of the memory of all maps, in bytes.
    pub map_memory: u64,
    /// True if the programs serve Services: their maps then have room for them.
    pub services: bool,
    /// With Services, new connections of pods take the fast path.
    pub fast_path: bool,
}

impl Connections {
    /// The memory that the agent needs besides maps, in bytes.
    pub const AGENT_MEMORY: u64 = 48 << 20;
}

/// The times after which a connection without a packet has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Before the responder's answer.
    pub tcp_syn: Span,
    pub tcp: Span,
    /// After the end of one direction or of both.
    pub tcp_fin: Span,
    pub tcp_reset: Span,
    /// Also of protocols without a time of their own.
    pub udp: Span,
    /// After the responder's answer.
    pub udp_replied: Span,
    pub icmp: Span,
    /// Before the responder's answer.
    pub sctp_init: Span,
    pub sctp: Span,
    /// Between the first fragment of a packet and each other.
    pub fragment: Span,
}

impl Agent {
    fn blank() -> Self {
        Self {
            socket: PathBuf::new(),
            backend: PolicyBackend::None,
            bpf_object: PathBuf::new(),
            bpf_pins: PathBuf::new(),
            cgroup: PathBuf::new(),
            connections: Connections::default(),
            policy_event_logs: false,
            state_dir: PathBuf::new(),
            metrics: None,
            healthz: None,
            log_to: LogTo::Stderr,
            log_level: LogLevel::Error,
            service: (String::new(), String::new()),
            replicas: PathBuf::new(),
            server_name: String::new(),
            authority: PathBuf::new(),
            token: PathBuf::new(),
        }
    }
}

/// Target of the table's setters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) settings: Settings,
    pub(crate) modes: Modes,
    /// Parts of a value that were left out, and why.
    pub(crate) notes: Vec<String>,
}

/// Values that take effect only in combination, and modes that are recognized so that
/// they are refused and not ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) custom_networking: bool,
    pub(crate) eni_config_annotation: String,
    pub(crate) eni_config_label: String,
    pub(crate) pod_eni: bool,
    pub(crate) pod_eni_mode: String,
    pub(crate) v6_egress: bool,
    pub(crate) v4_egress: bool,
    pub(crate) pod_mtu: Option<u32>,
    pub(crate) introspection_off: bool,
    pub(crate) policy_strict: bool,
    pub(crate) policy_agent: bool,
    pub(crate) policy: bool,
}

impl Draft {
    /// Placeholder values; the table's defaults then replace all of them.
    pub(crate) fn blank() -> Self {
        let settings = Settings {
            family: Family::V4,
            prefixes: false,
            warm: Warm::default(),
            max_enis: None,
            cooldown: Span(0),
            eni_mtu: 0,
            pod_mtu: 0,
            bandwidth: false,
            chained_plugins: Vec::new(),
            node_port_support: false,
            connmark: Mark { value: 0, mask: 0 },
            external_snat: false,
            exclude_snat_cidrs: Vec::new(),
            randomize_snat: RandomizeSnat::None,
            egress: false,
            tcp_early_demux: false,
            nat_backend: None,
            source_check: false,
            rules: RuleLayout::PerPod,
            external_service_cidrs: Vec::new(),
            veth_prefix: String::new(),
            eni_tags: BTreeMap::new(),
            cluster_name: None,
            node_group: String::new(),
            manage_untagged: false,
            custom_networking: None,
            multi_nic: false,
            pod_enis: None,
            provisioning: false,
            imds_only: false,
            collect_leaks: false,
            subnet_discovery: false,
            manage_enis_non_schedulable: false,
            log_level: LogLevel::Error,
            log_to: LogTo::Stderr,
            plugin_log_file: String::new(),
            plugin_log_level: String::new(),
            host_bin_dir: PathBuf::new(),
            host_conf_dir: PathBuf::new(),
            introspection: None,
            metrics: false,
            http_timeout: Span(0),
            node_name: None,
            pod_name: None,
            kubernetes: Kubernetes::Off,
            cluster_endpoint: None,
            annotate_pod_ip: false,
            anticipate_pods: false,
            startup_taint: String::new(),
            backing_store: PathBuf::new(),
            policy_mode: None,
            policy_agent: false,
            policy: false,
            agent: Agent::blank(),
            add_wait: Span(0),
            calls: CallBudget::default(),
            state_dir: PathBuf::new(),
            socket: PathBuf::new(),
            proc_sys_net: PathBuf::new(),
        };
        Self { settings, modes: Modes::default(), notes: Vec::new() }
    }
}
