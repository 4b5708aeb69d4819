//! Services and EndpointSlices of a cluster, seen from one node.
//!
//! [`Index`] receives objects and returns [`Frontend`]s: the answer to a client's first packet, by destination. [`Route`]
//! is the answer to one [`Packet`], and [`Explanation`] has the reasons of a frontend's answer. The rules are those of
//! kube-proxy. `tests/service` compares the index with a naive evaluator that was written apart. [`HealthChecks`] and
//! [`ProxyHealth`] are the answers to load balancers. [`plan_reservation`] keeps the source ports of Services from processes.

mod explanation;
mod frontend;
mod health;
mod index;
mod model;
mod reserved_ports;

pub use explanation::{EndpointUse, Explanation, OutReason, Use};
pub use frontend::{Choice, Frontend, MOST_BACKENDS, Place, Taken};
pub use health::{HealthAnswer, HealthCheck, HealthChecks, HealthPort, ProxyHealth};
pub use index::Index;
pub use model::{Backend, Client, DropReason, NodeView, Packet, RejectReason, Route, World};
pub use reserved_ports::{AddedPorts, BadPorts, PortSet, Reservation, plan_reservation};
