//! Peers. In which places there is which field is Antrea's own choice.

use super::selector::{Block, Named, Selector};
use crate::policy::parts::{holds, parts, words};

/// The peers of a ClusterNetworkPolicy, in one direction.
macro_rules! cluster_peer {
    ($(#[$attribute:meta])* $name:ident { $($(#[$on_field:meta])* $field:ident: $kind:ty,)* }) => {
        parts! {
            $(#[$attribute])*
            #[schemars(extend("x-kubernetes-validations" = holds(&[(
                    "!has(self.namespaces) || !has(self.namespaceSelector)",
                    "namespaces and namespaceSelector are not in one item",
                )])))]
            $name {
                /// These pods; of all namespaces unless something selects some.
                pod_selector: Selector,
                /// Pods of these namespaces.
                namespace_selector: Selector,
                /// Pods of namespaces that are as the subject's is.
                namespaces: Namespaces,
                /// Addresses.
                ip_block: Block,
                /// The members of this ClusterGroup; alone.
                group: String,
                /// Pods of this service account; alone.
                service_account: Named,
                /// The addresses of these nodes; alone.
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
                /// These pods; of the policy's namespace unless namespaceSelector selects some.
                pod_selector: Selector,
                /// Pods of these namespaces.
                namespace_selector: Selector,
                /// These workloads from without.
                external_entity_selector: Selector,
                /// Addresses.
                ip_block: Block,
                /// The members of this Group; alone.
                group: String,
                /// The addresses of these nodes; alone.
                node_selector: Selector,
                $($(#[$on_field])* $field: $kind,)*
            }
        }
    };
}

cluster_peer! {
    /// ClusterIngressPeer is a peer of what comes.
    ClusterIngressPeer {
        /// Of this cluster, or of all that are joined.
        scope: Scope,
    }
}

cluster_peer! {
    /// ClusterEgressPeer is a peer of what goes.
    ClusterEgressPeer {
        /// What this name leads to; `*` stands for any characters.
        #[schemars(regex(pattern = FQDN))]
        fqdn: String,
    }
}

peer! {
    /// IngressPeer is a peer of what comes.
    IngressPeer {
        /// Of this cluster, or of all that are joined.
        scope: Scope,
    }
}

peer! {
    /// EgressPeer is a peer of what goes.
    EgressPeer {
        /// What this name leads to; `*` stands for any characters.
        #[schemars(regex(pattern = FQDN))]
        fqdn: String,
    }
}

parts! {
    /// Namespaces is in what a namespace is as the subject's; exactly one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    Namespaces {
        /// It is the same.
        #[serde(rename = "match")]
        same: Same,
        /// It has the same values of these labels.
        same_labels: Vec<String>,
    }
}

words! {
    /// Same is the subject's own namespace.
    Same { #[serde(rename = "Self")] Own, }
}

words! {
    /// Scope is of which clusters.
    Scope { Cluster, ClusterSet, }
}

const FQDN: &str = r"^[-0-9a-zA-Z.*]*$";
