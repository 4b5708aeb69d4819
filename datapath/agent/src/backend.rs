//! What puts policies into force.

use datapath_node::{Applied, Desired};
use std::collections::BTreeMap;

/// Puts a state into force, whole. It is given the next when it has said what came of this one; states in between
/// are left out.
#[async_trait::async_trait]
pub trait Backend: Send + 'static {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Whether it puts anything into force at all. Where it does not, the controller is told so.
    fn enforces(&self) -> bool {
        true
    }

    /// Returns once the state is in force, or what of it is not.
    async fn apply(&mut self, desired: &Desired) -> Applied;
}

/// Puts nothing into force: for nodes on which policy is tried out, and tests. Pods are let through as if it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBackend;

#[async_trait::async_trait]
impl Backend for NoBackend {
    fn name(&self) -> &'static str {
        "none"
    }

    fn enforces(&self) -> bool {
        false
    }

    async fn apply(&mut self, _: &Desired) -> Applied {
        Applied::Done(BTreeMap::new())
    }
}
