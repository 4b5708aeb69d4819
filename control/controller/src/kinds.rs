//! API paths of the kinds that policy reads.

use policy_objects::Kind;

/// Returns the kind's resource as in paths and access rules.
pub(crate) fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "pods",
        Kind::Namespace => "namespaces",
        Kind::Node => "nodes",
        Kind::Service => "services",
        Kind::NetworkPolicy | Kind::AntreaNetworkPolicy => "networkpolicies",
        Kind::ClusterNetworkPolicy
        | Kind::AwsClusterNetworkPolicy
        | Kind::AntreaClusterNetworkPolicy => "clusternetworkpolicies",
        Kind::AwsApplicationNetworkPolicy => "applicationnetworkpolicies",
        Kind::AntreaTier => "tiers",
        Kind::AntreaClusterGroup => "clustergroups",
        Kind::AntreaGroup => "groups",
    }
}

/// Returns the API group; empty for the core group.
pub(crate) fn group(kind: Kind) -> &'static str {
    kind.api_version().split_once('/').map_or("", |(group, _)| group)
}

/// Returns the path of the kind's objects in all namespaces.
pub(crate) fn path(kind: Kind) -> String {
    let root = if group(kind).is_empty() { "api" } else { "apis" };
    format!("/{root}/{}/{}", kind.api_version(), plural(kind))
}

/// True if every API server has the kind. The others need a definition.
pub(crate) fn is_built_in(kind: Kind) -> bool {
    matches!(kind, Kind::Pod | Kind::Namespace | Kind::Node | Kind::Service | Kind::NetworkPolicy)
}

/// Returns the name of the kind's CustomResourceDefinition.
pub(crate) fn definition(kind: Kind) -> String {
    format!("{}.{}", plural(kind), group(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_group_version_and_resource() {
        assert_eq!(path(Kind::Pod), "/api/v1/pods");
        assert_eq!(path(Kind::NetworkPolicy), "/apis/networking.k8s.io/v1/networkpolicies");
        assert_eq!(path(Kind::AntreaTier), "/apis/crd.antrea.io/v1beta1/tiers");
        assert_eq!(definition(Kind::AntreaTier), "tiers.crd.antrea.io");
    }

    #[test]
    fn each_kind_has_its_own_path() {
        let places: std::collections::BTreeSet<String> = Kind::ALL.into_iter().map(path).collect();
        assert_eq!(places.len(), Kind::ALL.len());
    }
}
