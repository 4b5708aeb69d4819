//! `ferrule-sim` runs many lives in parallel until one breaks a law.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use clap::Parser;
use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};
use tests_sim::{Mode, Plan, Planted, RunOptions, Violation, run, shrink};

#[derive(Parser)]
#[command(name = "ferrule-sim", about = "Lives of simulated nodes, one for each seed")]
struct Args {
    /// Number of lives; without --mode, a tenth more of each mode that no seed selects (trunk, node-cidr)
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One mode only: secondary, prefixes, …
    #[arg(long)]
    mode: Option<Mode>,
    /// Print the events of the first life
    #[arg(long)]
    trace: bool,
    /// Plant a fault that the simulation should find
    #[arg(long)]
    planted: Option<Planted>,
    /// Continue after a failure, and list all failures
    #[arg(long)]
    keep_going: bool,
    /// Number of runs for the reduction of a failure
    #[arg(long, default_value_t = 600)]
    shrink: u32,
    /// Number of parallel lives
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// The state that the workers share.
#[derive(Default)]
struct Progress {
    failures: Mutex<Vec<(u64, Violation)>>,
    stop: AtomicBool,
    done: AtomicU64,
    simulated_ms: AtomicU64,
    events: AtomicU64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.trace {
        let plan = Plan::of(args.from, args.mode);
        return print_life(&plan, &args, true);
    }
    let progress = Progress::default();
    let next = AtomicU64::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| work(&args, &progress, &next));
        }
    });
    let mut failures = progress.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|(nth, _)| *nth);
    let days = progress.simulated_ms.load(Ordering::Relaxed) / 86_400_000;
    println!(
        "{} lives, {days} days, {} events in {:.1} s; {} broke a law",
        progress.done.load(Ordering::Relaxed),
        progress.events.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
        failures.len()
    );
    let Some((first, _)) = failures.first() else { return ExitCode::SUCCESS };
    if args.keep_going {
        for (nth, violation) in &failures {
            let plan = args.life(*nth);
            println!("{} {}: {violation}", plan.setup.mode, plan.seed);
        }
    }
    print_life(&args.life(*first), &args, false)
}

impl Args {
    /// The number of lives.
    fn lives(&self) -> u64 {
        self.seeds + if self.mode.is_none() { 2 * self.more() } else { 0 }
    }

    /// The number of lives in each mode that no seed selects.
    fn more(&self) -> u64 {
        self.seeds / 10
    }

    fn life(&self, nth: u64) -> Plan {
        match nth.checked_sub(self.seeds) {
            Some(more) if more < self.more() => Plan::of(self.from + more, Some(Mode::Trunk)),
            Some(more) => Plan::of(self.from + more - self.more(), Some(Mode::NodeCidr)),
            None => Plan::of(self.from + nth, self.mode),
        }
    }
}

fn work(args: &Args, progress: &Progress, next: &AtomicU64) {
    while !progress.stop.load(Ordering::Relaxed) {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        if nth >= args.lives() {
            return;
        }
        let watching = RunOptions { planted: args.planted, ..RunOptions::default() };
        let outcome = run(&args.life(nth), watching);
        progress.simulated_ms.fetch_add(outcome.duration.0, Ordering::Relaxed);
        progress.events.fetch_add(outcome.events, Ordering::Relaxed);
        let done = progress.done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(violation) = outcome.violation {
            let mut failures = progress.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push((nth, violation));
            progress.stop.fetch_or(!args.keep_going, Ordering::Relaxed);
        }
        if done.is_multiple_of(500) {
            let failed = progress.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
            eprintln!("{done} of {} lives, {failed} broke a law", args.lives());
        }
    }
}

/// Prints a life: the original, or the shortest one that breaks the same law.
fn print_life(plan: &Plan, args: &Args, live: bool) -> ExitCode {
    let watching = RunOptions { keep: 60, live, planted: args.planted, iam: None };
    let outcome = run(plan, watching);
    let Some(violation) = outcome.violation else {
        println!("seed {} ({}): no law is broken", plan.seed, plan.setup.mode);
        return ExitCode::SUCCESS;
    };
    println!("\nseed {} ({}) breaks a law: {violation}", plan.seed, plan.setup.mode);
    let shortest = shrink(plan, violation.law, args.planted, args.shrink);
    println!("\n{} of {} steps are enough:", shortest.steps.len(), plan.steps.len());
    println!("  {:?}", shortest.setup);
    for step in &shortest.steps {
        println!("  {step}");
    }
    println!("\nthe last events of this life:");
    let outcome = run(&shortest, RunOptions { live: false, ..watching });
    for line in &outcome.trace {
        println!("  {line}");
    }
    if let Some(violation) = outcome.violation {
        println!("\n{violation}");
    }
    println!(
        "\nto repeat it: cargo xtask sim --from {} --seeds 1 --mode {} --trace",
        plan.seed, plan.setup.mode
    );
    ExitCode::FAILURE
}
