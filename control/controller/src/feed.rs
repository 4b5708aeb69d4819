//! One kind, read for as long as the process lasts: listed, watched, listed again when the watch has lost its
//! place.

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

/// As many lines are taken in at once.
const BATCH: usize = 64;
/// A watch that ends within this has not been one.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often an absent kind is looked for, whether or not its definition was heard of.
const LOOK: Duration = Duration::from_secs(30);

/// The reading of one kind.
pub(crate) struct Feed {
    source: Source,
    intake: Intake,
    board: Arc<Readiness>,
    /// Counts changes of definitions.
    definitions: watch::Receiver<u64>,
    /// Counts how often the cluster was found set back, by whichever kind found it first.
    setbacks: watch::Sender<u64>,
    setback: watch::Receiver<u64>,
    known: ObjectTracker,
    backoff: runtime_apiserver::Backoff,
}

/// How a watch ended.
enum Ended {
    /// It is to go on where it was.
    Broken(Option<Fault>),
    /// It has to be listed anew.
    Lost,
}

impl Feed {
    pub(crate) fn new(
        source: Source,
        intake: Intake,
        board: Arc<Readiness>,
        definitions: watch::Receiver<u64>,
        setbacks: watch::Sender<u64>,
    ) -> Self {
        let (known, backoff) = (ObjectTracker::default(), crate::api::backoff());
        let setback = setbacks.subscribe();
        Self { source, intake, board, definitions, setbacks, setback, known, backoff }
    }

    /// Reads for ever.
    pub(crate) async fn run(mut self) {
        let kind = self.source.kind;
        loop {
            self.definitions.mark_unchanged();
            self.setback.mark_unchanged();
            match self.list().await {
                Ok(version) => {
                    self.backoff.reset();
                    self.board.good(kind, self.known.len());
                    self.is_of(&version);
                    self.is_listed();
                    self.follow(version).await;
                    self.intake.metrics.relisted(kind);
                }
                Err(fault) if fault.is_no_kind() && may_be_absent(kind) => self.absent(fault).await,
                // The continuation was too old: from the first page again.
                Err(fault) if fault.sort == Sort::Expired => sleep(self.backoff.pause()).await,
                Err(fault) => self.failed(&fault).await,
            }
        }
    }

    /// Reads all pages, and takes out what they do not have. Returns which version they are of.
    async fn list(&mut self) -> Result<String, Fault> {
        self.known.begin();
        let mut next = String::new();
        loop {
            let text = self.source.page(&next).await?;
            let page = self.intake.page(self.source.kind, text.as_bytes(), &mut self.known);
            let page = page.map_err(|error| {
                Fault::odd("list", &self.source.resource(), &config_model::causes(&error))
            })?;
            if page.next.is_empty() {
                let gone = self.known.end();
                self.intake.gone(self.source.kind, &gone, &mut self.known);
                return Ok(page.resource_version);
            }
            next = page.next;
        }
    }

    /// Watches until all has to be listed anew.
    async fn follow(&mut self, mut version: String) {
        let mut is_first = true;
        loop {
            // What has just been listed is not ahead of the cluster.
            let ended =
                if std::mem::take(&mut is_first) { None } else { self.look_back(&version).await };
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

    /// Whether the cluster is at least as far as we are. If it is not, it was set back to an earlier state, as by a
    /// backup of etcd: a watch would be silent until it is as far again, and then tell of another course of things.
    async fn look_back(&mut self, version: &str) -> Option<Ended> {
        let newest = match self.source.newest().await {
            Ok(newest) => newest,
            Err(fault) if fault.is_no_kind() => return Some(Ended::Lost),
            Err(fault) => return Some(Ended::Broken(Some(fault))),
        };
        // Another kind may have found it meanwhile.
        if self.setback.has_changed().unwrap_or(false) {
            return Some(Ended::Lost);
        }
        let (now, ours): (u64, u64) = (newest.parse().ok()?, version.parse().ok()?);
        if now >= ours {
            return None;
        }
        let kind = self.source.kind.text();
        tracing::warn!(kind, now, ours, "the cluster was set back: everything is read anew");
        self.setbacks.send_modify(|setbacks| *setbacks = setbacks.wrapping_add(1));
        Some(Ended::Lost)
    }

    async fn watch(&mut self, version: &mut String) -> Ended {
        let lines = match self.source.watch(version).await {
            Ok(lines) => lines,
            // Without its kind it is not listed either; that is where this is settled.
            Err(fault) if matches!(fault.sort, Sort::Expired | Sort::NotFound) => {
                return Ended::Lost;
            }
            Err(fault) => return Ended::Broken(Some(fault)),
        };
        self.board.good(self.source.kind, self.known.len());
        self.read(lines, version).await
    }

    async fn read(&mut self, mut lines: WatchLines, version: &mut String) -> Ended {
        let begun = Instant::now();
        loop {
            let fault = |why: &str| Some(Fault::unreachable("watch", &self.source.resource(), why));
            let first = tokio::select! {
                // What came before a restore is of another course of things.
                _ = self.setback.changed() => return Ended::Lost,
                first = timeout(self.source.silence, lines.next()) => first,
            };
            let first = match first {
                Ok(Ok(Some(line))) => line,
                // It has lasted as long as was asked for.
                Ok(Ok(None)) if begun.elapsed() > AT_ONCE => return Ended::Broken(None),
                Ok(Ok(None)) => return Ended::Broken(fault("it ends at once")),
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

    /// Takes in lines of the watch, up to one that ends it.
    fn take(&mut self, batch: &[Vec<u8>], version: &mut String) -> Option<Ended> {
        let mut lines = Vec::with_capacity(batch.len());
        let mut ended = None;
        for text in batch {
            let line: Line = match serde_json::from_slice(text) {
                Ok(line) => line,
                Err(error) => {
                    let why = format!("a line is no event: {error}");
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
        self.intake.lines(self.source.kind, &lines, &mut self.known);
        if let Some(newest) = lines.iter().rev().find_map(Line::version) {
            newest.clone_into(version);
            self.reach(newest);
        }
        self.board.good(self.source.kind, self.known.len());
        ended
    }

    /// All up to this version is taken in.
    fn reach(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.intake.office.with(|hub| hub.reach(self.source.kind.text(), version));
        }
    }

    /// All of it was listed, and is of this version.
    fn is_of(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.intake.office.with(|hub| hub.relisted(self.source.kind.text(), version));
        }
    }

    /// The API server finds no such kind: if nothing defines it, all of it is gone, and it is waited for.
    async fn absent(&mut self, fault: Fault) {
        let why = match self.source.defined().await {
            Ok(Defined::Not) => "nothing defines it".to_owned(),
            Ok(Defined::Otherwise(versions)) => {
                let (kind, versions) = (self.source.kind, versions.join(", "));
                format!("it is defined in {versions}, and read in {}", kind.api_version())
            }
            // It was defined just now, and is found in a moment.
            Ok(Defined::Yes) if !self.backoff.is_long() => {
                return sleep(self.backoff.pause()).await;
            }
            Ok(Defined::Yes) => return self.failed(&fault).await,
            Err(other) => return self.failed(&other).await,
        };
        let gone = self.known.clear();
        self.intake.gone(self.source.kind, &gone, &mut self.known);
        self.intake.office.with(|hub| hub.unreach(self.source.kind.text()));
        self.board.absent(self.source.kind, &why);
        self.is_listed();
        self.backoff.reset();
        // An error means that nobody watches definitions; then time alone says when to look.
        if let Ok(Err(_)) = timeout(LOOK, self.definitions.changed()).await {
            sleep(LOOK).await;
        }
    }

    fn is_listed(&self) {
        let office = self.intake.office.clone();
        self.board.listed(self.source.kind, || {
            office.with(|hub| hub.loaded());
            tracing::info!("every kind is read: nodes are served");
        });
    }

    async fn failed(&mut self, fault: &Fault) {
        self.board.failing(self.source.kind, fault);
        sleep(self.backoff.pause()).await;
    }
}
