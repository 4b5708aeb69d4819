//! Long-lived TCP connections that count what came back, for tests that must not lose any.
//!
//! `lab-flow serve PORT` echoes to whoever connects. `lab-flow hold ADDRESS:PORT…` keeps a connection
//! to each, sends a numbered line again and again and expects it back. A line on its standard input
//! asks for the bytes that came back, one number for each connection; its end ends them all. Whoever
//! lost a connection, or got back another line than he sent, ends with 1.

#![expect(clippy::print_stdout, reason = "the counts are the answer")]

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
        Some(_) | None => bail!("lab-flow serve PORT, or lab-flow hold ADDRESS:PORT…"),
    }
}

fn serve(port: u16) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port)).context("listen")?;
    println!("listening");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut back = stream.try_clone()?;
                io::copy(&mut &stream, &mut back)
            });
        }
    });
    // It ends with who started it.
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop).context("wait for the end")
}

fn hold(targets: &[String]) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut flows = Vec::new();
    for target in targets {
        let target: SocketAddr = target.parse().with_context(|| format!("read {target}"))?;
        let stream = TcpStream::connect_timeout(&target, PATIENCE);
        let stream = stream.with_context(|| format!("connect to {target}"))?;
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::clone(&stop));
        let counted = Arc::clone(&count);
        let flow = thread::spawn(move || {
            keep(&stream, &counted, &stop).with_context(|| format!("the connection to {target}"))
        });
        flows.push((count, flow));
    }
    for line in io::stdin().lines() {
        line.context("wait for a question")?;
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
        (&mut &*stream).write_all(sent.as_bytes()).context("send")?;
        let mut heard = String::new();
        answers.read_line(&mut heard).context("hear")?;
        ensure!(heard == sent, "sent {sent:?} and heard {heard:?}");
        count.fetch_add(heard.len() as u64, SeqCst);
        thread::sleep(BETWEEN);
    }
    Ok(())
}

fn counts<'a>(of: impl Iterator<Item = &'a Arc<AtomicU64>>) -> String {
    of.map(|count| count.load(SeqCst).to_string()).collect::<Vec<_>>().join(" ")
}

/// A connection that is silent for so long is lost.
const PATIENCE: Duration = Duration::from_secs(45);
const BETWEEN: Duration = Duration::from_millis(100);
