//! The reasons behind the choices of a frontend.

use service_objects::{Endpoint, ObjectName, ServicePort, TrafficPolicy};

/// The choices of a place, with the use of each endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The port of the Service that has the place.
    pub port: ServicePort,
    /// The policy for clients on the node.
    pub inside: TrafficPolicy,
    /// The policy for clients from outside.
    pub outside: TrafficPolicy,
    /// The entries of all slices of the Service, in the order of the slices.
    pub endpoints: Vec<EndpointUse>,
}

/// An entry of a slice, for one frontend. A slice with several ports of the name has one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUse {
    pub slice: ObjectName,
    pub endpoint: Endpoint,
    /// `None` if the slice has no such port, or is not used at all.
    pub port: Option<u16>,
    /// For clients on the node.
    pub inside: Use,
    /// For clients from outside.
    pub outside: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Address and port are a backend, by this entry or by another one.
    In,
    Out(OutReason),
}

/// The reason for which an endpoint is no backend of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutReason {
    /// The slice is for another proxy.
    OtherProxy,
    /// The slice is one of a headless Service.
    Headless,
    OtherFamily,
    /// The slice has no port with the name and protocol of the Service's port.
    NoSuchPort,
    /// The port of an SCTP packet cannot be translated.
    OtherPort,
    NotReady,
    /// The endpoint terminates and no longer serves.
    Terminating,
    /// The endpoint serves while it terminates, and another one is ready.
    Draining,
    /// The policy is Local.
    OtherNode,
    /// Hints assign the endpoint to clients of other nodes.
    NodeHint,
    /// Hints assign the endpoint to clients of other zones.
    ZoneHint,
    /// The endpoint is after the first [`MOST_BACKENDS`](crate::MOST_BACKENDS).
    BeyondLimit,
}
