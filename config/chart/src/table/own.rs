//! Values that only Ferrule's chart has.

use super::{OURS, Shape, Value};

/// In the order of `values.yaml`.
pub(super) const VALUES: &[Value] = &[
    Value {
        path: "migration.byLabel",
        shape: Shape::Bool,
        default: "false",
        meaning: "The DaemonSet runs on nodes with the label `ferrule.io/network=ferrule` alone: nodes of \
                  amazon-vpc-cni are taken over one by one.",
        ..OURS
    },
    Value {
        path: "removal",
        shape: Shape::Bool,
        default: "false",
        meaning: "Before `helm uninstall`, which knows nothing of nodes: each node's network configuration is taken away and \
                  others' is given back, as `ferrule-ipamd uninstall --keep-programs` does; the daemon serves on for pods \
                  that are still to be deleted. A node that was taken over and still has pods of Ferrule's refuses, and the \
                  pod says so: drain it, or give it back by `ferrule migrate rollback`.",
        ..OURS
    },
    Value {
        path: "controlPlaneConfig.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "The ConfigMap `amazon-vpc-cni` is made, which EKS's control plane reads; amazon-vpc-cni's chart or add-on \
                  makes one of the same name.",
        ..OURS
    },
    Value {
        path: "dnsPolicy",
        shape: Shape::Choice(&["Default", "ClusterFirst", "ClusterFirstWithHostNet"]),
        default: r#""Default""#,
        meaning: "How the DaemonSet's pods find names. The node's own way needs no pod.",
        ..OURS
    },
    Value {
        path: "policy.backend",
        shape: Shape::Choice(&["", "none"]),
        default: r#""""#,
        meaning: "What puts policies into force, with `enableNetworkPolicy`. This version has `none`: policies are \
                  received and reported on, and nothing enforces them.",
        ..OURS
    },
    Value {
        path: "controller.replicas",
        shape: Shape::Int(1),
        default: "2",
        meaning: "Replicas of `ferrule-controller`; all of them serve nodes.",
        ..OURS
    },
    Value {
        path: "controller.hostNetwork",
        shape: Shape::Bool,
        default: "true",
        meaning: "Replicas have their node's network, so that neither they nor agents wait for pods' network.",
        ..OURS
    },
    Value {
        path: "controller.view",
        shape: Shape::Bool,
        default: "true",
        meaning: "The API at which `ferrule policy` asks what nodes have in force.",
        ..OURS
    },
    Value {
        path: "controller.networkPolicy",
        shape: Shape::Bool,
        default: "true",
        meaning: "A NetworkPolicy for the replicas; it counts without `controller.hostNetwork`.",
        ..OURS
    },
    Value {
        path: "controller.logLevel",
        shape: Shape::Choice(&["debug", "info", "warn", "error"]),
        default: r#""info""#,
        meaning: "How much the replicas say.",
        ..OURS
    },
    Value {
        path: "controller.priorityClassName",
        default: r#""system-cluster-critical""#,
        meaning: "Their priority.",
        ..OURS
    },
    Value {
        path: "controller.resources",
        shape: Shape::Object("ResourceRequirements"),
        default: r#"{"requests":{"cpu":"50m","memory":"64Mi"}}"#,
        meaning: "Of each replica.",
        ..OURS
    },
    Value {
        path: "controller.extraEnv",
        shape: Shape::List("EnvVar"),
        default: "[]",
        meaning: "More of their environment: the flags of `ferrule-controller` by their variables.",
        ..OURS
    },
    Value {
        path: "controller.podAnnotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Of the replicas.",
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
        meaning: "The labels of nodes that they run on.",
        ..OURS
    },
    Value {
        path: "controller.affinity",
        shape: Shape::Object("Affinity"),
        default: r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"eks.amazonaws.com/compute-type","operator":"NotIn","values":["fargate"]}]}]}}}"#,
        meaning: "Beside that no two of them share a node.",
        ..OURS
    },
    Value {
        path: "controller.tolerations",
        shape: Shape::List("Toleration"),
        default: r#"[{"key":"CriticalAddonsOnly","operator":"Exists"},{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":30},{"key":"ferrule.io/not-ready","operator":"Exists"}]"#,
        meaning: "Nodes become ready once pods have a network, for which agents may need a replica.",
        ..OURS
    },
    Value {
        path: "controller.topologySpreadConstraints",
        shape: Shape::List("TopologySpreadConstraint"),
        default: "[]",
        meaning: "How they spread over zones.",
        ..OURS
    },
    Value {
        path: "nodeScope.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "A ValidatingAdmissionPolicy holds what the DaemonSet's account writes to the node whose token it is.",
        ..OURS
    },
    Value {
        path: "viewer.create",
        shape: Shape::Bool,
        default: "true",
        meaning: "The roles `ferrule-viewer` (the DaemonSet's name and `-viewer`), for people who ask with `ferrule status` and its like; nobody is bound \
                  to them.",
        ..OURS
    },
    Value {
        path: "crds.cniNode",
        shape: Shape::Bool,
        default: "false",
        meaning: "The definition of CNINode; on EKS it is there.",
        ..OURS
    },
    Value {
        path: "crds.realizations",
        shape: Shape::Bool,
        default: "true",
        meaning: "The definition of NetworkPolicyRealization, with `enableNetworkPolicy`.",
        ..OURS
    },
    Value {
        path: "crds.upstreamPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "The definition of ClusterNetworkPolicy of `policy.networking.k8s.io`.",
        ..OURS
    },
    Value {
        path: "crds.antreaPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "The definitions of Antrea's kinds of policy.",
        ..OURS
    },
    Value {
        path: "crds.awsPolicies",
        shape: Shape::Bool,
        default: "false",
        meaning: "The definitions of AWS's kinds of policy; on EKS they are there.",
        ..OURS
    },
    Value {
        path: "prometheusRule.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "A PrometheusRule is made, with alerts.",
        ..OURS
    },
    Value {
        path: "prometheusRule.labels",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Its labels, by which Prometheus takes it.",
        ..OURS
    },
    Value {
        path: "prometheusRule.runbookUrl",
        shape: Shape::MaybeText,
        meaning: "Where people read `docs/guide/alerts.md`: its address. Alerts then have `runbook_url`, else \
                  `runbook` with the page's path.",
        ..OURS
    },
    Value {
        path: "dashboards.create",
        shape: Shape::Bool,
        default: "false",
        meaning: "A ConfigMap with Grafana's dashboards is made.",
        ..OURS
    },
    Value {
        path: "dashboards.namespace",
        shape: Shape::MaybeText,
        meaning: "Its namespace, if not that of the release.",
        ..OURS
    },
    Value {
        path: "dashboards.labels",
        shape: Shape::Texts,
        default: r#"{"grafana_dashboard":"1"}"#,
        meaning: "Its labels, by which Grafana takes it.",
        ..OURS
    },
    Value {
        path: "dashboards.annotations",
        shape: Shape::Texts,
        default: "{}",
        meaning: "Its annotations.",
        ..OURS
    },
];
