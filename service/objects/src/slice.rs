//! An EndpointSlice.

use crate::{ObjectName, Problem, Protocol};
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};

/// Names the Service of a slice.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Has the time of the change that caused the last write of a slice.
pub const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// `addressType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The first address; the others of the list are the same endpoint.
    pub address: IpAddr,
    /// True for an endpoint that is not ready if the Service publishes such addresses.
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<String>,
    pub zone: Option<String>,
    /// Zones whose clients should use the endpoint; empty without a hint.
    pub zone_hints: Vec<String>,
    /// Nodes whose clients should use the endpoint; empty without a hint.
    pub node_hints: Vec<String>,
}

/// A slice as a proxy reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub name: ObjectName,
    pub service: ObjectName,
    pub family: Family,
    /// The value of [`PROXY_LABEL`](crate::PROXY_LABEL), which the slice takes from its Service.
    pub other_proxy: Option<String>,
    /// The slice has the label [`HEADLESS_LABEL`](crate::HEADLESS_LABEL).
    pub headless: bool,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<Endpoint>,
    /// The time of the [`TRIGGER_ANNOTATION`], in milliseconds since 1970. `None` without one, and for other text.
    pub triggered_ms: Option<u64>,
    pub problems: Vec<Problem>,
}
