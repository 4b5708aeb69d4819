//! The time for which the answers to a pod's DNS queries are held.

use crate::{
    agent::Agent,
    way::{PATIENCE, PEER, Way},
    world::{self, World},
};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::{
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tests_bench::figures::Samples;

/// From the moment at which a server beyond the node has sent an answer to that at which the pod has it. Each answer has
/// a new name and a new address.
pub(crate) async fn measure(
    object: &Path,
    pins: &Path,
    world: &World,
    way: &Way,
    answers: u32,
) -> Result<Samples> {
    let mut agent = Agent::start(object, pins, world).await?;
    let server = way.beyond.run(|| bind(PEER, 53))?;
    let client = way.pod.run(|| bind(world::pod_address(0), 0))?;
    let (sent, moments) = channel();
    let is_done = Arc::new(AtomicBool::new(false));
    let is_asked = Arc::clone(&is_done);
    let server = thread::spawn(move || serve(&server, &sent, answers));
    let client = thread::spawn(move || {
        let samples = ask(&client, &moments, answers);
        is_asked.store(true, Ordering::Relaxed);
        samples
    });
    let worked = agent.work(&is_done).await;
    let samples = client.join().map_err(|_| anyhow!("the client panicked"))?;
    // It ends by its time-out if the client has failed.
    server.join().map_err(|_| anyhow!("the server panicked"))?.ok();
    worked?;
    let counters = agent.counters();
    let held = counters.get("dns_added").copied().unwrap_or_default();
    ensure!(held == u64::from(answers), "{held} of {answers} answers were read: {counters:?}");
    samples
}

fn bind(address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, port)).context("open a socket")?;
    socket.set_read_timeout(Some(PATIENCE)).context("set a time-out")?;
    Ok(socket)
}

/// Answers queries for one address, and sends the moment of each answer.
fn serve(at: &UdpSocket, sent: &Sender<Instant>, answers: u32) -> Result<()> {
    let mut bytes = [0; 512];
    for answer in 0..answers {
        let (length, from) = at.recv_from(&mut bytes).context("receive a query")?;
        let mut message = bytes[..length].to_vec();
        // An answer with one record, which has the name and the class of the question, 60 s and an address.
        message[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        message.extend((0x0c00_0001 + answer).to_be_bytes());
        let now = Instant::now();
        at.send_to(&message, from).context("send an answer")?;
        sent.send(now).context("the client has ended")?;
    }
    Ok(())
}

fn ask(from: &UdpSocket, moments: &Receiver<Instant>, answers: u32) -> Result<Samples> {
    let mut samples = Samples::default();
    let mut bytes = [0; 512];
    for question in 0..answers {
        thread::sleep(Duration::from_millis(5));
        let name = format!("w{question}");
        let id = u16::try_from(question)?.to_be_bytes();
        let mut query = [&id[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        for label in [name.as_str(), "corp", "test"] {
            query.push(u8::try_from(label.len())?);
            query.extend(label.bytes());
        }
        query.extend([0, 0, 1, 0, 1]);
        from.send_to(&query, (PEER, 53)).context("send a query")?;
        from.recv(&mut bytes).context("an answer was lost")?;
        let now = Instant::now();
        samples.push(now - moments.recv().context("the server has ended")?);
    }
    Ok(samples)
}
