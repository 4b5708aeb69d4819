//! `networking.k8s.aws/v1alpha1`: ClusterNetworkPolicy and ApplicationNetworkPolicy.

use super::parts::{
    DOMAIN_NAME, LabelSelector, PolicyAction, PolicyStatus, PolicyTier, holds, number_or_name,
    parts,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// AwsClusterNetworkPolicySpec says who may talk to the pods of its subject, and with whom they may talk.
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
    doc = "ClusterNetworkPolicy is the administrators' word on who may talk to whom",
    derive = "PartialEq"
)]
pub struct AwsClusterNetworkPolicySpec {
    /// Where in the order it stands: Admin is before NetworkPolicies, Baseline holds where no NetworkPolicy
    /// isolates.
    pub tier: PolicyTier,
    /// Within the tier, lower first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// The pods that it is about.
    pub subject: AwsSubject,
    /// What comes to the subject, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub ingress: Option<Vec<AwsIngressRule>>,
    /// What goes from the subject, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub egress: Option<Vec<AwsEgressRule>>,
}

parts! {
    /// AwsSubject is what a policy is about; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsSubject {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: AwsNamespacedPod,
    }
}

/// AwsNamespacedPod is pods of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsNamespacedPod {
    /// Of these namespaces.
    pub namespace_selector: LabelSelector,
    /// These pods.
    pub pod_selector: LabelSelector,
}

/// AwsIngressRule is about what comes to the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AwsIngressRule {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// What becomes of what matches.
    pub action: PolicyAction,
    /// From one of these.
    #[schemars(length(min = 1, max = 100))]
    pub from: Vec<AwsIngressPeer>,
    /// One of these; left out: any protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub ports: Option<Vec<AwsPort>>,
}

/// AwsEgressRule is about what goes from the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",
    "domainNames are for Accept alone",
)])))]
pub struct AwsEgressRule {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    /// What becomes of what matches.
    pub action: PolicyAction,
    /// To one of these.
    #[schemars(length(min = 1, max = 100))]
    pub to: Vec<AwsEgressPeer>,
    /// One of these; left out: any protocol and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub ports: Option<Vec<AwsPort>>,
}

parts! {
    /// AwsIngressPeer is a peer of what comes; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsIngressPeer {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: AwsNamespacedPod,
    }
}

parts! {
    /// AwsEgressPeer is a peer of what goes; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    AwsEgressPeer {
        /// All pods of these namespaces.
        namespaces: LabelSelector,
        /// Some pods of some namespaces.
        pods: AwsNamespacedPod,
        /// Addresses, those of pods included.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        networks: Vec<AwsCidr>,
        /// What these names lead to; for Accept alone.
        #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
        domain_names: Vec<AwsDomainName>,
    }
}

/// AwsCidr is a range of addresses, such as 10.0.0.0/8 or fd00::/8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsCidr(#[schemars(length(max = 43))] pub String);

/// AwsDomainName is a name, or with `*.` before it all names below it, by whole labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsDomainName(#[schemars(regex(pattern = DOMAIN_NAME))] pub String);

parts! {
    /// AwsPort is ports.
    AwsPort {
        /// One, by its number.
        port_number: AwsPortNumber,
        /// Several.
        port_range: AwsPortRange,
        /// A port of the destination pod by its name.
        named_port: String,
    }
}

/// AwsPortNumber is a port of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsPortNumber {
    /// The protocol.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// AwsPortRange is ports of a protocol from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "self.start < self.end", "start is less than end; a single port is a portNumber",
)])))]
pub struct AwsPortRange {
    /// The protocol.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// The first.
    #[schemars(range(min = 1, max = 65535))]
    pub start: i32,
    /// The last.
    #[schemars(range(min = 1, max = 65535))]
    pub end: i32,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// ApplicationNetworkPolicySpec is a NetworkPolicy's, and names may be peers.
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
    doc = "ApplicationNetworkPolicy is a NetworkPolicy with names among its peers",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationNetworkPolicySpec {
    /// The pods of its namespace that it is about.
    pub pod_selector: LabelSelector,
    /// Its directions; left out: Ingress, and Egress if there is a rule of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_types: Option<Vec<String>>,
    /// What may come to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Vec<ApplicationIngressRule>>,
    /// What may go from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<ApplicationEgressRule>>,
}

parts! {
    /// ApplicationIngressRule allows what comes.
    ApplicationIngressRule {
        /// From one of these; none: from everywhere.
        from: Vec<ApplicationIngressPeer>,
        /// At one of these ports; none: at any.
        ports: Vec<ApplicationPort>,
    }
}

parts! {
    /// ApplicationEgressRule allows what goes.
    ApplicationEgressRule {
        /// To one of these; none: to everywhere.
        to: Vec<ApplicationEgressPeer>,
        /// At one of these ports; none: at any.
        ports: Vec<ApplicationPort>,
    }
}

parts! {
    /// ApplicationIngressPeer is a peer of what comes.
    ApplicationIngressPeer {
        /// Pods of the policy's namespace, or of those that namespaceSelector selects.
        pod_selector: LabelSelector,
        /// Namespaces.
        namespace_selector: LabelSelector,
        /// Addresses; alone.
        ip_block: ApplicationBlock,
    }
}

parts! {
    /// ApplicationEgressPeer is a peer of what goes.
    #[schemars(extend("x-kubernetes-validations" = holds(&[(
        "!has(self.domainNames) || \
         !(has(self.podSelector) || has(self.namespaceSelector) || has(self.ipBlock))",
        "domainNames stand alone in their item",
    )])))]
    ApplicationEgressPeer {
        /// Pods of the policy's namespace, or of those that namespaceSelector selects.
        pod_selector: LabelSelector,
        /// Namespaces.
        namespace_selector: LabelSelector,
        /// Addresses; alone.
        ip_block: ApplicationBlock,
        /// What these names lead to; alone.
        #[schemars(length(min = 1))]
        domain_names: Vec<AwsDomainName>,
    }
}

/// ApplicationBlock is a range of addresses with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationBlock {
    /// The range.
    pub cidr: String,
    /// What is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
}

parts! {
    /// ApplicationPort is ports of a protocol.
    ApplicationPort {
        /// Which; left out: TCP.
        protocol: String,
        /// A number, or a name of the destination pod's.
        #[schemars(schema_with = "number_or_name")]
        port: Value,
        /// The last of several from port on.
        end_port: i32,
    }
}
