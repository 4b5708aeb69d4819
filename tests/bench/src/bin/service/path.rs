//! Datagrams and streams between two pods of a node, without Services.

use crate::{
    cluster::FIRST_BACKEND,
    connection::on_one_core,
    site::{LOOK, PATIENCE, Site},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use tests_bench::world;

/// Measures round trips of the client's datagrams in turns. Returns the values of each turn in the order of the sites, in
/// microseconds.
pub(crate) fn round_trips(sites: &[&Site], turns: u32) -> Result<Vec<Vec<f64>>> {
    let clients = || sites.iter().map(|site| site.client.run(client)).collect::<Result<Vec<_>>>();
    on_one_core(sites, echo, || {
        // The servers may not listen yet. A connection to a pod that has sent no packet stays with the stack.
        for client in &clients()? {
            while trips(client, FEW).is_err() {}
        }
        let clients = clients()?;
        in_turns(sites.len(), turns, |at| Ok(trips(&clients[at], TRIPS)? / f64::from(TRIPS)))
    })
}

/// A socket of the client in the present namespace.
fn client() -> Result<UdpSocket> {
    let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("open a socket")?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.connect((world::pod_address(0), FIRST_BACKEND))?;
    Ok(client)
}

/// Measures a stream of the client in turns. Returns the values of each turn in the order of the sites, in microseconds for
/// one mebibyte.
pub(crate) fn streams(sites: &[&Site], turns: u32) -> Result<Vec<Vec<f64>>> {
    on_one_core(sites, drain, || {
        let clients = sites.iter().map(|site| {
            site.client.enter()?;
            let server = SocketAddr::from((world::pod_address(0), FIRST_BACKEND));
            TcpStream::connect_timeout(&server, PATIENCE).context("connect")
        });
        let mut clients = clients.collect::<Result<Vec<_>>>()?;
        in_turns(sites.len(), turns, |at| {
            let (client, block) = (&mut clients[at], vec![0; BLOCK]);
            let started = Instant::now();
            for _ in 0..BLOCKS {
                client.write_all(&block).context("send a block")?;
            }
            // The server has read all of it.
            client.read_exact(&mut [0]).context("receive the receipt")?;
            Ok(started.elapsed().as_secs_f64() * 1e6 / (BLOCKS * BLOCK) as f64 * MIB)
        })
    })
}

/// Another place is the first one in each turn.
fn in_turns(
    places: usize,
    turns: u32,
    mut measure: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    let mut one_turn = |turn: u32| {
        let mut values = vec![0.0; places];
        for step in 0..places {
            let at = (step + usize::try_from(turn)?) % places;
            values[at] = measure(at)?;
        }
        Ok(values)
    };
    (0..turns).map(&mut one_turn).collect()
}

/// Sends datagrams, each after the answer to the last one. Returns the time in microseconds.
fn trips(client: &UdpSocket, count: u32) -> Result<f64> {
    let mut bytes = [0; 64];
    let started = Instant::now();
    for _ in 0..count {
        client.send(&bytes).context("send a datagram")?;
        client.recv(&mut bytes).context("an answer was lost")?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

/// Returns datagrams to their sender.
fn echo(site: &Site, is_done: &AtomicBool) -> Result<()> {
    let server = site.server.run(|| {
        let server = UdpSocket::bind((world::pod_address(0), FIRST_BACKEND));
        let server = server.context("open a socket of the server")?;
        server.set_read_timeout(Some(LOOK))?;
        Ok(server)
    })?;
    let mut bytes = [0; 64];
    while !is_done.load(Ordering::Relaxed) {
        let Ok((length, from)) = server.recv_from(&mut bytes) else { continue };
        server.send_to(&bytes[..length], from).context("send an answer")?;
    }
    Ok(())
}

/// Reads the blocks of one connection, and sends a byte after those of each turn.
fn drain(site: &Site, is_done: &AtomicBool) -> Result<()> {
    let arrivals = site.arrivals()?;
    let listener = loop {
        match arrivals.next(LOOK)? {
            Some(listener) => break listener,
            None => ensure!(!is_done.load(Ordering::Relaxed), "no connection has arrived"),
        }
    };
    let (mut server, _) = listener.accept().context("accept a connection")?;
    let (mut bytes, mut left) = (vec![0; BLOCK], BLOCKS * BLOCK);
    loop {
        let length = server.read(&mut bytes).context("read a block")?;
        if length == 0 {
            return Ok(());
        }
        left -= length.min(left);
        if left == 0 {
            server.write_all(&[0]).context("send the receipt")?;
            left = BLOCKS * BLOCK;
        }
    }
}

/// Round trips before the measurement.
const FEW: u32 = 10;
/// Round trips of a turn.
const TRIPS: u32 = 100;
/// Bytes of one call.
const BLOCK: usize = 64 << 10;
/// Blocks of a turn.
const BLOCKS: usize = 256;
/// Bytes of a mebibyte.
const MIB: f64 = 1_048_576.0;
