//! Subjects of a policy or a rule. The fields of each place are those that Antrea defined.

use super::selector::{Named, Selector};
use crate::policy::parts::parts;

parts! {
    /// ClusterAppliedTo is pods that a policy is about.
    ClusterAppliedTo {
        /// These pods; of all namespaces unless namespaceSelector selects some.
        pod_selector: Selector,
        /// Pods of these namespaces.
        namespace_selector: Selector,
        /// The members of this ClusterGroup; alone.
        group: String,
        /// Pods of this service account; alone.
        service_account: Named,
        /// A Service, as it is reached from without; alone.
        service: Named,
        /// Nodes themselves; alone.
        node_selector: Selector,
    }
}

parts! {
    /// ClusterIngressAppliedTo is pods that a rule is about.
    ClusterIngressAppliedTo {
        /// These pods; of all namespaces unless namespaceSelector selects some.
        pod_selector: Selector,
        /// Pods of these namespaces.
        namespace_selector: Selector,
        /// The members of this ClusterGroup; alone.
        group: String,
        /// Pods of this service account; alone.
        service_account: Named,
        /// A Service, as it is reached from without; alone.
        service: Named,
    }
}

parts! {
    /// ClusterEgressAppliedTo is pods that a rule is about.
    ClusterEgressAppliedTo {
        /// These pods; of all namespaces unless namespaceSelector selects some.
        pod_selector: Selector,
        /// Pods of these namespaces.
        namespace_selector: Selector,
        /// The members of this ClusterGroup; alone.
        group: String,
        /// Pods of this service account; alone.
        service_account: Named,
    }
}

parts! {
    /// AppliedTo is pods of the policy's namespace that it is about.
    AppliedTo {
        /// These pods.
        pod_selector: Selector,
        /// These workloads from without.
        external_entity_selector: Selector,
        /// The members of this Group; alone.
        group: String,
    }
}

parts! {
    /// RuleAppliedTo is pods of the policy's namespace that a rule is about.
    RuleAppliedTo {
        /// These pods.
        pod_selector: Selector,
        /// The members of this Group; alone.
        group: String,
    }
}
