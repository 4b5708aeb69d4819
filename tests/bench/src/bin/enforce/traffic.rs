//! Traffic of a pod with policies, beside a node without programs. Both nodes take turns.
//!
//! Both ends of a round trip run on one core. Otherwise the scheduler decides for the whole run on which core a server
//! runs. A datagram to a server on an idle core takes three times as long.

use crate::way::Way;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    thread,
    time::{Duration, Instant},
};
use tests_bench::cores::{cores, stay_on, timed};

/// Of each turn, the values of both ways in their order.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Microseconds of a datagram and its answer.
    pub(crate) round_trip: Vec<[f64; 2]>,
    /// Microseconds of a connection with one request.
    pub(crate) connection: Vec<[f64; 2]>,
    /// Nanoseconds for 1,000 bits of one stream.
    pub(crate) stream: Vec<[f64; 2]>,
}

pub(crate) fn measure(ways: [&Way; 2], turns: u32) -> Result<Traffic> {
    let cores = cores()?;
    let [first, .., last] = cores[..] else {
        return Err(anyhow!("need two cores, and have {}", cores.len()));
    };
    thread::scope(|scope| {
        // It moves from namespace to namespace. Its threads run on its core too.
        let measured = scope.spawn(|| {
            stay_on(last)?;
            let round_trip = served(ways, Way::echo, Way::end_echo, || {
                compare(ways, turns, |way| timed(TRIPS, || way.round_trip()))
            })?;
            let connection = served(ways, Way::answer, Way::end_answer, || {
                compare(ways, turns, |way| timed(CONNECTIONS, || way.request()))
            })?;
            let stream = compare(ways, turns.div_ceil(2), |way| stream(way, first))?;
            Ok(Traffic { round_trip, connection, stream })
        });
        measured.join().map_err(|_| anyhow!("the thread panicked"))?
    })
}

/// Measures while each pod has a server in a thread of its own.
fn served<T>(
    ways: [&Way; 2],
    serve: fn(&Way) -> Result<()>,
    end: fn(&Way) -> Result<()>,
    measure: impl FnOnce() -> Result<T>,
) -> Result<T> {
    thread::scope(|scope| {
        let servers = ways.map(|way| scope.spawn(move || serve(way)));
        let measured = measure();
        for way in ways {
            way.beyond.enter()?;
            end(way)?;
        }
        for server in servers {
            server.join().map_err(|_| anyhow!("a server panicked"))??;
        }
        measured
    })
}

/// Measures both ways in turns, of which every second one is in the other order.
fn compare(
    ways: [&Way; 2],
    turns: u32,
    measure: impl Fn(&Way) -> Result<f64>,
) -> Result<Vec<[f64; 2]>> {
    let mut values = Vec::new();
    for turn in 0..turns {
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut of_turn = [0.0; 2];
        for at in order {
            ways[at].beyond.enter()?;
            of_turn[at] = measure(ways[at])?;
        }
        values.push(of_turn);
    }
    Ok(values)
}

/// The time of 1,000 bits in nanoseconds. The sender has a core of its own.
fn stream(way: &Way, core_of_sender: usize) -> Result<f64> {
    let connection = way.connect()?;
    let (mut client, mut server) = (connection.client, connection.server);
    let mut started = None;
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            stay_on(core_of_sender)?;
            let bytes = vec![0; 128 << 10];
            // Other work on its core can delay it.
            let begun = Instant::now();
            while begun.elapsed() < STREAM {
                client.write_all(&bytes).context("send a stream")?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let (mut bytes, mut received) = (vec![0; 128 << 10], 0_u64);
        loop {
            match server.read(&mut bytes) {
                Ok(0) => break,
                // The time starts with the first bytes.
                Ok(_) if started.is_none() => started = Some(Instant::now()),
                Ok(read) => received += read as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("a stream has stopped"),
            }
        }
        let elapsed = started.map_or(Duration::ZERO, |started: Instant| started.elapsed());
        sender.join().map_err(|_| anyhow!("a sender panicked"))??;
        ensure!(received > 0, "no byte of a stream was received");
        Ok(elapsed.as_secs_f64() * 1e12 / (received as f64 * 8.0))
    })
}

/// Calls of one turn.
const TRIPS: u32 = 50;
const CONNECTIONS: u32 = 10;
const STREAM: Duration = Duration::from_millis(40);
