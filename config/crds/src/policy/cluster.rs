//! `policy.networking.k8s.io/v1alpha2`: ClusterNetworkPolicy, with the fields of the experimental channel.

use super::parts::{
    DOMAIN_NAME, LabelSelector, PolicyAction, PolicyStatus, PolicyTier, holds, parts,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// ClusterNetworkPolicySpec says who may talk to the pods of its subject, and with whom they may talk.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.networking.k8s.io",
    version = "v1alpha2",
    kind = "ClusterNetworkPolicy",
    plural = "clusternetworkpolicies",
    singular = "clusternetworkpolicy",
    shortname = "cnp",
    status = "PolicyStatus",
    annotation(
        "api-approved.kubernetes.io",
        "https://github.com/kubernetes-sigs/network-policy-api/pull/347"
    ),
    annotation("policy.networking.k8s.io/bundle-version", "v0.2.0"),
    annotation("policy.networking.k8s.io/channel", "experimental"),
    printcolumn(name = "Tier", type_ = "string", json_path = ".spec.tier"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "ClusterNetworkPolicy is the administrators' word on who may talk to whom",
    derive = "PartialEq"
)]
pub struct ClusterNetworkPolicySpec {
    /// Where in the order it stands: Admin is before NetworkPolicies, Baseline holds where no NetworkPolicy
    /// isolates.
    pub tier: PolicyTier,
    /// Within the tier, lower first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// The pods that it is about; those with the network of their node are never among them.
    pub subject: ClusterNetworkPolicySubject,
    /// What comes to the subject, in order; what nothing matches is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 25))]
    pub ingress: Option<Vec<ClusterNetworkPolicyIngressRule>>,
    /// What goes from the subject, in order; what nothing matches is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 25))]
    pub egress: Option<Vec<ClusterNetworkPolicyEgressRule>>,
}

parts! {
    /// ClusterNetworkPolicySubject is what a policy is about; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicySubject {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: NamespacedPod,
    }
}

/// NamespacedPod is pods of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedPod {
    /// Of these namespaces; of all if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// These pods.
    pub pod_selector: LabelSelector,
}

/// ClusterNetworkPolicyIngressRule is about what comes to the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterNetworkPolicyIngressRule {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// What becomes of what matches.
    pub action: PolicyAction,
    /// From one of these.
    #[schemars(length(min = 1, max = 25))]
    pub from: Vec<ClusterNetworkPolicyIngressPeer>,
    /// One of these; left out: any protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    pub protocols: Option<Vec<ClusterNetworkPolicyProtocol>>,
}

/// ClusterNetworkPolicyEgressRule is about what goes from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && \
     has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",
    "only pods have ports with names: networks, nodes and domainNames go by number",
)])))]
pub struct ClusterNetworkPolicyEgressRule {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// What becomes of what matches.
    pub action: PolicyAction,
    /// To one of these.
    #[schemars(length(min = 1, max = 25))]
    pub to: Vec<ClusterNetworkPolicyEgressPeer>,
    /// One of these; left out: any protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    pub protocols: Option<Vec<ClusterNetworkPolicyProtocol>>,
}

parts! {
    /// ClusterNetworkPolicyIngressPeer is a peer of what comes; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyIngressPeer {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: NamespacedPod,
    }
}

parts! {
    /// ClusterNetworkPolicyEgressPeer is a peer of what goes; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyEgressPeer {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: NamespacedPod,
        /// The addresses of these nodes.
        nodes: LabelSelector,
        /// Addresses, those of pods included.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        networks: Vec<NetworkCidr>,
        /// What these names lead to; for Accept alone.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        domain_names: Vec<DomainName>,
    }
}

/// NetworkCidr is a range of addresses, such as 10.0.0.0/8 or fd00::/8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "isCIDR(self)", "a range of addresses is written as 10.0.0.0/8 or fd00::/8",
)])))]
pub struct NetworkCidr(#[schemars(length(max = 43))] pub String);

/// DomainName is a name, or with `*.` before it all names below it, by whole labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainName(#[schemars(regex(pattern = DOMAIN_NAME))] pub String);

parts! {
    /// ClusterNetworkPolicyProtocol is a protocol and what of it; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyProtocol {
        /// TCP.
        tcp: ProtocolPorts,
        /// UDP.
        udp: ProtocolPorts,
        /// SCTP.
        sctp: ProtocolPorts,
        /// A port of the destination pod by its name, with the protocol that its container gives it.
        destination_named_port: String,
    }
}

parts! {
    /// ProtocolPorts is what of a protocol.
    #[schemars(extend("minProperties" = 1))]
    ProtocolPorts {
        /// To which port; every port is the range from 1 to 65535.
        destination_port: Port,
    }
}

parts! {
    /// Port is a port, or several; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    Port {
        /// One.
        #[schemars(range(min = 1, max = 65535))]
        number: i32,
        /// Several.
        range: PortRange,
    }
}

/// PortRange is ports from the first to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.start < self.end", "start is less than end; a single port is a number",
)])))]
pub struct PortRange {
    /// The first.
    #[schemars(range(min = 1, max = 65535))]
    pub start: i32,
    /// The last.
    #[schemars(range(min = 1, max = 65535))]
    pub end: i32,
}
