//! Values that amazon-vpc-cni's chart has.

use super::{AMAZON, Effect, Shape, Value};

/// In the order of `values.yaml`.
pub(super) const VALUES: &[Value] = &[
    Value {
        path: "nameOverride",
        shape: Shape::MaybeText,
        meaning: "Replacement of the chart's name in names and labels. `aws-node` has no effect: it is the name of \
                  amazon-vpc-cni's objects.",
        ..AMAZON
    },
    Value {
        path: "fullnameOverride",
        shape: Shape::MaybeText,
        meaning: "Name of the DaemonSet, and prefix of the other objects' names. `aws-node` has no effect here either.",
        ..AMAZON
    },
    Value {
        path: "image.override",
        shape: Shape::MaybeText,
        meaning: "The whole image reference, with a tag or a digest. It replaces all other parts of the name. This value, \
                  `image.overrideRepository` or `image.account` is required: the chart has no default image.",
        ..AMAZON
    },
    Value {
        path: "image.overrideRepository",
        shape: Shape::MaybeText,
        meaning: "The image's repository, without the tag.",
        ..AMAZON
    },
    Value {
        path: "image.tag",
        shape: Shape::MaybeText,
        meaning: "The image's tag. The default is this chart's version of Ferrule.",
        ..AMAZON
    },
    Value {
        path: "image.account",
        shape: Shape::Digits,
        meaning: "The account with the ECR repository `ferrule`. The accounts where AWS publishes amazon-vpc-cni \
                  do not have it: with them `image.override` or `image.overrideRepository` is required. Quote a \
                  number with a leading 0.",
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
        meaning: "Pull policy of the image.",
        ..AMAZON
    },
    Value {
        path: "imagePullSecrets",
        shape: Shape::List("LocalObjectReference"),
        default: "[]",
        meaning: "Secrets with the credentials of the registry.",
        ..AMAZON
    },
    Value {
        path: "env",
        shape: Shape::Env,
        default: "{}",
        meaning: "The settings, with the names of amazon-vpc-cni's environment and Ferrule's own.",
        ..AMAZON
    },
    Value {
        path: "extraEnv",
        shape: Shape::MoreEnv,
        default: "[]",
        meaning: "More environment variables, for example from a ConfigMap or a Secret. Settings that \
                  templates of the chart read are refused here; set them in `env`. A name that is set elsewhere is \
                  refused too.",
        ..AMAZON
    },
    Value {
        path: "init.image",
        shape: Shape::Object(""),
        default: "{}",
        meaning: "All containers use the image of `image`.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "init.env",
        shape: Shape::Env,
        default: "{}",
        meaning: "Settings with lower priority than `env`. All containers have the same settings, so \
                  `DISABLE_TCP_EARLY_DEMUX` is accepted in both places.",
        ..AMAZON
    },
    Value {
        path: "init.securityContext",
        shape: Shape::LesserRights,
        default: "{}",
        meaning: "Additional fields of the security context of the container `install`. `privileged` has no effect.",
        ..AMAZON
    },
    Value {
        path: "init.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"limits":{"memory":"128Mi"},"requests":{"cpu":"25m","memory":"16Mi"}}"#,
        meaning: "Resources of the containers `install` and `network`.",
        ..AMAZON
    },
    Value {
        path: "resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"25m","memory":"48Mi"}}"#,
        meaning: "Resources of the container `ipamd`. It has no memory limit by default: without the daemon no pod \
                  starts. No container has an `ephemeral-storage` request or limit by default: the kubelet evicts a pod \
                  above its limit, and containers write nothing but their logs.",
        ..AMAZON
    },
    Value {
        path: "securityContext",
        shape: Shape::Rights,
        default: "{}",
        meaning: "Additional fields of the security context of the container `ipamd`. Its capabilities are \
                  NET_ADMIN and NET_RAW.",
        ..AMAZON
    },
    Value {
        path: "podSecurityContext",
        shape: Shape::Object("PodSecurityContext"),
        default: "{}",
        meaning: "Additional fields of the DaemonSet's pod security context. Its seccomp profile is RuntimeDefault. All \
                  containers run as uid 0. In this context and those of the containers, `runAsNonRoot` and another \
                  `runAsUser` are refused.",
        ..AMAZON
    },
    Value {
        path: "podAnnotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Annotations of the DaemonSet's pods. The chart adds its containers without AWS access to \
                  `eks.amazonaws.com/skip-containers`.",
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
        meaning: "Priority class of the DaemonSet's pods.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "Creates the service account of the DaemonSet's pods.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.name",
        shape: Shape::MaybeText,
        meaning: "Name of that account. The default is the name of the DaemonSet.",
        ..AMAZON
    },
    Value {
        path: "serviceAccount.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Annotations of that account, for example `eks.amazonaws.com/role-arn`. EKS gives the role to the \
                  container `ipamd` only.",
        ..AMAZON
    },
    Value {
        path: "livenessProbe",
        shape: Shape::Probe,
        default: r#"{"initialDelaySeconds":60}"#,
        meaning: "Timing of the daemon's liveness probe. `exec` has no effect: the command is the chart's, which asks \
                  the daemon over the plugin's socket. Any pod can reach the daemon's HTTP port for metrics, so no \
                  probe depends on it.",
        ..AMAZON
    },
    Value {
        path: "livenessProbeTimeoutSeconds",
        shape: Shape::Int(1),
        default: "10",
        meaning: "Timeout of the liveness probe in seconds.",
        ..AMAZON
    },
    Value {
        path: "readinessProbe",
        shape: Shape::Probe,
        default: r#"{"initialDelaySeconds":1}"#,
        meaning: "Timing of the daemon's readiness probe. The daemon is ready if its pool can serve pods. `exec` has \
                  no effect here either.",
        ..AMAZON
    },
    Value {
        path: "readinessProbeTimeoutSeconds",
        shape: Shape::Int(1),
        default: "10",
        meaning: "Timeout of the readiness probe in seconds.",
        ..AMAZON
    },
    Value {
        path: "updateStrategy",
        shape: Shape::Object("DaemonSetUpdateStrategy"),
        default: r#"{"rollingUpdate":{"maxUnavailable":"10%"},"type":"RollingUpdate"}"#,
        meaning: "Update strategy of the DaemonSet. Pods keep their network during an upgrade.",
        ..AMAZON
    },
    Value {
        path: "nodeSelector",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Labels of the nodes on which the DaemonSet runs.",
        ..AMAZON
    },
    Value {
        path: "tolerations",
        shape: Shape::List("Toleration"),
        default: r#"[{"operator":"Exists"}]"#,
        meaning: "Tolerations of the DaemonSet's pods. The default tolerates every taint, because every node needs \
                  a network.",
        ..AMAZON
    },
    Value {
        path: "affinity",
        shape: Shape::Object("Affinity"),
        default: r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/os","operator":"In","values":["linux"]},{"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"]},{"key":"eks.amazonaws.com/compute-type","operator":"NotIn","values":["fargate","hybrid","auto"]}]}]}}}"#,
        meaning: "Affinity of the DaemonSet's pods. The default excludes Fargate, EKS Auto Mode and hybrid nodes, \
                  which have their own networks.",
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
        meaning: "More volume mounts of the container `ipamd`.",
        ..AMAZON
    },
    Value {
        path: "enableNetworkPolicy",
        shape: Shape::BoolText,
        default: "false",
        meaning: "Runs `ferrule-controller`, and `ferrule-agent` on each node, which enforces policies by \
                  `policy.backend`. The mode is `standard`, as with amazon-vpc-cni, unless `env.NETWORK_POLICY_ENFORCING_MODE` names \
                  another.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enabled",
        shape: Shape::Bool,
        default: "true",
        meaning: "Runs the container `agent` if `enableNetworkPolicy` is on. The container runs `ferrule-agent` of \
                  the same image and is not privileged. `false` with `enableNetworkPolicy` is refused, except with \
                  `env.FERRULE_POLICY_AGENT`: then aws-network-policy-agent enforces the policies.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.image",
        shape: Shape::Object(""),
        default: "{}",
        meaning: "The agent is part of the image of `image`.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.securityContext",
        shape: Shape::LesserRights,
        default: "{}",
        meaning: "Additional fields of the security context of the container `agent`. `privileged` has no effect.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"25m"}}"#,
        meaning: "Resources of the container `agent`. The kernel counts eBPF maps as memory of that container, up \
                  to `env.FERRULE_AGENT_MAP_MEMORY`. Without `requests.memory` the request is 32Mi. With \
                  `policy.backend=ebpf` it is 128Mi, or the memory of maps if that is less. A memory limit needs the \
                  memory of maps and 48Mi.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.logLevel",
        shape: Shape::Choice(&["debug", "info", "warn", "error"]),
        default: r#""info""#,
        meaning: "Lowest level of the agent's log.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.networkPolicyAgentLogFileLocation",
        default: r#""stdout""#,
        meaning: "Destination of the agent's log: `stdout`, `stderr`, or a file in `/var/log/aws-routed-eni`, which is \
                  rotated. `kubectl logs` and `ferrule bundle` have the first two only.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.metricsBindAddr",
        shape: Shape::Listen,
        default: r#""8162""#,
        meaning: "Address of the agent's `/metrics`. A port alone, with or without a colon, means all addresses of \
                  the node.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.healthProbeBindAddr",
        shape: Shape::Listen,
        default: r#""8163""#,
        meaning: "The kubelet probes the agent over its unix socket; the agent opens no port.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enableCloudWatchLogs",
        shape: Shape::BoolText,
        default: "false",
        meaning: "Sends logs to CloudWatch.",
        effect: Effect::Refused("log collectors on the node read the agent's file"),
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enablePolicyEventLogs",
        shape: Shape::BoolText,
        default: "false",
        meaning: "Logs each packet that policies drop and each connection that they allow, at most 200 a second \
                  for each pod. The agent's log has them, and `ferrule policy flows` shows them without this value.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.enableIpv6",
        shape: Shape::BoolText,
        default: "false",
        meaning: "The agent supports both families.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "nodeAgent.conntrackCacheCleanupPeriod",
        shape: Shape::MaybeInt,
        meaning: "Seconds between two removals of ended connections, with `policy.backend=ebpf`. Unset, the \
                  default of `FERRULE_AGENT_CONNECTION_SWEEP` applies.",
        ..AMAZON
    },
    Value {
        path: "nodeAgent.conntrackCacheTableSize",
        shape: Shape::MaybeInt,
        meaning: "Limit of the node's open connections, with `policy.backend=ebpf`. Unset, the default of \
                  `FERRULE_AGENT_CONNECTIONS` applies.",
        ..AMAZON
    },
    Value {
        path: "eniConfig.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "Creates ENIConfigs for custom networking.",
        ..AMAZON
    },
    Value {
        path: "eniConfig.region",
        shape: Shape::MaybeText,
        meaning: "The names in `eniConfig.subnets` are complete; the chart adds no region.",
        effect: Effect::Idle,
        ..AMAZON
    },
    Value {
        path: "eniConfig.subnets",
        shape: Shape::Subnets,
        default: "{}",
        meaning: "Subnets by the name of the ENIConfig, which is the zone's name if nodes select it by zone: \
                  `us-west-2a: {id: subnet-…, securityGroups: [sg-…]}`.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "Creates PodMonitors for the Prometheus operator.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Annotations of the PodMonitors.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.labels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Labels of the PodMonitors.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.interval",
        default: r#""30s""#,
        meaning: "Scrape interval.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.scrapeTimeout",
        shape: Shape::MaybeText,
        meaning: "Scrape timeout.",
        ..AMAZON
    },
    Value {
        path: "podMonitor.relabelings",
        shape: Shape::List("RelabelConfig"),
        default: "[]",
        meaning: "Relabelings of the scraped series.",
        ..AMAZON
    },
    Value {
        path: "enableWindowsIpam",
        shape: Shape::MaybeBool,
        meaning: "Entry `enable-windows-ipam` of the ConfigMap `amazon-vpc-cni`, which the EKS control plane \
                  reads. This and the next five values require `controlPlaneConfig.create`.",
        ..AMAZON
    },
    Value {
        path: "enableWindowsPrefixDelegation",
        shape: Shape::MaybeBool,
        meaning: "Entry `enable-windows-prefix-delegation` of that ConfigMap.",
        ..AMAZON
    },
    Value {
        path: "warmWindowsPrefixTarget",
        shape: Shape::MaybeInt,
        meaning: "Entry `warm-prefix-target` of that ConfigMap, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "warmWindowsIPTarget",
        shape: Shape::MaybeInt,
        meaning: "Entry `warm-ip-target` of that ConfigMap, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "minimumWindowsIPTarget",
        shape: Shape::MaybeInt,
        meaning: "Entry `minimum-ip-target` of that ConfigMap, for Windows nodes.",
        ..AMAZON
    },
    Value {
        path: "branchENICooldown",
        shape: Shape::MaybeInt,
        meaning: "Entry `branch-eni-cooldown` of that ConfigMap, in seconds, for pods with branch ENIs.",
        ..AMAZON
    },
    Value {
        path: "originalMatchLabels",
        shape: Shape::Bool,
        default: "false",
        meaning: "Adopts the DaemonSet `aws-node`.",
        effect: Effect::Refused(
            "Ferrule has a DaemonSet of its own; `ferrule migrate` takes nodes over one by one",
        ),
        ..AMAZON
    },
    Value {
        path: "cniConfig.enabled",
        shape: Shape::Bool,
        default: "false",
        meaning: "Replaces the network's configuration by a file.",
        effect: Effect::Refused(
            "the configuration follows from the settings; use `env.FERRULE_CHAINED_PLUGINS` to chain plugins",
        ),
        ..AMAZON
    },
    Value {
        path: "cniConfig.fileContents",
        shape: Shape::MaybeText,
        meaning: "Content of the file of `cniConfig.enabled`, which this chart refuses.",
        effect: Effect::Idle,
        ..AMAZON
    },
];
