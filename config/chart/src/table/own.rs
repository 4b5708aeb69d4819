//! Values that only Ferrule's chart has.

use super::{OURS, Shape, Value};

/// In the order of `values.yaml`.
pub(super) const VALUES: &[Value] = &[
    Value {
        path: "migration.byLabel",
        shape: Shape::Bool,
        default: "false",
        meaning: "Limits the DaemonSet to nodes with the label `ferrule.io/network=ferrule`, so that nodes of \
                  amazon-vpc-cni are taken over one by one.",
        ..OURS
    },
    Value {
        path: "removal",
        shape: Shape::Bool,
        default: "false",
        meaning: "Prepares `helm uninstall`. Each node removes its network configuration and restores those of \
                  others, as `ferrule-ipamd uninstall --keep-programs` does. The daemon keeps serving DELs. A node \
                  that was taken over refuses while it has pods of Ferrule; its pod logs the reason. Drain that \
                  node, or return it with `ferrule migrate rollback`.",
        ..OURS
    },
    Value {
        path: "controlPlaneConfig.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "Creates the ConfigMap `amazon-vpc-cni`, which the EKS control plane reads. The chart and the \
                  add-on of amazon-vpc-cni create the same object. The release must be in `kube-system`, because \
                  the control plane reads this namespace only.",
        ..OURS
    },
    Value {
        path: "cni.binPath",
        default: r#""/opt/cni/bin""#,
        meaning: "The host's plugin folder, as the node's container runtime has it (containerd: `bin_dir`). \
                  `env.HOST_CNI_BIN_PATH` with `/host` before the path sets it too. `ferrule migrate` takes the \
                  same folder as `--bin`.",
        ..OURS
    },
    Value {
        path: "cni.confPath",
        default: r#""/etc/cni/net.d""#,
        meaning: "The host's folder of network configurations, as the runtime has it (containerd: `conf_dir`). \
                  `env.HOST_CNI_CONFDIR_PATH` with `/host` before the path sets it too. `ferrule migrate` takes \
                  the same folder as `--net-d`.",
        ..OURS
    },
    Value {
        path: "dnsPolicy",
        shape: Shape::Choice(&["Default", "ClusterFirst", "ClusterFirstWithHostNet"]),
        default: r#""Default""#,
        meaning: "DNS policy of the DaemonSet's pods. `Default` uses the node's resolver, which needs no pod.",
        ..OURS
    },
    Value {
        path: "commonLabels",
        shape: Shape::Labels,
        default: "{}",
        meaning: "More labels of all objects of the chart and of its pods, except the CRD ENIConfig. Labels of other \
                  values, for example `podLabels`, have priority. Keys of `kubernetes.io` and `helm.sh` are refused: \
                  the chart and Kubernetes use them.",
        ..OURS
    },
    Value {
        path: "extraObjects",
        shape: Shape::Objects,
        default: "[]",
        meaning: "More Kubernetes objects of the release. They get `commonLabels` and no other change; Helm does not \
                  evaluate templates in them.",
        ..OURS
    },
    Value {
        path: "policy.backend",
        shape: Shape::Choice(&["ebpf", "none"]),
        default: r#""ebpf""#,
        meaning: "Backend of the agents, with `enableNetworkPolicy`. `ebpf` enforces policies by eBPF programs at each \
                  pod's host veth. It needs kernel 6.1 and a bpffs at `/sys/fs/bpf`. The container `agent` then has \
                  the capabilities BPF, NET_ADMIN, NET_RAW and PERFMON. `none` receives and reports policies, and \
                  does not enforce them.",
        ..OURS
    },
    Value {
        path: "controller.replicas",
        shape: Shape::Int(1),
        default: "2",
        meaning: "Number of replicas of `ferrule-controller`. All of them serve agents. With `controller.hostNetwork` \
                  each needs a node of its own for its ports: a cluster with one node needs 1.",
        ..OURS
    },
    Value {
        path: "controller.hostNetwork",
        shape: Shape::Bool,
        default: "true",
        meaning: "Runs the replicas in the node's network, so that neither they nor agents depend on the pod \
                  network.",
        ..OURS
    },
    Value {
        path: "controller.view",
        shape: Shape::Bool,
        default: "false",
        meaning: "Serves the aggregated API at which `ferrule policy` reads the state of policies on nodes. The API \
                  server must reach port 61692 of the replicas: otherwise no namespace of the cluster can be deleted.",
        ..OURS
    },
    Value {
        path: "controller.networkPolicy",
        shape: Shape::Bool,
        default: "true",
        meaning: "Creates a NetworkPolicy for the replicas. It has an effect only if `controller.hostNetwork` is \
                  false. It allows DNS if `env.CLUSTER_ENDPOINT` has a name instead of an address.",
        ..OURS
    },
    Value {
        path: "controller.logLevel",
        shape: Shape::Choice(&["debug", "info", "warn", "error"]),
        default: r#""info""#,
        meaning: "Lowest level of the replicas' log.",
        ..OURS
    },
    Value {
        path: "controller.priorityClassName",
        default: r#""system-cluster-critical""#,
        meaning: "Priority class of the replicas.",
        ..OURS
    },
    Value {
        path: "controller.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"limits":{"memory":"768Mi"},"requests":{"cpu":"50m","memory":"64Mi"}}"#,
        meaning: "Resources of each replica. The default limit is at least twice the measured memory of 5,000 agents \
                  and of the largest measured set of policies (`cargo xtask bench stream`, `bench policy`).",
        ..OURS
    },
    Value {
        path: "controller.extraEnv",
        shape: Shape::List("EnvVar"),
        default: "[]",
        meaning: "More environment variables of the replicas. Each flag of `ferrule-controller` has a variable.",
        ..OURS
    },
    Value {
        path: "controller.podAnnotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Annotations of the replicas.",
        ..OURS
    },
    Value {
        path: "controller.podLabels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "More labels of the replicas.",
        ..OURS
    },
    Value {
        path: "controller.nodeSelector",
        shape: Shape::Texts,
        default: r#"{"kubernetes.io/os":"linux"}"#,
        meaning: "Labels of the nodes on which the replicas run.",
        ..OURS
    },
    Value {
        path: "controller.affinity",
        shape: Shape::Object("Affinity"),
        default: r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"eks.amazonaws.com/compute-type","operator":"NotIn","values":["fargate","hybrid","auto"]}]}]}}}"#,
        meaning: "Affinity of the replicas, in addition to the preference for different nodes. The default excludes \
                  the nodes that the DaemonSet excludes.",
        ..OURS
    },
    Value {
        path: "controller.tolerations",
        shape: Shape::List("Toleration"),
        default: r#"[{"key":"CriticalAddonsOnly","operator":"Exists"},{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":30},{"key":"ferrule.io/not-ready","operator":"Exists"}]"#,
        meaning: "Tolerations of the replicas. A node becomes ready after pods have a network, and agents may need \
                  a replica for that. A replica leaves a node that is not ready for 300 s, or unreachable for 30 s.",
        ..OURS
    },
    Value {
        path: "controller.topologySpreadConstraints",
        shape: Shape::List("TopologySpreadConstraint"),
        default: "[]",
        meaning: "Topology spread constraints of the replicas.",
        ..OURS
    },
    Value {
        path: "nodeScope.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "Creates a ValidatingAdmissionPolicy that limits the writes of the DaemonSet's account to the \
                  node of its token.",
        ..OURS
    },
    Value {
        path: "viewer.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "Creates the roles `ferrule-viewer` (the DaemonSet's name and `-viewer`) for users of `ferrule \
                  status` and the other commands. The chart binds them to no subject.",
        ..OURS
    },
    Value {
        path: "crds.cniNode",
        shape: Shape::Bool,
        default: "false",
        meaning: "Installs the CRD CNINode. EKS has it.",
        ..OURS
    },
    Value {
        path: "crds.realizations",
        shape: Shape::Bool,
        default: "true",
        meaning: "Installs the CRD NetworkPolicyRealization, with `enableNetworkPolicy`.",
        ..OURS
    },
    Value {
        path: "crds.upstreamPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "Installs the CRD ClusterNetworkPolicy of `policy.networking.k8s.io`.",
        ..OURS
    },
    Value {
        path: "crds.antreaPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "Installs the CRDs of Antrea's policy kinds.",
        ..OURS
    },
    Value {
        path: "crds.awsPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "Installs the CRDs of AWS's policy kinds. EKS has them.",
        ..OURS
    },
    Value {
        path: "prometheusRule.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "Creates a PrometheusRule with alerts. It needs `podMonitor.create`: some alerts select series by a label \
                  that the PodMonitors add.",
        ..OURS
    },
    Value {
        path: "prometheusRule.labels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Labels of the PrometheusRule, by which Prometheus selects it.",
        ..OURS
    },
    Value {
        path: "prometheusRule.runbookUrl",
        shape: Shape::MaybeText,
        meaning: "URL of the page `docs/guide/alerts.md`, if you publish it. With it alerts have the annotation \
                  `runbook_url` with a link to their section, otherwise `runbook` with the text of the section.",
        ..OURS
    },
    Value {
        path: "dashboards.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "Creates a ConfigMap with Grafana dashboards.",
        ..OURS
    },
    Value {
        path: "dashboards.namespace",
        shape: Shape::MaybeText,
        meaning: "Namespace of that ConfigMap. The default is the release's namespace.",
        ..OURS
    },
    Value {
        path: "dashboards.labels",
        shape: Shape::Texts,
        default: r#"{"grafana_dashboard":"1"}"#,
        meaning: "Labels of that ConfigMap, by which Grafana selects it.",
        ..OURS
    },
    Value {
        path: "dashboards.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Annotations of that ConfigMap.",
        ..OURS
    },
];
