//! A watch that never ends: failures are reported and retried.

use crate::{
    Concern,
    fault::{self, Fault, Kind},
    status_reporter::StatusReporter,
};
use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

/// The objects of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) concern: Concern,
    /// The name in RBAC rules, such as `pods`.
    pub(crate) resource: &'static str,
    /// A field selector; empty selects all.
    pub(crate) fields: String,
    /// A label selector; empty selects all.
    pub(crate) labels: String,
    /// The number of objects of a page, for kinds of which the whole cluster is read. `None` lists all objects of the API
    /// server's cache at once.
    pub(crate) page: Option<u32>,
}

pub(crate) struct Watch<K: Clone + 'static> {
    api: Api<K>,
    subject: Subject,
    status: StatusReporter,
    stream: BoxStream<'static, watcher::Result<Event<K>>>,
    backoff: runtime_apiserver::Backoff,
    failing: Option<Fault>,
    /// The time of the next request.
    again_at: Option<Instant>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(crate) fn new(api: Api<K>, subject: Subject, status: StatusReporter) -> Self {
        status.waiting(subject.concern, format!("the first list of {}", subject.resource));
        let stream = stream(api.clone(), &subject);
        Self {
            api,
            subject,
            status,
            stream,
            backoff: crate::request::backoff(),
            failing: None,
            again_at: None,
        }
    }

    /// Returns the next event and all available ones after it, so that a burst is one change. Cancel-safe.
    pub(crate) async fn batch(&mut self) -> Vec<Event<K>> {
        let mut batch = vec![self.next().await];
        while batch.len() < BATCH
            && let Some(Some(Ok(event))) = self.stream.next().now_or_never()
        {
            batch.push(event);
        }
        if batch.iter().any(|event| !matches!(event, Event::Init | Event::InitApply(_))) {
            self.worked();
        }
        batch
    }

    /// The reason why the objects cannot be read, unless the API server is unreachable.
    pub(crate) fn trouble(&self) -> Option<String> {
        let fault = self.failing.as_ref().filter(|fault| fault.kind != Kind::Unreachable)?;
        Some(fault.cause.clone())
    }

    async fn next(&mut self) -> Event<K> {
        loop {
            if let Some(at) = self.again_at {
                sleep_until(at).await;
                self.again_at = None;
            }
            tokio::select! {
                event = self.stream.next() => match event {
                    Some(Ok(event)) => return event,
                    Some(Err(error)) => {
                        let fault = fault::of_watch(&error, self.subject.resource);
                        self.failed(&fault);
                    }
                    None => self.stream = stream(self.api.clone(), &self.subject),
                },
                // A resumed watch sends nothing until an object changes.
                () = sleep(QUIET), if self.failing.is_some() => self.worked(),
            }
        }
    }

    fn failed(&mut self, fault: &Fault) {
        // An expired resource version is not reported, because the list follows automatically, except if the answer was
        // not a stream.
        if fault.kind == Kind::Expired {
            self.stream = stream(self.api.clone(), &self.subject);
        } else {
            self.status.failing(self.subject.concern, self.subject.resource, fault);
            self.failing = Some(fault.clone());
        }
        self.again_at = Some(Instant::now() + self.backoff.pause());
    }

    fn worked(&mut self) {
        self.failing = None;
        self.backoff.reset();
        self.status.good(self.subject.concern, self.subject.resource);
    }
}

/// Lists come from the API server's cache. A quorum read of all pods by each of a thousand nodes would overload
/// an API server that just restarted. The lists may be slightly old, and the watch delivers the rest.
fn stream<K>(api: Api<K>, subject: &Subject) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default();
    config = if subject.page.is_none() { config.any_semantic() } else { config };
    config.page_size = subject.page;
    if !subject.fields.is_empty() {
        config = config.fields(&subject.fields);
    }
    if !subject.labels.is_empty() {
        config = config.labels(&subject.labels);
    }
    watcher(api, config).boxed()
}

/// Events per batch.
const BATCH: usize = 128;
/// Longer than a connection attempt may take: a watch without a failure in this time works.
const QUIET: Duration = Duration::from_secs(7);
