//! Kinds that an API server has.

use crate::{Cluster, KubeError};
use kube::discovery::{Discovery, Scope, verbs};
use policy_objects::Kind;

/// A kind as an API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `None` for a kind that policy does not read, or for an old version.
    pub kind: Option<Kind>,
    /// Its group and version, as in `apiVersion`.
    pub api_version: String,
    /// Its name as in paths, such as `networkpolicies`.
    pub plural: String,
    /// Its name as in `kind`.
    pub name: String,
}

impl Resource {
    /// Where it is listed, in all namespaces.
    pub(crate) fn path(&self) -> String {
        match self.api_version.contains('/') {
            true => format!("/apis/{}/{}", self.api_version, self.plural),
            false => format!("/api/{}/{}", self.api_version, self.plural),
        }
    }

    /// As access rules name it.
    pub fn text(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.clone(),
        }
    }
}

/// True if a kind that is not read is a network policy of another vendor, or belongs to one.
pub fn is_policy(kind: &str) -> bool {
    kind.ends_with("NetworkPolicy") || OTHERS.contains(&kind)
}

/// Kinds that network policies of other vendors use.
const OTHERS: [&str; 5] =
    ["NetworkSet", "GlobalNetworkSet", "CiliumCIDRGroup", "ClusterGroup", "ExternalEntity"];

impl Cluster {
    /// The kinds that policy reads, in the order of [`Kind::ALL`], then network policies of other vendors.
    ///
    /// # Errors
    /// If the API server does not list its resources.
    pub async fn served(&self) -> Result<Vec<Resource>, KubeError> {
        let at_once = Discovery::new(self.client.clone()).run_aggregated().await;
        let found = match at_once {
            Ok(found) => found,
            // Servers before 1.30 do not list all kinds in one answer.
            Err(kube::Error::Service(error)) => {
                let error = kube::Error::Service(error);
                return Err(KubeError::of(&error, "list", KINDS));
            }
            Err(_) => {
                let one_by_one = Discovery::new(self.client.clone()).run().await;
                one_by_one.map_err(|error| KubeError::of(&error, "list", KINDS))?
            }
        };
        let mut served = Vec::new();
        for group in found.groups() {
            for version in group.versions() {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let kind = Kind::of(&resource.api_version, &resource.kind);
                    let namespaced = capabilities.scope == Scope::Namespaced;
                    let fits = kind.is_some_and(|kind| kind.is_namespaced() == namespaced);
                    let wanted = fits || (kind.is_none() && is_policy(&resource.kind));
                    if wanted && capabilities.supports_operation(verbs::LIST) {
                        served.push(Resource {
                            kind,
                            api_version: resource.api_version,
                            plural: resource.plural,
                            name: resource.kind,
                        });
                    }
                }
            }
        }
        Ok(without_twins(served))
    }
}

/// The same objects are listed at each of their versions: ours alone where it is served, otherwise one.
fn without_twins(mut served: Vec<Resource>) -> Vec<Resource> {
    let order = |resource: &Resource| {
        let place = Kind::ALL.iter().position(|kind| resource.kind == Some(*kind));
        (place.unwrap_or(Kind::ALL.len()), resource.text(), resource.api_version.clone())
    };
    served.sort_by_key(order);
    let mut seen = std::collections::BTreeSet::new();
    served.retain(|resource| seen.insert(resource.text()));
    served
}

const KINDS: &str = "the API server's kinds";

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(api_version: &str, plural: &str, name: &str) -> Resource {
        Resource {
            kind: Kind::of(api_version, name),
            api_version: api_version.to_owned(),
            plural: plural.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn objects_are_listed_at_one_version() {
        let pods = resource("v1", "pods", "Pod");
        let new = resource("crd.antrea.io/v1beta1", "tiers", "Tier");
        let old = resource("crd.antrea.io/v1alpha1", "tiers", "Tier");
        let foreign = resource("cilium.io/v2", "ciliumnetworkpolicies", "CiliumNetworkPolicy");
        let all = vec![foreign.clone(), old, new.clone(), pods.clone()];
        assert_eq!(without_twins(all), [pods, new, foreign]);
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(resource("v1", "pods", "Pod").path(), "/api/v1/pods");
        let policies = resource("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy");
        assert_eq!(policies.path(), "/apis/networking.k8s.io/v1/networkpolicies");
        assert_eq!(policies.text(), "networkpolicies.networking.k8s.io");
    }
}
