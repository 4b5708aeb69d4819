//! The seam to a backend: what the agent requires of a component that enforces policy on a node.
//!
//! [`Backend`] is implemented once for each datapath. Its types are pure and are in `datapath-node`. [`NoBackend`]
//! enforces nothing. Every backend passes the contract suite in `tests/datapath`.

use async_trait::async_trait;
use datapath_node::{
    Applied, BackendEvent, Desired, Looked, Observed, Paths, Probe, Retire, RuleUse, Trace,
};
use service_core::HealthChecks;
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

/// A backend: it observes its own state, plans the difference to a desired state, and applies it.
///
/// The agent calls one method at a time. Between calls it waits on [`Backend::event`].
#[async_trait]
pub trait Backend: Send + 'static {
    /// The backend's name in settings, logs and status.
    fn name(&self) -> &'static str;

    /// Returns true if it enforces anything. If not, the agent reports its policies as not enforced.
    fn enforces(&self) -> bool {
        true
    }

    /// Reads the state that is in force, also of an earlier process. Changes nothing.
    ///
    /// # Errors
    /// The state cannot be read.
    async fn observe(&mut self) -> Result<Observed, BackendError>;

    /// Puts a whole state into force and returns one result for each endpoint.
    ///
    /// With [`Desired::changed`] only the objects in the set may differ from the state that was applied last. Without
    /// it the backend observes everything. It refuses a revision that is older than the last one. A state that was
    /// applied in part is completed by the next call.
    async fn apply(&mut self, desired: &Desired) -> Applied;

    /// Waits for the next event. The future may be dropped at any time, and no event is lost by that.
    async fn event(&mut self) -> BackendEvent;

    /// Figures for metrics. A call reads the backend's counters once.
    fn figures(&mut self) -> Figures {
        Figures::default()
    }

    /// The memory of the backend's maps in the kernel, in bytes; 0 if it has none.
    fn map_memory(&self) -> u64 {
        0
    }

    /// The health checks of the Services of the last state. `None` if these Services are not in force, and if the backend
    /// serves none.
    fn health_checks(&self) -> Option<Arc<HealthChecks>> {
        None
    }

    /// Sends a [`BackendEvent::Flow`] for each connection that is allowed, or only for those whose rule asks for it.
    ///
    /// # Errors
    /// The backend has no events, or the kernel refuses.
    async fn listen(&mut self, _allowed: bool) -> Result<(), BackendError> {
        Err(BackendError::Unsupported { backend: self.name(), operation: "report connections" })
    }

    /// The rules that were used.
    ///
    /// # Errors
    /// The backend does not count, or the state cannot be read.
    async fn uses(&mut self) -> Result<Vec<RuleUse>, BackendError> {
        Err(BackendError::Unsupported { backend: self.name(), operation: "count the use of rules" })
    }

    /// The open connections of the pod with this UID by path. `None` if the node has no such pod.
    ///
    /// # Errors
    /// The backend does not know them, or the state cannot be read.
    async fn paths(&mut self, _uid: &str) -> Result<Option<Paths>, BackendError> {
        Err(BackendError::Unsupported { backend: self.name(), operation: "count connections" })
    }

    /// Looks up a packet in the state in force, with all steps: one result for each end that is a pod of this node.
    ///
    /// # Errors
    /// The backend has no such lookup, or the state cannot be read.
    async fn look_up(&mut self, _probe: &Probe) -> Result<Vec<Looked>, BackendError> {
        Err(BackendError::Unsupported { backend: self.name(), operation: "look up a verdict" })
    }

    /// Starts to follow the packets of a trace; each one that is seen is a [`BackendEvent::Trace`].
    ///
    /// # Errors
    /// The backend cannot trace, or not now.
    async fn trace(&mut self, trace: &Trace) -> Result<(), BackendError>;

    /// Ends the backend's work and keeps or removes what is in force. After [`Retire::Remove`] every pod is open.
    ///
    /// # Errors
    /// Something could not be removed; a repeated call continues.
    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError>;
}

/// Figures of a backend, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of packets by reason: of those that were dropped, and of others that were treated apart. The numbers
    /// only grow while the backend's state exists.
    pub packets: BTreeMap<&'static str, u64>,
    /// `None` if the backend serves no Services.
    pub services: Option<ServiceFigures>,
}

/// Figures of Services. Their cost does not depend on the number of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFigures {
    /// By map: the rows in use, and all rows. Empty while the content of the maps is not known.
    pub rows: BTreeMap<&'static str, [u32; 2]>,
    /// The backends that were chosen, by kind of client: pod, process, outside. The numbers only grow while the backend's
    /// state exists.
    pub choices: BTreeMap<&'static str, u64>,
    /// The source ports that were tried for clients outside, by result: taken, busy. The numbers only grow as the former.
    pub source_ports: BTreeMap<&'static str, u64>,
    /// The repairs of this process after changes by other processes, by object.
    pub repairs: BTreeMap<&'static str, u64>,
    /// The times from changes of endpoints to their effect, since the last call.
    pub programmed: Vec<Duration>,
}

/// A call that a backend could not carry out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// This backend has no such function.
    #[error("the backend {backend} cannot {operation}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// The operation, as a verb.
        operation: &'static str,
    },
    /// The backend's state cannot be read.
    #[error("cannot read the state of the backend: {cause}")]
    Unreadable { cause: String },
    /// Part of the state could not be removed.
    #[error("cannot remove the state of the backend: {cause}; call again")]
    NotRemoved { cause: String },
}

/// A backend that does not enforce: for nodes on which policy is computed and reported only. Pods start as if their
/// policies were in force.
#[derive(Clone, Debug, Default)]
pub struct NoBackend {
    revision: u64,
    endpoints: BTreeSet<String>,
}

#[async_trait]
impl Backend for NoBackend {
    fn name(&self) -> &'static str {
        "none"
    }

    fn enforces(&self) -> bool {
        false
    }

    async fn observe(&mut self) -> Result<Observed, BackendError> {
        Ok(Observed { endpoints: self.endpoints.clone(), drift: Vec::new() })
    }

    async fn apply(&mut self, desired: &Desired) -> Applied {
        if desired.revision < self.revision {
            return Applied::older(desired.revision, self.revision);
        }
        self.revision = desired.revision;
        self.endpoints = desired.endpoints.keys().cloned().collect();
        Applied::complete(desired)
    }

    async fn event(&mut self) -> BackendEvent {
        pending().await
    }

    async fn trace(&mut self, _: &Trace) -> Result<(), BackendError> {
        Err(BackendError::Unsupported { backend: "none", operation: "trace packets" })
    }

    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError> {
        match retire {
            Retire::Keep => {}
            Retire::Remove => self.endpoints.clear(),
        }
        Ok(())
    }
}
