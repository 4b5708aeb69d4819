//! Bytes both ways over TCP, on a sample of pod pairs.

use super::{End, Failure, ProbePlan, ProbePod, Reason};
use crate::{Fabric, FabricError};
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// Exchanges on the sample; `None` for each that worked.
pub(super) fn exchange(fabric: &Fabric, plan: &ProbePlan) -> Vec<Option<Failure>> {
    let pairs = sample(&plan.pods, plan.tcp_pairs);
    let mut outcomes = Vec::with_capacity(pairs.len());
    for batch in pairs.chunks(SIDE_BY_SIDE) {
        thread::scope(|scope| {
            let running: Vec<_> = batch
                .iter()
                .map(|(from, to)| scope.spawn(|| one(fabric, from, to, plan.tcp_bytes)))
                .collect();
            outcomes.extend(batch.iter().zip(running).map(|((from, to), running)| {
                let outcome = match running.join() {
                    Ok(outcome) => outcome,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                outcome.err().map(|error| Failure {
                    from: end(from),
                    to: end(to),
                    reason: Reason::Tcp { error },
                    because: Vec::new(),
                })
            }));
        });
    }
    outcomes
}

/// Pairs that are spread over all pods and distances.
fn sample(pods: &[ProbePod], count: usize) -> Vec<(&ProbePod, &ProbePod)> {
    let n = pods.len();
    if n < 2 {
        return Vec::new();
    }
    let of_one_family =
        |(from, to): &(&ProbePod, &ProbePod)| from.address.is_ipv4() == to.address.is_ipv4();
    let pair = |k: usize| (k * n / count.max(1) % n, 1 + (k * 7 + n / 2) % (n - 1));
    let pairs = (0..count.min(n * (n - 1))).map(pair);
    let pairs = pairs.map(|(from, distance)| (&pods[from], &pods[(from + distance) % n]));
    pairs.filter(of_one_family).collect()
}

fn end(pod: &ProbePod) -> End {
    End { name: pod.name.clone(), node: pod.node.clone(), address: pod.address }
}

fn one(fabric: &Fabric, from: &ProbePod, to: &ProbePod, bytes: usize) -> Result<(), String> {
    let any_port = SocketAddr::new(to.address, 0);
    let listen = inside(fabric, to, move || TcpListener::bind(any_port))?;
    let at = listen.local_addr().map_err(text)?;
    let client = inside(fabric, from, move || TcpStream::connect_timeout(&at, PATIENCE))?;
    let (server, peer) = listen.accept().map_err(text)?;
    if peer.ip() != from.address {
        return Err(format!("the receiver saw {} instead of {}", peer.ip(), from.address));
    }
    thread::scope(|scope| {
        let far = scope.spawn(|| talk(&server, bytes));
        let near = talk(&client, bytes);
        let far = match far.join() {
            Ok(far) => far,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        near.and(far).map_err(text)
    })
}

fn inside<T: Send>(
    fabric: &Fabric,
    pod: &ProbePod,
    task: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, String> {
    let node = fabric.node(&pod.node).map_err(refused)?;
    node.inside_pod(&pod.netns, task).map_err(refused)?.map_err(text)
}

/// Writes a pattern and reads the same pattern, at once.
fn talk(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (&*stream).write_all(&pattern(bytes))?;
            stream.shutdown(Shutdown::Write)
        });
        let mut got = Vec::with_capacity(bytes);
        let read = (&*stream).read_to_end(&mut got);
        let wrote = match writing.join() {
            Ok(wrote) => wrote,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        read.and(wrote)?;
        if got == pattern(bytes) {
            return Ok(());
        }
        let why = format!("{} other bytes came instead of {bytes}", got.len());
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    })
}

fn pattern(bytes: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..=250).collect();
    let mut pattern = block.repeat(bytes.div_ceil(block.len()));
    pattern.truncate(bytes);
    pattern
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn text(error: io::Error) -> String {
    error.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn refused(error: FabricError) -> String {
    error.to_string()
}

const SIDE_BY_SIDE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(10);
