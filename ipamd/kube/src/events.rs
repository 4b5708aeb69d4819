//! Kubernetes events, for people who describe a pod.

mod series;

use crate::{
    Concern, EventKind, clock,
    event_queue::{About, EventRequest},
    fault::{Fault, Kind},
    pods::Pods,
    request,
    status_reporter::StatusReporter,
};
use config_model::{PodName, Span};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::Patch};
use serde_json::json;
use series::{EventSeries, Write};
use std::time::Duration;
use tokio::{sync::mpsc, time::sleep};

pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) node: String,
    /// The daemon's own pod.
    pub(crate) daemon: Option<PodName>,
    pub(crate) spacing: Duration,
    pub(crate) pods: Pods,
    pub(crate) status: StatusReporter,
}

impl Writer {
    pub(crate) async fn run(self, mut asked: mpsc::Receiver<EventRequest>) {
        let spacing = u64::try_from(self.spacing.as_millis()).unwrap_or(u64::MAX);
        let mut series_of_events = EventSeries::new(Span::millis(spacing));
        self.status.waiting(Concern::Events, "the first event");
        loop {
            let pause = series_of_events
                .wake_at()
                .map_or(LONG, |at| Duration::from_millis(at.since(clock::now()).0).min(LONG));
            tokio::select! {
                asked = asked.recv() => match asked {
                    Some(asked) => series_of_events.take_in(asked, clock::now()),
                    None => return,
                },
                () = sleep(pause) => {}
            }
            while let Some(write) = series_of_events.next(clock::now()) {
                let done = self.write(&write).await;
                self.report(&done);
                series_of_events.wrote(&write, done.map_err(|fault| fault.kind), clock::now());
            }
        }
    }

    fn report(&self, done: &Result<String, Fault>) {
        match done {
            Ok(_) => self.status.good(Concern::Events, EVENTS),
            // A namespace that is being deleted accepts no events.
            Err(fault) if fault.kind == Kind::NotFound || fault.cause.contains(ENDING) => {}
            Err(fault) => self.status.failing(Concern::Events, EVENTS, fault),
        }
    }

    /// Returns the name of the written event.
    async fn write(&self, write: &Write) -> Result<String, Fault> {
        let regarding = self.regarding(&write.asked.about);
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        let now = Timestamp::now();
        if let Some(name) = &write.series_of {
            let series =
                json!({ "series": { "count": write.count, "lastObservedTime": MicroTime(now) } });
            let patch = Patch::Merge(&series);
            match request::patch(&events, name, EVENTS, &patch).await {
                Ok(_) => return Ok(name.clone()),
                // The first event has expired: a new one replaces it.
                Err(fault) if fault.kind == Kind::NotFound => {}
                Err(fault) => return Err(fault),
            }
        }
        let event = self.event(write, regarding.clone(), now);
        request::create(&events, EVENTS, &event).await?;
        Ok(event.metadata.name.unwrap_or_default())
    }

    fn event(&self, write: &Write, regarding: ObjectReference, now: Timestamp) -> Event {
        let name = regarding.name.clone().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(regarding.namespace.clone().unwrap_or_else(|| "default".into())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding),
            reason: Some(write.asked.reason.clone()),
            action: Some(write.asked.action.clone()),
            note: Some(cut(&write.asked.note).to_owned()),
            type_: Some(
                match write.asked.kind {
                    EventKind::Normal => "Normal",
                    EventKind::Warning => "Warning",
                }
                .to_owned(),
            ),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        }
    }

    fn regarding(&self, about: &About) -> ObjectReference {
        let pod = match about {
            About::Pod(pod) => Some(pod),
            About::Daemon => self.daemon.as_ref(),
        };
        match pod {
            Some(pod) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: self.pods.get(pod).map(|known| known.uid),
                ..ObjectReference::default()
            },
            // kubectl finds a node's events with its name as the UID.
            None => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node.clone()),
                uid: Some(self.node.clone()),
                ..ObjectReference::default()
            },
        }
    }
}

/// The API server accepts at most one kilobyte.
fn cut(note: &str) -> &str {
    let mut end = note.len().min(NOTE_MAX);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    &note[..end]
}

const CONTROLLER: &str = "ferrule.io/ipamd";
const EVENTS: &str = "events.events.k8s.io";
const ENDING: &str = "because it is being terminated";
const NOTE_MAX: usize = 1024;
const LONG: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(NOTE_MAX);
        assert_eq!(cut(&long).len(), NOTE_MAX);
        assert_eq!(cut(&format!("x{long}")).len(), NOTE_MAX - 1);
    }
}
