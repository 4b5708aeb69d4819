//! The policies and objects of pods and nodes, computed from a new list of all objects of the cluster.

use anyhow::{Context as _, Result};
use control_hub::{ClientState, Handshake, Hub};
use control_wire::NodeSnapshot;
use datapath_node::store::Replayed;
use policy_core::{compile, index::Event};
use policy_kube::{Access, Cluster};
use policy_objects::Object;
use std::{collections::BTreeSet, path::Path};
use tokio::runtime::Runtime;

/// Reads all objects of the cluster as the world in which `ferrule policy verdict` judges.
pub(crate) fn world(runtime: &Runtime, kubeconfig: &Path) -> Result<policy_core::World> {
    runtime.block_on(async {
        let cluster = Cluster::connect(&Access::of_file(kubeconfig)).await?;
        let mut objects = Vec::new();
        for resource in cluster.served().await? {
            for item in cluster.list(&resource, |_| ()).await?.items {
                objects.push(item.read.context("cannot read an object")?.object);
            }
        }
        Ok(policy_core::World::new(objects))
    })
}

/// A hub with all objects of the cluster.
pub(crate) struct Model(Hub);

impl Model {
    /// Lists all objects.
    pub(crate) fn read(runtime: &Runtime, kubeconfig: &Path) -> Result<Self> {
        runtime.block_on(async {
            let cluster = Cluster::connect(&Access::of_file(kubeconfig)).await?;
            let mut hub = Hub::new([9; 16], 9);
            for resource in cluster.served().await? {
                for item in cluster.list(&resource, |_| ()).await?.items {
                    take(&mut hub, &item.read.context("cannot read an object")?.object)?;
                }
            }
            hub.loaded();
            Ok(Self(hub))
        })
    }

    /// Returns the names of the policies whose subjects include the pod.
    pub(crate) fn policies_of(&self, name: &str) -> BTreeSet<String> {
        let found = self.0.index().policies_of("default", name);
        found.into_iter().map(|policy| policy.name).collect()
    }

    /// Returns the number of changes that a node with this snapshot would receive.
    pub(crate) fn lacks(&mut self, node: &str, held: &NodeSnapshot) -> usize {
        let says =
            ClientState { holds: held.digests().into_iter().collect(), ..ClientState::default() };
        let Handshake::Compared(stream) = self.0.open_stream(node, &says) else {
            return usize::MAX;
        };
        let lacks = self.0.next_update(&stream).map_or(0, |update| update.changes.len());
        self.0.close_stream(&stream, 0);
        lacks
    }
}

fn take(hub: &mut Hub, object: &Object) -> Result<()> {
    match object {
        Object::Pod(pod) => hub.apply(Event::Pod(pod)),
        Object::Namespace(namespace) => hub.apply(Event::Namespace(namespace)),
        Object::Node(node) => hub.apply(Event::Node(node)),
        Object::Service(service) => hub.apply(Event::Service(service)),
        Object::Tier(tier) => hub.apply(Event::Tier(tier)),
        Object::Group(group) => hub.apply(Event::Group(group)),
        Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
            let form = compile(object).context("a policy without a form")?;
            hub.policy(&form, object.meta().generation);
        }
    }
    Ok(())
}

/// Returns the names of a node's policies for the pod with this UID; `None` if the node has no entry of the pod.
pub(crate) fn entry(kept: &Replayed, uid: &str) -> Option<BTreeSet<String>> {
    let held = &kept.held;
    held.pods.get(uid)?;
    let policies = held.policies.values().filter(|policy| {
        let closed = policy.isolation.iter().flat_map(|isolation| &isolation.applied);
        let mut groups = closed.chain(policy.rules.iter().flat_map(|rule| &rule.applied));
        groups.any(|group| held.applied.get(group).is_some_and(|of| of.contains(uid)))
    });
    Some(policies.map(|policy| policy.key.name.clone()).collect())
}
