//! The kinds, and an object of any of them.

use crate::{
    AntreaPolicy, ClusterPolicy, Dialect, Flavor, Group, Meta, Namespace, NetworkPolicy, Node, Pod,
    Service, Tier,
};
use serde::Serialize;

/// A kind that policy reads. Names are shared between API groups, so a kind goes by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// `v1` Pod.
    Pod,
    /// `v1` Namespace.
    Namespace,
    /// `v1` Node.
    Node,
    /// `v1` Service.
    Service,
    /// `networking.k8s.io/v1` NetworkPolicy.
    NetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha2` ClusterNetworkPolicy.
    ClusterNetworkPolicy,
    /// `networking.k8s.aws/v1alpha1` ClusterNetworkPolicy.
    AwsClusterNetworkPolicy,
    /// `networking.k8s.aws/v1alpha1` ApplicationNetworkPolicy.
    AwsApplicationNetworkPolicy,
    /// `crd.antrea.io/v1beta1` Tier.
    AntreaTier,
    /// `crd.antrea.io/v1beta1` ClusterNetworkPolicy.
    AntreaClusterNetworkPolicy,
    /// `crd.antrea.io/v1beta1` NetworkPolicy.
    AntreaNetworkPolicy,
    /// `crd.antrea.io/v1beta1` ClusterGroup.
    AntreaClusterGroup,
    /// `crd.antrea.io/v1beta1` Group.
    AntreaGroup,
}

/// An object of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Pod(Pod),
    Namespace(Namespace),
    Node(Node),
    Service(Service),
    /// A NetworkPolicy or an ApplicationNetworkPolicy.
    NetworkPolicy(NetworkPolicy),
    /// A ClusterNetworkPolicy, upstream's or AWS's.
    ClusterPolicy(ClusterPolicy),
    Tier(Tier),
    /// Antrea's ClusterNetworkPolicy or NetworkPolicy.
    AntreaPolicy(AntreaPolicy),
    /// A ClusterGroup or a Group.
    Group(Group),
}

impl Kind {
    /// Group and kind, as people write them: `NetworkPolicy`, `Tier.crd.antrea.io`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Service => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy.policy.networking.k8s.io",
            Self::AwsClusterNetworkPolicy => "ClusterNetworkPolicy.networking.k8s.aws",
            Self::AwsApplicationNetworkPolicy => "ApplicationNetworkPolicy.networking.k8s.aws",
            Self::AntreaTier => "Tier.crd.antrea.io",
            Self::AntreaClusterNetworkPolicy => "ClusterNetworkPolicy.crd.antrea.io",
            Self::AntreaNetworkPolicy => "NetworkPolicy.crd.antrea.io",
            Self::AntreaClusterGroup => "ClusterGroup.crd.antrea.io",
            Self::AntreaGroup => "Group.crd.antrea.io",
        }
    }
}

impl Kind {
    /// The kind of this name in this group and version.
    pub fn of(api_version: &str, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.api_version() == api_version && kind.name() == name)
    }

    /// The kind of this name in this group, whatever the version.
    pub fn of_any_version(api_version: &str, name: &str) -> Option<Self> {
        let group =
            |text: &str| text.split_once('/').map_or(String::new(), |(group, _)| group.into());
        let wanted = group(api_version);
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name && group(kind.api_version()) == wanted)
    }

    /// Group and version, as in `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Pod | Self::Namespace | Self::Node | Self::Service => "v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::ClusterNetworkPolicy => "policy.networking.k8s.io/v1alpha2",
            Self::AwsClusterNetworkPolicy | Self::AwsApplicationNetworkPolicy => {
                "networking.k8s.aws/v1alpha1"
            }
            Self::AntreaTier
            | Self::AntreaClusterNetworkPolicy
            | Self::AntreaNetworkPolicy
            | Self::AntreaClusterGroup
            | Self::AntreaGroup => "crd.antrea.io/v1beta1",
        }
    }

    /// The name, as in `kind`.
    pub fn name(self) -> &'static str {
        self.text().split('.').next().unwrap_or_default()
    }

    /// Its objects are of a namespace, not of the cluster.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Pod
            | Self::Service
            | Self::NetworkPolicy
            | Self::AwsApplicationNetworkPolicy
            | Self::AntreaNetworkPolicy
            | Self::AntreaGroup => true,
            Self::Namespace
            | Self::Node
            | Self::ClusterNetworkPolicy
            | Self::AwsClusterNetworkPolicy
            | Self::AntreaTier
            | Self::AntreaClusterNetworkPolicy
            | Self::AntreaClusterGroup => false,
        }
    }

    /// True for a policy and for an object that policies name: reading skips no field of its spec.
    pub fn is_policy(self) -> bool {
        !matches!(self, Self::Pod | Self::Namespace | Self::Node | Self::Service)
    }

    pub const ALL: [Self; 13] = [
        Self::Pod,
        Self::Namespace,
        Self::Node,
        Self::Service,
        Self::NetworkPolicy,
        Self::ClusterNetworkPolicy,
        Self::AwsClusterNetworkPolicy,
        Self::AwsApplicationNetworkPolicy,
        Self::AntreaTier,
        Self::AntreaClusterNetworkPolicy,
        Self::AntreaNetworkPolicy,
        Self::AntreaClusterGroup,
        Self::AntreaGroup,
    ];
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Namespace(_) => Kind::Namespace,
            Self::Node(_) => Kind::Node,
            Self::Service(_) => Kind::Service,
            Self::NetworkPolicy(policy) => match policy.flavor {
                Flavor::Kubernetes => Kind::NetworkPolicy,
                Flavor::Aws => Kind::AwsApplicationNetworkPolicy,
            },
            Self::ClusterPolicy(policy) => match policy.dialect {
                Dialect::Upstream => Kind::ClusterNetworkPolicy,
                Dialect::Aws => Kind::AwsClusterNetworkPolicy,
            },
            Self::Tier(_) => Kind::AntreaTier,
            Self::AntreaPolicy(policy) if policy.meta.namespace.is_empty() => {
                Kind::AntreaClusterNetworkPolicy
            }
            Self::AntreaPolicy(_) => Kind::AntreaNetworkPolicy,
            Self::Group(group) if group.meta.namespace.is_empty() => Kind::AntreaClusterGroup,
            Self::Group(_) => Kind::AntreaGroup,
        }
    }

    pub fn meta(&self) -> &Meta {
        match self {
            Self::Pod(object) => &object.meta,
            Self::Namespace(object) => &object.meta,
            Self::Node(object) => &object.meta,
            Self::Service(object) => &object.meta,
            Self::NetworkPolicy(object) => &object.meta,
            Self::ClusterPolicy(object) => &object.meta,
            Self::Tier(object) => &object.meta,
            Self::AntreaPolicy(object) => &object.meta,
            Self::Group(object) => &object.meta,
        }
    }
}
