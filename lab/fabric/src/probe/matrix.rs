//! Everybody echoes everybody: one thread, one pair of sockets per pod and node.

use super::{
    End, Failure, ProbePlan, Reason,
    packet::{Message, Request, fresh_id},
    socket::{EchoSocket, receive},
};
use crate::{Fabric, FabricError};
use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Pods and nodes of one probe.
pub(super) struct Participants {
    members: Vec<Member>,
}

struct Member {
    end: End,
    is_pod: bool,
    socket: EchoSocket,
}

/// Result of one pair.
pub(super) struct Outcome {
    /// False if the sender is a node.
    pub(super) from_pod: bool,
    /// False if the receiver is a node.
    pub(super) to_pod: bool,
    /// `None` when it answered.
    pub(super) failure: Option<Failure>,
}

impl Participants {
    /// Opens everybody's sockets in everybody's namespace.
    pub(super) fn gather(fabric: &Fabric, plan: &ProbePlan) -> Result<Self, FabricError> {
        let mut members = Vec::new();
        for pod in &plan.pods {
            let open = || EchoSocket::open(pod.address);
            let opened = fabric.node(&pod.node)?.inside_pod(&pod.netns, open)?;
            let end = End { name: pod.name.clone(), node: pod.node.clone(), address: pod.address };
            members.push(Member::new(end, true, opened)?);
        }
        for (_, eni) in plan.enis.iter().filter(|(_, eni)| eni.is_primary()) {
            let node = fabric.node(&eni.node)?;
            // A node takes part by its address of each family that pods have.
            let probed = |v4| plan.pods.iter().any(|pod| pod.address.is_ipv4() == v4);
            let v4 = Some(IpAddr::V4(eni.primary)).filter(|_| probed(true) || plan.pods.is_empty());
            let v6 = eni.ipv6.first().copied().map(IpAddr::V6).filter(|_| probed(false));
            for address in v4.into_iter().chain(v6).filter(|_| node.is_up()) {
                let name = format!("node {}", eni.node);
                let end = End { name, node: eni.node.clone(), address };
                let opened = node.inside(|| EchoSocket::open(address))?;
                members.push(Member::new(end, false, opened)?);
            }
        }
        Ok(Self { members })
    }
}

impl Member {
    fn new(end: End, is_pod: bool, opened: io::Result<EchoSocket>) -> Result<Self, FabricError> {
        let socket = opened.map_err(|cause| FabricError::Socket {
            action: "open raw sockets",
            place: end.name.clone(),
            cause,
        })?;
        Ok(Self { end, is_pod, socket })
    }
}

/// Sender and receiver, by their place in the party.
type Pair = (usize, usize);

/// Sends all echoes, in rounds in which everybody sends once and is asked once; what stays
/// unanswered is tried once more.
pub(super) fn echo(party: &Participants, plan: &ProbePlan) -> Result<Vec<Outcome>, FabricError> {
    let id = fresh_id();
    let pairs = pairs(party);
    let mut open: BTreeMap<Pair, Reason> =
        pairs.iter().map(|pair| (*pair, Reason::NoReply)).collect();
    for seq in 1..=TRIES {
        let due: Vec<Pair> = pairs.iter().copied().filter(|pair| open.contains_key(pair)).collect();
        let mut trial = Trial { party, id, open: &mut open };
        let request = Request::new(id, seq, plan.packet_bytes);
        trial.run(&due, request, plan.patience).map_err(|cause| FabricError::Socket {
            action: "echo",
            place: "the probed namespaces".to_owned(),
            cause,
        })?;
    }
    let outcome = |(from, to): Pair| {
        let (sender, receiver) = (&party.members[from], &party.members[to]);
        let failure = open.get(&(from, to)).map(|reason| Failure {
            from: sender.end.clone(),
            to: receiver.end.clone(),
            reason: reason.clone(),
            because: Vec::new(),
        });
        Outcome { from_pod: sender.is_pod, to_pod: receiver.is_pod, failure }
    };
    Ok(pairs.into_iter().map(outcome).collect())
}

/// Every ordered pair of one family with a pod in it, in the order of sending.
fn pairs(party: &Participants) -> Vec<Pair> {
    let n = party.members.len();
    let is_pod = |at: usize| party.members[at].is_pod;
    let is_v4 = |at: usize| party.members[at].end.address.is_ipv4();
    (1..n)
        .flat_map(|round| (0..n).map(move |from| (from, (from + round) % n)))
        .filter(|(from, to)| is_pod(*from) || is_pod(*to))
        .filter(|(from, to)| is_v4(*from) == is_v4(*to))
        .collect()
}

struct Trial<'a> {
    party: &'a Participants,
    id: u16,
    open: &'a mut BTreeMap<Pair, Reason>,
}

impl Trial<'_> {
    fn run(&mut self, due: &[Pair], mut request: Request, patience: Duration) -> io::Result<()> {
        let members = &self.party.members;
        for round in due.chunks(members.len().max(1)) {
            for (from, to) in round {
                let (sender, receiver) = (&members[*from], &members[*to]);
                let (source, target) = (sender.end.address, receiver.end.address);
                if let Err(reason) = sender.socket.send(&mut request, source, target) {
                    self.open.insert((*from, *to), reason);
                }
            }
            self.receive(round, ROUND_PATIENCE)?;
        }
        self.receive(due, patience)
    }

    /// Receives until all of `awaited` have answered, or until `patience` has passed.
    fn receive(&mut self, awaited: &[Pair], patience: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let sockets: Vec<&EchoSocket> =
            self.party.members.iter().map(|member| &member.socket).collect();
        while awaited.iter().any(|pair| self.is_awaited(pair)) {
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            for (at, messages) in receive(&sockets, left)? {
                messages.into_iter().for_each(|message| self.note(at, message));
            }
        }
        Ok(())
    }

    /// True if an answer can still come, because none has arrived yet.
    fn is_awaited(&self, pair: &Pair) -> bool {
        self.open.get(pair) == Some(&Reason::NoReply)
    }

    fn note(&mut self, at: usize, message: Message) {
        match message {
            Message::Reply { from, id } if id == self.id => {
                if let Some(to) = self.holder(from) {
                    self.open.remove(&(at, to));
                }
            }
            Message::Error { id, to, reason } if id == self.id => {
                if let Some(to) = self.holder(to)
                    && let Some(known) = self.open.get_mut(&(at, to))
                {
                    *known = reason;
                }
            }
            Message::Reply { .. } | Message::Error { .. } => {}
        }
    }

    fn holder(&self, address: IpAddr) -> Option<usize> {
        self.party.members.iter().position(|member| member.end.address == address)
    }
}

/// The second try covers neighbors that were resolved meanwhile.
const TRIES: u16 = 2;
/// Time for which a round waits for late answers before the next one starts.
const ROUND_PATIENCE: Duration = Duration::from_millis(20);
