//! The figures of a run, and a table of them for people.

use super::{
    allocation::Allocation,
    contest::{Contest, DaemonKind, story},
    meter::Tally,
    setting::PoolSetting,
    trace::{Scale, Trace},
    tuning::{Bound, Search, SearchEffort, Tuned},
};
use crate::figures::{Bench, Figure};
use anyhow::Result;
use lab_cloud::Action;
use std::{collections::BTreeSet, time::Duration};

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Size of the traces.
    pub scale: Scale,
    /// Decides all chance.
    pub seed: u64,
    /// Only traces of this name.
    pub only: Option<&'a str>,
    /// Whether the cheapest settings are searched for, which takes most of the time.
    pub tune: bool,
}

impl Plan<'_> {
    fn traces(self, prefixes: bool) -> impl Iterator<Item = Trace> {
        let wanted = move |trace: &Trace| self.only.is_none_or(|only| only == trace.name);
        Trace::all(self.scale, prefixes).into_iter().filter(wanted)
    }
}

/// Tells of every EC2 call of both at the default settings, or with `WARM_IP_TARGET`.
///
/// # Errors
/// If the cloud cannot be as a trace wants it.
pub fn stories(
    plan: Plan<'_>,
    warm_ip_target: Option<u32>,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    for prefixes in [false, true] {
        for trace in plan.traces(prefixes) {
            for (who, whose) in
                [(DaemonKind::Ours, "ours"), (DaemonKind::Rival, "amazon-vpc-cni's")]
            {
                tell(&format!("{}, {}: {whose}", mode(prefixes), trace.name));
                let setting = PoolSetting::addresses(prefixes, warm_ip_target.unwrap_or(0), 0);
                story(who, &trace, setting, plan.seed)?.iter().for_each(|line| tell(line));
            }
        }
    }
    Ok(())
}

fn mode(prefixes: bool) -> &'static str {
    if prefixes { "prefixes" } else { "addresses" }
}

/// Runs all traces in both modes, with the same settings and tuned, and pushes what came of it.
///
/// # Errors
/// If the cloud cannot be as a trace wants it.
pub fn figures(plan: Plan<'_>, bench: &mut Bench, tell: &mut dyn FnMut(&str)) -> Result<()> {
    for prefixes in [false, true] {
        for trace in plan.traces(prefixes) {
            let mode = mode(prefixes);
            tell(&format!("{mode}, {}: {}", trace.name, trace.what));
            let name = Name { mode, trace: trace.name };
            let contest = Contest::hold(&trace, PoolSetting::defaults(prefixes), plan.seed)?;
            same_settings(&name, &contest, bench);
            if !plan.tune {
                continue;
            }
            // Hundreds of runs with thousands of pods would take hours: a smaller one of the kind.
            let small = || Trace::all(Scale::Small, prefixes).into_iter();
            let trace = match small().find(|small| small.name == trace.name) {
                Some(small) if trace.is_large() => small,
                Some(_) | None => trace,
            };
            tuned(&name, &trace, prefixes, plan.seed, bench, tell)?;
        }
    }
    Ok(())
}

/// Figures are named `MODE_TRACE_WHAT`.
struct Name<'a> {
    mode: &'a str,
    trace: &'a str,
}

impl Name<'_> {
    fn of(&self, what: &str) -> String {
        format!("{}_{}_{what}", self.mode, self.trace)
    }
}

fn same_settings(name: &Name, contest: &Contest, bench: &mut Bench) {
    let Contest { ours, announced, rival } = contest;
    let beside = |what: &str, unit, figure: &dyn Fn(&Tally) -> f64| {
        Figure::beside(&name.of(what), figure(ours), unit, figure(rival))
    };
    bench.push(beside("failed_adds", "ADDs", &|tally| tally.failed_adds as f64).none());
    bench.push(beside("unserved", "pods", &|tally| tally.unserved as f64).none());
    let calls = beside("calls", "calls", &|tally| tally.all_calls() as f64);
    bench.push(if contest.rival_serves_all() { calls.at_most(1.0) } else { calls });
    bench.push(beside("served", "pods", &|tally| tally.waits.len() as f64));
    let each = beside("calls_per_1000_pods", "calls", &Tally::calls_per_thousand_pods);
    bench.push(each.at_most(1.0));
    for action in actions(&[ours, announced, rival]) {
        let made = |tally: &Tally| tally.calls.get(&action).map_or(0, |calls| calls.made) as f64;
        bench.push(beside(&format!("calls_{action}"), "calls", &made));
    }
    bench.push(beside("throttled", "calls", &|tally| tally.throttled() as f64));
    bench.push(beside("wait_p50", "s", &|tally| tally.wait(50)));
    bench.push(beside("wait_p99", "s", &|tally| tally.wait(99)));
    bench.push(beside("first_pod_p50", "s", &|tally| tally.first_pod(50)));
    bench.push(beside("first_pod_p99", "s", &|tally| tally.first_pod(99)));
    bench.push(beside("idle", "address-hours", &Tally::idle_hours));
    bench.push(beside("cooling", "address-hours", &Tally::cooling_hours));
    let beside = |what: &str, unit, figure: &dyn Fn(&Tally) -> f64| {
        Figure::beside(&name.of(what), figure(announced), unit, figure(rival))
    };
    bench.push(beside("announced_failed_adds", "ADDs", &|tally| tally.failed_adds as f64).none());
    bench.push(beside("announced_unserved", "pods", &|tally| tally.unserved as f64).none());
    let calls = beside("announced_calls", "calls", &|tally| tally.all_calls() as f64);
    bench.push(if contest.rival_serves_all() { calls.at_most(1.0) } else { calls });
    bench.push(beside("announced_wait_p50", "s", &|tally| tally.wait(50)));
    bench.push(beside("announced_wait_p99", "s", &|tally| tally.wait(99)));
    bench.push(beside("announced_idle", "address-hours", &Tally::idle_hours));
}

fn actions(tallies: &[&Tally]) -> BTreeSet<Action> {
    tallies.iter().flat_map(|tally| tally.calls.keys().copied()).collect()
}

/// The rival at the cheapest address targets at which its ADDs fail as seldom as can be; ours at the
/// cheapest at which none fails, and (`thrifty`) at the cheapest of those with no more calls than
/// the rival then makes.
fn tuned(
    name: &Name,
    trace: &Trace,
    prefixes: bool,
    seed: u64,
    bench: &mut Bench,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let search = |who| Search { who, trace, prefixes, seed, effort: SearchEffort::Much };
    let any_calls = Bound { failed_adds: 0, calls: u64::MAX };
    let rival = search(DaemonKind::Rival).cheapest(any_calls)?;
    let ours = search(DaemonKind::Ours).cheapest(any_calls)?;
    let as_many_calls = Bound { failed_adds: 0, calls: rival.tally.all_calls() };
    let thrifty = search(DaemonKind::Ours).cheapest(as_many_calls)?;
    tell(&format!("  the rival tuned: {}", words(&rival)));
    for (kind, ours) in [("tuned", &ours), ("thrifty", &thrifty)] {
        tell(&format!("  ours {kind}: {}", words(ours)));
        let beside = |what: &str, unit, figure: &dyn Fn(&Tuned) -> f64| {
            Figure::beside(&name.of(&format!("{kind}_{what}")), figure(ours), unit, figure(&rival))
        };
        bench.push(beside("failed_adds", "ADDs", &|t| t.tally.failed_adds as f64).none());
        let calls = beside("calls", "calls", &|t| t.tally.all_calls() as f64);
        bench.push(if kind == "thrifty" { calls.at_most(1.0) } else { calls });
        bench.push(beside("idle", "address-hours", &|t| t.tally.idle_hours()));
        let share = beside("idle_share", "hours an hour in use", &|t| t.tally.idle_share());
        bench.push(share.at_most(SAME_POOL));
        bench.push(beside("wait_p99", "s", &|t| t.tally.wait(99)));
        bench.push(beside("warm_ip_target", "addresses", &|t| t.setting.warm_ip.into()));
        bench.push(beside("minimum_ip_target", "addresses", &|t| t.setting.minimum_ip.into()));
    }
    Ok(())
}

/// Where both need the same pool, a /28 more than which is one too many, we have it up to five
/// seconds sooner.
const SAME_POOL: f64 = 1.01;

fn words(tuned: &Tuned) -> String {
    let PoolSetting { warm_ip, minimum_ip, .. } = tuned.setting;
    let (failed, calls) = (tuned.tally.failed_adds, tuned.tally.all_calls());
    let idle = tuned.tally.idle_hours();
    format!(
        "WARM_IP_TARGET={warm_ip} MINIMUM_IP_TARGET={minimum_ip}: {failed} ADDs fail, {calls} \
         calls, {idle:.1} idle address-hours"
    )
}

const QUIET_ROUNDS: u32 = 7;

/// In-memory allocation beside 10 and beside 1,000 pods.
pub fn allocation(bench: &mut Bench) {
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    // The first run of anything is slower; it is not the ten pods' fault.
    let _ = super::allocation::measure(10);
    // Other programs of the machine only ever make it slower: the quietest of several rounds.
    let rounds: Vec<_> = (0..QUIET_ROUNDS)
        .map(|_| (super::allocation::measure(10), super::allocation::measure(1000)))
        .collect();
    let quietest = |of: &dyn Fn(&(Allocation, Allocation)) -> Duration| {
        rounds.iter().map(of).min().unwrap_or_default()
    };
    let few = Allocation { p50: quietest(&|r| r.0.p50), p99: quietest(&|r| r.0.p99) };
    let many = Allocation { p50: quietest(&|r| r.1.p50), p99: quietest(&|r| r.1.p99) };
    bench.push(Figure::bounded("allocation_p99_1000_pods", micros(many.p99), "µs", 20.0));
    let flat = Figure::beside("allocation_p50_flatness", micros(many.p50), "µs", micros(few.p50));
    bench.push(flat.at_most(2.0));
    let flat = Figure::beside("allocation_p99_flatness", micros(many.p99), "µs", micros(few.p99));
    bench.push(flat.at_most(2.0));
}
