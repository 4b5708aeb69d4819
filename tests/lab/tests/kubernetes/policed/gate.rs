//! A TCP proxy between a node's agent and a replica, which can delay or hold the bytes.

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle, sleep},
    time::Duration,
};
use tests_lab::Lab;

/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);
/// The largest number of bytes that are forwarded at once.
const CHUNK: usize = 16 << 10;

/// The treatment of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Forwards bytes at once.
    Free,
    /// Forwards each chunk after this delay.
    Slow(Duration),
    /// Forwards no bytes, and keeps the connections.
    Held,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// The replica's address. With `None`, connections are reset.
    target: Option<SocketAddr>,
    ended: bool,
}

/// A listener in the node's network namespace that forwards to an address of this machine.
pub(crate) struct Gate {
    /// The address of the listener.
    pub(crate) at: SocketAddr,
    state: Arc<Mutex<State>>,
    accepts: Option<JoinHandle<()>>,
}

impl Gate {
    /// Listens at this address of the node.
    pub(crate) fn open(lab: &Lab, node: &str, address: Ipv4Addr) -> Result<Self> {
        let listener = listen_on(lab, node, address)?;
        listener.set_nonblocking(true).context("cannot set the listener non-blocking")?;
        let at = listener.local_addr().context("cannot read the listener's address")?;
        let state = State { pace: Pace::Free, target: None, ended: false };
        let state = Arc::new(Mutex::new(state));
        let own = Arc::clone(&state);
        let accepts = Some(thread::spawn(move || accept(&listener, &own)));
        Ok(Self { at, state, accepts })
    }

    pub(crate) fn pace(&self, pace: Pace) {
        lock(&self.state).pace = pace;
    }

    pub(crate) fn lead_to(&self, target: Option<SocketAddr>) {
        lock(&self.state).target = target;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        lock(&self.state).ended = true;
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

/// Opens a listener in the node's namespace. A socket stays in the namespace of its creation.
fn listen_on(lab: &Lab, node: &str, address: Ipv4Addr) -> Result<TcpListener> {
    let wait = ["node", "exec", node, "--", "sh", "-c", "echo $$; read -r _"];
    let mut waiting = lab.command(&wait).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut pid = String::new();
    BufReader::new(waiting.stdout.take().context("its output")?).read_line(&mut pid)?;
    let netns = File::open(Path::new("/proc").join(pid.trim()).join("ns/net"));
    drop(waiting.stdin.take());
    waiting.wait()?;
    let netns = netns.context("cannot open the node's network namespace")?;
    let listen = || -> io::Result<TcpListener> {
        setns(&netns, CloneFlags::CLONE_NEWNET)?;
        TcpListener::bind((address, 0))
    };
    let listener = thread::scope(|scope| scope.spawn(listen).join());
    listener.ok().context("the thread panicked")?.context("cannot listen on the node")
}

fn accept(listener: &TcpListener, state: &Arc<Mutex<State>>) {
    let mut passing = Vec::new();
    loop {
        let target = {
            let state = lock(state);
            if state.ended {
                break;
            }
            state.target
        };
        let Ok((inner, _)) = listener.accept() else {
            sleep(LOOK);
            continue;
        };
        // Without a replica the drop resets the connection.
        let Some(outer) = target.and_then(|target| TcpStream::connect(target).ok()) else {
            continue;
        };
        let ends = [(&inner, &outer), (&outer, &inner)].map(|(from, to)| {
            let _ = from.set_nonblocking(false);
            let _ = from.set_read_timeout(Some(LOOK));
            Some((from.try_clone().ok()?, to.try_clone().ok()?))
        });
        for (from, to) in ends.into_iter().flatten() {
            let state = Arc::clone(state);
            passing.push(thread::spawn(move || pass(from, to, &state)));
        }
    }
    for thread in passing {
        let _ = thread.join();
    }
}

/// Forwards bytes until one end is closed.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>) {
    let mut chunk = vec![0; CHUNK];
    while !lock(state).ended {
        let length = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if is_early(&error) => continue,
            Err(_) => break,
        };
        if !wait(state) || to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Waits for the pace's delay. Returns false once the proxy is dropped.
fn wait(state: &Mutex<State>) -> bool {
    loop {
        let (pace, ended) = {
            let state = lock(state);
            (state.pace, state.ended)
        };
        match pace {
            _ if ended => return false,
            Pace::Free => return true,
            Pace::Slow(by) => {
                sleep(by);
                return true;
            }
            Pace::Held => sleep(LOOK),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
