//! The resolved settings: types that cannot contradict themselves.

use config_model::{Mark, Span};
use ipnet::Ipv4Net;
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

/// Everything the daemon was told, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many addresses to keep ready.
    pub warm: Warm,
    /// The most ENIs to use; `None` is as many as the instance type allows.
    pub max_enis: Option<u32>,
    /// How long a released address is given to nobody.
    pub cooldown: Span,
    /// The MTU of the primary and of secondary ENIs, in bytes.
    pub eni_mtu: u32,
    /// Whether answers of node ports are kept on the primary ENI by mark.
    pub node_port_support: bool,
    /// The mark of such traffic.
    pub connmark: Mark,
    /// Whether somebody else translates the pods' addresses towards the internet.
    pub external_snat: bool,
    /// Destinations towards which pods keep their own address.
    pub exclude_snat_cidrs: Vec<Ipv4Net>,
    /// How source ports are chosen when addresses are translated.
    pub randomize_snat: RandomizeSnat,
    /// Destinations that are always routed by table main.
    pub external_service_cidrs: Vec<Ipv4Net>,
    /// What names of host veths begin with.
    pub veth_prefix: String,
    /// Tags for the ENIs that we create, beside our own.
    pub eni_tags: BTreeMap<String, String>,
    /// The cluster's name, for tags.
    pub cluster_name: Option<String>,
    /// Whether subnets are discovered by tag.
    pub subnet_discovery: bool,
    /// Whether ENIs of a node that takes no pods are changed.
    pub manage_enis_non_schedulable: bool,
    /// The least severe log line that is written.
    pub log_level: LogLevel,
    /// Where log lines go.
    pub log_to: LogTo,
    /// Where introspection listens; `None` when it is off.
    pub introspection: Option<Bind>,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// The time limit of one call to EC2.
    pub http_timeout: Span,
    /// The node's name in Kubernetes.
    pub node_name: Option<String>,
    /// The daemon's pod's name in Kubernetes.
    pub pod_name: Option<String>,
    /// What the policy agent is to do with a pod that no policy names.
    pub policy_mode: PolicyMode,
    /// The longest that an ADD waits for an address.
    pub add_wait: Span,
    /// The folder of checkpoint and tombstones.
    pub state_dir: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Where the host's `/proc/sys/net` can be written.
    pub proc_sys_net: PathBuf,
}

/// The warm targets. The two address targets go before the ENI target when either is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// Free addresses to keep, counted in whole ENIs.
    pub enis: u32,
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
    /// What changes.
    Info,
    /// What is odd.
    Warn,
    /// What failed.
    Error,
}

/// Where log lines go.
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
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// How source ports are chosen when addresses are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomizeSnat {
    /// In order.
    None,
    /// By a hash.
    Hash,
    /// By a pseudo-random number.
    Prng,
}

/// What the policy agent is to do with a pod that no policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyMode {
    /// No policies.
    None,
    /// Allow.
    Standard,
    /// Deny.
    Strict,
}

impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Standard => "standard",
            Self::Strict => "strict",
        })
    }
}

/// What the table's setters write to; holds the modes that never reach [`Settings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) settings: Settings,
    pub(crate) modes: Modes,
    /// Parts of a value that were left out, and why.
    pub(crate) notes: Vec<String>,
}

/// Switches that are recognised so that a wrong or missing mode is refused and not ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) prefixes: bool,
    pub(crate) warm_prefixes: u32,
    pub(crate) custom_networking: bool,
    pub(crate) multi_nic: bool,
    pub(crate) pod_eni: bool,
    pub(crate) pod_eni_mode: String,
    pub(crate) imds_only: bool,
    pub(crate) no_provisioning: bool,
    pub(crate) no_leaked_cleanup: bool,
    pub(crate) annotate_pod_ip: bool,
    pub(crate) v6_egress: bool,
    pub(crate) bandwidth: bool,
    pub(crate) introspection_off: bool,
    pub(crate) policy_strict: bool,
    pub(crate) only_tagged: bool,
}

impl Draft {
    /// Nothing set yet; the table's defaults come next and leave no field as it is here.
    pub(crate) fn blank() -> Self {
        let settings = Settings {
            warm: Warm::default(),
            max_enis: None,
            cooldown: Span(0),
            eni_mtu: 0,
            node_port_support: false,
            connmark: Mark { value: 0, mask: 0 },
            external_snat: false,
            exclude_snat_cidrs: Vec::new(),
            randomize_snat: RandomizeSnat::None,
            external_service_cidrs: Vec::new(),
            veth_prefix: String::new(),
            eni_tags: BTreeMap::new(),
            cluster_name: None,
            subnet_discovery: false,
            manage_enis_non_schedulable: false,
            log_level: LogLevel::Error,
            log_to: LogTo::Stderr,
            introspection: None,
            metrics: false,
            http_timeout: Span(0),
            node_name: None,
            pod_name: None,
            policy_mode: PolicyMode::None,
            add_wait: Span(0),
            state_dir: PathBuf::new(),
            socket: PathBuf::new(),
            proc_sys_net: PathBuf::new(),
        };
        Self { settings, modes: Modes::default(), notes: Vec::new() }
    }
}
