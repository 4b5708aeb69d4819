//! What `ferrule-controller` is told, for the reference page. Its own flags are defined where it reads them, and
//! a test there holds them to this table.

use std::fmt::Write as _;

/// A flag of `ferrule-controller`, and the variable that it can be given by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Without its dashes.
    pub flag: &'static str,
    pub variable: &'static str,
    /// What counts if neither is given; empty for nothing.
    pub default: &'static str,
    pub meaning: &'static str,
}

/// All of them, in the order of its help.
pub const CONTROLLER: &[Flag] = &[
    Flag {
        flag: "kubeconfig",
        variable: "KUBECONFIG",
        default: "",
        meaning: "A kubeconfig; without one, the service account's token and the API server's \
                  address that pods have",
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
        meaning: "Who this replica is: different in each; without it, a random name",
    },
    Flag {
        flag: "listen",
        variable: "FERRULE_CONTROLLER_LISTEN",
        default: "[::]:61690",
        meaning: "Where nodes come in",
    },
    Flag {
        flag: "health",
        variable: "FERRULE_CONTROLLER_HEALTH",
        default: "[::]:61691",
        meaning: "Where /livez, /readyz and /metrics are",
    },
    Flag {
        flag: "view",
        variable: "FERRULE_CONTROLLER_VIEW",
        default: "",
        meaning: "Where the API server asks for people, about policies, groups and nodes; \
                  without it nobody is answered",
    },
    Flag {
        flag: "view-service",
        variable: "FERRULE_CONTROLLER_VIEW_SERVICE",
        default: "ferrule-controller-view",
        meaning: "The Service by which the API server finds --view, in the same namespace",
    },
    Flag {
        flag: "view-service-port",
        variable: "FERRULE_CONTROLLER_VIEW_SERVICE_PORT",
        default: "443",
        meaning: "The port of that Service",
    },
    Flag {
        flag: "advertise",
        variable: "FERRULE_CONTROLLER_ADVERTISE",
        default: "",
        meaning: "Where nodes reach this replica when it takes reports; without it, POD_IP and \
                  the port of --listen",
    },
    Flag {
        flag: "audience",
        variable: "FERRULE_CONTROLLER_AUDIENCE",
        default: "ferrule-controller",
        meaning: "The audience that agents' tokens are for",
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
        meaning: "The name that the certificate is for, whatever address it is shown at",
    },
    Flag {
        flag: "tls-dir",
        variable: "FERRULE_CONTROLLER_TLS_DIR",
        default: "",
        meaning: "A folder with tls.crt and tls.key, read again when they change; without it the \
                  replicas make certificates themselves",
    },
    Flag {
        flag: "tls-secret",
        variable: "FERRULE_CONTROLLER_TLS_SECRET",
        default: "ferrule-controller-tls",
        meaning: "The Secret where the replicas keep the authority that they make",
    },
    Flag {
        flag: "ca-configmap",
        variable: "FERRULE_CONTROLLER_CA_CONFIGMAP",
        default: "ferrule-controller-ca",
        meaning: "The ConfigMap where they publish its certificates, as ca.crt",
    },
    Flag {
        flag: "certificate-life",
        variable: "FERRULE_CONTROLLER_CERTIFICATE_LIFE",
        default: "90d",
        meaning: "How long a certificate lasts that they make: renewed after two thirds",
    },
    Flag {
        flag: "authority-life",
        variable: "FERRULE_CONTROLLER_AUTHORITY_LIFE",
        default: "730d",
        meaning: "How long an authority lasts that they make: the next is published after half, \
                  and used after two thirds",
    },
    Flag {
        flag: "lease",
        variable: "FERRULE_CONTROLLER_LEASE",
        default: "ferrule-controller",
        meaning: "The Lease of the replica that takes reports and writes status",
    },
    Flag {
        flag: "lease-lasts",
        variable: "FERRULE_CONTROLLER_LEASE_LASTS",
        default: "15s",
        meaning: "How long others leave that Lease alone after it was last renewed",
    },
    Flag {
        flag: "grace",
        variable: "FERRULE_CONTROLLER_GRACE",
        default: "5s",
        meaning: "How long nodes are still served after SIGTERM, so that others have been told \
                  to go elsewhere",
    },
    Flag {
        flag: "page",
        variable: "FERRULE_CONTROLLER_PAGE",
        default: "500",
        meaning: "As many objects are asked for at once",
    },
    Flag {
        flag: "log-format",
        variable: "FERRULE_CONTROLLER_LOG_FORMAT",
        default: "json",
        meaning: "Lines for people or for programs",
    },
    Flag {
        flag: "log-level",
        variable: "FERRULE_CONTROLLER_LOG_LEVEL",
        default: "info",
        meaning: "How much is said",
    },
];

/// The part of the page that is about them.
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

A program of its own, which reads flags; each can be given by the environment instead. What does not fit is refused at start. Times are
numbers with `ms`, `s`, `m`, `h` or `d`.

| flag | variable | default | meaning |
|---|---|---|---|
";
