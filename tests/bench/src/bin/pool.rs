//! Compares the pool with amazon-vpc-cni's algorithm in simulated time. Needs no privileges.

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use std::io::Write as _;
use tests_bench::{
    figures::{self, Bench},
    pool::{self, Plan, Scale},
};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Parser)]
struct Args {
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// Seed of all random choices; all figures but those of real time depend on it only
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The small traces of the tests, which take seconds
    #[arg(long)]
    small: bool,
    /// Only the trace of this name
    #[arg(long)]
    trace: Option<String>,
    /// Only the default settings; the search for the cheapest ones takes most of the time
    #[arg(long)]
    untuned: bool,
    /// Only print every EC2 call at the default settings
    #[arg(long)]
    calls: bool,
    /// As `--calls`, with this `WARM_IP_TARGET`
    #[arg(long, requires = "calls")]
    warm_ip_target: Option<u32>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut bench = Bench::new("pool");
    let scale = if args.small { Scale::Small } else { Scale::Full };
    let mut print = |line: &str| {
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    let (only, tune) = (args.trace.as_deref(), !args.untuned);
    let plan = Plan { scale, seed: args.seed, only, tune };
    if args.calls {
        return pool::call_logs(plan, args.warm_ip_target, &mut print);
    }
    pool::figures(plan, &mut bench, &mut print)?;
    pool::allocation(&mut bench);
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => {
            let table = pool::table(&bench);
            write!(std::io::stdout(), "{table}").context("print the figures")
        }
    }
}
