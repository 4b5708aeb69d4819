//! Reachability between pods and nodes, measured by one process.
//!
//! The probe sends ICMP with full-MTU packets that must not be fragmented, and TCP.

use crate::{EniSpec, Fabric, FabricError};
use config_model::EniId;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

mod matrix;
mod packet;
mod socket;
mod tcp;
mod why;

/// A pod that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePod {
    /// Its name, for people (`default/web-0`).
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Its namespace: the name under the node's `/run/netns`.
    pub netns: String,
    pub address: IpAddr,
}

/// Pairs and parameters of one check.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// The pods; every one is checked against every other, and against every node, both ways.
    pub pods: Vec<ProbePod>,
    /// The ENIs, to know every address's ENI and each node's primary address.
    pub enis: Vec<(EniId, EniSpec)>,
    /// The size of the echo's IP packet; 9001 is an ENI's MTU.
    pub packet_bytes: u16,
    /// Number of pod pairs that also exchange [`ProbePlan::tcp_bytes`] both ways over TCP.
    pub tcp_pairs: usize,
    /// Bytes of each direction of a TCP exchange.
    pub tcp_bytes: usize,
    /// Timeout of an echo, applied twice. The second try covers neighbors that had to be resolved.
    pub patience: Duration,
}

impl ProbePlan {
    /// Full-MTU echoes between all, and 1 MB both ways by TCP on 20 pairs.
    pub fn full(pods: Vec<ProbePod>, enis: Vec<(EniId, EniSpec)>) -> Self {
        Self {
            pods,
            enis,
            packet_bytes: 9001,
            tcp_pairs: 20,
            tcp_bytes: 1_000_000,
            patience: Duration::from_secs(1),
        }
    }
}

/// One end of a probed pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// The pod's name, or `node NAME`.
    pub name: String,
    pub node: String,
    pub address: IpAddr,
}

/// Reason for the failure of a pair, as the sender observed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Reason {
    /// Neither a reply nor an error came.
    NoReply,
    /// The sender's own interface or path is too small (EMSGSIZE).
    TooBig,
    /// A router reported that the packet must be fragmented.
    FragmentationNeeded {
        /// Address of the router.
        from: IpAddr,
        /// The MTU it named.
        mtu: u16,
    },
    /// A router, or the sender's own kernel, reported unreachable.
    Unreachable {
        /// Address of the router; the sender's own address if its kernel reported it.
        from: IpAddr,
    },
    /// The sender's kernel refused otherwise.
    Refused {
        /// The error's text.
        error: String,
    },
    /// TCP failed or delivered other bytes.
    Tcp {
        /// The error's text.
        error: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReply => f.write_str("no reply"),
            Self::TooBig => {
                f.write_str("the packet is larger than the sender's interface or route allows")
            }
            Self::FragmentationNeeded { from, mtu } => {
                write!(f, "{from} requires fragments of at most {mtu} bytes")
            }
            Self::Unreachable { from } => write!(f, "{from} reports the address as unreachable"),
            Self::Refused { error } => write!(f, "the sender's kernel refused: {error}"),
            Self::Tcp { error } => write!(f, "TCP: {error}"),
        }
    }
}

/// A pair that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
    /// The failure, as the sender observed it.
    pub reason: Reason,
    /// Defects of the rules and routes of either end, and the fabric's drops during the probe; empty if there were
    /// none.
    pub because: Vec<String>,
}

/// Pairs tried and pairs that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub tried: usize,
    /// Worked.
    pub reached: usize,
}

impl Tally {
    fn count(&mut self, reached: bool) {
        self.tried += 1;
        self.reached += usize::from(reached);
    }
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Pod to pod, by echo.
    pub pods: Tally,
    /// Node to pod, by echo.
    pub node_to_pod: Tally,
    /// Pod to node, by echo.
    pub pod_to_node: Tally,
    /// Pod to pod, by TCP.
    pub tcp: Tally,
    /// Every pair that failed.
    pub failures: Vec<Failure>,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

impl ProbeReport {
    /// True if every pair worked.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the matrix.
///
/// # Errors
/// When a namespace cannot be entered or a socket not be opened; a pair that fails is no error.
pub fn run(fabric: &Fabric, plan: &ProbePlan) -> Result<ProbeReport, FabricError> {
    let begun = Instant::now();
    let before = fabric.counters()?;
    let mut report = ProbeReport::default();
    let party = matrix::Participants::gather(fabric, plan)?;
    for outcome in matrix::echo(&party, plan)? {
        let tally = match (outcome.from_pod, outcome.to_pod) {
            (true, true) => &mut report.pods,
            (false, _) => &mut report.node_to_pod,
            (true, false) => &mut report.pod_to_node,
        };
        tally.count(outcome.failure.is_none());
        report.failures.extend(outcome.failure);
    }
    for failure in tcp::exchange(fabric, plan) {
        report.tcp.count(failure.is_none());
        report.failures.extend(failure);
    }
    if !report.failures.is_empty() {
        let evidence = why::ProbeEvidence::gather(fabric, plan, &before)?;
        for failure in &mut report.failures {
            failure.because = evidence.explain(&failure.from, &failure.to);
        }
    }
    report.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Sends one echo from the calling thread's network namespace and waits for its result.
///
/// The source is written as given, even if it is not an address of this host.
///
/// # Errors
/// If the sockets cannot be opened, which takes `CAP_NET_RAW`.
pub fn echo_once(
    from: Ipv4Addr,
    to: Ipv4Addr,
    packet_bytes: u16,
    patience: Duration,
) -> std::io::Result<Result<(), Reason>> {
    let (from, to) = (IpAddr::V4(from), IpAddr::V4(to));
    let socket = socket::EchoSocket::open(from)?;
    let id = packet::fresh_id();
    let mut request = packet::Request::new(id, 1, packet_bytes);
    if let Err(reason) = socket.send(&mut request, from, to) {
        return Ok(Err(reason));
    }
    let begun = Instant::now();
    while let left = patience.saturating_sub(begun.elapsed())
        && !left.is_zero()
    {
        for (_, messages) in socket::receive(&[&socket], left)? {
            for message in messages {
                match message {
                    packet::Message::Reply { from, id: of } if (from, of) == (to, id) => {
                        return Ok(Ok(()));
                    }
                    packet::Message::Error { id: of, reason, .. } if of == id => {
                        return Ok(Err(reason));
                    }
                    packet::Message::Reply { .. } | packet::Message::Error { .. } => {}
                }
            }
        }
    }
    Ok(Err(Reason::NoReply))
}
