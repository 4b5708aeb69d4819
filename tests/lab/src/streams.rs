//! Counted streams between pods: a lost packet is an error.

use crate::Lab;
use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};
use std::{
    fs::File,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A packet without an echo after this time is lost.
const LOST: Duration = Duration::from_secs(5);
/// The interval between packets of a stream.
const PACE: Duration = Duration::from_millis(1);

/// Returns the addresses and namespaces of the node's pods, those on secondary ENIs first.
///
/// # Errors
/// If a namespace cannot be opened.
pub fn namespaces(lab: &Lab, node: &str) -> Result<Vec<(Ipv4Addr, File)>> {
    // A process in the node's mount namespace, until the files are open.
    let wait = ["node", "exec", node, "--", "sh", "-c", "echo $$; read -r _"];
    let mut waiting = lab.command(&wait).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut pid = String::new();
    BufReader::new(waiting.stdout.take().context("its output")?).read_line(&mut pid)?;
    let pid = pid.trim();
    let mut pods = lab.pods(node)?;
    pods.sort_by_key(|pod| std::cmp::Reverse(pod["device"].as_u64()));
    let one = |pod: serde_json::Value| {
        let path = pod["netns"].as_str().context("a pod without a namespace")?;
        let name = path.trim_start_matches("/run/netns/");
        let path = Path::new("/proc").join(pid).join("root").join("run/netns").join(name);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        Ok((pod["address"].as_str().context("an address")?.parse()?, file))
    };
    let opened = pods.into_iter().map(one).collect();
    drop(waiting.stdin.take());
    waiting.wait()?;
    opened
}

/// Streams of packets between pods. They continue until [`Streams::end`].
#[derive(Default)]
pub struct Streams {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Result<u64>>>,
}

impl Streams {
    /// Starts no stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a UDP and a TCP stream between two pods, each by its address and namespace.
    ///
    /// # Errors
    /// If a namespace cannot be entered, or an address cannot be bound.
    pub fn add(&mut self, from: &(Ipv4Addr, File), to: &(Ipv4Addr, File)) -> Result<()> {
        let udp = SocketAddrV4::new(to.0, 7007);
        let tcp = SocketAddrV4::new(to.0, 7008);
        let bound = inside(&to.1, move || Ok((UdpSocket::bind(udp)?, TcpListener::bind(tcp)?)))?;
        let (datagrams, connections) = bound.join().expect("it does not panic")?;
        let stop = Arc::clone(&self.stop);
        thread::spawn(move || echo_datagrams(&datagrams, &stop));
        thread::spawn(move || echo_connection(&connections));
        let source = SocketAddrV4::new(from.0, 0);
        let stop = Arc::clone(&self.stop);
        self.senders.push(inside(&from.1, move || send_datagrams(source, udp, &stop))?);
        let stop = Arc::clone(&self.stop);
        self.senders.push(inside(&from.1, move || send_bytes(tcp, &stop))?);
        Ok(())
    }

    /// Stops the streams and returns the number of packets with an echo.
    ///
    /// # Errors
    /// If a packet was lost.
    pub fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let counts = self.senders.into_iter().map(|sender| sender.join().expect("no panic"));
        counts.sum()
    }
}

/// Runs `work` on a thread in the network namespace.
///
/// # Errors
/// If the namespace's file cannot be duplicated.
pub fn inside<T: Send + 'static>(
    namespace: &File,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    let namespace = namespace.try_clone()?;
    Ok(thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).context("cannot enter a pod's namespace")?;
        work()
    }))
}

/// Sends numbered packets. Each must return before the next one is sent.
fn send_datagrams(from: SocketAddrV4, to: SocketAddrV4, stop: &AtomicBool) -> Result<u64> {
    let socket = UdpSocket::bind(from)?;
    socket.set_read_timeout(Some(LOST))?;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        socket.send_to(&number.to_be_bytes(), to)?;
        let mut back = [0; 8];
        socket.recv(&mut back).with_context(|| format!("packet {number} to {to} is lost"))?;
        ensure!(u64::from_be_bytes(back) == number, "packet {number} to {to} returned twice");
        thread::sleep(PACE);
    }
    Ok(number)
}

fn echo_datagrams(socket: &UdpSocket, stop: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut packet = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((length, from)) => drop(socket.send_to(&packet[..length], from)?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends numbers over one connection. Each must return before the next one is sent.
fn send_bytes(to: SocketAddrV4, stop: &AtomicBool) -> Result<u64> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(LOST))?;
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        connection.write_all(&number.to_be_bytes())?;
        let mut back = [0; 8];
        connection.read_exact(&mut back).with_context(|| format!("the connection to {to}"))?;
        ensure!(
            u64::from_be_bytes(back) == number,
            "the connection to {to} returned another number"
        );
        thread::sleep(PACE);
    }
    Ok(number)
}

/// Echoes 8 bytes at a time on the first connection.
///
/// # Errors
/// If the connection fails.
pub fn echo_connection(listener: &TcpListener) -> Result<()> {
    let (mut connection, _) = listener.accept()?;
    connection.set_nodelay(true)?;
    let mut bytes = [0; 8];
    while connection.read_exact(&mut bytes).is_ok() {
        connection.write_all(&bytes)?;
    }
    Ok(())
}
