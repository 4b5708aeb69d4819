//! The interface between a node's IPAM daemon and its environment, the same for both daemons.

use config_model::{EniId, Span, Time};
use lab_cloud::{CallError, NetworkInterface, Request, Response};
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

/// A pod, by its number in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pod(pub(crate) usize);

/// Identifies the request that a [`DaemonReply`] answers. The daemon chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u64);

/// A request of a daemon to its environment.
#[derive(Clone, Debug)]
pub(crate) enum DaemonRequest {
    /// Wakes the daemon after this time.
    Sleep(Span),
    /// A call of the EC2 API.
    Ec2(Box<Request>),
    /// The node's ENIs in IMDS.
    Imds,
    /// The ENIs that have a link.
    Links,
}

#[derive(Clone, Debug)]
pub(crate) enum DaemonReply {
    Slept,
    Ec2(Result<Response, CallError>),
    Imds(Vec<Arc<NetworkInterface>>),
    Links(Vec<EniId>),
}

/// Result of an ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Given(Ipv4Addr),
    Failed,
}

/// The requests and results that a daemon returns from a call.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    pub(crate) requests: Vec<(Tag, DaemonRequest)>,
    pub(crate) outcomes: Vec<(Pod, Outcome)>,
}

/// An IPAM daemon on one node, in simulated time.
pub(crate) trait Daemon {
    /// The process starts.
    fn boot(&mut self, now: Time, queue: &mut RequestQueue);
    /// A request was answered.
    fn on_reply(&mut self, tag: Tag, reply: DaemonReply, now: Time, queue: &mut RequestQueue);
    /// The set of pods that are bound to the node has changed.
    fn bound(&mut self, pods: &BTreeSet<Pod>, now: Time, queue: &mut RequestQueue);
    /// The plugin requests an address for a pod. Each ADD has one [`Outcome`].
    fn add(&mut self, pod: Pod, now: Time, queue: &mut RequestQueue);
    /// The plugin releases a pod's address.
    fn del(&mut self, pod: Pod, now: Time, queue: &mut RequestQueue);
    /// True if pods may be bound to the node.
    fn is_ready(&self) -> bool;
}
