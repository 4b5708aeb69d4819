//! Subjects of a policy or a rule. The fields of each place are those that Antrea defined.

use super::selector::{Named, Selector};
use crate::policy::parts::parts;

parts! {
    /// ClusterAppliedTo selects the subject of a policy.
    ClusterAppliedTo {
        /// Pods with these labels, in all namespaces unless namespaceSelector is set.
        pod_selector: Selector,
        /// Pods in namespaces with these labels.
        namespace_selector: Selector,
        /// The members of this ClusterGroup. No other field may be set.
        group: String,
        /// Pods of this service account. No other field may be set.
        service_account: Named,
        /// A Service, for traffic from outside the cluster. No other field may be set.
        service: Named,
        /// Nodes with these labels. No other field may be set.
        node_selector: Selector,
    }
}

parts! {
    /// ClusterIngressAppliedTo selects the subject of an ingress rule.
    ClusterIngressAppliedTo {
        /// Pods with these labels, in all namespaces unless namespaceSelector is set.
        pod_selector: Selector,
        /// Pods in namespaces with these labels.
        namespace_selector: Selector,
        /// The members of this ClusterGroup. No other field may be set.
        group: String,
        /// Pods of this service account. No other field may be set.
        service_account: Named,
        /// A Service, for traffic from outside the cluster. No other field may be set.
        service: Named,
    }
}

parts! {
    /// ClusterEgressAppliedTo selects the subject of an egress rule.
    ClusterEgressAppliedTo {
        /// Pods with these labels, in all namespaces unless namespaceSelector is set.
        pod_selector: Selector,
        /// Pods in namespaces with these labels.
        namespace_selector: Selector,
        /// The members of this ClusterGroup. No other field may be set.
        group: String,
        /// Pods of this service account. No other field may be set.
        service_account: Named,
    }
}

parts! {
    /// AppliedTo selects the subject of a policy in its namespace.
    AppliedTo {
        /// Pods with these labels.
        pod_selector: Selector,
        /// ExternalEntities with these labels: workloads outside the cluster.
        external_entity_selector: Selector,
        /// The members of this Group. No other field may be set.
        group: String,
    }
}

parts! {
    /// RuleAppliedTo selects the subject of a rule in the policy's namespace.
    RuleAppliedTo {
        /// Pods with these labels.
        pod_selector: Selector,
        /// The members of this Group. No other field may be set.
        group: String,
    }
}
