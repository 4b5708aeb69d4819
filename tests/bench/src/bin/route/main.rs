//! Measures the cost of pod rules for a packet.
//!
//! One run measures round trips and packets per second through nodes with a rule per pod, with compact rules,
//! and without rules. Each node is a network namespace with the links of an m5.24xlarge. The production
//! planner and the production netlink messages set it up. One process has the sockets of the pod and of the
//! host beyond the node. So the time of a packet is that of the kernel alone, without a wait for another
//! process. The nodes alternate every few milliseconds, so that other load of the machine affects all of
//! them.

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
    /// Number of turns of each node
    #[arg(long, default_value_t = 1000)]
    turns: usize,
    /// Number of pods of each node
    #[arg(long, value_delimiter = ',', default_values_t = [1, 50, 250, 700])]
    pods: Vec<usize>,
}

/// Round trips of a turn.
const TRIPS: u32 = 10;
/// One-way packets of a turn.
const PACKETS: u32 = 20;

/// A node with the times of its turns.
struct MeasuredNode {
    node: Node,
    trips_us: Vec<f64>,
    packets_us: Vec<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut nodes = Vec::new();
    for pods in &args.pods {
        for rules in Rules::ALL {
            let start = Instant::now();
            let node = Node::set_up(*pods, rules)
                .with_context(|| format!("a node with {pods} pods, {}", rules.name()))?;
            let took = start.elapsed().as_secs_f64();
            let count = node.rules;
            let name = rules.name();
            let mut err = std::io::stderr();
            let _ = writeln!(err, "{pods} pods, {name}: {count} rules, set up in {took:.1} s");
            nodes.push(MeasuredNode { node, trips_us: Vec::new(), packets_us: Vec::new() });
        }
    }
    for turn in 0..args.turns {
        // A different node starts each turn.
        let first = turn % nodes.len();
        nodes.rotate_left(first);
        for node in &mut nodes {
            node.turn()?;
        }
        nodes.rotate_right(first);
    }
    let mut bench = report(&args.pods, &nodes)?;
    switches(&mut bench, &mut nodes)?;
    figures::print(&bench)
}

/// Changes the layout under traffic. A lost packet ends the run.
fn switches(bench: &mut Bench, nodes: &mut [MeasuredNode]) -> Result<()> {
    let most = nodes.iter().map(|one| one.node.pods).max().unwrap_or(0);
    let largest = nodes.iter_mut().filter(|one| one.node.pods == most);
    for MeasuredNode { node, .. } in largest.filter(|one| one.node.layout != Rules::None) {
        let what = format!("change the rules of {most} pods from {} and back", node.layout.name());
        let (trips, rules) = node.switch_layout_twice().context(what)?;
        let left = rules.abs_diff(node.rules) as f64;
        let name = |what| name(what, node.layout, most);
        bench.push(Figure::reported(&name("round_trips_while_changing"), trips as f64, "trips"));
        bench.push(Figure::reported(&name("rules_left_by_changing"), left, "rules").none());
    }
    Ok(())
}

impl MeasuredNode {
    fn turn(&mut self) -> Result<()> {
        let start = Instant::now();
        for _ in 0..TRIPS {
            self.node.round_trip()?;
        }
        self.trips_us.push(per(start.elapsed(), TRIPS) * 1e6);
        let start = Instant::now();
        for _ in 0..PACKETS {
            self.node.one_way()?;
        }
        self.packets_us.push(per(start.elapsed(), PACKETS) * 1e6);
        Ok(())
    }
}

fn per(total: Duration, count: u32) -> f64 {
    total.as_secs_f64() / f64::from(count)
}

fn report(sizes: &[usize], nodes: &[MeasuredNode]) -> Result<Bench> {
    let mut bench = Bench::new("route");
    let of = |pods: usize, rules: Rules| {
        nodes
            .iter()
            .find(|one| one.node.pods == pods && one.node.layout == rules)
            .context("every node was measured")
    };
    for pods in sizes {
        for rules in Rules::ALL {
            let count = of(*pods, rules)?.node.rules as f64;
            bench.push(Figure::reported(&name("rules", rules, *pods), count, "rules"));
        }
    }
    for pods in sizes {
        let bare = of(*pods, Rules::None)?;
        for rules in Rules::ALL {
            let trip = quiet(&of(*pods, rules)?.trips_us);
            let figure = name("round_trip", rules, *pods);
            bench.push(Figure::with_reference(&figure, trip, "us", quiet(&bare.trips_us)));
        }
        for rules in Rules::ALL {
            let packets = rate(&of(*pods, rules)?.packets_us);
            let figure = name("packets", rules, *pods);
            bench.push(Figure::with_reference(&figure, packets, "k/s", rate(&bare.packets_us)));
        }
    }
    // The cost of the other pods of a node.
    if let (Some(one), Some(_)) = (sizes.first(), sizes.iter().find(|pods| **pods == 250)) {
        for rules in Rules::ALL {
            let (alone, many) = (of(*one, rules)?, of(250, rules)?);
            let figure = format!("round_trip_{}_250_by_{one}", rules.name());
            let figure = Figure::with_reference(
                &figure,
                quiet(&many.trips_us),
                "us",
                quiet(&alone.trips_us),
            );
            let has_target = matches!(rules, Rules::Prefixes | Rules::Singles);
            bench.push(if has_target { figure.at_most(1.05) } else { figure });
        }
    }
    Ok(bench)
}

fn name(what: &str, rules: Rules, pods: usize) -> String {
    format!("{what}_{}_{pods}", rules.name())
}

/// The lower quartile, because other load of the machine only ever adds time.
fn quiet(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::NAN)
}

/// Thousands of packets per second.
fn rate(times_us: &[f64]) -> f64 {
    1e3 / quiet(times_us)
}
