//! Values that amazon-vpc-cni's chart has.

use super::{AMAZON, Effect, Shape, Value};

const AGENT_IS_OURS: &str =
    "nothing puts policies into force in this version, so there are no such events";

/// In the order of `values.yaml`.
pub(super) const VALUES: &[Value] = &[
    Value {
        path: "nameOverride",
        shape: Shape::MaybeText,
        meaning: "What stands in names and labels in place of the chart's name; not `aws-node`, which is \
                  amazon-vpc-cni's.",
        ..AMAZON
    },
    Value {
        path: "fullnameOverride",
        shape: Shape::MaybeText,
        meaning: "The name of the DaemonSet, and what others' names begin with; not `aws-node` either.",
        ..AMAZON
    },
    Value {
        path: "image.override",
        shape: Shape::MaybeText,
        meaning: "The whole image, as it is given.",
        ..AMAZON
    },
    Value {
        path: "image.overrideRepository",
        shape: Shape::MaybeText,
        meaning: "The image's repository; the tag is added. Without it and without `account` it is \
                  `localhost/ferrule`, as `cargo xtask image` names what it builds.",
        ..AMAZON
    },
    Value {
        path: "image.tag",
        shape: Shape::MaybeText,
        meaning: "The image's tag; this chart's version of Ferrule if it is not given.",
        ..AMAZON
    },
    Value {
        path: "image.account",
        shape: Shape::Digits,
        meaning: "The account whose registry in ECR has the image, as `ferrule`. Those where AWS keeps \
                  amazon-vpc-cni do not have it. A number that begins with 0 needs quotes.",
        ..AMAZON
    },
    Value {
        path: "image.region",
        shape: Shape::MaybeText,
        meaning: "The region of that registry.",
        ..AMAZON
    },
    Value {
        path: "image.domain",
        default: r#""amazonaws.com""#,
        meaning: "The domain of that registry.",
        ..AMAZON
    },
    Value {
        path: "image.endpoint",
        default: r#""ecr""#,
        meaning: "The endpoint of that registry: `ecr` or `ecr-fips`.",
        ..AMAZON
    },
    Value {
        path: "image.pullPolicy",
        shape: Shape::Choice(&["Always", "IfNotPresent", "Never"]),
        default: r#""IfNotPresent""#,
        meaning: "When the image is pulled.",
        ..AMAZON
    },
    Value {
        path: "imagePullSecrets",
        shape: Shape::List("LocalObjectReference"),
        default: "[]",
        meaning: "Secrets by which the image is pulled.",
        ..AMAZON
    },
    Value {
        path: "env",
        shape: Shape::Env,
        default: "{}",
        meaning: "The settings, by the names of amazon-vpc-cni's environment and Ferrule's own.",
        ..AMAZON
    },
    Value {
        path: "extraEnv",
        shape: Shape::MoreEnv,
        default: "[]",
        meaning: "More of the environment, as containers have it: from a ConfigMap or a Secret, for one. Settings that \
                  the chart itself goes by are refused here and stand in `env`.",
        ..AMAZON
    },
    Value {
        path: "init.image",
        shape: Shape::Object(""),
        default: "{}",
        meaning: "The same image as `image` installs: what is given here is not looked at.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "init.env",
        shape: Shape::Env,
        default: "{}",
        meaning: "As `env`, which goes before it: all containers have the same settings, so \
                  `DISABLE_TCP_EARLY_DEMUX` may stand here, as with amazon-vpc-cni, or there.",
        ..AMAZON
    },
    Value {
        path: "init.securityContext",
        shape: Shape::Rights,
        default: "{}",
        meaning: "Added to what the container `install` may do.",
        ..AMAZON
    },
    Value {
        path: "init.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"25m"}}"#,
        meaning: "Of the containers `install` and `network`.",
        ..AMAZON
    },
    Value {
        path: "resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"25m","memory":"48Mi"}}"#,
        meaning: "Of the container `ipamd`.",
        ..AMAZON
    },
    Value {
        path: "securityContext",
        shape: Shape::Rights,
        default: "{}",
        meaning: "Added to what the container `ipamd` may do, which is NET_ADMIN and NET_RAW.",
        ..AMAZON
    },
    Value {
        path: "podSecurityContext",
        shape: Shape::Object("PodSecurityContext"),
        default: "{}",
        meaning: "Added to the DaemonSet's pods' own, which is the seccomp profile RuntimeDefault.",
        ..AMAZON
    },
    Value {
        path: "podAnnotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Of the DaemonSet's pods.",
        ..AMAZON
    },
    Value {
        path: "podLabels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "More labels of the DaemonSet's pods.",
        ..AMAZON
    },
    Value {
        path: "priorityClassName",
        default: r#""system-node-critical""#,
        meaning: "The DaemonSet's pods' priority.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "Whether the account of the DaemonSet's pods is made.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.name",
        shape: Shape::MaybeText,
        meaning: "Its name, if not the DaemonSet's.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Its annotations: `eks.amazonaws.com/role-arn`, for one.",
        ..AMAZON
    },
    Value {
        path: "livenessProbe",
        shape: Shape::Probe,
        default: r#"{"initialDelaySeconds":60}"#,
        meaning: "When the daemon is asked whether it lives.",
        ..AMAZON
    },
    Value {
        path: "livenessProbeTimeoutSeconds",
        shape: Shape::Int(1),
        default: "10",
        meaning: "How long its answer may take.",
        ..AMAZON
    },
    Value {
        path: "readinessProbe",
        shape: Shape::Probe,
        default: r#"{"initialDelaySeconds":1}"#,
        meaning: "When the daemon is asked whether its pool can serve.",
        ..AMAZON
    },
    Value {
        path: "readinessProbeTimeoutSeconds",
        shape: Shape::Int(1),
        default: "10",
        meaning: "How long its answer may take.",
        ..AMAZON
    },
    Value {
        path: "updateStrategy",
        shape: Shape::Object("DaemonSetUpdateStrategy"),
        default: r#"{"rollingUpdate":{"maxUnavailable":"10%"},"type":"RollingUpdate"}"#,
        meaning: "How an upgrade goes through the nodes. Pods keep their network meanwhile.",
        ..AMAZON
    },
    Value {
        path: "nodeSelector",
        shape: Shape::Texts,
        default: "{}",
        meaning: "The labels of nodes that the DaemonSet runs on.",
        ..AMAZON
    },
    Value {
        path: "tolerations",
        shape: Shape::List("Toleration"),
        default: r#"[{"operator":"Exists"}]"#,
        meaning: "Of the DaemonSet's pods: every node needs a network.",
        ..AMAZON
    },
    Value {
        path: "affinity",
        shape: Shape::Object("Affinity"),
        default: r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/os","operator":"In","values":["linux"]},{"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"]},{"key":"eks.amazonaws.com/compute-type","operator":"NotIn","values":["fargate","hybrid","auto"]}]}]}}}"#,
        meaning: "Which nodes the DaemonSet runs on: not on Fargate, nor in EKS Auto Mode, nor on hybrid nodes, \
                  which have networks of their own.",
        ..AMAZON
    },
    Value {
        path: "extraVolumes",
        shape: Shape::List("Volume"),
        default: "[]",
        meaning: "More volumes of the DaemonSet's pods.",
        ..AMAZON
    },
    Value {
        path: "extraVolumeMounts",
        shape: Shape::List("VolumeMount"),
        default: "[]",
        meaning: "More mounts of the container `ipamd`.",
        ..AMAZON
    },
    Value {
        path: "enableNetworkPolicy",
        shape: Shape::BoolText,
        default: "false",
        meaning: "Network policies are Ferrule's to hold: `ferrule-controller` runs, and `ferrule-agent` on each \
                  node. `policy.backend` must be named as well. The mode is `standard`, as with amazon-vpc-cni, \
                  if `env.NETWORK_POLICY_ENFORCING_MODE` does not name another.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enabled",
        shape: Shape::Bool,
        default: "true",
        meaning: "Whether the agent runs where `enableNetworkPolicy` is on. It is `ferrule-agent`, of the same \
                  image, and not privileged.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.image",
        shape: Shape::Object(""),
        default: "{}",
        meaning: "The agent is in `image`: what is given here is not looked at.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.securityContext",
        shape: Shape::Rights,
        default: "{}",
        meaning: "Added to what the container `agent` may do.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"25m","memory":"32Mi"}}"#,
        meaning: "Of the container `agent`.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.logLevel",
        shape: Shape::Choice(&["debug", "info", "warn", "error"]),
        default: r#""info""#,
        meaning: "The least severe line of the agent's log.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.networkPolicyAgentLogFileLocation",
        default: r#""/var/log/aws-routed-eni/network-policy-agent.log""#,
        meaning: "Where the agent's log goes: a file of that folder, `stdout` or `stderr`.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.metricsBindAddr",
        shape: Shape::Listen,
        default: r#""8162""#,
        meaning: "Where the agent serves `/metrics`: a port of all addresses, with or without a colon before it, or \
                  an address with a port.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.healthProbeBindAddr",
        shape: Shape::Listen,
        default: r#""8163""#,
        meaning: "The kubelet asks the agent by its socket: no port is opened.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enableCloudWatchLogs",
        shape: Shape::BoolText,
        default: "false",
        meaning: "Logs to CloudWatch.",
        effect: Effect::Refused("whoever collects logs on the node takes the agent's file as well"),
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enablePolicyEventLogs",
        shape: Shape::BoolText,
        default: "false",
        meaning: "A log of each verdict.",
        effect: Effect::Refused(AGENT_IS_OURS),
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enableIpv6",
        shape: Shape::BoolText,
        default: "false",
        meaning: "The agent knows both families.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.conntrackCacheCleanupPeriod",
        shape: Shape::Int(1),
        default: "300",
        meaning: "Of the eBPF agent of AWS.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.conntrackCacheTableSize",
        shape: Shape::Int(1),
        default: "524288",
        meaning: "Of the eBPF agent of AWS.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "eniConfig.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "ENIConfigs are made, for custom networking.",
        ..AMAZON
    },
    Value {
        path: "eniConfig.region",
        shape: Shape::MaybeText,
        meaning: "The names in `eniConfig.subnets` are whole: no region is put before them.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "eniConfig.subnets",
        shape: Shape::Subnets,
        default: "{}",
        meaning: "By the ENIConfig's name, which is the zone's where nodes find theirs by zone: \
                  `us-west-2a: {id: subnet-…, securityGroups: [sg-…]}`.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "PodMonitors are made, for the Prometheus operator.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Their annotations.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.labels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Their labels.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.interval",
        default: r#""30s""#,
        meaning: "How often metrics are read.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.scrapeTimeout",
        shape: Shape::MaybeText,
        meaning: "How long that may take.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.relabelings",
        shape: Shape::List("RelabelConfig"),
        default: "[]",
        meaning: "What becomes of their labels.",
        ..AMAZON
    },
    Value {
        path: "enableWindowsIpam",
        shape: Shape::MaybeBool,
        meaning: "Entry `enable-windows-ipam` of the ConfigMap `amazon-vpc-cni`, which EKS's control plane reads. \
                  It and the next five count with `controlPlaneConfig.create`.",
        ..AMAZON
    },
    Value {
        path: "enableWindowsPrefixDelegation",
        shape: Shape::MaybeBool,
        meaning: "Its entry `enable-windows-prefix-delegation`.",
        ..AMAZON
    },
    Value {
        path: "warmWindowsPrefixTarget",
        shape: Shape::MaybeInt,
        meaning: "Its entry `warm-prefix-target`, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "warmWindowsIPTarget",
        shape: Shape::MaybeInt,
        meaning: "Its entry `warm-ip-target`, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "minimumWindowsIPTarget",
        shape: Shape::MaybeInt,
        meaning: "Its entry `minimum-ip-target`, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "branchENICooldown",
        shape: Shape::MaybeInt,
        meaning: "Its entry `branch-eni-cooldown`, in seconds, for pods with security groups of their own.",
        ..AMAZON
    },
    Value {
        path: "originalMatchLabels",
        shape: Shape::Bool,
        default: "false",
        meaning: "Takes the DaemonSet aws-node over.",
        effect: Effect::Refused(
            "Ferrule's DaemonSet is another one; ferrule migrate takes its nodes over one by one",
        ),
        ..AMAZON
    },
    Value {
        path: "cniConfig.enabled",
        shape: Shape::Bool,
        default: "false",
        meaning: "Gives the network's configuration as a file.",
        effect: Effect::Refused(
            "the configuration follows the settings; env.FERRULE_CHAINED_PLUGINS chains plugins",
        ),
        ..AMAZON
    },
    Value {
        path: "cniConfig.fileContents",
        shape: Shape::MaybeText,
        meaning: "That file.",
        effect: Effect::Idle,
        ..AMAZON
    },
];
