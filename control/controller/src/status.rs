//! How far policies are enforced, written by the replica that holds the Lease.

mod write;

use crate::metrics::Metrics;
use control_hub::{NeededBy, PolicyChange};
use control_rpc::SharedHub;
use control_status::{Book, Outcome, Report, Spread, Write};
use control_wire::proto::{Realized, ReportRequest};
use kube::Client;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, sleep},
};
use view_policy::Reports;
use write::Writer;

/// As many statuses are written at once.
const AT_ONCE: usize = 16;
/// How often what is due is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// As many nodes of policies that have changed are taken from the hub under one lock.
const NODES: usize = 5_000;
/// How often names that nobody uses are forgotten.
const TIDY: Duration = Duration::from_secs(30);

/// Where reports come in, while this replica holds the Lease.
pub(crate) struct ReportCollector {
    office: Arc<SharedHub>,
    /// Locked after the hub, and before what was heard.
    book: Mutex<Option<Book>>,
    /// What nodes have in force, for people who ask.
    heard: Mutex<Reports>,
}

impl ReportCollector {
    pub(crate) fn new(office: Arc<SharedHub>) -> Self {
        Self { office, book: Mutex::new(None), heard: Mutex::default() }
    }

    /// A node says what became of policies. Returns whether this replica takes reports.
    pub(crate) fn report(&self, node: &str, request: ReportRequest) -> bool {
        // What is said of policies that are not read yet would be forgotten: the node says it again.
        if !self.office.with(|hub| hub.is_loaded()) {
            return false;
        }
        let now_ms = self.office.now_ms();
        let mut book = self.book();
        let Some(book) = book.as_mut() else { return false };
        let mut heard = self.heard();
        // What has changed says nothing of the rest: the node then says all.
        if !request.full && !heard.knows(node) {
            return false;
        }
        heard.take(node, &request, now_ms);
        drop(heard);
        let unenforced = request.unenforced;
        let reports = request.realized.into_iter().map(report);
        let reports: Vec<Report> =
            reports.map(|it| if unenforced { it.unenforced() } else { it }).collect();
        book.report(node, request.full, &reports, now_ms);
        true
    }

    /// What nodes have in force; nothing where they report to another replica.
    pub(crate) fn heard(&self) -> MutexGuard<'_, Reports> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node is gone.
    pub(crate) fn node_gone(&self, node: &str) {
        let now_ms = self.office.now_ms();
        if let Some(book) = self.book().as_mut() {
            book.node_gone(node, now_ms);
        }
        self.heard().forget(node);
    }

    /// This replica holds the Lease from now on, or no longer: a book begins, or ends.
    pub(crate) fn keeps(&self, keeps: bool) {
        let now_ms = self.office.now_ms();
        *self.book() = keeps.then(|| Book::new(now_ms));
        self.heard().clear();
        self.office.with(|hub| if keeps { hub.follow_policies() } else { hub.leave_policies() });
    }

    /// Takes from the hub which policies have changed. The hub's lock is never asked for under the book's.
    fn catch_up(&self) {
        loop {
            let turns = self.office.with(|hub| hub.take_policies(NODES));
            if turns.is_empty() {
                return;
            }
            let now_ms = self.office.now_ms();
            let mut book = self.book();
            let Some(book) = book.as_mut() else { return };
            turns.into_iter().for_each(|turn| take(book, turn, now_ms));
        }
    }

    fn due(&self) -> Vec<Write> {
        let now_ms = self.office.now_ms();
        self.book().as_mut().map(|book| book.due(now_ms, AT_ONCE)).unwrap_or_default()
    }

    fn done(&self, uid: &str, outcome: Outcome) {
        let now_ms = self.office.now_ms();
        if let Some(book) = self.book().as_mut() {
            book.done(uid, outcome, now_ms);
        }
    }

    fn found(&self, uids: &[String]) {
        let now_ms = self.office.now_ms();
        if let Some(book) = self.book().as_mut() {
            uids.iter().for_each(|uid| book.found(uid, now_ms));
        }
    }

    /// Returns true if something waits for the kind of our objects.
    fn has_nowhere(&self) -> bool {
        self.book().as_ref().is_some_and(Book::has_nowhere)
    }

    /// The kind of our objects is there.
    fn somewhere(&self) {
        let now_ms = self.office.now_ms();
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
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(realized: Realized) -> Report {
    let Realized { uid, generation, error, gone } = realized;
    Report { uid, generation, error, gone }
}

fn take(book: &mut Book, turn: PolicyChange, now_ms: u64) {
    let PolicyChange { uid, key, now } = turn;
    let Some(needed) = now else { return book.policy_gone(&uid) };
    let spread = match needed.by {
        NeededBy::All(nodes) => Spread::All(nodes),
        NeededBy::Moved(nodes) => Spread::Moved(nodes),
    };
    book.policy(&uid, &key, needed.generation, spread, now_ms);
}

/// Writes what is due, whenever this replica holds the Lease; for ever.
pub(crate) async fn keep(
    client: Client,
    desk: Arc<ReportCollector>,
    metrics: Arc<Metrics>,
    mut leads: watch::Receiver<bool>,
    mut definitions: watch::Receiver<u64>,
) {
    let writer = Arc::new(Writer::new(client, metrics));
    // An error means that nobody stands for election any more: this replica ends.
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = hold(&writer, &desk, &mut definitions) => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }
}

async fn hold(
    writer: &Arc<Writer>,
    desk: &Arc<ReportCollector>,
    definitions: &mut watch::Receiver<u64>,
) {
    definitions.mark_unchanged();
    desk.catch_up();
    // What the one before wrote of policies that are well now is to go.
    let mut is_seen = see(writer, desk).await;
    let mut tidy = interval(TIDY);
    loop {
        desk.catch_up();
        write(writer, desk).await;
        let is_time = tokio::select! {
            () = sleep(LOOK) => false,
            _ = tidy.tick() => {
                desk.tidy();
                true
            }
            // If nobody watches definitions, time alone says when to look.
            Ok(()) = definitions.changed() => true,
        };
        // The kind of our objects may have come since, or come back.
        if is_time && (!is_seen || desk.has_nowhere()) {
            is_seen = see(writer, desk).await;
        }
    }
}

/// Looks for our objects. Returns whether they were seen: not without their kind.
async fn see(writer: &Writer, desk: &ReportCollector) -> bool {
    let Some(found) = writer.ours().await else { return false };
    desk.found(&found);
    desk.somewhere();
    true
}

async fn write(writer: &Arc<Writer>, desk: &Arc<ReportCollector>) {
    let mut writes = JoinSet::new();
    for write in desk.due() {
        let (writer, desk) = (writer.clone(), desk.clone());
        writes.spawn(async move {
            let outcome = writer.write(&write).await;
            desk.done(&write.uid, outcome);
        });
    }
    // Dropped with us: then another leads, and what was under way is its own to write.
    while writes.join_next().await.is_some() {}
}
