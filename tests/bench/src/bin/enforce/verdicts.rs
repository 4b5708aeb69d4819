//! The cost of verdicts about first packets, by repeated test runs.
//!
//! Each run of the program picks another peer and another source port. The cost of the pick alone is subtracted.

use crate::{PASS, WIRE, agent::Agent, packet, world, world::World};
use anyhow::{Context as _, Result, ensure};
use datapath_ebpf::Programs;
use std::path::Path;

/// Nanoseconds of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Without the row of a connection: of ICMP that is no echo.
    pub(crate) verdict: f64,
    /// With the row of a connection: of TCP.
    pub(crate) first: f64,
    /// Of the verdict, the lookups alone: without the packet's headers and its origin.
    pub(crate) lookups: f64,
}

/// A loaded program that has a policy for a pod.
pub(crate) trait Judge {
    /// The action of the last of many packets, and the mean time of a packet in nanoseconds.
    fn run(&mut self, program: &'static str, packet: &[u8], peers: u32) -> Result<(i32, f64)>;
}

impl Judge for Programs {
    fn run(&mut self, program: &'static str, packet: &[u8], peers: u32) -> Result<(i32, f64)> {
        let ran =
            self.time(program, packet, [world::link(0).ifindex, WIRE], cb(packet, peers), REPEAT)?;
        Ok((ran.0, ran.1.as_secs_f64() * 1e9))
    }
}

/// The control block for `pick.h`.
pub(crate) fn cb(packet: &[u8], peers: u32) -> [u8; 16] {
    let mut cb = [0; 16];
    cb[..4].copy_from_slice(&world::address(0, false).to_bits().to_ne_bytes());
    cb[4..8].copy_from_slice(&peers.to_ne_bytes());
    cb[8] = u8::from(packet::has_ports(packet));
    cb
}

pub(crate) async fn measure(object: &Path, pins: &Path, peers: u32, rounds: u32) -> Result<Costs> {
    let mut programs = load(object, pins, peers).await?;
    let before = programs.counters()?;
    let costs = costs(&mut programs, peers, rounds)?;
    ensure!(programs.counters()? == before, "packets were dropped: {:?}", programs.counters()?);
    Ok(costs)
}

/// Loads a node with this number of peers, all of which a policy of 200 groups allows.
async fn load(object: &Path, pins: &Path, peers: u32) -> Result<Programs> {
    std::fs::create_dir(pins).context("create a folder of pins")?;
    let groups = peers.min(200);
    let world = World {
        peers,
        groups,
        pods: 10,
        policies: 200,
        parts: 50,
        is_open: true,
        has_names: false,
    };
    Agent::start(object, pins, &world).await?.into_programs()
}

/// The cost of first packets by these programs and by those of the peer, in nanoseconds.
pub(crate) async fn beside(
    object: &Path,
    pins: &Path,
    peer: &mut impl Judge,
    peers: u32,
    rounds: u32,
) -> Result<[f64; 2]> {
    let mut programs = load(object, pins, peers).await?;
    let syn = packet::start(world::address(0, false), world::pod_address(0), 80);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        times[0].push(cost(&mut programs, "first_packet", &syn, peers, PASS)?);
        times[1].push(cost(peer, "first_packet", &syn, peers, 0)?);
    }
    let [ours, theirs] = times.map(median);
    Ok([ours?, theirs?])
}

/// Without the choice of a peer and a port.
fn cost(
    judge: &mut impl Judge,
    program: &'static str,
    packet: &[u8],
    peers: u32,
    pass: i32,
) -> Result<f64> {
    let (_, picked) = judge.run("only_pick", packet, peers)?;
    let (action, judged) = judge.run(program, packet, peers)?;
    ensure!(action == pass, "a packet of an allowed peer has action {action}");
    Ok(judged - picked)
}

fn costs(judge: &mut impl Judge, peers: u32, rounds: u32) -> Result<Costs> {
    let (peer, pod) = (world::address(0, false), world::pod_address(0));
    let (alone, syn) = (packet::of_no_connection(peer, pod), packet::start(peer, pod, 80));
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let runs = [("first_packet", &alone), ("first_packet", &syn), ("only_lookups", &alone)];
        for (times, (program, packet)) in times.iter_mut().zip(runs) {
            times.push(cost(judge, program, packet, peers, PASS)?);
        }
    }
    let [verdict, first, lookups] = times.map(median);
    Ok(Costs { verdict: verdict?, first: first?, lookups: lookups? })
}

fn median(mut of: Vec<f64>) -> Result<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().context("no round")
}

/// The packets of a round.
pub(crate) const REPEAT: u32 = 200_000;
