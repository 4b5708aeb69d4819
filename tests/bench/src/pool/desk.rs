//! What passes between a node's IPAM daemon and the world around it: the same for both rivals.

use config_model::{EniId, Span, Time};
use lab_cloud::{CallError, NetworkInterface, Request, Response};
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

/// A pod, by its number in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pod(pub(crate) usize);

/// The number under which the answer to an [`DaemonRequest`] comes back. The daemon draws them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u64);

/// What a daemon wants of the world.
#[derive(Clone, Debug)]
pub(crate) enum DaemonRequest {
    /// To be told when so much time has passed.
    Sleep(Span),
    /// A call of the EC2 API.
    Ec2(Box<Request>),
    /// All that IMDS shows of the node's ENIs.
    Imds,
    /// The ENIs whose links are there.
    Links,
}

/// The answer.
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

/// Where a daemon lays what it wants, and what it has to say.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    pub(crate) asks: Vec<(Tag, DaemonRequest)>,
    pub(crate) outcomes: Vec<(Pod, Outcome)>,
}

/// An IPAM daemon on one node, in simulated time.
pub(crate) trait Daemon {
    /// The process starts.
    fn boot(&mut self, now: Time, desk: &mut RequestQueue);
    /// An answer has come.
    fn told(&mut self, tag: Tag, told: DaemonReply, now: Time, desk: &mut RequestQueue);
    /// Kubernetes shows the pods that are bound to the node.
    fn bound(&mut self, pods: &BTreeSet<Pod>, now: Time, desk: &mut RequestQueue);
    /// The plugin wants an address for a pod; each ADD comes to one [`Outcome`].
    fn add(&mut self, pod: Pod, now: Time, desk: &mut RequestQueue);
    /// The plugin gives a pod's address back.
    fn del(&mut self, pod: Pod, now: Time, desk: &mut RequestQueue);
    /// True if pods may be bound to the node.
    fn is_ready(&self) -> bool;
}
