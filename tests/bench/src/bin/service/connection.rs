//! Connections of clients by several ways that take turns.
//!
//! Client and server run on one core, as in `bench enforce`.

use crate::{
    cluster::{self, FIRST_BACKEND, NODE_PORT},
    site::{NODE, PATIENCE, Place, Site, exchange, request},
};
use anyhow::{Context as _, Result, anyhow};
use std::{
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};
use tests_bench::{
    cores::{cores, stay_on},
    world,
};

/// The way of a client to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub(crate) site: &'a Site,
    pub(crate) from: Place,
    pub(crate) to: To,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    /// The cluster IPs of this number of Services. Each connection is to another one.
    Services(u32),
    NodePort,
    Pod,
}

impl To {
    fn address(self, connection: u32) -> SocketAddr {
        match self {
            // The stride shares no factor with the numbers of Services.
            Self::Services(services) => cluster::frontend(connection * 97 % services),
            Self::NodePort => (NODE, NODE_PORT).into(),
            Self::Pod => (world::pod_address(0), FIRST_BACKEND).into(),
        }
    }
}

/// The part of a connection that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span {
    /// With one request and the end.
    Whole,
    /// Until the client's call returns.
    Connect,
}

impl Span {
    /// The time of a connection in microseconds.
    fn of(self, to: SocketAddr) -> Result<f64> {
        let started = Instant::now();
        let time = match self {
            Self::Whole => {
                request(to)?;
                started.elapsed()
            }
            Self::Connect => {
                let mut client = TcpStream::connect_timeout(&to, PATIENCE).context("connect")?;
                let time = started.elapsed();
                exchange(&mut client)?;
                time
            }
        };
        Ok(time.as_secs_f64() * 1e6)
    }
}

/// Measures all ways in turns. Returns the values of each turn in the order of the ways, in microseconds.
pub(crate) fn in_turns(ways: &[Way<'_>], span: Span, turns: u32) -> Result<Vec<Vec<f64>>> {
    let mut sites: Vec<&Site> = Vec::new();
    for way in ways {
        if !sites.iter().any(|site| std::ptr::eq(*site, way.site)) {
            sites.push(way.site);
        }
    }
    on_one_core(&sites, Site::answer, || {
        (0..turns).map(|turn| one_turn(ways, span, turn)).collect()
    })
}

/// Runs a server for each site, and a client. All threads are on one core. The client may move from namespace to namespace.
pub(crate) fn on_one_core<T: Send>(
    sites: &[&Site],
    serve: impl Fn(&Site, &AtomicBool) -> Result<()> + Sync,
    client: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let core = cores()?.pop().context("no core")?;
    let (is_done, serve) = (&AtomicBool::new(false), &serve);
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            stay_on(core)?;
            // They are on the core of this thread.
            thread::scope(|scope| {
                let servers = sites.iter().map(|site| scope.spawn(move || serve(site, is_done)));
                let servers: Vec<_> = servers.collect();
                let values = client();
                is_done.store(true, Ordering::Relaxed);
                for server in servers {
                    server.join().map_err(|_| anyhow!("a server panicked"))??;
                }
                values
            })
        });
        measured.join().map_err(|_| anyhow!("the thread panicked"))?
    })
}

/// Another way is the first one in each turn.
fn one_turn(ways: &[Way<'_>], span: Span, turn: u32) -> Result<Vec<f64>> {
    let mut values = vec![0.0; ways.len()];
    for step in 0..ways.len() {
        let at = (step + usize::try_from(turn)?) % ways.len();
        let Way { site, from, to } = &ways[at];
        site.of(*from).enter()?;
        for connection in turn * CONNECTIONS..(turn + 1) * CONNECTIONS {
            let to = to.address(connection);
            let time = span.of(to).with_context(|| format!("{from:?} to {to}"))?;
            values[at] += time / f64::from(CONNECTIONS);
        }
    }
    Ok(values)
}

/// The turns of two ways.
pub(crate) fn pair(turns: &[Vec<f64>], [way, reference]: [usize; 2]) -> Vec<[f64; 2]> {
    turns.iter().map(|values| [values[way], values[reference]]).collect()
}

/// The connections of a way in one turn.
const CONNECTIONS: u32 = 10;
