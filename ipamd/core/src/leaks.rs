//! Leaked ENIs of the cluster's former nodes. Only the elected collector looks for them.
//!
//! An ENI is deleted if two EC2 answers 30 s apart show it unused and old enough. Its tags must name this cluster, this
//! node group and an instance. An ENI whose creation time cannot be read is reported and kept.

#[cfg(test)]
mod tests;

use crate::{
    Action, CloudAnswer, CloudCall, Leftover, NodeFacts, PoolConfig, Remedy, Severity, Topic,
    calls::{CallSubject, CloudResult},
    classify::{TAG_ADOPTED, TAG_INSTANCE},
    ctx::Ctx,
};
use config_model::{EniId, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Tags of the owner.
const TAG_CLUSTER: &str = "cluster.k8s.amazonaws.com/name";
const TAG_NODE_GROUP: &str = "ferrule.io/node-group";
/// The start of the descriptions that amazon-vpc-cni and Ferrule use.
const DESCRIPTION: &str = "aws-K8S-";
/// The interval of EC2 questions.
const INTERVAL: Span = Span::seconds(3600);
/// The wait of a new collector, roughly: its own node has priority.
const FIRST_WAIT: Span = Span::seconds(20);
/// The distance at which two EC2 answers count as two witnesses.
const APART: Span = Span::seconds(30);
/// A younger ENI may be about to be attached.
const MIN_AGE: Span = Span::seconds(300);
/// The pause after a question without an answer.
const SILENCE: Span = Span::seconds(300);

/// The state of the leak collector.
#[derive(Debug, Default)]
pub(crate) struct LeakCollector {
    elected: bool,
    next: Option<Time>,
    in_call: bool,
    /// ENIs seen once, with the start of that observation.
    suspects: BTreeMap<EniId, Time>,
    /// ENIs seen twice, which are to be deleted.
    doomed: BTreeSet<EniId>,
    deleting: BTreeSet<EniId>,
    /// ENIs that were reported as kept.
    spared: BTreeSet<EniId>,
}

/// The decision about an unused ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Owned by others, in use, or too young.
    Spare,
    /// Leaked, but of unknown age.
    Ageless,
    Leaked,
}

/// The tags that a leaked ENI of ours must carry. `None`: the collection is off.
fn signs(config: &PoolConfig, node: &NodeFacts) -> Option<BTreeMap<String, String>> {
    let cluster = config.cluster_name.clone().filter(|name| !name.is_empty())?;
    let group = node.tags.get(TAG_NODE_GROUP)?.clone();
    let wanted = config.collect_leaks && config.provisioning && !config.imds_only;
    let signs = [(TAG_CLUSTER.to_owned(), cluster), (TAG_NODE_GROUP.to_owned(), group)];
    wanted.then(|| signs.into())
}

fn judge(leftover: &Leftover, signs: &BTreeMap<String, String>) -> Verdict {
    let has = |(name, value): (&String, &String)| leftover.tags.get(name) == Some(value);
    let ours = signs.iter().all(has)
        && leftover.tags.contains_key(TAG_INSTANCE)
        && !leftover.tags.contains_key(TAG_ADOPTED)
        && leftover.description.starts_with(DESCRIPTION);
    match leftover.age {
        _ if !ours || !leftover.available => Verdict::Spare,
        None => Verdict::Ageless,
        Some(_) if leftover.created_unreadable => Verdict::Ageless,
        Some(age) if age < MIN_AGE => Verdict::Spare,
        Some(_) => Verdict::Leaked,
    }
}

impl LeakCollector {
    fn set_elected(&mut self, elected: bool, wait: Span, now: Time) {
        if elected && !self.elected {
            self.next = Some(now + wait);
        }
        if !elected {
            self.next = None;
            self.suspects.clear();
            self.doomed.clear();
        }
        self.elected = elected;
    }

    /// Takes an answer to a question of `started`. Returns the ENIs to report as kept.
    fn answered(
        &mut self,
        leftovers: &[Leftover],
        signs: &BTreeMap<String, String>,
        started: Time,
        now: Time,
    ) -> Vec<Leftover> {
        let mut spared = Vec::new();
        let mut suspects = BTreeMap::new();
        for leftover in leftovers {
            let eni = &leftover.eni;
            match judge(leftover, signs) {
                Verdict::Spare => {}
                Verdict::Ageless => {
                    if self.spared.insert(eni.clone()) {
                        spared.push(leftover.clone());
                    }
                }
                Verdict::Leaked => {
                    let first = self.suspects.get(eni).copied().unwrap_or(started);
                    if started >= first + APART {
                        self.doomed.insert(eni.clone());
                    } else {
                        suspects.insert(eni.clone(), first);
                    }
                }
            }
        }
        let there: BTreeSet<&EniId> = leftovers.iter().map(|leftover| &leftover.eni).collect();
        self.spared.retain(|eni| there.contains(eni));
        self.suspects = suspects;
        let second = self.suspects.values().min().map(|first| now.max(*first + APART));
        self.next = Some(second.unwrap_or(now + INTERVAL));
        spared
    }
}

impl LeakCollector {
    pub(crate) fn elect(&mut self, ctx: &mut Ctx, elected: bool) {
        let wait = ctx.budgets.jittered(FIRST_WAIT);
        self.set_elected(elected, wait, ctx.now);
    }

    /// Asks EC2 when it is time, and deletes the ENIs that two answers showed.
    pub(crate) fn collect(&mut self, ctx: &mut Ctx) {
        if !self.elected {
            return;
        }
        let Some(tags) = signs(&ctx.config, &ctx.node) else { return };
        if let Some(next) = self.next.filter(|_| !self.in_call)
            && ctx.reached(next)
            && ctx.may(Action::Describe)
        {
            self.in_call = true;
            self.next = None;
            let (vpc, description_prefix) = (ctx.node.vpc.clone(), DESCRIPTION.to_owned());
            let call = CloudCall::FindLeftovers { vpc, tags, description_prefix };
            ctx.call(CallSubject::Leftovers, call);
        }
        for eni in self.doomed.clone() {
            if self.deleting.contains(&eni) {
                continue;
            }
            if !ctx.may(Action::Delete) {
                return;
            }
            self.deleting.insert(eni.clone());
            ctx.call(CallSubject::Leftover(eni.clone()), CloudCall::DeleteEni { eni });
        }
    }

    pub(crate) fn found(
        &mut self,
        ctx: &mut Ctx,
        result: CloudResult,
        started: Time,
        is_known: impl Fn(&EniId) -> bool,
    ) {
        self.in_call = false;
        let Some(signs) = signs(&ctx.config, &ctx.node).filter(|_| self.elected) else {
            return;
        };
        let Ok(CloudAnswer::Leftovers(mut leftovers)) = result else {
            self.next = Some(ctx.now + ctx.budgets.jittered(SILENCE));
            return;
        };
        leftovers.retain(|leftover| {
            let eni = &leftover.eni;
            ctx.book.eni(eni).is_none() && !is_known(eni)
        });
        for spared in self.answered(&leftovers, &signs, started, ctx.now) {
            let cause = if spared.created_unreadable {
                "it is unused, but its tag node.k8s.amazonaws.com/createdAt is no time"
            } else {
                "it is unused, but it has no tag node.k8s.amazonaws.com/createdAt"
            };
            let next_step = "delete it if it is not needed, or fix the tag";
            ctx.report(Severity::Warning, Topic::LeakedEni, &spared.eni, cause, next_step);
        }
    }

    pub(crate) fn deleted(&mut self, ctx: &mut Ctx, eni: &EniId, result: CloudResult) {
        self.deleting.remove(eni);
        let fault = match result {
            Ok(_) => {
                let cause = "it was unused: deleted";
                ctx.report(Severity::Info, Topic::LeakedEni, eni, cause, "");
                self.doomed.remove(eni);
                return;
            }
            Err(fault) => fault,
        };
        match fault.remedy {
            // Throttled or unknown result: the deletion is repeated, which does no harm.
            Remedy::RetryAfter { .. } | Remedy::Unknown
                if fault.code != "InvalidNetworkInterface.InUse" => {}
            Remedy::RetryAfter { .. }
            | Remedy::Unknown
            | Remedy::Gone
            | Remedy::TryElsewhere
            | Remedy::NotifyOperator
            | Remedy::LimitReached => {
                self.doomed.remove(eni);
            }
        }
    }
}
