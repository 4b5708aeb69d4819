//! Long-lived TCP connections that count what came back, for tests that must not lose any.
//!
//! `lab-flow serve PORT` echoes what clients send. `lab-flow hold ADDRESS:PORT…` keeps a connection to each address,
//! sends numbered lines and expects each back. After each line on standard input it prints the bytes received, one
//! number for each connection. At the end of its input it closes all connections. It exits with 1 if a connection is
//! lost, or if it receives another line than the one it sent.

#![expect(clippy::print_stdout, reason = "the counts are the program's output")]

use anyhow::{Context as _, Result, bail, ensure};
use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((verb, rest)) if verb == "serve" && rest.len() == 1 => serve(rest[0].parse()?),
        Some((verb, rest)) if verb == "hold" => hold(rest),
        Some(_) | None => bail!("usage: lab-flow serve PORT, or lab-flow hold ADDRESS:PORT…"),
    }
}

fn serve(port: u16) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port)).context("cannot listen")?;
    println!("listening");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut back = stream.try_clone()?;
                io::copy(&mut &stream, &mut back)
            });
        }
    });
    // The program that started it closes standard input when it exits.
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop).context("cannot read standard input")
}

fn hold(targets: &[String]) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut flows = Vec::new();
    for target in targets {
        let target: SocketAddr =
            target.parse().with_context(|| format!("cannot parse {target}"))?;
        let stream = TcpStream::connect_timeout(&target, PATIENCE);
        let stream = stream.with_context(|| format!("cannot connect to {target}"))?;
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::clone(&stop));
        let counted = Arc::clone(&count);
        let flow = thread::spawn(move || {
            keep(&stream, &counted, &stop).with_context(|| format!("the connection to {target}"))
        });
        flows.push((count, flow));
    }
    for line in io::stdin().lines() {
        line.context("cannot read standard input")?;
        println!("{}", counts(flows.iter().map(|(count, _)| count)));
    }
    stop.store(true, SeqCst);
    let mut all = Vec::new();
    for (count, flow) in flows {
        flow.join().map_err(|_| anyhow::anyhow!("a connection's thread panicked"))??;
        all.push(count);
    }
    println!("{}", counts(all.iter()));
    Ok(())
}

fn keep(stream: &TcpStream, count: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(stream);
    for number in 0_u64.. {
        if stop.load(SeqCst) {
            break;
        }
        let sent = format!("{number:060}\n");
        (&mut &*stream).write_all(sent.as_bytes()).context("cannot send a line")?;
        let mut received = String::new();
        answers.read_line(&mut received).context("cannot receive a line")?;
        ensure!(received == sent, "sent {sent:?} and received {received:?}");
        count.fetch_add(received.len() as u64, SeqCst);
        thread::sleep(BETWEEN);
    }
    Ok(())
}

fn counts<'a>(of: impl Iterator<Item = &'a Arc<AtomicU64>>) -> String {
    of.map(|count| count.load(SeqCst).to_string()).collect::<Vec<_>>().join(" ")
}

/// A connection without a line for this time counts as lost.
const PATIENCE: Duration = Duration::from_secs(45);
const BETWEEN: Duration = Duration::from_millis(100);
