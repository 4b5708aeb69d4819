//! The kinds that the controller reads, and their API paths.

use policy_objects::Kind;

/// A kind that a replica lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    /// A kind that policy reads.
    Policy(Kind),
    /// `discovery.k8s.io/v1` EndpointSlice, for nodes that serve Services.
    EndpointSlice,
}

impl Resource {
    /// Returns all kinds of a replica. Slices are read only for nodes that serve Services.
    pub(crate) fn all(serves: bool) -> Vec<Self> {
        let slices = serves.then_some(Self::EndpointSlice);
        Kind::ALL.into_iter().map(Self::Policy).chain(slices).collect()
    }

    /// Returns group and kind, as people write them.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Policy(kind) => kind.text(),
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    /// Returns group and version, as in `apiVersion`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Policy(kind) => kind.api_version(),
            Self::EndpointSlice => "discovery.k8s.io/v1",
        }
    }

    /// Returns the resource as in paths and access rules.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Policy(kind) => plural(kind),
            Self::EndpointSlice => "endpointslices",
        }
    }

    /// Returns the API group; empty for the core group.
    pub(crate) fn group(self) -> &'static str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the path of the objects in all namespaces.
    pub(crate) fn path(self) -> String {
        let root = if self.group().is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.api_version(), self.plural())
    }

    /// True if every API server has the kind. The others need a definition.
    pub(crate) fn is_built_in(self) -> bool {
        match self {
            Self::Policy(kind) => matches!(
                kind,
                Kind::Pod | Kind::Namespace | Kind::Node | Kind::Service | Kind::NetworkPolicy
            ),
            Self::EndpointSlice => true,
        }
    }

    /// Returns the name of the kind's CustomResourceDefinition.
    pub(crate) fn definition(self) -> String {
        format!("{}.{}", self.plural(), self.group())
    }
}

/// Returns the resource of a kind that policy reads.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_group_version_and_resource() {
        let path = |kind| Resource::Policy(kind).path();
        assert_eq!(path(Kind::Pod), "/api/v1/pods");
        assert_eq!(path(Kind::NetworkPolicy), "/apis/networking.k8s.io/v1/networkpolicies");
        assert_eq!(path(Kind::AntreaTier), "/apis/crd.antrea.io/v1beta1/tiers");
        assert_eq!(Resource::EndpointSlice.path(), "/apis/discovery.k8s.io/v1/endpointslices");
        assert_eq!(Resource::Policy(Kind::AntreaTier).definition(), "tiers.crd.antrea.io");
    }

    #[test]
    fn each_kind_has_its_own_path() {
        let all = Resource::all(true);
        let places: std::collections::BTreeSet<String> = all.iter().map(|of| of.path()).collect();
        assert_eq!((places.len(), all.len()), (all.len(), Kind::ALL.len() + 1));
        assert!(!Resource::all(false).contains(&Resource::EndpointSlice));
    }
}
