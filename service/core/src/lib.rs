//! Services and EndpointSlices of a cluster, seen from one node.
//!
//! [`World`] is the input. A [`Route`] answers a [`Packet`].

mod model;

pub use model::{Backend, Client, DropReason, NodeView, Packet, RejectReason, Route, World};
