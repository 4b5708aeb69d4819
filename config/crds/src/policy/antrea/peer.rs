//! Peers. Antrea defines which fields exist in which place.

use super::selector::{Block, Named, Selector};
use crate::policy::parts::{holds, parts, words};

/// The peers of a ClusterNetworkPolicy, in one direction.
macro_rules! cluster_peer {
    ($(#[$attribute:meta])* $name:ident { $($(#[$on_field:meta])* $field:ident: $kind:ty,)* }) => {
        parts! {
            $(#[$attribute])*
            #[schemars(extend("x-kubernetes-validations" = holds(&[(
                    "!has(self.namespaces) || !has(self.namespaceSelector)",
                    "an item has namespaces or namespaceSelector, not both",
                )])))]
            $name {
                /// Pods with these labels, in all namespaces unless namespaceSelector or namespaces is set.
                pod_selector: Selector,
                /// Pods in namespaces with these labels.
                namespace_selector: Selector,
                /// Pods in namespaces that are related to the namespace of the subject.
                namespaces: Namespaces,
                /// Addresses of this CIDR.
                ip_block: Block,
                /// The members of this ClusterGroup. No other field may be set.
                group: String,
                /// Pods of this service account. No other field may be set.
                service_account: Named,
                /// The addresses of nodes with these labels. No other field may be set.
                node_selector: Selector,
                $($(#[$on_field])* $field: $kind,)*
            }
        }
    };
}

/// The peers of a NetworkPolicy, in one direction.
macro_rules! peer {
    ($(#[$attribute:meta])* $name:ident { $($(#[$on_field:meta])* $field:ident: $kind:ty,)* }) => {
        parts! {
            $(#[$attribute])*
            $name {
                /// Pods with these labels, in the policy's namespace unless namespaceSelector is set.
                pod_selector: Selector,
                /// Pods in namespaces with these labels.
                namespace_selector: Selector,
                /// ExternalEntities with these labels: workloads outside the cluster.
                external_entity_selector: Selector,
                /// Addresses of this CIDR.
                ip_block: Block,
                /// The members of this Group. No other field may be set.
                group: String,
                /// The addresses of nodes with these labels. No other field may be set.
                node_selector: Selector,
                $($(#[$on_field])* $field: $kind,)*
            }
        }
    };
}

cluster_peer! {
    /// ClusterIngressPeer is a source of traffic.
    ClusterIngressPeer {
        /// Objects of this cluster (Cluster), or of the whole cluster set (ClusterSet).
        scope: Scope,
    }
}

cluster_peer! {
    /// ClusterEgressPeer is a destination of traffic.
    ClusterEgressPeer {
        /// The addresses of this DNS name; `*` stands for any characters.
        #[schemars(regex(pattern = FQDN))]
        fqdn: String,
    }
}

peer! {
    /// IngressPeer is a source of traffic.
    IngressPeer {
        /// Objects of this cluster (Cluster), or of the whole cluster set (ClusterSet).
        scope: Scope,
    }
}

peer! {
    /// EgressPeer is a destination of traffic.
    EgressPeer {
        /// The addresses of this DNS name; `*` stands for any characters.
        #[schemars(regex(pattern = FQDN))]
        fqdn: String,
    }
}

parts! {
    /// Namespaces relates a namespace to that of the subject. Exactly one field is set.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    Namespaces {
        /// Self: the subject's own namespace.
        #[serde(rename = "match")]
        same: Same,
        /// Namespaces with the same values of these labels as the subject's namespace.
        same_labels: Vec<String>,
    }
}

words! {
    /// Same is the subject's own namespace.
    Same { #[serde(rename = "Self")] Own, }
}

words! {
    /// Scope selects this cluster or the whole cluster set.
    Scope { Cluster, ClusterSet, }
}

const FQDN: &str = r"^[-0-9a-zA-Z.*]*$";
