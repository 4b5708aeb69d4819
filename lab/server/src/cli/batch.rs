//! Many pods at once: a bounded number of requests side by side.

use super::{pod_path, say, split};
use crate::control::{Client, ClientError, NodeView, PodSpec, PodView, Refusal};
use anyhow::{Result, bail};
use serde::Serialize;
use std::{collections::VecDeque, future::Future};
use tokio::task::JoinSet;

/// Result of a batch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome<T> {
    /// Successful results.
    pub(super) pods: Vec<T>,
    pub(super) failed: Vec<Failed>,
}

/// A pod that failed, and why.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failed {
    pub(super) pod: String,
    #[serde(flatten)]
    pub(super) why: Refusal,
}

/// `name` or `namespace/name` on a node.
pub(super) fn named(node: &str, pod: &str, annotations: &[(String, String)]) -> PodSpec {
    let (namespace, name) = split(pod);
    PodSpec {
        node: node.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        annotations: annotations.iter().cloned().collect(),
    }
}

/// The pods that the arguments name.
pub(super) async fn chosen(
    client: &Client,
    pods: Vec<String>,
    all: bool,
    node: Option<&str>,
) -> Result<Vec<String>> {
    if !all && node.is_none() {
        return Ok(pods);
    }
    if !pods.is_empty() {
        bail!("name pods or use --all or --node, not both");
    }
    if let Some(node) = node {
        let nodes: Vec<NodeView> = client.get("/nodes").await?;
        if nodes.iter().all(|known| known.name != node) {
            bail!("there is no node {node}");
        }
    }
    let known: Vec<PodView> = client.get("/pods").await?;
    let fitting = known.into_iter().filter(|pod| node.is_none_or(|node| pod.node == node));
    Ok(fitting.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect())
}

pub(super) async fn add(
    client: &Client,
    pods: Vec<PodSpec>,
    parallel: usize,
) -> Result<Outcome<PodView>> {
    let name = |spec: &PodSpec| format!("{}/{}", spec.namespace, spec.name);
    let named = pods.into_iter().map(|spec| (name(&spec), spec)).collect();
    let client = client.clone();
    let one = move |spec: PodSpec| {
        let client = client.clone();
        async move { client.post("/pods", &spec).await }
    };
    let mut outcome: Outcome<PodView> = run("added", named, parallel, one).await?;
    outcome.pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(outcome)
}

pub(super) async fn delete(
    client: &Client,
    pods: Vec<String>,
    parallel: usize,
) -> Result<Outcome<String>> {
    let client = client.clone();
    let one = move |pod: String| {
        let client = client.clone();
        async move {
            let path = pod_path(&pod).map_err(|err| refused(&err))?;
            client.delete(&path).await.map(|()| pod)
        }
    };
    run("deleted", itself(pods), parallel, one).await
}

pub(super) async fn check(client: &Client, pods: Vec<String>) -> Result<Outcome<String>> {
    let client = client.clone();
    let one = move |pod: String| {
        let client = client.clone();
        async move {
            let path = pod_path(&pod).map_err(|err| refused(&err))?;
            client.post(&format!("{path}/check"), &()).await.map(|()| pod)
        }
    };
    run("checked", itself(pods), 8, one).await
}

fn itself(pods: Vec<String>) -> VecDeque<(String, String)> {
    pods.into_iter().map(|pod| (pod.clone(), pod)).collect()
}

fn refused(err: &anyhow::Error) -> ClientError {
    ClientError::Refused(Refusal { error: format!("{err:#}"), cni: None })
}

async fn run<I, T, F>(
    done: &str,
    mut waiting: VecDeque<(String, I)>,
    parallel: usize,
    one: impl Fn(I) -> F,
) -> Result<Outcome<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ClientError>> + Send + 'static,
{
    let total = waiting.len();
    let mut outcome = Outcome { pods: Vec::new(), failed: Vec::new() };
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < parallel.max(1)
            && let Some((name, item)) = waiting.pop_front()
        {
            let request = one(item);
            tasks.spawn(async move { (name, request.await) });
        }
        match tasks.join_next().await {
            None => return Ok(outcome),
            Some(Err(err)) => std::panic::resume_unwind(err.into_panic()),
            Some(Ok((_, Ok(value)))) => outcome.pods.push(value),
            // The other requests would fail in the same way.
            Some(Ok((_, Err(down @ ClientError::Down { .. })))) => return Err(down.into()),
            Some(Ok((pod, Err(err)))) => {
                say(&format!("{pod}: {}", config_model::causes(&err)));
                outcome.failed.push(Failed { pod, why: reason(err) });
            }
        }
        let ended = outcome.pods.len() + outcome.failed.len();
        if ended.is_multiple_of(10) || ended == total {
            say(&format!("{done} {} of {total}", outcome.pods.len()));
        }
    }
}

fn reason(err: ClientError) -> Refusal {
    match err {
        ClientError::Refused(refusal) => refusal,
        other @ (ClientError::Down { .. }
        | ClientError::Broken(_)
        | ClientError::Unexpected { .. }) => {
            Refusal { error: config_model::causes(&other), cni: None }
        }
    }
}
