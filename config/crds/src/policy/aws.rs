//! `networking.k8s.aws/v1alpha1`: ClusterNetworkPolicy and ApplicationNetworkPolicy.

use super::parts::{
    DOMAIN_NAME, LabelSelector, PolicyAction, PolicyStatus, PolicyTier, holds, number_or_name,
    parts,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// AwsClusterNetworkPolicySpec defines the allowed and denied traffic of its subject.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.k8s.aws",
    version = "v1alpha1",
    kind = "ClusterNetworkPolicy",
    root = "AwsClusterNetworkPolicy",
    plural = "clusternetworkpolicies",
    singular = "clusternetworkpolicy",
    shortname = "cnp",
    status = "PolicyStatus",
    printcolumn(name = "Tier", type_ = "string", json_path = ".spec.tier"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "ClusterNetworkPolicy defines the allowed and denied traffic of pods, for cluster administrators",
    derive = "PartialEq"
)]
pub struct AwsClusterNetworkPolicySpec {
    /// Stage of the policy. Admin decides before NetworkPolicies, Baseline after them for traffic that none isolates.
    pub tier: PolicyTier,
    /// Priority within the tier. Lower values come first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// Pods to which the policy applies.
    pub subject: AwsSubject,
    /// Rules for incoming traffic, in order. The first match decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub ingress: Option<Vec<AwsIngressRule>>,
    /// Rules for outgoing traffic, in order. The first match decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub egress: Option<Vec<AwsEgressRule>>,
}

parts! {
    /// AwsSubject selects the pods of a policy. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsSubject {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: AwsNamespacedPod,
    }
}

/// AwsNamespacedPod selects pods in namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsNamespacedPod {
    /// Namespaces with these labels.
    pub namespace_selector: LabelSelector,
    /// Pods with these labels.
    pub pod_selector: LabelSelector,
}

/// AwsIngressRule is a rule for traffic to the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AwsIngressRule {
    /// Name of the rule, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// Action for matching traffic.
    pub action: PolicyAction,
    /// Sources; at least one.
    #[schemars(length(min = 1, max = 100))]
    pub from: Vec<AwsIngressPeer>,
    /// Matching ports. Without them every protocol and port matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub ports: Option<Vec<AwsPort>>,
}

/// AwsEgressRule is a rule for traffic from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",
    "domainNames require the action Accept",
)])))]
pub struct AwsEgressRule {
    /// Name of the rule, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// Action for matching traffic.
    pub action: PolicyAction,
    /// Destinations; at least one.
    #[schemars(length(min = 1, max = 100))]
    pub to: Vec<AwsEgressPeer>,
    /// Matching ports. Without them every protocol and port matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub ports: Option<Vec<AwsPort>>,
}

parts! {
    /// AwsIngressPeer is a source of traffic. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsIngressPeer {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: AwsNamespacedPod,
    }
}

parts! {
    /// AwsEgressPeer is a destination of traffic. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsEgressPeer {
        /// All pods in namespaces with these labels.
        namespaces: LabelSelector,
        /// Selected pods in selected namespaces.
        pods: AwsNamespacedPod,
        /// Addresses of these CIDRs, addresses of pods included.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        networks: Vec<AwsCidr>,
        /// Addresses of these DNS names. Only the action Accept may have them.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        domain_names: Vec<AwsDomainName>,
    }
}

/// AwsCidr is a range of addresses, such as 10.0.0.0/8 or fd00::/8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsCidr(#[schemars(length(max = 43))] pub String);

/// AwsDomainName is a DNS name. A leading `*.` matches all names below it, by whole labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsDomainName(#[schemars(regex(pattern = DOMAIN_NAME))] pub String);

parts! {
    /// AwsPort selects ports. Exactly one field is used.
    AwsPort {
        /// A single port.
        port_number: AwsPortNumber,
        /// First and last port of a range.
        port_range: AwsPortRange,
        /// Name of a port in the destination pod.
        named_port: String,
    }
}

/// AwsPortNumber is a port of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsPortNumber {
    /// TCP, UDP or SCTP. The default is TCP.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// Number of the port, from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// AwsPortRange is a range of ports of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.start < self.end", "start must be less than end; use portNumber for a single port",
)])))]
pub struct AwsPortRange {
    /// TCP, UDP or SCTP. The default is TCP.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// First port.
    #[schemars(range(min = 1, max = 65535))]
    pub start: i32,
    /// Last port.
    #[schemars(range(min = 1, max = 65535))]
    pub end: i32,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// ApplicationNetworkPolicySpec is the spec of a NetworkPolicy whose peers may be DNS names.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.k8s.aws",
    version = "v1alpha1",
    kind = "ApplicationNetworkPolicy",
    plural = "applicationnetworkpolicies",
    singular = "applicationnetworkpolicy",
    namespaced,
    shortname = "anp",
    status = "PolicyStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "ApplicationNetworkPolicy is a NetworkPolicy whose peers may be DNS names",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationNetworkPolicySpec {
    /// Pods of the policy's namespace to which it applies.
    pub pod_selector: LabelSelector,
    /// Directions of the policy. The default is Ingress, and Egress if there is an egress rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_types: Option<Vec<String>>,
    /// Allowed incoming traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Vec<ApplicationIngressRule>>,
    /// Allowed outgoing traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<ApplicationEgressRule>>,
}

parts! {
    /// ApplicationIngressRule allows incoming traffic.
    ApplicationIngressRule {
        /// Sources. An empty list matches every source.
        from: Vec<ApplicationIngressPeer>,
        /// Ports. An empty list matches every port.
        ports: Vec<ApplicationPort>,
    }
}

parts! {
    /// ApplicationEgressRule allows outgoing traffic.
    ApplicationEgressRule {
        /// Destinations. An empty list matches every destination.
        to: Vec<ApplicationEgressPeer>,
        /// Ports. An empty list matches every port.
        ports: Vec<ApplicationPort>,
    }
}

parts! {
    /// ApplicationIngressPeer is a source of traffic.
    ApplicationIngressPeer {
        /// Pods with these labels, in the policy's namespace unless namespaceSelector is set.
        pod_selector: LabelSelector,
        /// Pods in namespaces with these labels.
        namespace_selector: LabelSelector,
        /// Addresses of this CIDR. No other field may be set.
        ip_block: ApplicationBlock,
    }
}

parts! {
    /// ApplicationEgressPeer is a destination of traffic.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(
        "!has(self.domainNames) || \
         !(has(self.podSelector) || has(self.namespaceSelector) || has(self.ipBlock))",
        "an item with domainNames cannot have other fields",
    )])))]
    ApplicationEgressPeer {
        /// Pods with these labels, in the policy's namespace unless namespaceSelector is set.
        pod_selector: LabelSelector,
        /// Pods in namespaces with these labels.
        namespace_selector: LabelSelector,
        /// Addresses of this CIDR. No other field may be set.
        ip_block: ApplicationBlock,
        /// Addresses of these DNS names. No other field may be set.
        #[schemars(length(min = 1))]
        domain_names: Vec<AwsDomainName>,
    }
}

/// ApplicationBlock is a CIDR with exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationBlock {
    /// Address range, such as 10.0.0.0/8.
    pub cidr: String,
    /// Excluded ranges within the CIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
}

parts! {
    /// ApplicationPort selects ports of a protocol.
    ApplicationPort {
        /// Protocol of the ports. The default is TCP.
        protocol: String,
        /// Number of the port, or its name in the destination pod.
        #[schemars(schema_with = "number_or_name")]
        port: Value,
        /// Last port of a range that starts at port.
        end_port: i32,
    }
}
