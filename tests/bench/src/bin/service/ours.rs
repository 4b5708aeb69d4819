//! Agents that serve a cluster's Services and enforce policies about the pods of a node.

use crate::{
    api::NODE_NAME,
    cluster::Cluster,
    site::{OUTSIDE, PODS, Site},
};
use anyhow::{Context as _, Result};
use control_wire::proto::Change;
use std::path::Path;
use tests_bench::{
    agent::Agent,
    namespace::Namespace,
    world::{self, World},
};
use tokio::runtime::Builder;

/// Policies about both pods. The first one allows the peers of all groups.
const WORLD: World = World {
    peers: 1000,
    groups: 50,
    pods: PODS,
    policies: 50,
    parts: 1,
    is_open: true,
    has_names: false,
};

/// The programs of an agent, and the places that it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs<'a> {
    pub(crate) object: &'a Path,
    /// A folder of the bpffs.
    pub(crate) pins: &'a Path,
    /// `None`: processes of the node are not served.
    pub(crate) cgroup: Option<&'a Path>,
    /// The numbers of the node's pods.
    pub(crate) pods: [u32; 2],
}

impl<'a> Programs<'a> {
    /// Programs for a node with client and server, without its processes.
    pub(crate) fn new(object: &'a Path, pins: &'a Path) -> Self {
        Self { object, pins, cgroup: None, pods: [0, PODS] }
    }

    /// Starts an agent that has received nothing. The calling thread is in the node.
    pub(crate) async fn serve(&self) -> Result<Agent> {
        let [first, end] = self.pods;
        Agent::serve(self.object, self.pins, NODE_NAME, self.cgroup, first..end).await
    }

    /// Starts an agent that has received policies, and no Services.
    pub(crate) async fn start(&self) -> Result<Agent> {
        let mut agent = self.serve().await?;
        agent.receive(policies()).await?;
        Ok(agent)
    }

    /// Starts an agent that has received policies and Services.
    pub(crate) async fn start_with(&self, services: Vec<Change>) -> Result<Agent> {
        let mut agent = self.serve().await?;
        agent.receive([policies(), services].concat()).await?;
        Ok(agent)
    }
}

/// The memory of the maps of an agent without Services, in bytes.
pub(crate) fn memory_without_services(site: &Site, object: &Path, pins: &Path) -> Result<u64> {
    in_node(site, async || Ok(Agent::start(object, pins, &WORLD).await?.map_memory()))
}

/// The policies allow the clients.
pub(crate) fn policies() -> Vec<Change> {
    WORLD.objects_with(&[("client", world::pod_address(1)), ("outside", OUTSIDE)])
}

/// Calls a function in the node, with a runtime of its own.
pub(crate) fn in_node<T: Send>(
    site: &Site,
    call: impl AsyncFnOnce() -> Result<T> + Send,
) -> Result<T> {
    within(&site.node, call)
}

fn within<T: Send>(node: &Namespace, call: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
    node.run(|| {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().build().context("start a runtime")?.block_on(call())
    })
}

/// Puts Services into force and ends the agent. Programs and maps stay.
pub(crate) fn put_into_force(
    node: &Namespace,
    programs: Programs<'_>,
    cluster: &Cluster,
) -> Result<()> {
    within(node, async || programs.start_with(cluster.changes()?).await.map(drop))
}
