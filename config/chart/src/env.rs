//! Keys that the map `env` accepts, besides the settings.

use config_settings::{Effect, Setting, table};

/// Returns the reason if the chart sets this variable itself, because of a mount or of another value.
pub fn given_by_chart(name: &str) -> Option<&'static str> {
    let by = match name {
        "MY_NODE_NAME" | "MY_POD_NAME" => "the chart sets it for each pod",
        "FERRULE_STATE_DIR"
        | "FERRULE_SOCKET"
        | "FERRULE_PROC_SYS_NET"
        | "FERRULE_AGENT_SOCKET"
        | "FERRULE_AGENT_STATE_DIR"
        | "FERRULE_AGENT_BPF_PINS"
        | "FERRULE_AGENT_CGROUP"
        | "FERRULE_CONTROLLER_CA"
        | "FERRULE_CONTROLLER_REPLICAS"
        | "FERRULE_CONTROLLER_TOKEN" => "the chart mounts this path",
        "FERRULE_POLICY" => "enableNetworkPolicy sets it",
        "FERRULE_AGENT_BACKEND" => "policy.backend sets it",
        "FERRULE_AGENT_CONNECTIONS" => "nodeAgent.conntrackCacheTableSize sets it",
        "FERRULE_AGENT_CONNECTION_SWEEP" => "nodeAgent.conntrackCacheCleanupPeriod sets it",
        "FERRULE_AGENT_BPF_OBJECT" => "the image has this file",
        "FERRULE_AGENT_METRICS" => "nodeAgent.metricsBindAddr sets it",
        "FERRULE_AGENT_LOG_FILE" => "nodeAgent.networkPolicyAgentLogFileLocation sets it",
        "FERRULE_AGENT_LOGLEVEL" => "nodeAgent.logLevel sets it",
        "FERRULE_CONTROLLER_SERVICE" | "FERRULE_CONTROLLER_NAME" => {
            "the chart creates the controller"
        }
        _ => return None,
    };
    Some(by)
}

/// Names that are refused in `extraEnv`: the chart sets them, or its templates depend on their values.
pub(crate) fn of_the_chart() -> Vec<&'static str> {
    let steers = [
        "ANNOTATE_POD_IP",
        "AWS_EC2_ENDPOINT",
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        "DISABLE_METRICS",
        "DISABLE_POD_V6",
        "ENABLE_IPv6",
        "ENABLE_POD_ENI",
        "FERRULE_CHAINED_PLUGINS",
        "FERRULE_POLICY_AGENT",
        "FERRULE_STARTUP_TAINT",
        "HOST_CNI_BIN_PATH",
        "HOST_CNI_CONFDIR_PATH",
        "NETWORK_POLICY_ENFORCING_MODE",
    ];
    let filled = table().map(|setting| setting.name).filter(|name| given_by_chart(name).is_some());
    filled.chain(steers).collect()
}

/// Returns the settings that an operator may set in `env`.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    table().filter(|setting| given_by_chart(setting.name).is_none())
}

/// Returns true if this version refuses some values of the setting.
pub(crate) fn is_refused(setting: &Setting) -> bool {
    matches!(setting.effect, Effect::Refused { .. })
}

/// A variable of amazon-vpc-cni without a setting of Ferrule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    pub name: &'static str,
    pub meaning: &'static str,
    /// True if the chart has the same effect in another way.
    pub is_done: bool,
}

/// Returns the variables of amazon-vpc-cni that `env` accepts besides the settings.
pub fn idle() -> &'static [Idle] {
    &[
        Idle {
            name: "AWS_EC2_ENDPOINT",
            meaning: "The chart passes it on as `AWS_ENDPOINT_URL_EC2`, which the SDK reads.",
            is_done: true,
        },
        Idle {
            name: "DISABLE_POD_V6",
            meaning: "The chart chains the plugin `tuning`, which disables IPv6 in pods. `tuning` must be in the \
                      plugin folder. `FERRULE_CHAINED_PLUGINS` cannot be set as well.",
            is_done: true,
        },
        Idle {
            name: "VPC_CNI_VERSION",
            meaning: "No effect: Ferrule sends EC2 its own version.",
            is_done: false,
        },
        Idle {
            name: "ENABLE_NFTABLES",
            meaning: "No effect, as with amazon-vpc-cni since 1.13.2: see `FERRULE_NAT_BACKEND`.",
            is_done: false,
        },
        Idle {
            name: "AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER",
            meaning: "No effect, as with amazon-vpc-cni since 1.12.1.",
            is_done: false,
        },
        Idle {
            name: "AWS_VPC_K8S_EGRESS_V4_PLUGIN_LOG_FILE",
            meaning: "No effect: the plugin does this itself, and logs to `AWS_VPC_K8S_PLUGIN_LOG_FILE`.",
            is_done: false,
        },
        Idle {
            name: "AWS_VPC_K8S_EGRESS_V6_PLUGIN_LOG_FILE",
            meaning: "No effect: the plugin does this itself, and logs to `AWS_VPC_K8S_PLUGIN_LOG_FILE`.",
            is_done: false,
        },
    ]
}

/// Variables that the libraries read.
pub const OTHERS: &[&str] = &[
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_EC2",
    "AWS_ENDPOINT_URL_STS",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "RUST_BACKTRACE",
];
