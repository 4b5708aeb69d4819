//! `ferrule pod`: where one pod's network is, and why it waits.

use super::{
    TROUBLE,
    api::{Api, Selector},
    args::PodArgs,
    forward::{self, At},
    status::{self, OURS, is_daemon},
};
use crate::output::{Output, write_json, write_text};
use anyhow::{Result, bail};
use policy_kube::KubeError;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};
use view_cluster::{AboutPod, Event, Node, Pod, Whereabouts, excluded};
use view_node::{Held, Status};
use view_policy::{GROUP, Group, Policy, VERSION};

/// Asks and prints; the exit code.
pub(super) async fn run(args: &PodArgs) -> Result<u8> {
    let Some((namespace, name)) = named(&args.pod) else {
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
        ask_daemon(&api, args, &node, &mut about).await;
        about.policies = Some(policies(&api, &about.pod, &node).await);
    }
    about.events = match events(&api, namespace, &about.pod).await {
        Ok(events) => events,
        Err(error) => {
            about.events_unknown = Some(error.to_string());
            Vec::new()
        }
    };
    let whereabouts = Whereabouts::of(&about);
    match args.output {
        Output::Text => write_text(&whereabouts.to_string())?,
        Output::Json => write_json(&json!(whereabouts))?,
    }
    Ok(if whereabouts.is_good() { 0 } else { TROUBLE })
}

/// A namespace and a name in it.
fn named(words: &str) -> Option<(&str, &str)> {
    let letter =
        |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '.';
    let name = |it: &str| {
        it.starts_with(char::is_alphanumeric) && it.len() <= 253 && it.chars().all(letter)
    };
    words.split_once('/').filter(|(namespace, pod)| name(namespace) && name(pod))
}

async fn ask_daemon(api: &Api, args: &PodArgs, node: &str, about: &mut AboutPod) {
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
            about.daemon = Some(Err(format!("no pod of Ferrule's runs on {node}")));
        }
        return;
    };
    let at = At {
        namespace: &api.namespace,
        pod: &daemon.metadata.name,
        port: args.target.introspection_port,
    };
    let within = Duration::from_secs(args.target.timeout);
    about.daemon = Some(read::<Status>(api, &at, view_node::STATUS, within).await);
    if matches!(about.daemon, Some(Ok(_))) {
        match read::<Vec<Held>>(api, &at, view_node::PODS, within).await {
            Ok(held) => {
                let meta = &about.pod.metadata;
                let of = |held: &Held| held.namespace == meta.namespace && held.name == meta.name;
                about.held = held.into_iter().filter(of).collect();
            }
            Err(why) => about.daemon = Some(Err(format!("ask {} who holds what: {why}", at.pod))),
        }
    }
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

/// The pod's events, oldest first; not those of another that had its name before.
async fn events(api: &Api, namespace: &str, pod: &Pod) -> Result<Vec<Event>, KubeError> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let (name, uid) = (&pod.metadata.name, &pod.metadata.uid);
    let of = format!("involvedObject.kind=Pod,involvedObject.name={name},involvedObject.uid={uid}");
    let mut events: Vec<Event> = api.list(&path, Selector::Field(&of), "events").await?;
    events.sort_by(|a, b| a.at().cmp(b.at()));
    Ok(events)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        assert_eq!(named("shop/web-0"), Some(("shop", "web-0")));
        for odd in ["shop", "/web", "shop/", "a/b/c d", "a/..", "a/b?x=1", "a/B"] {
            assert_eq!(named(odd), None, "{odd}");
        }
    }
}
