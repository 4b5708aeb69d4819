//! A pod that floods an HTTP port of its node: idle connections, and requests without a pause.

use crate::{dice::number, streams::inside};
use anyhow::Result;
use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{SocketAddrV4, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Idle connections that the pod tries to keep.
const IDLE: usize = 2_000;
/// Threads that send requests without a pause. `FERRULE_FLOOD_LOOPS` sets another number: many threads slow the tests that run
/// beside this one.
const LOOPS: u64 = 32;
const ANSWER: Duration = Duration::from_secs(60);

/// A running flood.
pub struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    pages: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Flood {
    /// Starts the flood from this network namespace.
    ///
    /// # Errors
    /// If the namespace's file cannot be duplicated, or `FERRULE_FLOOD_LOOPS` is not a number.
    pub fn start(from: &File, to: SocketAddrV4) -> Result<Self> {
        Self::with_loops(from, to, number("FERRULE_FLOOD_LOOPS")?.unwrap_or(LOOPS))
    }

    /// Like [`Flood::start`], with this number of request loops.
    ///
    /// # Errors
    /// If the namespace's file cannot be duplicated.
    pub fn with_loops(from: &File, to: SocketAddrV4, loops: u64) -> Result<Self> {
        let (stop, opened, pages) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        let (ends, count) = (stop.clone(), opened.clone());
        let mut threads = vec![inside(from, move || idle(to, &ends, &count))?];
        for _ in 0..loops {
            let (ends, count) = (stop.clone(), pages.clone());
            threads.push(inside(from, move || {
                while !ends.load(Ordering::Relaxed) {
                    // The node closes connections above the share of the pod.
                    if request(to).is_ok_and(|page| page.starts_with("HTTP/1.1 200")) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            })?);
        }
        Ok(Self { stop, opened, pages, threads })
    }

    /// The number of connections so far.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The number of answers with a page so far.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// True while no thread of the flood has ended.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Stops all threads.
    ///
    /// # Errors
    /// If a thread has failed.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    }
}

/// Sends one request and returns the answer.
fn request(to: SocketAddrV4) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&to.into(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Keeps as many idle connections as the node accepts, and opens new ones for those that it ends.
fn idle(to: SocketAddrV4, stop: &AtomicBool, opened: &AtomicU64) -> Result<()> {
    let mut open: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if open.len() >= IDLE {
            open.drain(..IDLE / 4);
        }
        if let Ok(stream) = TcpStream::connect_timeout(&to.into(), Duration::from_millis(200)) {
            opened.fetch_add(1, Ordering::Relaxed);
            open.push(stream);
        }
    }
    Ok(())
}
