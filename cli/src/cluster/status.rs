//! `ferrule status`: an overview of all nodes.

mod repeat;

pub(super) use repeat::run;

use super::{
    api::{Api, Selector},
    args::Target,
    forward::{self, PodPort},
    parallel,
};
use crate::progress::Progress;
use anyhow::{Result, bail};
use k8s_openapi::{api::coordination::v1::Lease as HeldLease, jiff::Timestamp};
use kube::Client;
use policy_kube::KubeError;
use std::{collections::BTreeMap, time::Duration};
use view_cluster::{Agent, Cluster, DaemonAnswer, DaemonSet, Lease, Node, Pod};
use view_node::Status;
use view_policy::{GROUP, VERSION};

/// Returns true if the pod runs the daemon.
pub(super) fn is_daemon(pod: &Pod) -> bool {
    has(pod, DAEMON)
}

pub(super) fn has(pod: &Pod, container: &str) -> bool {
    pod.spec.containers.iter().any(|it| it.name == container)
}

/// Reads all input of the overview.
pub(super) async fn look(
    api: &Api,
    target: &Target,
    only: &[String],
    progress: &mut Progress,
) -> Result<Cluster> {
    let namespace = api.namespace.clone();
    let mut nodes = nodes(api).await?;
    all_there(&nodes, only)?;
    if !only.is_empty() {
        nodes.retain(|node| only.contains(&node.metadata.name));
    }
    let mut cluster = Cluster { namespace: namespace.clone(), nodes, ..Cluster::default() };
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pods: Vec<Pod> = api.list(&path, Selector::Label(OURS), "pods").await?;
    (cluster.pods, cluster.controllers) = pods.into_iter().partition(is_daemon);
    cluster.controllers.retain(|pod| has(pod, CONTROLLER));
    let wanted = |pod: &Pod| {
        let mut nodes = cluster.nodes.iter();
        nodes.any(|node| pod.spec.node_name.as_ref() == Some(&node.metadata.name))
    };
    cluster.pods.retain(wanted);
    match daemon_sets(api).await {
        Ok(sets) => cluster.daemon_sets = Some(sets),
        Err(error) => cluster.unasked.push(error.to_string()),
    }
    if !cluster.controllers.is_empty() {
        match lease(api).await {
            Ok(lease) => cluster.lease = Some(lease),
            Err(error) => cluster.unasked.push(error.to_string()),
        }
    }
    if cluster.pods.iter().any(|pod| has(pod, AGENT)) {
        match agents(api).await {
            Ok(agents) => cluster.agents = Some(agents),
            Err(why) => {
                let why = of_view(&why);
                cluster.unasked.push(format!("cannot read agents from the controller: {why}"));
            }
        }
    }
    cluster.answers = ask_all(api, target, &cluster.pods, progress).await?;
    Ok(cluster)
}

/// Checks that all named nodes exist.
///
/// # Errors
/// The first node that does not exist.
pub(super) fn all_there(nodes: &[Node], names: &[String]) -> Result<()> {
    let there = |name: &&String| nodes.iter().any(|node| node.metadata.name == **name);
    match names.iter().find(|name| !there(name)) {
        Some(name) => bail!("cannot find node {name}: it does not exist; see kubectl get nodes"),
        None => Ok(()),
    }
}

pub(super) async fn nodes(api: &Api) -> Result<Vec<Node>, KubeError> {
    api.list("/api/v1/nodes", Selector::All, "nodes").await
}

/// Returns the controller's data about each node's agent.
async fn agents(api: &Api) -> Result<BTreeMap<String, Agent>, KubeError> {
    let path = format!("/apis/{GROUP}/{VERSION}/agents");
    let known: Vec<view_policy::Agent> =
        api.list(&path, Selector::All, &format!("agents.{GROUP}")).await?;
    Ok(known.into_iter().map(|agent| (agent.metadata.name.clone(), of_agent(agent))).collect())
}

/// Describes why the aggregated API has no answer.
pub(super) fn of_view(error: &KubeError) -> String {
    match error {
        KubeError::NotFound { .. } => NO_VIEW.to_owned(),
        KubeError::Failed { .. } => format!("no Ferrule controller answers: {error}"),
        KubeError::Config { .. }
        | KubeError::Client { .. }
        | KubeError::Forbidden { .. }
        | KubeError::Conflict { .. }
        | KubeError::Unknown { .. } => error.to_string(),
    }
}

fn of_agent(agent: view_policy::Agent) -> Agent {
    let stream = agent.stream.unwrap_or_default();
    let known = Agent {
        follows: stream.follows,
        owed: if stream.follows { stream.owed } else { 0 },
        ..Agent::default()
    };
    let Some(realized) = agent.realized else { return known };
    Agent {
        reported_seconds_ago: Some(realized.seconds_ago),
        stale: realized.is_stale(),
        policies: realized.policies,
        failing: realized.failing.len(),
        enforces: !realized.unenforced,
        ..known
    }
}

/// Returns the chart's DaemonSets that run daemons.
pub(super) async fn daemon_sets(api: &Api) -> Result<Vec<DaemonSet>, KubeError> {
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets", api.namespace);
    let mut sets: Vec<DaemonSet> = api.list(&path, Selector::Label(OURS), "daemonsets").await?;
    sets.retain(|set| set.spec.template.spec.containers.iter().any(|it| it.name == DAEMON));
    Ok(sets)
}

async fn lease(api: &Api) -> Result<Lease, KubeError> {
    let namespace = &api.namespace;
    let path =
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{CONTROLLER_LEASE}");
    let spec = match api.get::<HeldLease>(&path, "lease").await {
        Ok(lease) => lease.spec.unwrap_or_default(),
        Err(KubeError::NotFound { .. }) => return Ok(Lease::default()),
        Err(error) => return Err(error),
    };
    let renewed = spec.renew_time.map_or(0, |at| at.0.as_second());
    let ago = Timestamp::now().as_second().saturating_sub(renewed);
    let lasts = spec.lease_duration_seconds.unwrap_or_default();
    Ok(Lease {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed_seconds_ago: u64::try_from(ago).unwrap_or_default(),
        lasts_seconds: u64::try_from(lasts).unwrap_or_default(),
    })
}

/// Calls the daemons.
async fn ask_all(
    api: &Api,
    target: &Target,
    pods: &[Pod],
    progress: &mut Progress,
) -> Result<BTreeMap<String, DaemonAnswer>> {
    let call = |pod: &Pod| {
        let (client, namespace) = (api.client(), api.namespace.clone());
        let (pod, port) = (pod.metadata.name.clone(), target.introspection_port);
        let within = Duration::from_secs(target.timeout);
        async move {
            let at = PodPort { namespace: &namespace, pod: &pod, port };
            let answer = ask(&client, &at, within).await;
            (pod, answer)
        }
    };
    let calls = pods.iter().map(call).collect();
    Ok(parallel::all(calls, "calling daemons", progress).await?.into_iter().collect())
}

/// Reads the status of a daemon.
pub(super) async fn ask(client: &Client, at: &PodPort<'_>, within: Duration) -> DaemonAnswer {
    let body = match forward::get(client, at, view_node::STATUS, within).await {
        Ok(body) => body,
        Err(why) => return DaemonAnswer::Failed(why),
    };
    match serde_json::from_slice::<Status>(&body) {
        // A daemon of an older version answers without a version.
        Ok(status) if status.version.is_empty() => DaemonAnswer::Failed(format!(
            "the daemon has an older version without {}; finish the upgrade",
            view_node::STATUS
        )),
        Ok(status) => DaemonAnswer::Status(Box::new(status)),
        Err(error) => DaemonAnswer::Failed(format!("cannot parse its answer: {error}")),
    }
}

/// A label of all objects of the chart; releases can have any name.
pub(super) const OURS: &str = "app.kubernetes.io/part-of=ferrule";
/// The containers that identify daemons and controller replicas.
pub(super) const DAEMON: &str = "ipamd";
pub(super) const CONTROLLER: &str = "controller";
pub(super) const AGENT: &str = "agent";
const CONTROLLER_LEASE: &str = "ferrule-controller";
const NO_VIEW: &str = "the cluster has no aggregated API of ferrule-controller; set controller.view=true of the chart, or \
                       read NetworkPolicyRealization objects with kubectl";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_aggregated_api_the_next_step_is_its_setting() {
        let missing =
            KubeError::NotFound { what: "policies".to_owned(), said: "not found".to_owned() };
        let why = of_view(&missing);
        assert!(why.starts_with("the cluster has no aggregated API"), "{why}");
        assert!(why.contains("set controller.view=true"), "{why}");
        assert!(!why.contains("not found"), "{why}");
    }
}
