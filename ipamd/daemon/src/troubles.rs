//! The problems of the node: kind, object, start time and next step.
//!
//! All of them follow from state that the daemon has anyway. `view` lists the problems that stop the pool; this
//! list also has problems that will affect pods later.

mod ec2;

use crate::{
    cluster::Cluster,
    install,
    pass_report::DELETE_POD,
    view::{Phase, View},
};
use config_model::{PodKey, Time};
use ipamd_core::{Obstacle, Waiting};
use ipamd_kube::ConcernState;
use std::collections::BTreeMap;
use view_node::Severity;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Stable: metrics and `ferrule status` use it.
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    pub(crate) object: String,
    pub(crate) cause: String,
    pub(crate) next_step: String,
}

/// A problem and the time of its first observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenProblem {
    pub(crate) found: Found,
    pub(crate) since: Time,
}

/// The time of the first observation of each problem, by kind and object.
#[derive(Debug, Default)]
pub(crate) struct ProblemTimes(BTreeMap<(&'static str, String), Time>);

impl ProblemTimes {
    /// Returns the present problems, by severity, then by age.
    pub(crate) fn see(&mut self, found: Vec<Found>, now: Time) -> Vec<OpenProblem> {
        let before = std::mem::take(&mut self.0);
        let mut standing = Vec::new();
        for found in found {
            let key = (found.kind, found.object.clone());
            let since = before.get(&key).copied().unwrap_or(now);
            self.0.insert(key, since);
            standing.push(OpenProblem { found, since });
        }
        standing.sort_by_key(|it| (it.found.severity, it.since));
        standing
    }
}

/// The problems of host networking, as the repair loops report them.
pub(crate) type HostTroubles<'a> = &'a [String];

pub(crate) fn of(
    view: &View,
    cluster: &Cluster,
    host: HostTroubles<'_>,
    disconnected: &BTreeMap<PodKey, String>,
    network: Option<&install::NetworkReport>,
) -> Vec<Found> {
    let mut found = of_the_daemon(view);
    found.extend(view.snapshot.budgets.iter().filter_map(ec2::of));
    found.extend(view.snapshot.waiting.iter().filter_map(|waiting| planner(waiting, view)));
    found.extend(
        view.snapshot
            .trunk_missing
            .map(|it| trouble("trunk_missing", "trunk ENI", it.cause, it.next_step)),
    );
    let impaired = view.impairments().into_iter();
    found.extend(impaired.map(|cause| trouble("detached", "pods", cause, DELETE_PODS)));
    found.extend(disconnected.iter().map(|(key, why)| link_missing(view, key, why)));
    found.extend(host.iter().map(|why| trouble("host_networking", "host", why, HOST)));
    found.extend(kubernetes(cluster));
    found.extend(network.into_iter().flat_map(conflist));
    found
}

fn link_missing(view: &View, key: &PodKey, why: &str) -> Found {
    let pod = view.snapshot.pods.iter().find(|it| it.key.covers(key));
    let object = pod.map_or_else(|| key.to_string(), |it| it.pod.to_string());
    trouble("link_missing", object, why, DELETE_POD)
}

fn of_the_daemon(view: &View) -> Vec<Found> {
    let mut found = Vec::new();
    match &view.phase {
        Phase::Starting(why) => found.push(trouble("starting", "ferrule-ipamd", why, STARTING)),
        Phase::Stopping => {
            found.push(notice("stopping", "ferrule-ipamd", "the daemon is stopping", ""));
        }
        Phase::Running => {}
    }
    if let Some(why) = &view.checkpoint_trouble {
        found.push(trouble("checkpoint", "checkpoint", why, CHECKPOINT));
    }
    found
}

/// Obstacles that the planner cannot remove. An obstacle that only takes time is not a problem.
fn planner(waiting: &Waiting, view: &View) -> Option<Found> {
    let somebody_waits = view.snapshot.counts.waiting > 0;
    let (kind, always) = match waiting.obstacle {
        Obstacle::Time => return None,
        Obstacle::SubnetFull => ("subnet_full", true),
        Obstacle::EniLimit => ("eni_limit", false),
        Obstacle::MaxPods => ("max_pods", false),
        Obstacle::NoPlace => ("no_place", true),
        Obstacle::LimitsUnknown => ("limits_unknown", true),
        Obstacle::Unschedulable => ("unschedulable", false),
        Obstacle::NotOurs => ("not_ours", false),
        Obstacle::AttachStuck => ("attach_stuck", true),
    };
    let found = trouble(kind, &waiting.what, &waiting.why, &waiting.next_step);
    let severity = if always || somebody_waits { Severity::Trouble } else { Severity::Notice };
    Some(Found { severity, ..found })
}

fn kubernetes(cluster: &Cluster) -> Vec<Found> {
    let lacks = cluster.lacks().is_some();
    let failing = cluster.concern_states().into_iter().filter_map(|(concern, how)| match how {
        ConcernState::Failing(why) => Some((concern.name(), why)),
        ConcernState::Good | ConcernState::Waiting(_) => None,
    });
    let found = failing.map(|(concern, why)| trouble("kubernetes", concern, why, KUBERNETES));
    let severity = if lacks { Severity::Trouble } else { Severity::Notice };
    found.map(|found| Found { severity, ..found }).collect()
}

fn conflist(network: &install::NetworkReport) -> Vec<Found> {
    let of = |why: &String| trouble("network", NETWORK, why, CONFLIST);
    let notes = network.notes.iter().map(|why| notice("network_note", why, why, ""));
    let last = network.last.iter().map(|last| {
        let cause = format!(
            "restored {} times since the installer started, last: {last}",
            network.restored
        );
        notice("repaired", NETWORK, &cause, REPAIRED)
    });
    let waits = network.not_taken_over.iter();
    let waits = waits.map(|why| trouble("not_taken_over", NETWORK, why, TAKE_OVER));
    waits.chain(network.failing.iter().map(of)).chain(notes).chain(last).collect()
}

fn trouble(
    kind: &'static str,
    object: impl Into<String>,
    cause: impl Into<String>,
    next_step: impl Into<String>,
) -> Found {
    Found {
        kind,
        severity: Severity::Trouble,
        object: object.into(),
        cause: cause.into(),
        next_step: next_step.into(),
    }
}

fn notice(kind: &'static str, object: &str, cause: &str, next_step: &str) -> Found {
    Found { severity: Severity::Notice, ..trouble(kind, object, cause, next_step) }
}

const NETWORK: &str = "CNI configuration";
const STARTING: &str = "fix the cause; the daemon retries";
const CHECKPOINT: &str = "free space on the disk of /var/lib/ferrule, or repair the disk";
const DELETE_PODS: &str = "delete those pods: their replacements get other addresses";
const HOST: &str = "run `ferrule doctor` on the node; the daemon retries";
const KUBERNETES: &str = "check that the node reaches the API server and that the service account has its permissions (rbac.yaml)";
const CONFLIST: &str = "fix the cause; the container `network` retries";
const TAKE_OVER: &str = "run `ferrule migrate apply` on the node: new pods wait until then if the amazon-vpc-cni daemon does not run";
const REPAIRED: &str = "find the other writer: two programs that manage the node's network revert each other's changes";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &'static str, severity: Severity) -> Found {
        Found { severity, ..trouble(kind, "o", "c", "n") }
    }

    #[test]
    fn a_problem_keeps_its_start_time_until_it_is_over() {
        let mut ledger = ProblemTimes::default();
        let of = |standing: &[OpenProblem]| -> Vec<(&'static str, u64)> {
            standing.iter().map(|it| (it.found.kind, it.since.0)).collect()
        };
        let (a, b) = (found("a", Severity::Notice), found("b", Severity::Trouble));
        assert_eq!(of(&ledger.see(vec![a.clone()], Time(1))), [("a", 1)]);
        let other_words = Found { cause: "worse".to_owned(), ..a.clone() };
        let both = ledger.see(vec![other_words, b.clone()], Time(2));
        assert_eq!(of(&both), [("b", 2), ("a", 1)], "what is worse stands first");
        assert_eq!(of(&ledger.see(vec![b], Time(3))), [("b", 2)]);
        assert_eq!(of(&ledger.see(vec![a], Time(4))), [("a", 4)]);
    }

    #[test]
    fn the_installers_report_becomes_problems() {
        let standing = install::NetworkReport {
            not_taken_over: Some("it has pods".to_owned()),
            restored: 2,
            failing: Some("the disk is full".to_owned()),
            last: Some("write it again".to_owned()),
            notes: vec!["note".to_owned()],
        };
        let told: Vec<_> = conflist(&standing).into_iter().map(|it| (it.kind, it.cause)).collect();
        let wanted = [
            ("not_taken_over", "it has pods"),
            ("network", "the disk is full"),
            ("network_note", "note"),
            ("repaired", "restored 2 times since the installer started, last: write it again"),
        ];
        assert_eq!(told, wanted.map(|(kind, cause)| (kind, cause.to_owned())));
    }
}
