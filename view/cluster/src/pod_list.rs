//! The pods of a namespace or a cluster, each with the state of its network.

use crate::{
    objects::Pod,
    pod_report::{Finding, PodReport},
};
use serde::Serialize;
use view_text::{Cell, Table, Text, Tone};

/// The reports without events and policies.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList {
    /// Sorted by name.
    pub pods: Vec<PodReport>,
    /// Failed calls to daemons and nodes without a daemon, each once.
    pub unread: Vec<String>,
}

impl PodList {
    /// Records that no daemon runs on the pod's node, if the pod needs one.
    pub fn without_daemon(&mut self, pod: &Pod) {
        let Some(node) = &pod.spec.node_name else { return };
        let line = format!("no Ferrule pod runs on {node}; run ferrule status");
        if !pod.spec.host_network && !is_over(&pod.status.phase) && !self.unread.contains(&line) {
            self.unread.push(line);
        }
    }

    /// Returns true if no pod waits or has a problem, as far as all calls succeeded.
    pub fn is_good(&self) -> bool {
        self.pods.iter().all(|pod| state(pod).is_good())
    }

    /// Formats a table with the worst rows first. `columns` is the width of the terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        if self.pods.is_empty() {
            return Text::from("no pods\n");
        }
        let mut rows: Vec<(&PodReport, State<'_>)> =
            self.pods.iter().map(|pod| (pod, state(pod))).collect();
        rows.sort_by_key(|(_, state)| state.is_good());
        let mut table = Table::new(&["POD", "NODE", "ADDRESS", "ENI", "HOST VETH", "STATE"]);
        for (pod, state) in rows {
            let held = pod.interfaces.first().map(|it| &it.held);
            let or_none = |text: Option<&str>| Cell::from(text.unwrap_or("-"));
            table.row([
                Cell::from(&pod.pod),
                or_none(pod.node.as_deref()),
                or_none(pod.addresses.first().map(String::as_str)),
                or_none(held.map(|held| held.eni.as_str())),
                or_none(held.and_then(|held| held.host_interface.as_deref())),
                state.cell(),
            ]);
        }
        let mut text = table.text(columns);
        for unread in &self.unread {
            text.push(Tone::Notice, "not read:");
            text.push_plain(&format!(" {unread}\n"));
        }
        text
    }
}

enum State<'a> {
    Good,
    /// Ferrule has no part in the pod's network, with the reason.
    NotOurs(&'a str),
    /// The daemon of the pod's node did not answer.
    Unknown,
    /// The pod has no address yet.
    Waits,
    Wrong(&'a Finding),
}

impl State<'_> {
    fn is_good(&self) -> bool {
        match self {
            Self::Good | Self::NotOurs(_) | Self::Unknown => true,
            Self::Waits | Self::Wrong(_) => false,
        }
    }

    fn cell(&self) -> Cell {
        match self {
            Self::Good => Cell::new(Tone::Good, "good"),
            Self::NotOurs(why) => Cell::from(*why),
            Self::Unknown => Cell::new(Tone::Notice, "unknown"),
            Self::Waits => Cell::new(Tone::Notice, "waits; see ferrule pod with its name"),
            Self::Wrong(finding) => Cell::new(Tone::Bad, &finding.said),
        }
    }
}

fn is_over(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn state(pod: &PodReport) -> State<'_> {
    match (&pod.excluded, pod.findings.first()) {
        _ if pod.host_network => State::NotOurs("its node's network"),
        _ if is_over(&pod.phase) => State::NotOurs("ended"),
        (Some(why), _) => State::NotOurs(why),
        (None, Some(finding)) => State::Wrong(finding),
        (None, None) if pod.addresses.is_empty() => State::Waits,
        (None, None) if pod.interfaces.is_empty() => State::Unknown,
        (None, None) => State::Good,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::pod_report::PodData;
    use serde_json::{Value, json};
    use view_node::{PodAssignment, Status};

    fn data(name: &str, spec: Value, phase: &str, addresses: Value) -> PodData {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": name }, "spec": spec,
            "status": { "phase": phase, "podIPs": addresses },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        PodData { pod, ..PodData::default() }
    }

    fn serves() -> Option<Result<Status, String>> {
        Some(Ok(Status { phase: "running".to_owned(), ..Status::default() }))
    }

    #[test]
    fn a_node_without_a_daemon_is_not_read_and_named_once() {
        let of = |name: &str, spec: Value, phase: &str| data(name, spec, phase, json!([])).pod;
        let on_n1 = json!({ "nodeName": "n1" });
        let mut list = PodList::default();
        list.without_daemon(&of("ended", on_n1.clone(), "Succeeded"));
        list.without_daemon(&of("unscheduled", json!({}), "Pending"));
        let host = json!({ "nodeName": "n1", "hostNetwork": true });
        list.without_daemon(&of("host", host, "Running"));
        assert!(list.unread.is_empty(), "these pods need no daemon: {:?}", list.unread);
        list.without_daemon(&of("a", on_n1.clone(), "Running"));
        list.without_daemon(&of("b", on_n1, "Running"));
        assert_eq!(list.unread, ["no Ferrule pod runs on n1; run ferrule status"]);
    }

    #[test]
    fn pods_with_problems_are_first_and_each_state_has_a_word() {
        let on_n1 = json!({ "nodeName": "n1" });
        let address = json!([{ "ip": "10.0.0.7" }]);
        let held = PodAssignment {
            address: Some("10.0.0.7".to_owned()),
            eni: "eni-1".to_owned(),
            host_interface: Some("eni0a".to_owned()),
            ..PodAssignment::default()
        };
        let good = PodData {
            held: vec![held],
            daemon: serves(),
            ..data("good", on_n1.clone(), "Running", address.clone())
        };
        let foreign =
            PodData { daemon: serves(), ..data("odd", on_n1.clone(), "Running", address.clone()) };
        let host = data(
            "proxy",
            json!({ "nodeName": "n1", "hostNetwork": true }),
            "Running",
            address.clone(),
        );
        let silent = data("silent", on_n1.clone(), "Running", address);
        let late = PodData { daemon: serves(), ..data("late", on_n1, "Pending", json!([])) };
        let pods = [good, host, late, foreign, silent].iter().map(PodReport::of).collect();
        let list = PodList { pods, unread: vec!["n2: no answer".to_owned()] };
        assert!(!list.is_good());
        let expected = "\
POD           NODE   ADDRESS    ENI     HOST VETH   STATE
shop/late     n1     -          -       -           waits; see ferrule pod with its name
shop/odd      n1     10.0.0.7   -       -           the pod's status shows 10.0.0.7, but the daemon has no address for it
shop/good     n1     10.0.0.7   eni-1   eni0a       good
shop/proxy    n1     10.0.0.7   -       -           its node's network
shop/silent   n1     10.0.0.7   -       -           unknown
not read: n2: no answer
";
        assert_eq!(list.text(None).to_string(), expected);
        assert_eq!(PodList::default().text(None).to_string(), "no pods\n");
    }
}
