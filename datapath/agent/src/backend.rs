//! What puts policies into force.

use datapath_node::{Applied, Desired};
use std::collections::BTreeMap;

/// Puts a state into force, whole. It is given the next when it has said what came of this one; states in between
/// are left out.
#[async_trait::async_trait]
pub trait Backend: Send + 'static {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Returns once the state is in force, or what of it is not.
    async fn apply(&mut self, desired: &Desired) -> Applied;
}

/// Puts nothing into force and says that it has: for nodes on which policy is tried out, and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBackend;

#[async_trait::async_trait]
impl Backend for NoBackend {
    fn name(&self) -> &'static str {
        "none"
    }

    async fn apply(&mut self, _: &Desired) -> Applied {
        Applied::Done(BTreeMap::new())
    }
}
