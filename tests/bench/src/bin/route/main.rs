//! Measures what rules for pods cost a packet: round trips and packets per second through nodes with
//! a rule per pod, with compact rules, and without any, all of them side by side in one run.
//!
//! Each node is a network namespace with the links of an m5.24xlarge, set up by the production
//! planner and the production messages. One process holds the sockets of the pod and of the host
//! beyond the node, so that a packet's way is the kernel's work alone, without a wait for a
//! process; the nodes take turns of a few milliseconds, so that whatever else the machine does
//! falls on all of them.

mod node;

use anyhow::{Context as _, Result};
use clap::Parser;
use node::{Node, Rules};
use std::{
    io::Write as _,
    time::{Duration, Instant},
};
use tests_bench::figures::{self, Bench, Figure};

#[derive(Parser)]
struct Args {
    /// How many turns each node has
    #[arg(long, default_value_t = 1000)]
    turns: usize,
    /// How many pods, node by node
    #[arg(long, value_delimiter = ',', default_values_t = [1, 50, 250, 700])]
    pods: Vec<usize>,
}

/// Round trips of a turn.
const TRIPS: u32 = 10;
/// Packets of a turn that go one way.
const PACKETS: u32 = 20;

/// A node and what its turns have shown.
struct Contestant {
    node: Node,
    trips_us: Vec<f64>,
    packets_us: Vec<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut contestants = Vec::new();
    for pods in &args.pods {
        for rules in Rules::ALL {
            let began = Instant::now();
            let node = Node::set_up(*pods, rules)
                .with_context(|| format!("a node with {pods} pods, {}", rules.name()))?;
            let took = began.elapsed().as_secs_f64();
            let count = node.rules;
            let name = rules.name();
            let mut err = std::io::stderr();
            let _ = writeln!(err, "{pods} pods, {name}: {count} rules, set up in {took:.1} s");
            contestants.push(Contestant { node, trips_us: Vec::new(), packets_us: Vec::new() });
        }
    }
    for turn in 0..args.turns {
        // Nobody is always the first after whatever comes in between.
        let first = turn % contestants.len();
        contestants.rotate_left(first);
        for contestant in &mut contestants {
            contestant.turn()?;
        }
        contestants.rotate_right(first);
    }
    let mut bench = report(&args.pods, &contestants)?;
    switches(&mut bench, &mut contestants)?;
    figures::print(&bench)
}

/// The layout is changed under traffic: a packet that is lost ends the run.
fn switches(bench: &mut Bench, contestants: &mut [Contestant]) -> Result<()> {
    let most = contestants.iter().map(|one| one.node.pods).max().unwrap_or(0);
    let largest = contestants.iter_mut().filter(|one| one.node.pods == most);
    for Contestant { node, .. } in largest.filter(|one| one.node.layout != Rules::None) {
        let what = format!("change the rules of {most} pods from {} and back", node.layout.name());
        let (trips, rules) = node.there_and_back().context(what)?;
        let left = rules.abs_diff(node.rules) as f64;
        let name = |what| name(what, node.layout, most);
        bench.push(Figure::told(&name("round_trips_while_changing"), trips as f64, "trips"));
        bench.push(Figure::told(&name("rules_left_by_changing"), left, "rules").none());
    }
    Ok(())
}

impl Contestant {
    fn turn(&mut self) -> Result<()> {
        let began = Instant::now();
        for _ in 0..TRIPS {
            self.node.round_trip()?;
        }
        self.trips_us.push(per(began.elapsed(), TRIPS) * 1e6);
        let began = Instant::now();
        for _ in 0..PACKETS {
            self.node.one_way()?;
        }
        self.packets_us.push(per(began.elapsed(), PACKETS) * 1e6);
        Ok(())
    }
}

fn per(total: Duration, count: u32) -> f64 {
    total.as_secs_f64() / f64::from(count)
}

fn report(sizes: &[usize], contestants: &[Contestant]) -> Result<Bench> {
    let mut bench = Bench::new("route");
    let of = |pods: usize, rules: Rules| {
        contestants
            .iter()
            .find(|one| one.node.pods == pods && one.node.layout == rules)
            .context("every node took part")
    };
    for pods in sizes {
        for rules in Rules::ALL {
            let count = of(*pods, rules)?.node.rules as f64;
            bench.push(Figure::told(&name("rules", rules, *pods), count, "rules"));
        }
    }
    for pods in sizes {
        let bare = of(*pods, Rules::None)?;
        for rules in Rules::ALL {
            let trip = quiet(&of(*pods, rules)?.trips_us);
            let figure = name("round_trip", rules, *pods);
            bench.push(Figure::beside(&figure, trip, "us", quiet(&bare.trips_us)));
        }
        for rules in Rules::ALL {
            let packets = rate(&of(*pods, rules)?.packets_us);
            let figure = name("packets", rules, *pods);
            bench.push(Figure::beside(&figure, packets, "k/s", rate(&bare.packets_us)));
        }
    }
    // What a packet pays for the other pods of its node.
    if let (Some(one), Some(_)) = (sizes.first(), sizes.iter().find(|pods| **pods == 250)) {
        for rules in Rules::ALL {
            let (alone, many) = (of(*one, rules)?, of(250, rules)?);
            let figure = format!("round_trip_{}_250_by_{one}", rules.name());
            let figure =
                Figure::beside(&figure, quiet(&many.trips_us), "us", quiet(&alone.trips_us));
            let promised = matches!(rules, Rules::Prefixes | Rules::Singles);
            bench.push(if promised { figure.at_most(1.05) } else { figure });
        }
    }
    Ok(bench)
}

fn name(what: &str, rules: Rules, pods: usize) -> String {
    format!("{what}_{}_{pods}", rules.name())
}

/// The lower quartile: what else the machine does only ever adds.
fn quiet(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::NAN)
}

/// Packets per second, in thousands.
fn rate(times_us: &[f64]) -> f64 {
    1e3 / quiet(times_us)
}
