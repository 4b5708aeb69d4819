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
}

impl Programs<'_> {
    /// Starts an agent that has received nothing. The calling thread is in the node.
    pub(crate) async fn serve(&self) -> Result<Agent> {
        Agent::serve(self.object, self.pins, NODE_NAME, self.cgroup, WORLD.pods).await
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
    site.node.run(|| {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().build().context("start a runtime")?.block_on(call())
    })
}

/// Puts Services into force and ends the agent. Programs and maps stay.
pub(crate) fn put_into_force(site: &Site, programs: Programs<'_>, cluster: &Cluster) -> Result<()> {
    in_node(site, async || programs.start_with(cluster.changes()?).await.map(drop))
}
