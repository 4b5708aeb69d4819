//! Preconditions of a takeover, checked before its first step: Ferrule's image, its role, and the settings of `aws-node`.
//!
//! A difference that interrupts running pods and an account without a role are refusals. The other results are facts,
//! because each can change while `apply` waits.

use super::Draft;
use crate::{
    Cluster, DaemonSet, Ferrule, Observation, Observed, Refusal,
    settings::{Difference, Values, differences},
};
use serde::Serialize;
use std::collections::BTreeSet;

/// The result of the check of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Reasons against a takeover of any node.
    pub refusals: Vec<Refusal>,
    pub facts: Vec<String>,
}

/// Checks role and settings before the first node gets its label. `defaults` names the compared settings.
pub fn check(cluster: &Observed<Cluster>, defaults: &Values) -> Check {
    let mut draft = Draft::default();
    match cluster {
        Ok(cluster) => check_cluster(cluster, defaults, &mut draft),
        Err(why) => draft.refuse("the cluster", why, UNREAD),
    }
    let Draft { refusals, facts, .. } = draft;
    Check { refusals, facts }
}

fn check_cluster(cluster: &Cluster, defaults: &Values, draft: &mut Draft) {
    let Some(vpc_cni) = &cluster.vpc_cni else {
        draft.refuse(
            "the DaemonSet aws-node",
            "the cluster does not have it",
            "name another cluster with --kubeconfig or --context; a node without amazon-vpc-cni needs no takeover",
        );
        return;
    };
    let Some(ferrule) = &cluster.ferrule else {
        draft.refuse(
            "the DaemonSet of Ferrule",
            "the cluster does not have it",
            "install Ferrule's chart with migration.byLabel=true, or name the DaemonSet with --daemonset and \
             --ferrule-namespace",
        );
        return;
    };
    check_role(cluster, draft);
    let theirs = Source { values: &vpc_cni.settings, unread: Some(&vpc_cni.unread) };
    let ours = Source { values: &ferrule.settings, unread: Some(&ferrule.unread) };
    compare(&theirs, Some((&ours, OF_DAEMON_SET)), defaults, true, draft);
}

/// `may_refuse` is false after the switch of the configuration: the takeover is completed then.
pub(super) fn describe(seen: &Observation, may_refuse: bool, draft: &mut Draft) {
    describe_daemon(&seen.ferrule, draft);
    let cluster = seen.cluster.as_ref().ok();
    // A running daemon reports a missing role itself.
    if let Some(cluster) = cluster.filter(|_| may_refuse && !seen.ferrule.runs) {
        check_role(cluster, draft);
    }
    let vpc_cni = match &seen.settings.vpc_cni {
        Ok(Some(values)) => Some(Source { values, unread: None }),
        Ok(None) | Err(_) => cluster.and_then(|cluster| source(cluster.vpc_cni.as_ref())),
    };
    let ferrule = match &seen.settings.ferrule {
        Some(values) => Some((Source { values, unread: None }, "ferrule-ipamd")),
        None => cluster
            .and_then(|cluster| source(cluster.ferrule.as_ref()))
            .map(|source| (source, OF_DAEMON_SET)),
    };
    let Some(vpc_cni) = vpc_cni else {
        describe_missing(seen, draft);
        return;
    };
    let ferrule = ferrule.as_ref().map(|(source, owner)| (source, *owner));
    compare(&vpc_cni, ferrule, &seen.settings.defaults, may_refuse, draft);
}

/// Explains why no settings of `aws-node` are known.
fn describe_missing(seen: &Observation, draft: &mut Draft) {
    draft.facts.push(match &seen.settings.vpc_cni {
        Err(why) => format!("the settings of aws-node are not compared: {why}"),
        Ok(_) => "aws-node does not run here, so its settings are not compared; run `ferrule migrate check` with a \
                  kubeconfig before a node gets its label"
            .to_owned(),
    });
    if let Err(why) = &seen.cluster {
        draft.facts.push(format!("the DaemonSets of the cluster are not compared: {why}"));
    }
}

/// Settings with the names of those whose values are in other objects.
struct Source<'a> {
    values: &'a Values,
    unread: Option<&'a BTreeSet<String>>,
}

fn source(set: Option<&DaemonSet>) -> Option<Source<'_>> {
    set.map(|set| Source { values: &set.settings, unread: Some(&set.unread) })
}

/// Compares the settings. Without those of Ferrule, its defaults are compared, and no difference is a refusal.
fn compare(
    vpc_cni: &Source<'_>,
    ferrule: Option<(&Source<'_>, &str)>,
    defaults: &Values,
    may_refuse: bool,
    draft: &mut Draft,
) {
    let sources = [Some(vpc_cni), ferrule.map(|(source, _)| source)];
    let unread: BTreeSet<&String> =
        sources.iter().flatten().filter_map(|source| source.unread).flatten().collect();
    let none = Values::new();
    let values = ferrule.map_or(&none, |(source, _)| source.values);
    let mut found = differences(vpc_cni.values, values, defaults);
    found.retain(|difference| !unread.contains(&difference.name));
    if !unread.is_empty() {
        let names: Vec<&str> = unread.iter().map(|name| name.as_str()).collect();
        draft.facts.push(format!(
            "not compared, because the value is in another object: {}; compare the values of both DaemonSets",
            names.join(", ")
        ));
    }
    if found.is_empty() {
        draft.facts.push("the settings of aws-node and Ferrule do not differ".to_owned());
    }
    let owner = ferrule.map_or("Ferrule by default", |(_, owner)| owner);
    for Difference { name, vpc_cni, ferrule: value, breaks_pods, consequence } in found {
        let object = format!("setting {name}");
        let cause = format!("aws-node has {vpc_cni:?}, {owner} has {value:?}: {consequence}");
        let next = format!("set env.{name} to {vpc_cni:?} in the values of Ferrule's chart");
        if breaks_pods && may_refuse && ferrule.is_some() {
            draft.refuse(
                &object,
                &cause,
                &format!("{next}, upgrade the release and run this again"),
            );
        } else {
            draft.facts.push(format!("{object}: {cause}; {next}"));
        }
    }
}

/// Checks the role as far as the cluster's objects show it. IAM itself is not read.
fn check_role(cluster: &Cluster, draft: &mut Draft) {
    let (Some(vpc_cni), Some(ferrule)) = (&cluster.vpc_cni, &cluster.ferrule) else { return };
    let account = &ferrule.account;
    let has_pod_identity = |set: &DaemonSet| set.pod_identity == Ok(true);
    match (&vpc_cni.role, &ferrule.role) {
        (_, Some(role)) => draft.facts.push(format!(
            "the service account {account} has the role {role}; its trust policy must name \
             system:serviceaccount:{account}"
        )),
        (_, None) if has_pod_identity(ferrule) => draft.facts.push(format!(
            "the service account {account} has a role from EKS Pod Identity"
        )),
        (Some(role), None) => draft.refuse(
            &format!("service account {account}"),
            &format!("{ROLE} is not set, and the account of aws-node has the role {role}"),
            &format!(
                "set serviceAccount.annotations of Ferrule's chart, and let the role trust \
                 system:serviceaccount:{account}; or create a Pod Identity association for the account, which shows \
                 at the first pod of Ferrule: label one node and run `ferrule migrate plan` there"
            ),
        ),
        (None, None) => draft.facts.push(match &vpc_cni.pod_identity {
            Ok(true) => format!(
                "aws-node has its role from EKS Pod Identity, and the cluster does not show associations; check that \
                 {account} has one (aws eks list-pod-identity-associations)"
            ),
            Ok(false) => "the service accounts of aws-node and Ferrule have no role: both use the role of the node"
                .to_owned(),
            Err(why) => format!("the credentials of aws-node's pods are not known: {why}"),
        }),
    }
}

fn describe_daemon(ferrule: &Ferrule, draft: &mut Draft) {
    draft.facts.push(if ferrule.runs {
        "ferrule-ipamd runs: its image is on the node".to_owned()
    } else {
        "ferrule-ipamd does not run here yet, so its image and its role are not checked; put the node into Ferrule's \
         DaemonSet and run this again"
            .to_owned()
    });
    if !ferrule.runs {
        return;
    }
    for reason in &ferrule.unavailable {
        draft.facts.push(format!("ferrule-ipamd does not serve yet: {reason}"));
    }
    let about_role = |reason: &&String| {
        let reason = reason.to_ascii_lowercase();
        OF_THE_ROLE.iter().any(|word| reason.contains(word))
    };
    if ferrule.unavailable.iter().any(|reason| about_role(&reason)) {
        draft.facts.push(
            "ferrule-ipamd has no role: a role of amazon-vpc-cni trusts the service account kube-system:aws-node only; \
             add the one of Ferrule to its trust policy or its Pod Identity association"
                .to_owned(),
        );
    }
}

const OF_DAEMON_SET: &str = "the DaemonSet of Ferrule";
/// The next step for a cluster that cannot be read. This check needs no node.
const UNREAD: &str = "fix the cause and run this again where kubectl works";
/// The annotation of a service account with its role.
const ROLE: &str = "eks.amazonaws.com/role-arn";
/// Words of the errors of IRSA, Pod Identity and the instance's role.
const OF_THE_ROLE: [&str; 4] =
    ["assumerolewithwebidentity", "credential", "web identity", "pod identity"];
