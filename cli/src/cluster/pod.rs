//! `ferrule pod`: the location of one pod's network, and the reason why it waits; without a name a list of pods.

mod list;

use super::{
    TROUBLE,
    api::{Api, Selector},
    args::PodArgs,
    forward::{self, PodPort},
    status::{self, OURS, is_daemon},
};
use crate::{
    output::{Output, write_text},
    target::pod_name,
};
use anyhow::{Result, bail};
use policy_kube::KubeError;
use policy_objects::Named;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};
use view_cluster::{Event, Node, Pod, PodData, PodReport, excluded};
use view_node::{Paths, PodAssignment, Status};
use view_policy::{GROUP, Group, Policy, VERSION};

/// Prints the report and returns the exit code.
pub(super) async fn run(args: &PodArgs) -> Result<u8> {
    let api = Api::connect(&args.target).await?;
    let Some(word) = &args.pod else { return list::run(&api, args).await };
    let of_context = Some(api.context_namespace()).filter(|_| !word.contains('/'));
    let Named { namespace, name } = pod_name(word, args.namespace.as_deref().or(of_context))?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let pod: Pod = match api.get(&path, "pod").await {
        Err(KubeError::NotFound { .. }) => {
            bail!(
                "cannot find pod {name} in namespace {namespace}: it does not exist; see kubectl get pods -A"
            );
        }
        pod => pod?,
    };
    let mut about = PodData { pod, ..PodData::default() };
    let node = about.pod.spec.node_name.clone();
    if let Some(node) = node.filter(|_| !about.pod.spec.host_network) {
        about.node = api.get::<Node>(&format!("/api/v1/nodes/{node}"), "node").await.ok();
        ask_daemon(&api, args, &node, &mut about).await;
        about.policies = Some(policies(&api, &about.pod, &node).await);
    }
    about.events = match events(&api, &namespace, &about.pod).await {
        Ok(events) => events,
        Err(error) => {
            about.events_unknown = Some(error.to_string());
            Vec::new()
        }
    };
    let pod_report = PodReport::of(&about);
    match args.output {
        Output::Text => write_text(&pod_report.to_string())?,
        Output::Json | Output::Yaml => args.output.write(&json!(pod_report))?,
    }
    Ok(if pod_report.is_good() { 0 } else { TROUBLE })
}

async fn ask_daemon(api: &Api, args: &PodArgs, node: &str, about: &mut PodData) {
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pods: Vec<Pod> = match api.list(&path, Selector::Label(OURS), "pods").await {
        Ok(pods) => pods,
        Err(error) => {
            about.daemon = Some(Err(error.to_string()));
            return;
        }
    };
    let here = |pod: &&Pod| is_daemon(pod) && pod.spec.node_name.as_deref() == Some(node);
    let Some(daemon) = pods.iter().find(here) else {
        let sets = status::daemon_sets(api).await.unwrap_or_default();
        about.excluded = about.node.as_ref().and_then(|node| excluded(node, &sets));
        if about.excluded.is_none() {
            about.daemon = Some(Err(format!("no Ferrule pod runs on {node}")));
        }
        return;
    };
    let at = PodPort {
        namespace: &api.namespace,
        pod: &daemon.metadata.name,
        port: args.target.introspection_port,
    };
    let within = Duration::from_secs(args.target.timeout);
    match serves(api, &at, within).await {
        Ok((status, held)) => {
            let meta = &about.pod.metadata;
            let of =
                |held: &PodAssignment| held.namespace == meta.namespace && held.name == meta.name;
            about.held = held.into_iter().filter(of).collect();
            about.daemon = Some(Ok(status));
            about.paths = paths(api, &at, &about.pod, within).await.transpose();
        }
        Err(why) => about.daemon = Some(Err(why)),
    }
}

/// Reads a daemon's status and its assignments.
async fn serves(
    api: &Api,
    at: &PodPort<'_>,
    within: Duration,
) -> Result<(Status, Vec<PodAssignment>), String> {
    let status = read(api, at, view_node::STATUS, within).await?;
    let held = read(api, at, view_node::PODS, within).await;
    let held = held.map_err(|why| format!("cannot read assignments from {}: {why}", at.pod))?;
    Ok((status, held))
}

/// Counts the pod's connections by path. `None` without an agent on the node.
async fn paths(
    api: &Api,
    at: &PodPort<'_>,
    pod: &Pod,
    within: Duration,
) -> Result<Option<Paths>, String> {
    let path = format!("{}/{}", view_node::PATHS, pod.metadata.uid);
    let paths = read(api, at, &path, within).await;
    paths.map_err(|why| format!("cannot count connections on {}: {why}", at.pod))
}

async fn read<T: DeserializeOwned>(
    api: &Api,
    at: &PodPort<'_>,
    path: &str,
    within: Duration,
) -> Result<T, String> {
    let body = forward::get(&api.client(), at, path, within).await?;
    serde_json::from_slice(&body).map_err(|error| format!("cannot parse its answer: {error}"))
}

/// Returns the pod's events, oldest first, without events of an earlier pod of the same name.
async fn events(api: &Api, namespace: &str, pod: &Pod) -> Result<Vec<Event>, KubeError> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let (name, uid) = (&pod.metadata.name, &pod.metadata.uid);
    let of = format!("involvedObject.kind=Pod,involvedObject.name={name},involvedObject.uid={uid}");
    let mut events: Vec<Event> = api.list(&path, Selector::Field(&of), "events").await?;
    events.sort_by(|a, b| a.at().cmp(b.at()));
    Ok(events)
}

/// Returns the policies whose subjects include the pod, from the controller's data.
async fn policies(api: &Api, pod: &Pod, node: &str) -> Result<Vec<String>, String> {
    let here = format!("/apis/{GROUP}/{VERSION}");
    let all: Vec<Policy> =
        match api.list(&format!("{here}/policies"), Selector::All, "policies").await {
            Err(error) => return Err(status::of_view(&error)),
            Ok(all) => all,
        };
    let of_node: Vec<&Policy> =
        all.iter().filter(|policy| policy.span.iter().any(|on| on == node)).collect();
    let groups: BTreeSet<&String> = of_node.iter().flat_map(|policy| &policy.applied_to).collect();
    if groups.len() > GROUPS_MAX {
        return Err(format!(
            "the node has {} groups; use `ferrule policy of` instead",
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

/// Limits the calls to the controller for one report.
const GROUPS_MAX: usize = 200;
