//! The queue of events that wait to be written to the API server.

use crate::{EventKind, PodEvent};
use config_model::PodName;
use tokio::sync::mpsc;

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    Pod(PodName),
    /// The daemon's own pod, or the node if the pod is unknown.
    Daemon,
}

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRequest {
    pub(crate) about: About,
    pub(crate) kind: EventKind,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
}

/// Queues events. It never waits: an event that does not fit is dropped.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(mpsc::Sender<EventRequest>);

impl EventSender {
    pub(crate) fn open() -> (Self, mpsc::Receiver<EventRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, event: PodEvent) {
        let PodEvent { pod, kind, reason, action, note } = event;
        self.put(EventRequest { about: About::Pod(pod), kind, reason, action, note });
    }

    pub(crate) fn put(&self, request: EventRequest) {
        let _ = self.0.try_send(request);
    }
}

/// Events that wait to be written.
const QUEUE: usize = 256;
