//! List and watch of one kind, for the life of the process. The kind is listed again if the watch has lost its position.

use crate::{
    api::{Defined, Source},
    fault::{Fault, Sort},
    intake::{Intake, Line},
    object_tracker::ObjectTracker,
    readiness::{Readiness, may_be_absent},
    watch_lines::WatchLines,
};
use futures::FutureExt as _;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

/// Maximum number of lines that are applied together.
const BATCH: usize = 64;
/// Minimum duration of a watch. A watch that ends earlier counts as failed.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Interval at which an absent kind is looked for if no definition changes.
const LOOK: Duration = Duration::from_secs(30);

pub(crate) struct Feed {
    source: Source,
    intake: Intake,
    readiness: Arc<Readiness>,
    /// Counts changes of definitions.
    definitions: watch::Receiver<u64>,
    /// Counts restores of the cluster from a backup, as any kind detects them.
    setbacks: watch::Sender<u64>,
    setback: watch::Receiver<u64>,
    tracker: ObjectTracker,
    backoff: runtime_apiserver::Backoff,
}

/// End of a watch.
enum Ended {
    /// The watch continues at its position.
    Broken(Option<Fault>),
    /// The kind has to be listed again.
    Lost,
}

impl Feed {
    pub(crate) fn new(
        source: Source,
        intake: Intake,
        readiness: Arc<Readiness>,
        definitions: watch::Receiver<u64>,
        setbacks: watch::Sender<u64>,
    ) -> Self {
        let (tracker, backoff) = (ObjectTracker::default(), crate::api::backoff());
        let setback = setbacks.subscribe();
        Self { source, intake, readiness, definitions, setbacks, setback, tracker, backoff }
    }

    /// Reads the kind forever.
    pub(crate) async fn run(mut self) {
        let kind = self.source.kind;
        loop {
            self.definitions.mark_unchanged();
            self.setback.mark_unchanged();
            match self.list().await {
                Ok(version) => {
                    self.backoff.reset();
                    self.readiness.good(kind, self.tracker.len());
                    self.relisted(&version);
                    self.is_listed();
                    self.follow(version).await;
                    self.intake.metrics.relisted(kind);
                }
                Err(fault) if fault.is_no_kind() && may_be_absent(kind) => self.absent(fault).await,
                // The continuation token was too old: start with the first page again.
                Err(fault) if fault.sort == Sort::Expired => sleep(self.backoff.pause()).await,
                Err(fault) => self.failed(&fault).await,
            }
        }
    }

    /// Reads all pages, and removes objects that they lack. Returns the resource version of the list.
    async fn list(&mut self) -> Result<String, Fault> {
        self.tracker.begin();
        let mut next = String::new();
        loop {
            let text = self.source.page(&next).await?;
            let page = self.intake.page(self.source.kind, text.as_bytes(), &mut self.tracker);
            let page = page.map_err(|error| {
                Fault::odd("list", &self.source.resource(), &config_model::causes(&error))
            })?;
            if page.next.is_empty() {
                let gone = self.tracker.end();
                self.intake.remove(self.source.kind, &gone, &mut self.tracker);
                return Ok(page.resource_version);
            }
            next = page.next;
        }
    }

    /// Watches until the kind has to be listed again.
    async fn follow(&mut self, mut version: String) {
        let mut is_first = true;
        loop {
            // A fresh list is not ahead of the cluster.
            let ended = if std::mem::take(&mut is_first) {
                None
            } else {
                self.detect_restore(&version).await
            };
            let ended = match ended {
                Some(ended) => ended,
                None => self.watch(&mut version).await,
            };
            match ended {
                Ended::Lost => return,
                Ended::Broken(None) => {}
                Ended::Broken(Some(fault)) => self.failed(&fault).await,
            }
            self.intake.metrics.restarted(self.source.kind);
        }
    }

    /// Checks that the cluster's resource version is not less than ours. Otherwise etcd was restored from a backup. A
    /// watch would be silent up to our version and then deliver events of another history.
    async fn detect_restore(&mut self, version: &str) -> Option<Ended> {
        let newest = match self.source.newest().await {
            Ok(newest) => newest,
            Err(fault) if fault.is_no_kind() => return Some(Ended::Lost),
            Err(fault) => return Some(Ended::Broken(Some(fault))),
        };
        // Another kind may have detected it meanwhile.
        if self.setback.has_changed().unwrap_or(false) {
            return Some(Ended::Lost);
        }
        let (now, ours): (u64, u64) = (newest.parse().ok()?, version.parse().ok()?);
        if now >= ours {
            return None;
        }
        let kind = self.source.kind.text();
        tracing::warn!(
            kind,
            now,
            ours,
            "cluster restored from a backup; every kind is listed again"
        );
        self.setbacks.send_modify(|setbacks| *setbacks = setbacks.wrapping_add(1));
        Some(Ended::Lost)
    }

    async fn watch(&mut self, version: &mut String) -> Ended {
        let lines = match self.source.watch(version).await {
            Ok(lines) => lines,
            // A missing kind is handled by the next list.
            Err(fault) if matches!(fault.sort, Sort::Expired | Sort::NotFound) => {
                return Ended::Lost;
            }
            Err(fault) => return Ended::Broken(Some(fault)),
        };
        self.readiness.good(self.source.kind, self.tracker.len());
        self.read(lines, version).await
    }

    async fn read(&mut self, mut lines: WatchLines, version: &mut String) -> Ended {
        let start = Instant::now();
        loop {
            let fault = |why: &str| Some(Fault::unreachable("watch", &self.source.resource(), why));
            let first = tokio::select! {
                // Lines from before a restore belong to another history.
                _ = self.setback.changed() => return Ended::Lost,
                first = timeout(self.source.silence, lines.next()) => first,
            };
            let first = match first {
                Ok(Ok(Some(line))) => line,
                // The watch has reached its requested duration.
                Ok(Ok(None)) if start.elapsed() > AT_ONCE => return Ended::Broken(None),
                Ok(Ok(None)) => return Ended::Broken(fault("the watch ended at once")),
                Ok(Err(error)) => return Ended::Broken(fault(&error.to_string())),
                Err(_) => return Ended::Broken(None),
            };
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Some(Ok(Some(line))) = lines.next().now_or_never()
            {
                batch.push(line);
            }
            if let Some(ended) = self.take(&batch, version) {
                return ended;
            }
            self.backoff.reset();
        }
    }

    /// Applies lines of the watch, up to one that ends it.
    fn take(&mut self, batch: &[Vec<u8>], version: &mut String) -> Option<Ended> {
        let mut lines = Vec::with_capacity(batch.len());
        let mut ended = None;
        for text in batch {
            let line: Line = match serde_json::from_slice(text) {
                Ok(line) => line,
                Err(error) => {
                    let why = format!("cannot parse a watch event: {error}");
                    let fault = Fault::odd("watch", &self.source.resource(), &why);
                    ended = Some(Ended::Broken(Some(fault)));
                    break;
                }
            };
            if line.what == "ERROR" {
                let fault = Fault::of_status(&line.object, &self.source.resource());
                ended = Some(match fault.sort {
                    Sort::Expired => Ended::Lost,
                    Sort::Unreachable
                    | Sort::Forbidden
                    | Sort::NotFound
                    | Sort::Conflict
                    | Sort::Other => Ended::Broken(Some(fault)),
                });
                break;
            }
            lines.push(line);
        }
        self.intake.lines(self.source.kind, &lines, &mut self.tracker);
        if let Some(newest) = lines.iter().rev().find_map(Line::version) {
            newest.clone_into(version);
            self.reach(newest);
        }
        self.readiness.good(self.source.kind, self.tracker.len());
        ended
    }

    /// Records that all events up to this version are applied.
    fn reach(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.intake.hub.with(|hub| hub.reach(self.source.kind.text(), version));
        }
    }

    /// Records the version of a complete list.
    fn relisted(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.intake.hub.with(|hub| hub.relisted(self.source.kind.text(), version));
        }
    }

    /// Handles a kind that the API server does not find. If nothing defines it, its objects are removed, and the feed
    /// waits for a definition.
    async fn absent(&mut self, fault: Fault) {
        let why = match self.source.defined().await {
            Ok(Defined::Not) => "the cluster has no such CustomResourceDefinition".to_owned(),
            Ok(Defined::Otherwise(versions)) => {
                let (kind, versions) = (self.source.kind, versions.join(", "));
                format!("it is defined in {versions}, but not in {}", kind.api_version())
            }
            // The API server serves a new definition after a moment.
            Ok(Defined::Yes) if !self.backoff.is_long() => {
                return sleep(self.backoff.pause()).await;
            }
            Ok(Defined::Yes) => return self.failed(&fault).await,
            Err(other) => return self.failed(&other).await,
        };
        let gone = self.tracker.clear();
        self.intake.remove(self.source.kind, &gone, &mut self.tracker);
        self.intake.hub.with(|hub| hub.unreach(self.source.kind.text()));
        self.readiness.absent(self.source.kind, &why);
        self.is_listed();
        self.backoff.reset();
        // An error means that the watch of definitions has ended. Then the interval alone decides.
        if let Ok(Err(_)) = timeout(LOOK, self.definitions.changed()).await {
            sleep(LOOK).await;
        }
    }

    fn is_listed(&self) {
        let hub = self.intake.hub.clone();
        self.readiness.listed(self.source.kind, || {
            hub.with(|hub| hub.loaded());
            tracing::info!("every kind is read; accepting nodes");
        });
    }

    async fn failed(&mut self, fault: &Fault) {
        self.readiness.failing(self.source.kind, fault);
        sleep(self.backoff.pause()).await;
    }
}
