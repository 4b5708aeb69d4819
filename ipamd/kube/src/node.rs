//! The Node object of this node.

use crate::{
    ClusterFact, Concern,
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
    wire,
};
use kube::{Api, Client, runtime::watcher::Event};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The last observed Node object; `None` before the first one, and if it does not exist.
pub(crate) type Seen = Option<Arc<wire::Node>>;

/// Watches the node, and sends it to the pool and to the writers of the node.
pub(crate) async fn run(
    client: Client,
    name: String,
    seen: watch::Sender<Seen>,
    facts: mpsc::Sender<ClusterFact>,
    status: StatusReporter,
) {
    let fields = format!("metadata.name={name}");
    let subject = Subject {
        concern: Concern::Node,
        resource: "nodes",
        fields,
        labels: String::new(),
        page: None,
    };
    let mut watch = Watch::new(Api::<wire::Node>::all(client), subject, status);
    let (mut max_pods, mut schedulable) = (None, None);
    loop {
        for event in watch.batch().await {
            match event {
                Event::Apply(node) | Event::InitApply(node) => {
                    seen.send_replace(Some(Arc::new(node)));
                }
                Event::Delete(_) => {
                    seen.send_replace(None);
                }
                Event::Init | Event::InitDone => {}
            }
        }
        let Some(node) = seen.borrow().clone() else { continue };
        if let Some(pods) = node.max_pods.filter(|pods| max_pods != Some(*pods)) {
            max_pods = Some(pods);
            if facts.send(ClusterFact::MaxPods(pods)).await.is_err() {
                return;
            }
        }
        let takes_pods = takes_pods(&node);
        if schedulable.replace(takes_pods) != Some(takes_pods)
            && facts.send(ClusterFact::Schedulable(takes_pods)).await.is_err()
        {
            return;
        }
    }
}

fn takes_pods(node: &wire::Node) -> bool {
    !node
        .taints
        .iter()
        .any(|taint| taint["key"] == UNSCHEDULABLE && taint["effect"] == "NoSchedule")
}

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cordoned_node_takes_no_pods() {
        let node = |key: &str, effect: &str| wire::Node {
            taints: vec![json!({"key": key, "effect": effect})],
            ..wire::Node::default()
        };
        assert!(takes_pods(&wire::Node::default()));
        assert!(!takes_pods(&node(UNSCHEDULABLE, "NoSchedule")));
        assert!(takes_pods(&node(UNSCHEDULABLE, "NoExecute")));
        assert!(takes_pods(&node("other", "NoSchedule")));
    }
}
