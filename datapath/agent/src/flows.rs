//! Flows: the packets and connections that the backend reports, with the names of pods and rules.

use datapath_node::{Flow, Looked, Node, Paths, Probe, RuleId, RuleUse};
use datapath_rpc::{Flows, wire};
use futures::{StreamExt as _, stream};
use policy_core::{Decision, Direction, Segment};
use policy_objects::Protocol;
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::SystemTime,
};
use tokio::sync::{
    broadcast::{self, error::RecvError},
    oneshot, watch,
};
use tonic::Status;

/// A call of the backend with an answer.
#[derive(Debug)]
pub(crate) enum Query {
    Uses(oneshot::Sender<Result<Vec<RuleUse>, String>>),
    Paths(String, oneshot::Sender<Result<Option<Paths>, String>>),
    LookUp(Probe, oneshot::Sender<Result<Vec<Looked>, String>>),
}

/// The flows of this process, and their listeners.
pub(crate) struct FlowLog {
    sender: broadcast::Sender<Arc<Named>>,
    /// The last drops.
    recent: Mutex<VecDeque<Arc<Named>>>,
    /// The number of listeners for each allowed connection.
    listeners: watch::Sender<usize>,
    /// Each verdict is logged.
    logs_all: bool,
}

/// A flow as a client receives it.
#[derive(Debug)]
pub(crate) struct Named {
    message: wire::Flow,
    /// Its rule asks for a log.
    is_logged: bool,
}

impl FlowLog {
    pub(crate) fn new(logs_all: bool) -> Self {
        Self {
            sender: broadcast::channel(QUEUED).0,
            recent: Mutex::default(),
            listeners: watch::channel(usize::from(logs_all)).0,
            logs_all,
        }
    }

    /// The number of listeners for each allowed connection.
    pub(crate) fn listeners(&self) -> watch::Receiver<usize> {
        self.listeners.subscribe()
    }

    /// Logs a flow, keeps it if it is a drop, and sends it to the listeners.
    pub(crate) fn publish(&self, node: &Node, flow: &Flow) {
        let named = Arc::new(named(node, flow));
        if self.logs_all || named.is_logged {
            log(&named.message);
        }
        if named.message.decision() != wire::Decision::Allow {
            let mut recent = runtime_lock::lock(&self.recent);
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(Arc::clone(&named));
        }
        // Without a listener there is nothing to send.
        let _ = self.sender.send(named);
    }

    /// A client's stream: the recent drops, and the flows from now on.
    pub(crate) fn subscribe(&self, request: &wire::FlowsRequest) -> Result<Flows, Status> {
        if self.sender.receiver_count() >= LISTENERS {
            return Err(Status::resource_exhausted(format!(
                "{LISTENERS} clients read flows already; stop one of them"
            )));
        }
        let receiver = request.follow.then(|| self.sender.subscribe());
        let recent = runtime_lock::lock(&self.recent).clone();
        let recent = stream::iter(recent).map(|named| named.message.clone());
        let Some(receiver) = receiver else { return Ok(Box::pin(recent)) };
        let allowed = request.allowed.then(|| Listener::new(&self.listeners));
        let live = stream::unfold((receiver, allowed), |(mut receiver, allowed)| async move {
            let mut lost = 0;
            loop {
                match receiver.recv().await {
                    Ok(named) => {
                        let is_drop = named.message.decision() != wire::Decision::Allow;
                        if allowed.is_some() || is_drop || named.is_logged {
                            let message = wire::Flow { lost, ..named.message.clone() };
                            return Some((message, (receiver, allowed)));
                        }
                    }
                    Err(RecvError::Lagged(flows)) => lost += flows,
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Ok(Box::pin(recent.chain(live)))
    }
}

/// Counts as a listener until it is dropped.
struct Listener(watch::Sender<usize>);

impl Listener {
    fn new(listeners: &watch::Sender<usize>) -> Self {
        listeners.send_modify(|count| *count += 1);
        Self(listeners.clone())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn named(node: &Node, flow: &Flow) -> Named {
    let pod = |uid: &Option<String>| uid.as_ref().map(|uid| pod(node, uid));
    let tuple = flow.tuple.as_ref();
    let text = |address: IpAddr| address.to_string();
    let message = wire::Flow {
        version: 0,
        time: nanoseconds(flow.at),
        source_pod: pod(&flow.source_pod),
        destination_pod: pod(&flow.destination_pod),
        source: tuple.map(|tuple| text(tuple.source)).unwrap_or_default(),
        destination: tuple.map(|tuple| text(tuple.destination)).unwrap_or_default(),
        protocol: tuple.map_or(0, |tuple| u32::from(tuple.protocol)),
        source_port: tuple.and_then(|tuple| tuple.source_port).map(u32::from),
        destination_port: tuple.and_then(|tuple| tuple.destination_port).map(u32::from),
        icmp_type: flow.icmp.map(|(kind, _)| u32::from(kind)),
        icmp_code: flow.icmp.map(|(_, code)| u32::from(code)),
        decision: decision(flow.decision).into(),
        reason: flow.reason.unwrap_or_default().to_owned(),
        rules: flow.rules.iter().map(|rule| reference(node, rule)).collect(),
        length: flow.length,
        lost: 0,
        fast: flow.is_fast,
    };
    Named { message, is_logged: flow.is_logged }
}

/// A pod of this node by its UID.
pub(crate) fn pod(node: &Node, uid: &str) -> wire::Pod {
    let (namespace, name) = match node.pod(uid) {
        Some(pod) => (pod.namespace.clone(), pod.name.clone()),
        None => Default::default(),
    };
    wire::Pod { uid: uid.to_owned(), namespace, name, container: String::new() }
}

/// A rule with the names of its policy.
pub(crate) fn reference(node: &Node, rule: &RuleId) -> wire::RuleRef {
    let policy = node.policy(&rule.policy);
    let of = policy.and_then(|policy| {
        let mut rules = policy.rules.iter();
        rules.find(|of| of.direction == rule.direction && of.index == rule.index)
    });
    let name = |key: &policy_core::PolicyKey| match &*key.namespace {
        "" => key.name.clone(),
        namespace => format!("{namespace}/{}", key.name),
    };
    wire::RuleRef {
        uid: rule.policy.clone(),
        kind: policy.map(|policy| policy.key.kind.text().to_owned()).unwrap_or_default(),
        policy: policy.map(|policy| name(&policy.key)).unwrap_or_default(),
        ingress: rule.direction == Direction::Ingress,
        index: u32::try_from(rule.index).unwrap_or(u32::MAX),
        name: of.and_then(|of| of.name.clone()).unwrap_or_default(),
        log_label: of
            .and_then(|of| of.log.as_ref())
            .map(|log| log.label.clone())
            .unwrap_or_default(),
    }
}

/// The reply to a request for the use of rules.
pub(crate) fn uses(node: &Node, mut uses: Vec<RuleUse>) -> wire::UsesReply {
    uses.sort_by_key(|of| std::cmp::Reverse(of.last));
    let left_out = uses.len().saturating_sub(USES);
    let uses = uses.into_iter().take(USES).map(|of| wire::RuleUse {
        rule: Some(reference(node, &of.rule)),
        flows: of.flows,
        packets: of.packets,
        bytes: of.bytes,
        last: nanoseconds(of.last),
    });
    wire::UsesReply {
        version: 0,
        uses: uses.collect(),
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

/// The reply to a request for a verdict.
pub(crate) fn lookups(node: &Node, looked: Vec<Looked>) -> wire::LookUpReply {
    let lookups = looked.into_iter().map(|looked| wire::Lookup {
        pod: Some(pod(node, &looked.pod)),
        ingress: looked.direction == Direction::Ingress,
        steps: looked
            .steps
            .into_iter()
            .map(|(name, value)| wire::Step { name: name.to_owned(), value })
            .collect(),
        decision: looked.decision.map_or(wire::Decision::Unspecified, decision).into(),
        rule: looked.rule.map(|rule| reference(node, &rule)),
    });
    wire::LookUpReply { version: 0, lookups: lookups.collect() }
}

/// The packet of a request.
pub(crate) fn probe(request: &wire::LookUpRequest) -> Result<Probe, Status> {
    let refuse = |why: String| Status::invalid_argument(why);
    let address = |text: &str| -> Result<IpAddr, Status> {
        text.parse().map_err(|_| refuse(format!("{text:?} is not an address")))
    };
    let port = |port: u32| u16::try_from(port).map_err(|_| refuse(format!("{port} is not a port")));
    let byte =
        |value: u32| u8::try_from(value).map_err(|_| refuse(format!("{value} is more than 255")));
    let ports = |protocol| -> Result<Segment, Status> {
        let (source, destination) = (port(request.source_port)?, port(request.destination_port)?);
        Ok(Segment::Ports { protocol, source, destination })
    };
    let segment = match request.protocol {
        6 => ports(Protocol::Tcp)?,
        17 => ports(Protocol::Udp)?,
        132 => ports(Protocol::Sctp)?,
        1 | 58 => Segment::Icmp { kind: byte(request.icmp_type)?, code: byte(request.icmp_code)? },
        other => Segment::Other(byte(other)?),
    };
    let service = match &*request.service {
        "" => None,
        text => Some(address(text)?),
    };
    let (source, destination) = (address(&request.source)?, address(&request.destination)?);
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(refuse(format!("{source} and {destination} are of two families")));
    }
    Ok(Probe { source, destination, service, segment })
}

fn decision(of: Decision) -> wire::Decision {
    match of {
        Decision::Allow => wire::Decision::Allow,
        Decision::Drop => wire::Decision::Drop,
        Decision::Reject => wire::Decision::Reject,
    }
}

fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn log(flow: &wire::Flow) {
    let pod = |pod: &Option<wire::Pod>| {
        pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default()
    };
    let rule = |of: &wire::RuleRef| {
        let direction = if of.ingress { "ingress" } else { "egress" };
        format!("{} {} {direction} rule {}", of.kind, of.policy, of.index)
    };
    let rules: Vec<String> = flow.rules.iter().map(rule).collect();
    let labels: Vec<&str> = flow.rules.iter().map(|rule| &*rule.log_label).collect();
    tracing::info!(
        verdict = flow.decision().as_str_name(),
        source = flow.source,
        destination = flow.destination,
        protocol = flow.protocol,
        source_port = flow.source_port,
        destination_port = flow.destination_port,
        icmp_type = flow.icmp_type,
        icmp_code = flow.icmp_code,
        source_pod = pod(&flow.source_pod),
        destination_pod = pod(&flow.destination_pod),
        reason = flow.reason,
        path = if flow.fast { "fast" } else { "stack" },
        rules = rules.join(", "),
        labels = labels.join(", "),
        "policy verdict"
    );
}

/// The flows that a slow listener may be behind.
const QUEUED: usize = 4096;
/// The drops that are kept for later listeners.
const RECENT: usize = 1000;
/// The most listeners at once.
const LISTENERS: usize = 16;
/// The most rules in a reply, so that the message stays within its limit.
const USES: usize = 5000;

#[cfg(test)]
mod tests {
    use super::*;
    use datapath_node::{Links, Tuple};
    use futures::FutureExt as _;

    fn flow(decision: Decision, port: u16, is_logged: bool) -> Flow {
        let address = |host| IpAddr::from([10, 0, 0, host]);
        let tuple = Tuple {
            source: address(1),
            destination: address(2),
            protocol: 6,
            source_port: Some(40_000),
            destination_port: Some(port),
        };
        Flow {
            at: SystemTime::UNIX_EPOCH,
            source_pod: Some("u-1".to_owned()),
            destination_pod: None,
            tuple: Some(tuple),
            icmp: None,
            decision,
            reason: (decision != Decision::Allow).then_some("egress_rule"),
            rules: vec![RuleId { policy: "p".to_owned(), direction: Direction::Egress, index: 1 }],
            is_logged,
            length: 60,
            is_fast: false,
        }
    }

    fn node() -> Node {
        Node::new(Default::default(), Default::default(), &Links::new())
    }

    /// The destination ports of the flows that a stream has now, and true if it has ended.
    fn ports(flows: &mut Flows) -> (Vec<u32>, bool) {
        let mut ports = Vec::new();
        loop {
            match flows.next().now_or_never() {
                Some(Some(flow)) => ports.extend(flow.destination_port),
                Some(None) => return (ports, true),
                None => return (ports, false),
            }
        }
    }

    fn request(follow: bool, allowed: bool) -> wire::FlowsRequest {
        wire::FlowsRequest { versions: None, allowed, follow }
    }

    #[test]
    fn a_client_receives_recent_drops_and_the_flows_that_it_asks_for() {
        let (log, node) = (FlowLog::new(false), node());
        log.publish(&node, &flow(Decision::Drop, 1, false));
        log.publish(&node, &flow(Decision::Allow, 2, false));
        let mut recent = log.subscribe(&request(false, false)).expect("a stream");
        assert_eq!(ports(&mut recent), (vec![1], true));
        let mut drops = log.subscribe(&request(true, false)).expect("a stream");
        assert_eq!(*log.listeners().borrow(), 0);
        let mut all = log.subscribe(&request(true, true)).expect("a stream");
        assert_eq!(*log.listeners().borrow(), 1);
        log.publish(&node, &flow(Decision::Allow, 3, false));
        log.publish(&node, &flow(Decision::Allow, 4, true));
        log.publish(&node, &flow(Decision::Reject, 5, false));
        assert_eq!(ports(&mut drops), (vec![1, 4, 5], false), "logged connections too");
        assert_eq!(ports(&mut all), (vec![1, 3, 4, 5], false));
        drop(all);
        assert_eq!(*log.listeners().borrow(), 0);
        drop(log);
        assert_eq!(ports(&mut drops), (vec![], true));
    }

    #[test]
    fn a_slow_client_learns_the_number_of_flows_that_it_lost() {
        let (log, node) = (FlowLog::new(false), node());
        let mut flows = log.subscribe(&request(true, false)).expect("a stream");
        for _ in 0..QUEUED + 10 {
            log.publish(&node, &flow(Decision::Drop, 1, false));
        }
        let first = flows.next().now_or_never().flatten().expect("a flow");
        assert_eq!(first.lost, 10);
        let recent = log.subscribe(&request(false, false)).expect("a stream");
        assert_eq!(recent.count().now_or_never(), Some(RECENT));
    }

    #[test]
    fn the_number_of_clients_has_a_limit() {
        let log = FlowLog::new(true);
        assert_eq!(*log.listeners().borrow(), 1, "each verdict is logged");
        let streams: Vec<_> = (0..LISTENERS).map(|_| log.subscribe(&request(true, true))).collect();
        assert!(streams.iter().all(Result::is_ok));
        let refused = log.subscribe(&request(true, true)).err().expect("a refusal");
        assert!(refused.message().contains("16 clients"), "{refused}");
    }

    #[test]
    fn a_request_about_no_packet_is_refused() {
        let packet = |source: &str, protocol, destination_port| wire::LookUpRequest {
            source: source.to_owned(),
            destination: "10.0.0.2".to_owned(),
            protocol,
            destination_port,
            ..wire::LookUpRequest::default()
        };
        assert!(probe(&packet("10.0.0.1", 6, 80)).is_ok());
        for bad in [
            packet("web", 6, 80),
            packet("fd00::1", 6, 80),
            packet("10.0.0.1", 17, 70_000),
            packet("10.0.0.1", 256, 0),
        ] {
            let refused = probe(&bad).expect_err("a refusal");
            assert!(!refused.message().is_empty());
        }
    }
}
