//! A watch that never ends: failures are told, waited out and tried again.

use crate::{
    Concern,
    fault::{self, Fault, Kind},
    teller::Teller,
};
use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

/// What is watched.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) concern: Concern,
    /// As access rules name it, such as `pods`.
    pub(crate) resource: &'static str,
    /// A field selector; empty is all.
    pub(crate) fields: String,
}

pub(crate) struct Watch<K: Clone + 'static> {
    api: Api<K>,
    subject: Subject,
    teller: Teller,
    stream: BoxStream<'static, watcher::Result<Event<K>>>,
    backoff: runtime_apiserver::Backoff,
    failing: Option<Fault>,
    /// Not asked again before.
    again_at: Option<Instant>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(crate) fn new(api: Api<K>, subject: Subject, teller: Teller) -> Self {
        teller.waiting(subject.concern, format!("the first list of {}", subject.resource));
        let stream = stream(api.clone(), &subject);
        Self {
            api,
            subject,
            teller,
            stream,
            backoff: crate::request::backoff(),
            failing: None,
            again_at: None,
        }
    }

    /// The next event and those that are already there behind it, so that a burst is one change. May be
    /// dropped at any time: nothing is lost.
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

    /// Why the objects cannot be read, if that is not for the API server being out of reach: then
    /// nothing is known about them.
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
                // A resumed watch says nothing until something happens.
                () = sleep(QUIET), if self.failing.is_some() => self.worked(),
            }
        }
    }

    fn failed(&mut self, fault: &Fault) {
        // The position being forgotten is nothing to tell: the list comes anew by itself, except
        // when the answer was no stream at all.
        if fault.kind == Kind::Expired {
            self.stream = stream(self.api.clone(), &self.subject);
        } else {
            self.teller.failing(self.subject.concern, self.subject.resource, fault);
            self.failing = Some(fault.clone());
        }
        self.again_at = Some(Instant::now() + self.backoff.pause());
    }

    fn worked(&mut self) {
        self.failing = None;
        self.backoff.reset();
        self.teller.good(self.subject.concern, self.subject.resource);
    }
}

/// Lists come from the API server's cache: a quorum read of all pods of the cluster by each of a
/// thousand nodes is what an API server that has just come back can least afford. They may thus be
/// a little old; the watch that follows makes up for it.
fn stream<K>(api: Api<K>, subject: &Subject) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default().any_semantic();
    config.page_size = None;
    if !subject.fields.is_empty() {
        config = config.fields(&subject.fields);
    }
    watcher(api, config).boxed()
}

/// As many events are taken at once.
const BATCH: usize = 128;
/// Longer than connecting may take: a watch that has not failed within it has begun.
const QUIET: Duration = Duration::from_secs(7);
