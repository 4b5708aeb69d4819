//! Traffic of a pod with policies, beside a node without programs. Both nodes take turns.

use crate::way::Way;
use anyhow::{Context as _, Result, anyhow};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    thread,
    time::{Duration, Instant},
};

/// Of each way in its order.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Microseconds of a datagram and its answer.
    pub(crate) round_trip: [f64; 2],
    /// Microseconds of a connection with one request.
    pub(crate) connection: [f64; 2],
    /// Gigabits of one stream in a second.
    pub(crate) stream: [f64; 2],
}

pub(crate) fn measure(ways: [&Way; 2], turns: u32) -> Result<Traffic> {
    thread::scope(|scope| {
        // It moves from namespace to namespace.
        let measured = scope.spawn(|| {
            let round_trips = served(ways, Way::echo, Way::end_echo, || {
                compare(ways, turns, |way| timed(TRIPS, || way.round_trip()))
            })?;
            let connections = served(ways, Way::answer, Way::end_answer, || {
                compare(ways, turns, |way| timed(CONNECTIONS, || way.request()))
            })?;
            Ok(Traffic {
                round_trip: round_trips.map(|times| quantile(times, 4)),
                connection: connections.map(|times| quantile(times, 4)),
                stream: compare(ways, turns.div_ceil(20), stream)?.map(|rates| quantile(rates, 2)),
            })
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
) -> Result<[Vec<f64>; 2]> {
    let mut values = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            ways[at].beyond.enter()?;
            values[at].push(measure(ways[at])?);
        }
    }
    Ok(values)
}

/// The mean time of a call in microseconds.
fn timed(calls: u32, call: impl Fn() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
}

fn stream(way: &Way) -> Result<f64> {
    let connection = way.connect()?;
    let (mut client, mut server) = (connection.client, connection.server);
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            let bytes = vec![0; 128 << 10];
            while started.elapsed() < STREAM && client.write_all(&bytes).is_ok() {}
        });
        let (mut bytes, mut received) = (vec![0; 128 << 10], 0_u64);
        loop {
            match server.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => received += read as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("a stream has stopped"),
            }
        }
        Ok(received as f64 * 8.0 / 1e9 / started.elapsed().as_secs_f64())
    })
}

/// The value below which one of `parts` is.
fn quantile(mut of: Vec<f64>, parts: usize) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / parts).copied().unwrap_or(f64::NAN)
}

/// Calls of one turn.
const TRIPS: u32 = 50;
const CONNECTIONS: u32 = 10;
const STREAM: Duration = Duration::from_millis(300);
