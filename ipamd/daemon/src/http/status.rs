//! The document that `ferrule status` reads from each node.

use super::{subnets, wall::rfc3339};
use crate::{troubles::OpenProblem, view::View};
use config_model::RuleLayout;
use config_settings::Settings;
use ipamd_core::{Obstacle, PoolConfig, Waiting};
use std::collections::BTreeMap;
use view_node::{Budget, Limits, Pool, PoolSettings, Status, Trouble, WaitingAdd};

pub(super) fn status(view: &View, settings: &Settings, troubles: &[OpenProblem]) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: settings.node_name.clone(),
        at: rfc3339(view.now, view.now),
        phase: view.phase.to_string(),
        rules: match settings.rules {
            RuleLayout::PerPod => "per-pod",
            RuleLayout::Compact => "compact",
        }
        .to_owned(),
        limits: view.limits.as_ref().map(limits),
        pool: pool(view),
        settings: view.targets.as_ref().map(|targets| pool_settings(targets, view)),
        subnets: subnets::subnets(view),
        waiting_adds: waiting_adds(view),
        budgets: view.snapshot.budgets.iter().map(budget).collect(),
        troubles: troubles.iter().map(|it| trouble(it, view)).collect(),
    }
}

fn limits(limits: &ipamd_core::Limits) -> Limits {
    Limits {
        enis: limits.cards.iter().map(|card| u32::from(card.enis)).sum(),
        ipv4_per_eni: limits.ipv4_per_eni,
        prefixes: limits.prefixes,
        branch_enis: limits.branch_enis,
    }
}

fn pool(view: &View) -> Pool {
    let counts = &view.snapshot.counts;
    Pool {
        enis: counts.enis,
        max_enis: counts.max_enis,
        max_pods: view.targets.as_ref().map(|targets| targets.max_pods),
        total: counts.total,
        assigned: counts.assigned,
        cooling: counts.cooling,
        free: counts.free,
        usable: counts.usable,
        waiting_adds: counts.waiting,
        calls: counts.calls,
        warm_short: view.snapshot.short,
    }
}

fn pool_settings(targets: &PoolConfig, view: &View) -> PoolSettings {
    let mut free_by_subnet: BTreeMap<String, u64> = BTreeMap::new();
    for eni in view.snapshot.enis.iter().filter(|eni| eni.managed && eni.counts.free > 0) {
        *free_by_subnet.entry(eni.subnet.as_str().to_owned()).or_default() += eni.counts.free;
    }
    PoolSettings {
        prefixes: subnets::prefixes(view),
        ips: targets.warm_ip_target,
        enis: targets.warm_eni_target,
        custom_networking: targets.custom_networking,
        free_by_subnet,
    }
}

fn waiting_adds(view: &View) -> Vec<WaitingAdd> {
    // Permanent obstacles come before obstacles that only take time.
    let waiting = &view.snapshot.waiting;
    let hard = |it: &&Waiting| it.obstacle != Obstacle::Time;
    let why = waiting.iter().find(hard).or(waiting.first());
    let of_pool = why.map_or_else(
        || ("a free address".to_owned(), "the daemon retries".to_owned()),
        |why| (why.why.clone(), why.next_step.clone()),
    );
    let of_branch = (
        "annotation vpc.amazonaws.com/pod-eni".to_owned(),
        "check that the VPC resource controller runs, and its log for the pod".to_owned(),
    );
    let waiters = view.snapshot.waiters.iter().zip(&view.waited);
    let each = waiters.map(|(waiter, waited)| {
        let (reason, next_step) = if waiter.branch { &of_branch } else { &of_pool }.clone();
        WaitingAdd {
            namespace: waiter.pod.namespace.clone(),
            name: waiter.pod.name.clone(),
            seconds: waited.as_secs(),
            reason,
            next_step,
        }
    });
    each.collect()
}

fn budget(budget: &ipamd_core::BudgetView) -> Budget {
    Budget {
        action: budget.action.name().to_owned(),
        milli_tokens: budget.milli_tokens,
        milli_per_second: budget.rate_milli_per_second,
        ceiling_milli_per_second: budget.ceiling_milli_per_second,
        fault: budget.fault.as_ref().map(|(said, _)| said.to_string()),
    }
}

fn trouble(standing: &OpenProblem, view: &View) -> Trouble {
    let found = standing.found.clone();
    Trouble {
        kind: found.kind.to_owned(),
        severity: found.severity,
        since: Some(rfc3339(standing.since, view.now)),
        object: found.object,
        cause: found.cause,
        next_step: found.next_step,
    }
}
