//! What is wrong with the node, in people's words: what it is, about which object, since when, and what to do.
//!
//! All of it follows from what the daemon holds anyway. That pods cannot be served is `view`'s to say; here
//! stands also what they will suffer from later.

mod ec2;

use crate::{
    cluster::Cluster,
    install,
    view::{Phase, View},
};
use config_model::Time;
use ipamd_core::{Obstacle, Waiting};
use ipamd_kube::Standing as How;
use std::collections::BTreeMap;
use view_node::Severity;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// A stable word.
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    pub(crate) object: String,
    pub(crate) cause: String,
    pub(crate) next_step: String,
}

/// The same, and since when it has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) found: Found,
    pub(crate) since: Time,
}

/// Keeps since when each has been seen.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<(&'static str, String), Time>);

impl Ledger {
    /// What is wrong now, worst and oldest first.
    pub(crate) fn see(&mut self, found: Vec<Found>, now: Time) -> Vec<Standing> {
        let before = std::mem::take(&mut self.0);
        let mut standing = Vec::new();
        for found in found {
            let key = (found.kind, found.object.clone());
            let since = before.get(&key).copied().unwrap_or(now);
            self.0.insert(key, since);
            standing.push(Standing { found, since });
        }
        standing.sort_by_key(|it| (it.found.severity, it.since));
        standing
    }
}

/// What the host's networking lacks, by whoever keeps it.
pub(crate) type HostTroubles<'a> = &'a [String];

pub(crate) fn of(
    view: &View,
    cluster: &Cluster,
    host: HostTroubles<'_>,
    network: Option<&install::Standing>,
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
    found.extend(host.iter().map(|why| trouble("host_networking", "host", why, HOST)));
    found.extend(kubernetes(cluster));
    found.extend(network.into_iter().flat_map(conflist));
    found
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

/// What the planner cannot help; what only takes time is no trouble.
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
    let failing = cluster.standings().into_iter().filter_map(|(concern, how)| match how {
        How::Failing(why) => Some((concern.name(), why)),
        How::Good | How::Waiting(_) => None,
    });
    let found = failing.map(|(concern, why)| trouble("kubernetes", concern, why, KUBERNETES));
    let severity = if lacks { Severity::Trouble } else { Severity::Notice };
    found.map(|found| Found { severity, ..found }).collect()
}

fn conflist(network: &install::Standing) -> Vec<Found> {
    let of = |why: &String| trouble("network", NETWORK, why, CONFLIST);
    let notes = network.notes.iter().map(|why| notice("network_note", why, why, ""));
    let last = network.last.iter().map(|last| {
        let cause = format!("put back {} times since it began, last: {last}", network.restored);
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
const STARTING: &str = "mend what it waits for; it is tried again by itself";
const CHECKPOINT: &str = "make room on the disk of /var/lib/ferrule, or mend it";
const DELETE_PODS: &str = "delete those pods, so that they get other addresses";
const HOST: &str = "run `ferrule doctor` on the node; it is tried again by itself";
const KUBERNETES: &str =
    "see that the API server answers the node and that the account has its rights (rbac.yaml)";
const CONFLIST: &str = "mend what it says; the container `network` tries again by itself";
const TAKE_OVER: &str = "run `ferrule migrate apply` on the node: without amazon-vpc-cni's daemon new pods wait until then";
const REPAIRED: &str =
    "find who writes there: two who keep the node's network undo each other's work";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &'static str, severity: Severity) -> Found {
        Found { severity, ..trouble(kind, "o", "c", "n") }
    }

    #[test]
    fn a_trouble_stands_since_it_was_seen_first_and_begins_anew_after_it_was_gone() {
        let mut ledger = Ledger::default();
        let of = |standing: &[Standing]| -> Vec<(&'static str, u64)> {
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
    fn what_the_installer_tells_is_told_on() {
        let standing = install::Standing {
            not_taken_over: Some("it has pods".to_owned()),
            restored: 2,
            failing: Some("the disk is full".to_owned()),
            last: Some("write it anew".to_owned()),
            notes: vec!["note".to_owned()],
        };
        let told: Vec<_> = conflist(&standing).into_iter().map(|it| (it.kind, it.cause)).collect();
        let wanted = [
            ("not_taken_over", "it has pods"),
            ("network", "the disk is full"),
            ("network_note", "note"),
            ("repaired", "put back 2 times since it began, last: write it anew"),
        ];
        assert_eq!(told, wanted.map(|(kind, cause)| (kind, cause.to_owned())));
    }
}
