//! Problems of nodes and of the cluster.

use super::{Cluster, DaemonAnswer, Lease, NodeLine, agent, problem::trouble};
use crate::{
    affinity::excluded,
    objects::{Node, Pod},
    pod_state::{INTROSPECTION_OFF, of_pod},
};
use view_node::{Severity, Trouble};

/// Judges one node.
pub(super) fn node(node: &Node, cluster: &Cluster) -> NodeLine {
    let name = &node.metadata.name;
    let ready = node.condition("Ready");
    let mut line = NodeLine {
        node: name.clone(),
        ready: ready.is_some_and(|it| it.status == "True"),
        ..NodeLine::default()
    };
    if !line.ready {
        let cause = ready.map_or_else(
            || "the kubelet has not reported the condition Ready".to_owned(),
            |ready| format!("{}: {}", ready.reason, ready.message),
        );
        let next = format!("kubectl describe node {name}; check that its kubelet runs");
        let since = ready.and_then(|it| it.last_transition_time.clone());
        line.troubles.push(Trouble { since, ..trouble("node_not_ready", name, &cause, &next) });
    }
    let on_it = |pod: &&Pod| pod.spec.node_name.as_ref() == Some(name);
    // During a replacement a node has two pods.
    let mut pods: Vec<&Pod> = cluster.pods.iter().filter(on_it).collect();
    pods.sort_by_key(|pod| pod.metadata.deletion_timestamp.is_some());
    match pods.first() {
        Some(pod) => with_pod(&mut line, node, pod, cluster),
        None => match excluded(node, cluster.daemon_sets.as_deref().unwrap_or_default()) {
            Some(why) => line.excluded = Some(why),
            None => line.troubles.push(missing(cluster)),
        },
    }
    // Last, because an agent's problem does not explain why the daemon does not answer.
    line.troubles.extend(line.agent.iter().flat_map(agent::troubles));
    line.troubles.sort_by_key(|trouble| trouble.severity);
    line
}

fn with_pod(line: &mut NodeLine, node: &Node, pod: &Pod, cluster: &Cluster) {
    line.pod = Some(pod.metadata.name.clone());
    line.troubles.extend(of_pod(pod));
    line.agent = agent::agent(&line.node, pod, cluster);
    if pod.introspection_is_off() {
        let cause = format!("{INTROSPECTION_OFF} is set, so the daemon's introspection is off");
        let next = "unset it to see the daemon's state";
        let notice = trouble("unreachable", "ferrule-ipamd", &cause, next);
        line.troubles.push(Trouble { severity: Severity::Notice, ..notice });
        last_words(line, node);
        return;
    }
    match cluster.answers.get(&pod.metadata.name) {
        Some(DaemonAnswer::Status(status)) => {
            let status = status.as_ref().clone();
            line.version = Some(status.version).filter(|version| !version.is_empty());
            line.pool = Some(status.pool);
            line.limits = status.limits;
            line.waiting_adds = status.waiting_adds;
            line.budgets = status.budgets;
            line.troubles.extend(status.troubles);
        }
        Some(DaemonAnswer::Failed(why)) => silent(line, node, why, cluster),
        None => silent(line, node, "it was not called", cluster),
    }
}

fn silent(line: &mut NodeLine, node: &Node, why: &str, cluster: &Cluster) {
    let next = if why.contains("pods/portforward") {
        format!(
            "request the role ferrule-viewer, which allows port-forward to pods in {}",
            cluster.namespace
        )
    } else {
        "check that the node's kubelet answers and that the container ipamd runs".to_owned()
    };
    // The cause is in the pod's status.
    let known = !line.troubles.is_empty();
    let severity = if known { Severity::Notice } else { Severity::Trouble };
    let unreachable = Trouble { severity, ..trouble("unreachable", "ferrule-ipamd", why, &next) };
    line.troubles.push(unreachable);
    last_words(line, node);
}

/// Adds the daemon's last condition on the node, if the daemon does not answer.
fn last_words(line: &mut NodeLine, node: &Node) {
    if let Some(condition) = node.condition("IPPoolHealthy").filter(|it| it.status == "False") {
        let cause = format!("{}: {}", condition.reason, condition.message);
        let since = condition.last_transition_time.clone();
        let next = "fix the cause in the message";
        line.troubles.push(Trouble { since, ..trouble("pool", "IPPoolHealthy", &cause, next) });
    }
}

fn missing(cluster: &Cluster) -> Trouble {
    let namespace = &cluster.namespace;
    let Some(sets) = &cluster.daemon_sets else {
        let cause = "the node has no pod of it, and the DaemonSets cannot be read";
        let next = format!(
            "request the role ferrule-viewer, which allows reading DaemonSets in {namespace}"
        );
        let notice = trouble("missing", "DaemonSet ferrule", cause, &next);
        return Trouble { severity: Severity::Notice, ..notice };
    };
    match sets.first().map(|set| set.metadata.name.as_str()) {
        Some(name) => trouble(
            "missing",
            &format!("DaemonSet {name}"),
            "the node has no pod of it",
            &format!(
                "kubectl -n {namespace} describe daemonset {name}; compare its tolerations and \
                 affinity with the node's taints and labels"
            ),
        ),
        None => trouble(
            "missing",
            "DaemonSet ferrule",
            &format!("namespace {namespace} has none"),
            "install the chart, or set --ferrule-namespace",
        ),
    }
}

pub(super) fn cluster(cluster: &Cluster) -> Vec<Trouble> {
    let mut found: Vec<Trouble> = cluster.controllers.iter().flat_map(of_pod).collect();
    if !cluster.controllers.is_empty() {
        found.extend(cluster.lease.as_ref().and_then(lease));
    }
    let versions: std::collections::BTreeSet<&str> =
        cluster.answers.values().filter_map(version).collect();
    if versions.len() > 1 {
        let all = versions.into_iter().collect::<Vec<_>>().join(", ");
        let notice = trouble("versions", "ferrule-ipamd", &format!("nodes run {all}"), ROLLING);
        found.push(Trouble { severity: Severity::Notice, ..notice });
    }
    found
}

fn version(answer: &DaemonAnswer) -> Option<&str> {
    match answer {
        DaemonAnswer::Status(status) => Some(status.version.as_str()),
        DaemonAnswer::Failed(_) => None,
    }
}

fn lease(lease: &Lease) -> Option<Trouble> {
    let ago = lease.renewed_seconds_ago;
    let cause = match &lease.holder {
        None => "no replica holds it".to_owned(),
        Some(holder) if ago > lease.lasts_seconds => {
            format!(
                "{holder} lost it: it was renewed {ago} s ago and lasts {} s",
                lease.lasts_seconds
            )
        }
        Some(_) => return None,
    };
    Some(trouble("lease", "Lease ferrule-controller", &cause, LEASE))
}

const ROLLING: &str = "normal during an upgrade; otherwise check the DaemonSet's rollout";
const LEASE: &str = "check that a replica of ferrule-controller runs and reaches the API server; until then no status is written";
