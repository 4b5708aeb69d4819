//! `ferrule pod` without a name: the pods of a namespace or of the cluster.

use super::serves;
use crate::{
    cluster::{
        api::{Api, Selector},
        args::PodArgs,
        exit_code,
        forward::PodPort,
        parallel,
        status::{self, OURS, is_daemon},
    },
    output,
    progress::Progress,
    target::check_namespace,
};
use anyhow::Result;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use view_cluster::{Pod, PodData, PodList, PodReport, excluded};
use view_node::{PodAssignment, Status};

/// Prints the list and returns the exit code.
pub(super) async fn run(api: &Api, args: &PodArgs) -> Result<u8> {
    let path = match (&args.namespace, args.all_namespaces) {
        (_, true) => "/api/v1/pods".to_owned(),
        (namespace, false) => {
            let namespace = namespace.as_deref().unwrap_or(api.context_namespace());
            check_namespace(namespace)?;
            format!("/api/v1/namespaces/{namespace}/pods")
        }
    };
    let pods: Vec<Pod> = api.list(&path, Selector::All, "pods").await?;
    let list = look(api, args, pods).await?;
    match args.output.is_text() {
        true => output::write(&list.text(output::columns()))?,
        false => args.output.write(&json!(list))?,
    }
    Ok(exit_code(list.is_good(), list.unread.is_empty()))
}

/// The answers of a node's daemon.
type Answers = Result<(Status, Vec<PodAssignment>), String>;

async fn look(api: &Api, args: &PodArgs, pods: Vec<Pod>) -> Result<PodList> {
    let node_of = |pod: &Pod| pod.spec.node_name.clone().filter(|_| !pod.spec.host_network);
    let answers = ask(api, args, pods.iter().filter_map(node_of).collect()).await?;
    let nodes = status::nodes(api).await.unwrap_or_default();
    let sets = status::daemon_sets(api).await.unwrap_or_default();
    let mut list = PodList::default();
    for pod in pods {
        let node = node_of(&pod);
        let mut about = PodData { pod, ..PodData::default() };
        match node.as_ref().and_then(|node| answers.get(node)) {
            Some(Ok((status, held))) => {
                let meta = &about.pod.metadata;
                let of = |held: &&PodAssignment| {
                    held.namespace == meta.namespace && held.name == meta.name
                };
                about.held = held.iter().filter(of).cloned().collect();
                about.daemon = Some(Ok(status.clone()));
            }
            // The reason is printed once for the node.
            Some(Err(_)) => {}
            None => {
                let node = nodes.iter().find(|it| Some(&it.metadata.name) == node.as_ref());
                about.excluded = node.and_then(|node| excluded(node, &sets));
                if about.excluded.is_none() {
                    list.without_daemon(&about.pod);
                }
            }
        }
        list.pods.push(PodReport::of(&about));
    }
    let silent = answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
    list.unread.extend(silent.map(|(node, why)| format!("the daemon of {node}: {why}")));
    Ok(list)
}

/// Asks the daemons of these nodes. A node without a daemon is left out.
async fn ask(
    api: &Api,
    args: &PodArgs,
    nodes: BTreeSet<String>,
) -> Result<BTreeMap<String, Answers>> {
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let mut daemons: Vec<Pod> = api.list(&path, Selector::Label(OURS), "pods").await?;
    daemons.retain(|pod| is_daemon(pod) && pod.metadata.deletion_timestamp.is_none());
    let within = Duration::from_secs(args.target.timeout);
    let call = |daemon: Pod| {
        let node = daemon.spec.node_name.filter(|node| nodes.contains(node))?;
        let (api, port) = (api.clone(), args.target.introspection_port);
        Some(async move {
            let at = PodPort { namespace: &api.namespace, pod: &daemon.metadata.name, port };
            (node, serves(&api, &at, within).await)
        })
    };
    let calls = daemons.into_iter().filter_map(call).collect();
    Ok(parallel::all(calls, "calling daemons", &mut Progress::new()).await?.into_iter().collect())
}
