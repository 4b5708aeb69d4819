//! Services and EndpointSlices, reduced to the fields that a service proxy reads.
//!
//! [`Service::read`] and [`Slice::read`] read one object. A part that is not understood is left out and reported as a
//! [`Problem`]; the rest of the object is used. This crate decides nothing: `service-core` chooses backends.

mod read;
mod service;
mod slice;
mod time;

#[cfg(test)]
mod tests;

pub use read::ReadError;
pub use service::{
    ClientAffinity, HEADLESS_LABEL, Ingress, IngressMode, ObjectName, PROXY_LABEL, Problem,
    Protocol, Service, ServiceKind, ServicePort, TrafficPolicy,
};
pub use slice::{Endpoint, Family, SERVICE_LABEL, Slice, SlicePort, TRIGGER_ANNOTATION};
