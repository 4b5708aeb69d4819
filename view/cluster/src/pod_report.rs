//! The report about one pod: its network, its policies, and the reason why it waits.

mod text;

use crate::{
    known_errors::{Explanation, explain},
    objects::{Event, Node, Pod},
    pod_state::of_pod,
};
use serde::Serialize;
use view_node::{Paths, PodAssignment, Severity, Status, Trouble, WaitingAdd};

/// The answers of the API server, the pod's daemon and the controller.
#[derive(Clone, Debug, Default)]
pub struct PodData {
    pub pod: Pod,
    pub node: Option<Node>,
    /// The daemon's assignments for the pod.
    pub held: Vec<PodAssignment>,
    /// The daemon's status document or the error; `None` if it was not called.
    pub daemon: Option<Result<Status, String>>,
    /// The reason if the node should have no daemon.
    pub excluded: Option<String>,
    pub events: Vec<Event>,
    pub events_unknown: Option<String>,
    /// The pod's policies or the error; `None` if the controller was not called.
    pub policies: Option<Result<Vec<String>, String>>,
    /// The paths of the pod's connections or the error; `None` if no agent was asked.
    pub paths: Option<Result<Paths, String>>,
}

/// The report about one pod.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    pub pod: String,
    /// Such as `Running`.
    pub phase: String,
    pub node: Option<String>,
    /// True if the pod uses its node's network namespace, so that Ferrule does nothing for it.
    pub host_network: bool,
    /// The addresses in the pod's status.
    pub addresses: Vec<String>,
    /// The daemon's assignments for the pod.
    pub interfaces: Vec<Interface>,
    /// The pod's policies; `None` if they are unknown.
    pub policies: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies_unknown: Option<String>,
    /// The pod's open connections by path; `None` if they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths_unknown: Option<String>,
    /// The reason if Ferrule does not run on the pod's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// The reason why the events are unknown. Then the kubelet's errors are unknown too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_unknown: Option<String>,
    /// The reasons why the pod waits, and its problems.
    pub findings: Vec<Finding>,
    /// Events from before the pod became ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Finding>,
}

/// A pod's interface as set up on the node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// The daemon's assignment.
    #[serde(flatten)]
    pub held: PodAssignment,
    /// The rules of this pod; empty with compact rules.
    pub rules: Vec<String>,
}

/// A reason why the pod waits, or a problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub by: String,
    pub said: String,
    /// The cause, if the message does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
}

impl PodReport {
    /// Judges the answers.
    pub fn of(about: &PodData) -> Self {
        let PodData { pod, held, policies, .. } = about;
        let (policies, policies_unknown) = match policies.clone() {
            Some(Ok(policies)) => (Some(policies), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let (paths, paths_unknown) = match about.paths.clone() {
            Some(Ok(paths)) => (Some(paths), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let shared = about.daemon.iter().flatten().any(|status| status.rules == COMPACT);
        let interfaces = held.iter().map(|held| Interface {
            rules: if shared { Vec::new() } else { rules(held) },
            held: held.clone(),
        });
        Self {
            pod: format!("{}/{}", pod.metadata.namespace, pod.metadata.name),
            phase: pod.status.phase.clone(),
            node: pod.spec.node_name.clone(),
            host_network: pod.spec.host_network,
            addresses: pod.status.pod_ips.iter().map(|it| it.ip.clone()).collect(),
            interfaces: interfaces.collect(),
            policies,
            policies_unknown,
            paths,
            paths_unknown,
            excluded: about.excluded.clone(),
            events_unknown: about.events_unknown.clone(),
            findings: findings(about),
            before: if is_ready(pod) { of_events(&about.events) } else { Vec::new() },
        }
    }

    /// Returns true if the pod has no problem. A pod that waits for an unknown reason is not good.
    pub fn is_good(&self) -> bool {
        let untold = self.phase == WAITS && self.events_unknown.is_some();
        self.findings.is_empty() && !untold
    }
}

fn is_ready(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True")
}

/// Returns the rules of the pod's addresses in the syntax of `ip rule`.
fn rules(held: &PodAssignment) -> Vec<String> {
    let (Some(address), Some(table)) = (&held.address, held.table) else { return Vec::new() };
    let to = format!("512: from all to {address} lookup main");
    let from = format!("1536: from {address} lookup {table}");
    std::iter::once(to).chain((table != MAIN).then_some(from)).collect()
}

fn findings(about: &PodData) -> Vec<Finding> {
    let mut found = Vec::new();
    let waiting = waiting(about).map(|add| Finding {
        by: "ferrule-ipamd".to_owned(),
        said: format!("the ADD has waited for {} s: {}", add.seconds, add.reason),
        cause: None,
        next_step: Some(add.next_step.clone()),
    });
    found.extend(waiting);
    found.extend(of_pod(&about.pod).iter().map(|trouble| of_trouble("its status", trouble)));
    // Events from before the pod became ready no longer matter.
    if !is_ready(&about.pod) {
        found.extend(of_events(&about.events));
    }
    found.extend(differs(about));
    let waits = about.pod.status.phase == WAITS;
    match &about.daemon {
        Some(Err(why)) => found.push(Finding {
            by: "ferrule".to_owned(),
            said: format!("cannot call the daemon on its node: {why}"),
            cause: None,
            next_step: Some("ferrule status".to_owned()),
        }),
        // A problem of the node explains why a pod waits there.
        Some(Ok(status)) if waits => {
            let severe = |it: &&Trouble| it.severity == Severity::Trouble;
            let by = format!("node {}", about.pod.spec.node_name.as_deref().unwrap_or_default());
            found.extend(status.troubles.iter().filter(severe).map(|it| of_trouble(&by, it)));
        }
        Some(Ok(_)) | None => {}
    }
    found
}

fn waiting(about: &PodData) -> Option<&WaitingAdd> {
    let of = |add: &&WaitingAdd| {
        add.namespace == about.pod.metadata.namespace && add.name == about.pod.metadata.name
    };
    about.daemon.as_ref()?.as_ref().ok()?.waiting_adds.iter().find(of)
}

fn of_trouble(by: &str, trouble: &Trouble) -> Finding {
    Finding {
        by: by.to_owned(),
        said: format!("{}: {}", trouble.object, trouble.cause),
        cause: None,
        next_step: Some(trouble.next_step.clone()).filter(|next| !next.is_empty()),
    }
}

/// Returns each warning once: the kubelet writes one for every failed sandbox, and they differ only in the sandbox ID.
fn of_events(events: &[Event]) -> Vec<Finding> {
    let mut grouped: Vec<(String, &Event, u32)> = Vec::new();
    for event in events.iter().filter(|event| event.kind == "Warning") {
        let (same, times) = (without_sandbox(&event.message), event.count.unwrap_or(1).max(1));
        match grouped
            .iter_mut()
            .find(|(before, of, _)| *before == same && of.reason == event.reason)
        {
            Some((_, latest, count)) => (*latest, *count) = (event, count.saturating_add(times)),
            None => grouped.push((same, event, times)),
        }
    }
    grouped.into_iter().map(|(_, event, times)| of_event(event, times)).collect()
}

fn without_sandbox(message: &str) -> String {
    let message = message.strip_prefix(COMBINED).unwrap_or(message);
    let is_id = |word: &str| word.len() == 64 && word.bytes().all(|at| at.is_ascii_hexdigit());
    let words = message.split('"').map(|word| if is_id(word) { "" } else { word });
    words.collect::<Vec<_>>().join("\"")
}

fn of_event(event: &Event, times: u32) -> Finding {
    let times = (times > 1).then(|| format!(", {times} times"));
    let explained: Option<Explanation> = explain(&event.message);
    Finding {
        by: format!("event {}{}", event.reason, times.unwrap_or_default()),
        said: event.message.clone(),
        cause: explained.map(|it| it.cause.to_owned()),
        next_step: explained.map(|it| it.next_step.to_owned()),
    }
}

/// Compares the addresses in the pod's status with the daemon's assignments.
fn differs(about: &PodData) -> Option<Finding> {
    let pod = &about.pod;
    let shown: Vec<&str> = pod.status.pod_ips.iter().map(|it| it.ip.as_str()).collect();
    let actual = match &about.daemon {
        // The daemon knows its assignments only after it has started to serve.
        Some(Ok(status))
            if status.phase == SERVES
                && pod.status.phase == "Running"
                && !pod.spec.host_network =>
        {
            let held = about.held.iter().filter_map(|held| held.address.as_deref());
            let held: Vec<&str> = held.collect();
            match held.iter().any(|address| shown.contains(address)) {
                true => return None,
                false if held.is_empty() => "the daemon has no address for it".to_owned(),
                false => format!("the daemon has {} for it", held.join(", ")),
            }
        }
        Some(_) | None => return None,
    };
    Some(Finding {
        by: "ferrule".to_owned(),
        said: format!("the pod's status shows {}, but {actual}", shown.join(", ")),
        cause: Some("another network plugin started it, or its sandbox was recreated".to_owned()),
        next_step: Some("delete the pod to recreate it".to_owned()),
    })
}

/// The prefix of aggregated events.
const COMBINED: &str = "(combined from similar events): ";
/// The phase of a pod that has not started.
const WAITS: &str = "Pending";
/// The [`Status::phase`](view_node::Status) of a daemon that serves.
const SERVES: &str = "running";
const MAIN: u32 = 254;
/// The [`Status::rules`](view_node::Status) if pods share rules.
const COMPACT: &str = "compact";

#[cfg(test)]
mod tests;
