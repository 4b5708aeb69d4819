//! Reports of nodes, and the status of policies. Only the lease holder collects and writes.

mod write;

use crate::metrics::Metrics;
use control_hub::{NeededBy, PolicyChange};
use control_rpc::SharedHub;
use control_status::{Book, Outcome, Report, Spread, Write};
use control_wire::proto::{Realized, ReportRequest};
use kube::Client;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, sleep},
};
use view_policy::Reports;
use write::Writer;

/// Maximum number of concurrent status writes.
const AT_ONCE: usize = 16;
/// Interval of checks for due writes.
const LOOK: Duration = Duration::from_millis(250);
/// Maximum number of nodes of changed policies that are taken from the hub under one lock.
const NODES: usize = 5_000;
/// Interval at which unused names are dropped.
const TIDY: Duration = Duration::from_secs(30);

/// Receiver of reports while this replica holds the Lease.
pub(crate) struct ReportCollector {
    hub: Arc<SharedHub>,
    /// Locked after the hub and before `reports`.
    book: Mutex<Option<Book>>,
    /// State of policies on nodes, for the view API.
    reports: Mutex<Reports>,
}

impl ReportCollector {
    pub(crate) fn new(hub: Arc<SharedHub>) -> Self {
        Self { hub, book: Mutex::new(None), reports: Mutex::default() }
    }

    /// Records a node's report. Returns false if this replica collects none or needs a full report first.
    pub(crate) fn report(&self, node: &str, request: ReportRequest) -> bool {
        // Reports on policies that are not read yet would be lost. The node repeats a refused report.
        if !self.hub.with(|hub| hub.is_loaded()) {
            return false;
        }
        let now_ms = self.hub.now_ms();
        let mut book = self.book();
        let Some(book) = book.as_mut() else { return false };
        let mut reports = self.reports();
        // A partial report needs an earlier full report. After a refusal the node sends a full one.
        if !request.full && !reports.knows(node) {
            return false;
        }
        reports.take(node, &request, now_ms);
        drop(reports);
        let unenforced = request.unenforced;
        let realized = request.realized.into_iter().map(report);
        let realized: Vec<Report> =
            realized.map(|it| if unenforced { it.unenforced() } else { it }).collect();
        book.report(node, request.full, &realized, now_ms);
        true
    }

    /// Returns the state of policies on nodes; empty if another replica holds the Lease.
    pub(crate) fn reports(&self) -> MutexGuard<'_, Reports> {
        runtime_lock::lock(&self.reports)
    }

    pub(crate) fn node_gone(&self, node: &str) {
        let now_ms = self.hub.now_ms();
        if let Some(book) = self.book().as_mut() {
            book.node_gone(node, now_ms);
        }
        self.reports().forget(node);
    }

    /// Starts or ends the collection as this replica gets or loses the Lease.
    pub(crate) fn keeps(&self, keeps: bool) {
        let now_ms = self.hub.now_ms();
        *self.book() = keeps.then(|| Book::new(now_ms));
        self.reports().clear();
        self.hub.with(|hub| if keeps { hub.follow_policies() } else { hub.leave_policies() });
    }

    /// Takes changed policies from the hub. The hub's lock is never taken while the book's is held.
    fn catch_up(&self) {
        loop {
            let changes = self.hub.with(|hub| hub.take_policies(NODES));
            if changes.is_empty() {
                return;
            }
            let now_ms = self.hub.now_ms();
            let mut book = self.book();
            let Some(book) = book.as_mut() else { return };
            changes.into_iter().for_each(|change| take(book, change, now_ms));
        }
    }

    fn due(&self) -> Vec<Write> {
        let now_ms = self.hub.now_ms();
        self.book().as_mut().map(|book| book.due(now_ms, AT_ONCE)).unwrap_or_default()
    }

    fn done(&self, uid: &str, outcome: Outcome) {
        let now_ms = self.hub.now_ms();
        if let Some(book) = self.book().as_mut() {
            book.done(uid, outcome, now_ms);
        }
    }

    fn found(&self, uids: &[String]) {
        let now_ms = self.hub.now_ms();
        if let Some(book) = self.book().as_mut() {
            uids.iter().for_each(|uid| book.found(uid, now_ms));
        }
    }

    /// True if a write waits for the CustomResourceDefinition of our objects.
    fn has_nowhere(&self) -> bool {
        self.book().as_ref().is_some_and(Book::has_nowhere)
    }

    /// Retries writes that waited for the CustomResourceDefinition of our objects.
    fn somewhere(&self) {
        let now_ms = self.hub.now_ms();
        if let Some(book) = self.book().as_mut() {
            book.somewhere(now_ms);
        }
    }

    fn tidy(&self) {
        if let Some(book) = self.book().as_mut() {
            book.tidy();
        }
    }

    fn book(&self) -> MutexGuard<'_, Option<Book>> {
        runtime_lock::lock(&self.book)
    }
}

fn report(realized: Realized) -> Report {
    let Realized { uid, generation, error, gone } = realized;
    Report { uid, generation, error, gone }
}

fn take(book: &mut Book, change: PolicyChange, now_ms: u64) {
    let PolicyChange { uid, key, now } = change;
    let Some(needed) = now else { return book.policy_gone(&uid) };
    let spread = match needed.by {
        NeededBy::All(nodes) => Spread::All(nodes),
        NeededBy::Moved(nodes) => Spread::Moved(nodes),
    };
    book.policy(&uid, &key, needed.generation, spread, now_ms);
}

/// Writes due statuses whenever this replica holds the Lease, forever.
pub(crate) async fn keep(
    client: Client,
    reports: Arc<ReportCollector>,
    metrics: Arc<Metrics>,
    mut leads: watch::Receiver<bool>,
    mut definitions: watch::Receiver<u64>,
) {
    let writer = Arc::new(Writer::new(client, metrics));
    // An error means that the election has ended, as the replica stops.
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = hold(&writer, &reports, &mut definitions) => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }
}

async fn hold(
    writer: &Arc<Writer>,
    reports: &Arc<ReportCollector>,
    definitions: &mut watch::Receiver<u64>,
) {
    definitions.mark_unchanged();
    reports.catch_up();
    // Objects of the previous holder for policies without a problem have to be removed.
    let mut is_seen = see(writer, reports).await;
    let mut tidy = interval(TIDY);
    loop {
        reports.catch_up();
        write(writer, reports).await;
        let is_time = tokio::select! {
            () = sleep(LOOK) => false,
            _ = tidy.tick() => {
                reports.tidy();
                true
            }
            // Without a watch of definitions the interval alone decides.
            Ok(()) = definitions.changed() => true,
        };
        // The CustomResourceDefinition of our objects may have been created meanwhile.
        if is_time && (!is_seen || reports.has_nowhere()) {
            is_seen = see(writer, reports).await;
        }
    }
}

/// Lists our objects. Returns false if they cannot be listed, for example without their CustomResourceDefinition.
async fn see(writer: &Writer, reports: &ReportCollector) -> bool {
    let Some(found) = writer.ours().await else { return false };
    reports.found(&found);
    reports.somewhere();
    true
}

async fn write(writer: &Arc<Writer>, reports: &Arc<ReportCollector>) {
    let mut writes = JoinSet::new();
    for write in reports.due() {
        let (writer, reports) = (writer.clone(), reports.clone());
        writes.spawn(async move {
            let outcome = writer.write(&write).await;
            reports.done(&write.uid, outcome);
        });
    }
    // A drop aborts the writes: then another replica holds the Lease and writes itself.
    while writes.join_next().await.is_some() {}
}
