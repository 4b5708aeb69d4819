//! `policy.networking.k8s.io/v1alpha2`: ClusterNetworkPolicy, with the fields of the experimental channel.

use super::parts::{
    DOMAIN_NAME, LabelSelector, PolicyAction, PolicyStatus, PolicyTier, holds, parts,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// ClusterNetworkPolicySpec defines the allowed and denied traffic of its subject.
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
    doc = "ClusterNetworkPolicy defines the allowed and denied traffic of pods, for cluster administrators",
    derive = "PartialEq"
)]
pub struct ClusterNetworkPolicySpec {
    /// Stage of the policy. Admin decides before NetworkPolicies, Baseline after them for traffic that none isolates.
    pub tier: PolicyTier,
    /// Priority within the tier. Lower values come first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// Pods to which the policy applies. Pods of the host network are never selected.
    pub subject: ClusterNetworkPolicySubject,
    /// Rules for incoming traffic, in order. The first match decides; other traffic is left to later policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 25))]
    pub ingress: Option<Vec<ClusterNetworkPolicyIngressRule>>,
    /// Rules for outgoing traffic, in order. The first match decides; other traffic is left to later policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 25))]
    pub egress: Option<Vec<ClusterNetworkPolicyEgressRule>>,
}

parts! {
    /// ClusterNetworkPolicySubject selects the pods of a policy. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicySubject {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: NamespacedPod,
    }
}

/// NamespacedPod selects pods in namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedPod {
    /// Namespaces with these labels. The default is all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Pods with these labels.
    pub pod_selector: LabelSelector,
}

/// ClusterNetworkPolicyIngressRule is a rule for traffic to the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterNetworkPolicyIngressRule {
    /// Name of the rule, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// Action for matching traffic.
    pub action: PolicyAction,
    /// Sources; at least one.
    #[schemars(length(min = 1, max = 25))]
    pub from: Vec<ClusterNetworkPolicyIngressPeer>,
    /// Matching protocols and ports. Without them every protocol and port matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    pub protocols: Option<Vec<ClusterNetworkPolicyProtocol>>,
}

/// ClusterNetworkPolicyEgressRule is a rule for traffic from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && \
     has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",
    "networks, nodes and domainNames require port numbers: only pods have named ports",
)])))]
pub struct ClusterNetworkPolicyEgressRule {
    /// Name of the rule, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// Action for matching traffic.
    pub action: PolicyAction,
    /// Destinations; at least one.
    #[schemars(length(min = 1, max = 25))]
    pub to: Vec<ClusterNetworkPolicyEgressPeer>,
    /// Matching protocols and ports. Without them every protocol and port matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    pub protocols: Option<Vec<ClusterNetworkPolicyProtocol>>,
}

parts! {
    /// ClusterNetworkPolicyIngressPeer is a source of traffic. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyIngressPeer {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: NamespacedPod,
    }
}

parts! {
    /// ClusterNetworkPolicyEgressPeer is a destination of traffic. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyEgressPeer {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: NamespacedPod,
        /// Addresses of nodes with these labels.
        nodes: LabelSelector,
        /// Addresses of these CIDRs, addresses of pods included.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        networks: Vec<NetworkCidr>,
        /// Addresses of these DNS names. Only the action Accept may have them.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        domain_names: Vec<DomainName>,
    }
}

/// NetworkCidr is a range of addresses, such as 10.0.0.0/8 or fd00::/8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "isCIDR(self)", "the value must be a CIDR, such as 10.0.0.0/8 or fd00::/8",
)])))]
pub struct NetworkCidr(#[schemars(length(max = 43))] pub String);

/// DomainName is a DNS name. A leading `*.` matches all names below it, by whole labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainName(#[schemars(regex(pattern = DOMAIN_NAME))] pub String);

parts! {
    /// ClusterNetworkPolicyProtocol selects a protocol and its ports. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    ClusterNetworkPolicyProtocol {
        /// Ports of TCP.
        tcp: ProtocolPorts,
        /// Ports of UDP.
        udp: ProtocolPorts,
        /// Ports of SCTP.
        sctp: ProtocolPorts,
        /// Name of a port in the destination pod, with the protocol of that container port.
        destination_named_port: String,
    }
}

parts! {
    /// ProtocolPorts selects ports of a protocol.
    #[schemars(extend("minProperties" = 1))]
    ProtocolPorts {
        /// Destination port. The range from 1 to 65535 means every port.
        destination_port: Port,
    }
}

parts! {
    /// Port is a single port or a range. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    Port {
        /// A single port.
        #[schemars(range(min = 1, max = 65535))]
        number: i32,
        /// A range of ports.
        range: PortRange,
    }
}

/// PortRange is a range of ports with both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.start < self.end", "start must be less than end; use number for a single port",
)])))]
pub struct PortRange {
    /// First port.
    #[schemars(range(min = 1, max = 65535))]
    pub start: i32,
    /// Last port.
    #[schemars(range(min = 1, max = 65535))]
    pub end: i32,
}
