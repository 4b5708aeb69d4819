//! The callers of the service, and their admission.

use control_wire::proto::{AnnounceRequest, ReportRequest};
use std::time::Instant;
use tonic::Status;

/// Identity of an authenticated client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The node that the caller's pod is bound to.
    pub node: String,
    pub pod: String,
    pub uid: String,
    /// Expiry of the token; the stream ends with it.
    pub until: Option<Instant>,
}

/// Identifies the caller of a request, and admits or refuses it.
#[tonic::async_trait]
pub trait Gatekeeper: Send + Sync + 'static {
    /// Returns the owner of a token, or the status that refuses it.
    async fn admit(&self, token: &str) -> Result<Caller, Status>;

    /// Checks whether an admitted client may continue. The server calls it often, so it must answer from memory.
    ///
    /// # Errors
    /// Returns the status for the client if it may not continue.
    fn still(&self, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// Handles a refusal of a node with too many calls of a method; for measurements.
    fn limited(&self, _caller: &Caller, _method: &'static str) {}

    /// Handles an announcement of a pod's addresses.
    async fn announce(&self, caller: &Caller, announce: AnnounceRequest) -> Result<(), Status>;

    /// Handles a node's report about its policies.
    async fn report(&self, caller: &Caller, report: ReportRequest) -> Result<(), Status>;

    /// Handles a node's ack of a generation with the time since when the node holds it; for measurements.
    fn held(&self, _node: &str, _generation: u64, _since: Instant) {}

    /// Handles the end of a stream whose node has read or acknowledged nothing for too long.
    fn stuck(&self, _node: &str) {}

    /// Handles the end of a stream; for measurements.
    fn ended(&self, _node: &str) {}
}
