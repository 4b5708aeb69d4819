//! `ferrule pod`: where one pod's network is, and why it waits.

use super::{
    TROUBLE,
    api::{Api, Selector},
    args::PodArgs,
    forward::{self, At},
    status::{DAEMONS, is_daemon},
};
use crate::{
    args::Output,
    policy::{document, say},
};
use anyhow::{Result, anyhow, bail};
use cli_cluster::{AboutPod, Event, Node, Pod, Whereabouts};
use ipamd_view::{Held, Status};
use policy_kube::KubeError;
use policy_view::{GROUP, Group, Policy, VERSION};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};

/// Asks and prints; the exit code.
pub(super) async fn run(args: &PodArgs) -> Result<u8> {
    let words = args.pod.split_once('/');
    let Some((namespace, name)) =
        words.filter(|(space, name)| !space.is_empty() && !name.is_empty())
    else {
        bail!("{:?} is no pod: name it as namespace/name", args.pod);
    };
    let api = Api::connect(&args.target).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let pod: Pod = match api.get(&path, "pod").await {
        Err(KubeError::NotFound { .. }) => {
            bail!("there is no pod {name} in namespace {namespace}: kubectl get pods -A");
        }
        pod => pod?,
    };
    let mut about = AboutPod { pod, ..AboutPod::default() };
    let node = about.pod.spec.node_name.clone();
    if let Some(node) = node.filter(|_| !about.pod.spec.host_network) {
        about.node = api.get::<Node>(&format!("/api/v1/nodes/{node}"), "node").await.ok();
        ask_daemon(&api, args, &node, &mut about).await?;
        about.policies = Some(policies(&api, &about.pod, &node).await);
    }
    about.events = events(&api, namespace, name).await;
    let whereabouts = Whereabouts::of(&about);
    match args.output {
        Output::Text => say(&whereabouts.to_string())?,
        Output::Json => document(&json!(whereabouts))?,
    }
    Ok(if whereabouts.is_good() { 0 } else { TROUBLE })
}

async fn ask_daemon(api: &Api, args: &PodArgs, node: &str, about: &mut AboutPod) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pods: Vec<Pod> = api.list(&path, Selector::Label(DAEMONS), "pods").await?;
    let here = |pod: &&Pod| is_daemon(pod) && pod.spec.node_name.as_deref() == Some(node);
    let Some(daemon) = pods.iter().find(here) else {
        about.daemon = Some(Err(format!("no pod of Ferrule's runs on {node}")));
        return Ok(());
    };
    let at = At {
        namespace: &api.namespace,
        pod: &daemon.metadata.name,
        port: args.target.introspection_port,
    };
    let within = Duration::from_secs(args.target.timeout);
    about.daemon = Some(read::<Status>(api, &at, ipamd_view::STATUS, within).await);
    if matches!(about.daemon, Some(Ok(_))) {
        let held = read::<Vec<Held>>(api, &at, ipamd_view::PODS, within).await;
        let held = held.map_err(|why| anyhow!("ask {} who holds what: {why}", at.pod))?;
        let meta = &about.pod.metadata;
        let of = |held: &Held| held.namespace == meta.namespace && held.name == meta.name;
        about.held = held.into_iter().filter(of).collect();
    }
    Ok(())
}

async fn read<T: DeserializeOwned>(
    api: &Api,
    at: &At<'_>,
    path: &str,
    within: Duration,
) -> Result<T, String> {
    let body = forward::get(&api.client(), at, path, within).await?;
    serde_json::from_slice(&body).map_err(|error| format!("its answer is not understood: {error}"))
}

/// The pod's events, oldest first; they may be nobody's to read.
async fn events(api: &Api, namespace: &str, name: &str) -> Vec<Event> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let of = format!("involvedObject.kind=Pod,involvedObject.name={name}");
    let mut events: Vec<Event> =
        api.list(&path, Selector::Field(&of), "events").await.unwrap_or_default();
    events.sort_by(|a, b| a.at().cmp(b.at()));
    events
}

/// The policies whose subjects the pod is one of, as the controller knows them.
async fn policies(api: &Api, pod: &Pod, node: &str) -> Result<Vec<String>, String> {
    let here = format!("/apis/{GROUP}/{VERSION}");
    let all: Vec<Policy> =
        match api.list(&format!("{here}/policies"), Selector::All, "policies").await {
            Err(KubeError::NotFound { .. } | KubeError::Failed { .. }) => {
                return Err("no Ferrule controller answers in the cluster".to_owned());
            }
            Err(error) => return Err(error.to_string()),
            Ok(all) => all,
        };
    let of_node: Vec<&Policy> =
        all.iter().filter(|policy| policy.span.iter().any(|on| on == node)).collect();
    let groups: BTreeSet<&String> = of_node.iter().flat_map(|policy| &policy.applied_to).collect();
    if groups.len() > GROUPS_MAX {
        return Err(format!(
            "the node has {} groups: ask `ferrule policy of` instead",
            groups.len()
        ));
    }
    let mut his = BTreeSet::new();
    for id in groups {
        let group = match api.get::<Group>(&format!("{here}/groups/{id}"), "group").await {
            Err(KubeError::NotFound { .. }) => continue,
            group => group.map_err(|error| error.to_string())?,
        };
        let meta = &pod.metadata;
        let mut members = group.members.iter().flatten();
        if members.any(|it| it.namespace == meta.namespace && it.name == meta.name) {
            his.insert(id);
        }
    }
    let subject_to = |policy: &&&Policy| policy.applied_to.iter().any(|id| his.contains(id));
    Ok(of_node.iter().filter(subject_to).map(|policy| policy.policy.clone()).collect())
}

/// More are more calls than a look at one pod is worth.
const GROUPS_MAX: usize = 200;
