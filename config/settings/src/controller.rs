//! Settings of `ferrule-controller`, for the reference page. The controller defines its flags where it reads them;
//! a test there compares them with this table.

use std::fmt::Write as _;

/// A flag of `ferrule-controller`, and its environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Without its dashes.
    pub flag: &'static str,
    pub variable: &'static str,
    /// Value if neither flag nor variable is set; empty if there is none.
    pub default: &'static str,
    pub meaning: &'static str,
}

/// All flags, in the order of the help text.
pub const CONTROLLER: &[Flag] = &[
    Flag {
        flag: "kubeconfig",
        variable: "KUBECONFIG",
        default: "",
        meaning: "A kubeconfig; by default the pod's service account",
    },
    Flag {
        flag: "api-server",
        variable: "FERRULE_CONTROLLER_API_SERVER",
        default: "",
        meaning: "The API server's own URL or host; by default that of the kubeconfig or of the \
                   environment",
    },
    Flag {
        flag: "namespace",
        variable: "POD_NAMESPACE",
        default: "kube-system",
        meaning: "The namespace of the Lease, the Secret and the ConfigMap",
    },
    Flag {
        flag: "identity",
        variable: "POD_NAME",
        default: "",
        meaning: "The unique name of this replica; by default a random name",
    },
    Flag {
        flag: "listen",
        variable: "FERRULE_CONTROLLER_LISTEN",
        default: "[::]:61690",
        meaning: "The address and port for agents",
    },
    Flag {
        flag: "health",
        variable: "FERRULE_CONTROLLER_HEALTH",
        default: "[::]:61691",
        meaning: "The address and port of /livez, /readyz and /metrics",
    },
    Flag {
        flag: "view",
        variable: "FERRULE_CONTROLLER_VIEW",
        default: "",
        meaning: "The address and port of the aggregated API for policies, groups and nodes; by \
                   default it is off",
    },
    Flag {
        flag: "view-service",
        variable: "FERRULE_CONTROLLER_VIEW_SERVICE",
        default: "ferrule-controller-view",
        meaning: "The Service of --view, in the same namespace",
    },
    Flag {
        flag: "advertise",
        variable: "FERRULE_CONTROLLER_ADVERTISE",
        default: "",
        meaning: "The address and port at which agents send reports to this replica; by default \
                   POD_IP and the port of --listen",
    },
    Flag {
        flag: "audience",
        variable: "FERRULE_CONTROLLER_AUDIENCE",
        default: "ferrule-controller",
        meaning: "The audience of agents' tokens",
    },
    Flag {
        flag: "agents",
        variable: "FERRULE_CONTROLLER_AGENTS",
        default: "kube-system/ferrule-agent",
        meaning: "The agents' service account",
    },
    Flag {
        flag: "server-name",
        variable: "FERRULE_CONTROLLER_SERVER_NAME",
        default: "ferrule-controller",
        meaning: "The DNS name in the serving certificate",
    },
    Flag {
        flag: "tls-dir",
        variable: "FERRULE_CONTROLLER_TLS_DIR",
        default: "",
        meaning: "A folder with tls.crt and tls.key, read again after a change; by default the \
                   replicas issue certificates themselves",
    },
    Flag {
        flag: "tls-secret",
        variable: "FERRULE_CONTROLLER_TLS_SECRET",
        default: "ferrule-controller-tls",
        meaning: "The Secret of the replicas' own certificate authority",
    },
    Flag {
        flag: "ca-configmap",
        variable: "FERRULE_CONTROLLER_CA_CONFIGMAP",
        default: "ferrule-controller-ca",
        meaning: "The ConfigMap with the authority's certificates, as ca.crt",
    },
    Flag {
        flag: "certificate-life",
        variable: "FERRULE_CONTROLLER_CERTIFICATE_LIFE",
        default: "90d",
        meaning: "The lifetime of issued certificates; they are renewed after two thirds",
    },
    Flag {
        flag: "authority-life",
        variable: "FERRULE_CONTROLLER_AUTHORITY_LIFE",
        default: "730d",
        meaning: "The lifetime of the authority; the next one is published after half and used \
                   after two thirds",
    },
    Flag {
        flag: "lease",
        variable: "FERRULE_CONTROLLER_LEASE",
        default: "ferrule-controller",
        meaning: "The Lease of the replica that collects reports and writes status",
    },
    Flag {
        flag: "lease-lasts",
        variable: "FERRULE_CONTROLLER_LEASE_LASTS",
        default: "15s",
        meaning: "The lease duration",
    },
    Flag {
        flag: "grace",
        variable: "FERRULE_CONTROLLER_GRACE",
        default: "5s",
        meaning: "The time for which streams stay open after SIGTERM, so that agents can move to \
                   another replica",
    },
    Flag {
        flag: "services",
        variable: "FERRULE_CONTROLLER_SERVICES",
        default: "none",
        meaning: "The component that serves Services on nodes; with ebpf the replica reads \
                   EndpointSlices, and sends them and Services to nodes that serve Services",
    },
    Flag {
        flag: "page",
        variable: "FERRULE_CONTROLLER_PAGE",
        default: "500",
        meaning: "The page size of lists",
    },
    Flag {
        flag: "log-format",
        variable: "FERRULE_CONTROLLER_LOG_FORMAT",
        default: "json",
        meaning: "The log format: text or JSON",
    },
    Flag {
        flag: "log-level",
        variable: "FERRULE_CONTROLLER_LOG_LEVEL",
        default: "info",
        meaning: "The lowest level of logged messages",
    },
];

/// Returns the section of the page with these flags.
pub(crate) fn section() -> String {
    let mut text = String::from(HEAD);
    for Flag { flag, variable, default, meaning } in CONTROLLER {
        let default = if default.is_empty() { "—".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(text, "| `--{flag}` | `{variable}` | {default} | {meaning}. |");
    }
    text
}

const HEAD: &str = "
## ferrule-controller

`ferrule-controller` reads flags. Each flag can be set by its variable instead. The program refuses to start with an invalid
value. Times are numbers with `ms`, `s`, `m`, `h` or `d`.

| flag | variable | default | meaning |
|---|---|---|---|
";
