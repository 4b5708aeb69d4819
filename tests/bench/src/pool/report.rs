//! The figures of a run.

use super::{
    allocation::Allocation,
    comparison::{Comparison, DaemonKind, call_log},
    meter::Tally,
    setting::PoolSetting,
    trace::{Scale, Trace},
    tuning::{Bound, Search, SearchEffort, Tuned},
};
use crate::figures::{Bench, Figure};
use anyhow::Result;
use lab_cloud::Action;
use std::{collections::BTreeSet, time::Duration};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Size of the traces.
    pub scale: Scale,
    /// Seed of all random choices.
    pub seed: u64,
    /// Only the trace of this name.
    pub only: Option<&'a str>,
    /// True if the cheapest settings are searched, which takes most of the time.
    pub tune: bool,
}

impl Plan<'_> {
    fn traces(self, prefixes: bool) -> impl Iterator<Item = Trace> {
        let wanted = move |trace: &Trace| self.only.is_none_or(|only| only == trace.name);
        Trace::all(self.scale, prefixes).into_iter().filter(wanted)
    }
}

/// Prints every EC2 call of both daemons, at the default settings or with this `WARM_IP_TARGET`.
///
/// # Errors
/// If the cloud refuses a trace's specification.
pub fn call_logs(
    plan: Plan<'_>,
    warm_ip_target: Option<u32>,
    print: &mut dyn FnMut(&str),
) -> Result<()> {
    for prefixes in [false, true] {
        for trace in plan.traces(prefixes) {
            for (who, name) in
                [(DaemonKind::Ours, "Ferrule"), (DaemonKind::Rival, "amazon-vpc-cni")]
            {
                print(&format!("{}, {}: {name}", mode(prefixes), trace.name));
                let setting = PoolSetting::addresses(prefixes, warm_ip_target.unwrap_or(0), 0);
                call_log(who, &trace, setting, plan.seed)?.iter().for_each(|line| print(line));
            }
        }
    }
    Ok(())
}

fn mode(prefixes: bool) -> &'static str {
    if prefixes { "prefixes" } else { "addresses" }
}

/// Runs all traces in both modes, with equal and with tuned settings, and adds the figures.
///
/// # Errors
/// If the cloud refuses a trace's specification.
pub fn figures(plan: Plan<'_>, bench: &mut Bench, print: &mut dyn FnMut(&str)) -> Result<()> {
    for prefixes in [false, true] {
        for trace in plan.traces(prefixes) {
            let mode = mode(prefixes);
            print(&format!("{mode}, {}: {}", trace.name, trace.description));
            let name = Name { mode, trace: trace.name };
            let comparison = Comparison::run(&trace, PoolSetting::defaults(prefixes), plan.seed)?;
            same_settings(&name, &comparison, bench);
            if !plan.tune {
                continue;
            }
            // Hundreds of runs with thousands of pods would take hours, so the small trace of the same kind
            // is tuned.
            let small = || Trace::all(Scale::Small, prefixes).into_iter();
            let trace = match small().find(|small| small.name == trace.name) {
                Some(small) if trace.is_large() => small,
                Some(_) | None => trace,
            };
            tuned(&name, &trace, prefixes, plan.seed, bench, print)?;
        }
    }
    Ok(())
}

/// Names of figures: `MODE_TRACE_WHAT`.
struct Name<'a> {
    mode: &'a str,
    trace: &'a str,
}

impl Name<'_> {
    fn of(&self, what: &str) -> String {
        format!("{}_{}_{what}", self.mode, self.trace)
    }
}

fn same_settings(name: &Name, comparison: &Comparison, bench: &mut Bench) {
    let Comparison { ours, announced, rival } = comparison;
    let with_reference = |what: &str, unit, figure: &dyn Fn(&Tally) -> f64| {
        Figure::with_reference(&name.of(what), figure(ours), unit, figure(rival))
    };
    bench.push(with_reference("failed_adds", "ADDs", &|tally| tally.failed_adds as f64).none());
    bench.push(with_reference("unserved", "pods", &|tally| tally.unserved as f64).none());
    let calls = with_reference("calls", "calls", &|tally| tally.all_calls() as f64);
    bench.push(if comparison.rival_serves_all() { calls.at_most(1.0) } else { calls });
    bench.push(with_reference("served", "pods", &|tally| tally.waits.len() as f64));
    let each = with_reference("calls_per_1000_pods", "calls", &Tally::calls_per_thousand_pods);
    bench.push(each.at_most(1.0));
    for action in actions(&[ours, announced, rival]) {
        let made = |tally: &Tally| tally.calls.get(&action).map_or(0, |calls| calls.made) as f64;
        bench.push(with_reference(&format!("calls_{action}"), "calls", &made));
    }
    bench.push(with_reference("throttled", "calls", &|tally| tally.throttled() as f64));
    bench.push(with_reference("wait_p50", "s", &|tally| tally.wait(50)));
    bench.push(with_reference("wait_p99", "s", &|tally| tally.wait(99)));
    bench.push(with_reference("first_pod_p50", "s", &|tally| tally.first_pod(50)));
    bench.push(with_reference("first_pod_p99", "s", &|tally| tally.first_pod(99)));
    bench.push(with_reference("idle", "address-hours", &Tally::idle_hours));
    bench.push(with_reference("cooling", "address-hours", &Tally::cooling_hours));
    let with_reference = |what: &str, unit, figure: &dyn Fn(&Tally) -> f64| {
        Figure::with_reference(&name.of(what), figure(announced), unit, figure(rival))
    };
    bench.push(
        with_reference("announced_failed_adds", "ADDs", &|tally| tally.failed_adds as f64).none(),
    );
    bench.push(with_reference("announced_unserved", "pods", &|tally| tally.unserved as f64).none());
    let calls = with_reference("announced_calls", "calls", &|tally| tally.all_calls() as f64);
    bench.push(if comparison.rival_serves_all() { calls.at_most(1.0) } else { calls });
    bench.push(with_reference("announced_wait_p50", "s", &|tally| tally.wait(50)));
    bench.push(with_reference("announced_wait_p99", "s", &|tally| tally.wait(99)));
    bench.push(with_reference("announced_idle", "address-hours", &Tally::idle_hours));
}

fn actions(tallies: &[&Tally]) -> BTreeSet<Action> {
    tallies.iter().flat_map(|tally| tally.calls.keys().copied()).collect()
}

/// Searches the cheapest address targets. The rival: those with the fewest failed ADDs. Ours, `tuned`: those
/// Searches the cheapest address targets. The rival: those with the fewest failed ADDs. Ours, `tuned`: those
/// without failures. Ours, `thrifty`: those of them with at most as many calls as the rival.
fn tuned(
    name: &Name,
    trace: &Trace,
    prefixes: bool,
    seed: u64,
    bench: &mut Bench,
    print: &mut dyn FnMut(&str),
) -> Result<()> {
    let search = |who| Search { who, trace, prefixes, seed, effort: SearchEffort::Much };
    let any_calls = Bound { failed_adds: 0, calls: u64::MAX };
    let rival = search(DaemonKind::Rival).cheapest(any_calls)?;
    let ours = search(DaemonKind::Ours).cheapest(any_calls)?;
    let as_many_calls = Bound { failed_adds: 0, calls: rival.tally.all_calls() };
    let thrifty = search(DaemonKind::Ours).cheapest(as_many_calls)?;
    print(&format!("  the rival tuned: {}", summary(&rival)));
    for (kind, ours) in [("tuned", &ours), ("thrifty", &thrifty)] {
        print(&format!("  ours {kind}: {}", summary(ours)));
        let with_reference = |what: &str, unit, figure: &dyn Fn(&Tuned) -> f64| {
            Figure::with_reference(
                &name.of(&format!("{kind}_{what}")),
                figure(ours),
                unit,
                figure(&rival),
            )
        };
        bench.push(with_reference("failed_adds", "ADDs", &|t| t.tally.failed_adds as f64).none());
        let calls = with_reference("calls", "calls", &|t| t.tally.all_calls() as f64);
        bench.push(if kind == "thrifty" { calls.at_most(1.0) } else { calls });
        bench.push(with_reference("idle", "address-hours", &|t| t.tally.idle_hours()));
        let share = with_reference("idle_share", "hours an hour in use", &|t| t.tally.idle_share());
        bench.push(share.at_most(SAME_POOL));
        bench.push(with_reference("wait_p99", "s", &|t| t.tally.wait(99)));
        bench.push(with_reference("warm_ip_target", "addresses", &|t| t.setting.warm_ip.into()));
        bench.push(with_reference("minimum_ip_target", "addresses", &|t| {
            t.setting.minimum_ip.into()
        }));
    }
    Ok(())
}

/// Where both need the same pool, of which a further /28 would be one too many, ours has it up to five
/// seconds earlier.
const SAME_POOL: f64 = 1.01;

fn summary(tuned: &Tuned) -> String {
    let PoolSetting { warm_ip, minimum_ip, .. } = tuned.setting;
    let (failed, calls) = (tuned.tally.failed_adds, tuned.tally.all_calls());
    let idle = tuned.tally.idle_hours();
    format!(
        "WARM_IP_TARGET={warm_ip} MINIMUM_IP_TARGET={minimum_ip}: {failed} ADDs fail, {calls} \
         calls, {idle:.1} idle address-hours"
    )
}

const QUIET_ROUNDS: u32 = 7;

/// In-memory allocation with 10 and with 1,000 pods.
pub fn allocation(bench: &mut Bench) {
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    // The first run of any code is slower, so it does not count for the ten pods.
    let _ = super::allocation::measure(10);
    // Other load of the machine only ever adds time, so the fastest of several rounds counts.
    let rounds: Vec<_> = (0..QUIET_ROUNDS)
        .map(|_| (super::allocation::measure(10), super::allocation::measure(1000)))
        .collect();
    let quietest = |of: &dyn Fn(&(Allocation, Allocation)) -> Duration| {
        rounds.iter().map(of).min().unwrap_or_default()
    };
    let few = Allocation { p50: quietest(&|r| r.0.p50), p99: quietest(&|r| r.0.p99) };
    let many = Allocation { p50: quietest(&|r| r.1.p50), p99: quietest(&|r| r.1.p99) };
    bench.push(Figure::bounded("allocation_p99_1000_pods", micros(many.p99), "µs", 20.0));
    let flat =
        Figure::with_reference("allocation_p50_flatness", micros(many.p50), "µs", micros(few.p50));
    bench.push(flat.at_most(2.0));
    let flat =
        Figure::with_reference("allocation_p99_flatness", micros(many.p99), "µs", micros(few.p99));
    bench.push(flat.at_most(2.0));
}
