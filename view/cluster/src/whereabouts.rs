//! One pod: what its network is made of, which policies it has, and why it waits.

mod text;

use crate::{
    objects::{Event, Node, Pod},
    pod_state::of_pod,
    words::{Explained, explain},
};
use serde::Serialize;
use view_node::{Held, Severity, Status, Trouble, WaitingAdd};

/// What the API server, the pod's daemon and the controller said of it.
#[derive(Clone, Debug, Default)]
pub struct AboutPod {
    /// The pod.
    pub pod: Pod,
    /// Its node.
    pub node: Option<Node>,
    /// What the daemon there holds for it.
    pub held: Vec<Held>,
    /// The daemon's own document, or why it says nothing.
    pub daemon: Option<Result<Status, String>>,
    /// Why no daemon is to be on its node.
    pub excluded: Option<String>,
    /// The pod's events.
    pub events: Vec<Event>,
    /// Why they are not known.
    pub events_unknown: Option<String>,
    /// The policies that it is subject to, or why they are not known.
    pub policies: Option<Result<Vec<String>, String>>,
}

/// A pod, as it is told.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Whereabouts {
    /// Its namespace and name.
    pub pod: String,
    /// `Running` and others.
    pub phase: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Whether it has its node's network, and nothing of ours.
    pub host_network: bool,
    /// Its addresses, as Kubernetes has them.
    pub addresses: Vec<String>,
    /// What the daemon holds for it.
    pub interfaces: Vec<Interface>,
    /// The policies that it is subject to; none where it is not known.
    pub policies: Option<Vec<String>>,
    /// Why they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies_unknown: Option<String>,
    /// Why its network is not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// Why its events are not known: then what kubelet says of it is not, either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_unknown: Option<String>,
    /// Why it waits, or what is wrong with it.
    pub findings: Vec<Finding>,
    /// What kept it waiting before it was ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Finding>,
}

/// What a pod's interface is made of on the node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// As the daemon says it.
    #[serde(flatten)]
    pub held: Held,
    /// Its rules on the node, if each pod has its own.
    pub rules: Vec<String>,
}

/// Something that keeps the pod waiting, or is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Who says it.
    pub by: String,
    /// What.
    pub said: String,
    /// What it comes from, if that is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
}

impl Whereabouts {
    /// What follows from what was said.
    pub fn of(about: &AboutPod) -> Self {
        let AboutPod { pod, held, policies, .. } = about;
        let (policies, policies_unknown) = match policies.clone() {
            Some(Ok(policies)) => (Some(policies), None),
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
            excluded: about.excluded.clone(),
            events_unknown: about.events_unknown.clone(),
            findings: findings(about),
            before: if is_ready(pod) { of_events(&about.events) } else { Vec::new() },
        }
    }

    /// Whether nothing keeps it waiting. One that waits, and nobody tells why, is not good.
    pub fn is_good(&self) -> bool {
        let untold = self.phase == WAITS && self.events_unknown.is_some();
        self.findings.is_empty() && !untold
    }
}

fn is_ready(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True")
}

/// The rules that a pod's address has, as `ip rule` shows them.
fn rules(held: &Held) -> Vec<String> {
    let (Some(address), Some(table)) = (&held.address, held.table) else { return Vec::new() };
    let to = format!("512: from all to {address} lookup main");
    let from = format!("1536: from {address} lookup {table}");
    std::iter::once(to).chain((table != MAIN).then_some(from)).collect()
}

fn findings(about: &AboutPod) -> Vec<Finding> {
    let mut found = Vec::new();
    let waiting = waiting(about).map(|add| Finding {
        by: "ferrule-ipamd".to_owned(),
        said: format!("its ADD has waited for {} s: {}", add.seconds, add.reason),
        cause: None,
        next_step: Some(add.next_step.clone()),
    });
    found.extend(waiting);
    found.extend(of_pod(&about.pod).iter().map(|trouble| of_trouble("its status", trouble)));
    // What was before it was ready is over.
    if !is_ready(&about.pod) {
        found.extend(of_events(&about.events));
    }
    found.extend(differs(about));
    let waits = about.pod.status.phase == WAITS;
    match &about.daemon {
        Some(Err(why)) => found.push(Finding {
            by: "ferrule".to_owned(),
            said: format!("the daemon of its node cannot be asked: {why}"),
            cause: None,
            next_step: Some("ferrule status".to_owned()),
        }),
        // What is wrong with the node is the reason of a pod that waits there.
        Some(Ok(status)) if waits => {
            let severe = |it: &&Trouble| it.severity == Severity::Trouble;
            let by = format!("node {}", about.pod.spec.node_name.as_deref().unwrap_or_default());
            found.extend(status.troubles.iter().filter(severe).map(|it| of_trouble(&by, it)));
        }
        Some(Ok(_)) | None => {}
    }
    found
}

fn waiting(about: &AboutPod) -> Option<&WaitingAdd> {
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

/// Each warning once: kubelet writes one for every sandbox that fails, and only its id differs.
fn of_events(events: &[Event]) -> Vec<Finding> {
    let mut told: Vec<(String, &Event, u32)> = Vec::new();
    for event in events.iter().filter(|event| event.kind == "Warning") {
        let (same, times) = (without_sandbox(&event.message), event.count.unwrap_or(1).max(1));
        match told.iter_mut().find(|(before, of, _)| *before == same && of.reason == event.reason) {
            Some((_, latest, count)) => (*latest, *count) = (event, count.saturating_add(times)),
            None => told.push((same, event, times)),
        }
    }
    told.into_iter().map(|(_, event, times)| of_event(event, times)).collect()
}

fn without_sandbox(message: &str) -> String {
    let message = message.strip_prefix(COMBINED).unwrap_or(message);
    let is_id = |word: &str| word.len() == 64 && word.bytes().all(|at| at.is_ascii_hexdigit());
    let words = message.split('"').map(|word| if is_id(word) { "" } else { word });
    words.collect::<Vec<_>>().join("\"")
}

fn of_event(event: &Event, times: u32) -> Finding {
    let times = (times > 1).then(|| format!(", {times} times"));
    let explained: Option<Explained> = explain(&event.message);
    Finding {
        by: format!("event {}{}", event.reason, times.unwrap_or_default()),
        said: event.message.clone(),
        cause: explained.map(|it| it.cause.to_owned()),
        next_step: explained.map(|it| it.next_step.to_owned()),
    }
}

/// What Kubernetes and the daemon say of its address must be the same.
fn differs(about: &AboutPod) -> Option<Finding> {
    let pod = &about.pod;
    let told: Vec<&str> = pod.status.pod_ips.iter().map(|it| it.ip.as_str()).collect();
    let said = match &about.daemon {
        // Until it serves it has not read yet who holds what.
        Some(Ok(status))
            if status.phase == SERVES
                && pod.status.phase == "Running"
                && !pod.spec.host_network =>
        {
            let held = about.held.iter().filter_map(|held| held.address.as_deref());
            let held: Vec<&str> = held.collect();
            match held.iter().any(|address| told.contains(address)) {
                true => return None,
                false if held.is_empty() => "the daemon holds no address for it".to_owned(),
                false => format!("the daemon holds {} for it", held.join(", ")),
            }
        }
        Some(_) | None => return None,
    };
    Some(Finding {
        by: "ferrule".to_owned(),
        said: format!("Kubernetes has it at {}, and {said}", told.join(", ")),
        cause: Some(
            "it was started by another network plugin, or its sandbox was made anew".to_owned(),
        ),
        next_step: Some("delete the pod, so that it starts anew".to_owned()),
    })
}

/// What the API server's clients put before the words of events that they no longer count apart.
const COMBINED: &str = "(combined from similar events): ";
/// The phase of a pod that is not started yet.
const WAITS: &str = "Pending";
/// The word of [`Status::phase`](view_node::Status) where the daemon serves.
const SERVES: &str = "running";
const MAIN: u32 = 254;
/// The word of [`Status::rules`](view_node::Status) where pods share rules.
const COMPACT: &str = "compact";

#[cfg(test)]
mod tests;
