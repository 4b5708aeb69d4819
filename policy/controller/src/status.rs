//! How far policies are enforced, written by the replica that holds the Lease.

mod write;

use crate::metrics::Metrics;
use kube::Client;
use policy_hub::{NeededBy, PolicyTurn};
use policy_rpc::Office;
use policy_status::{Book, Outcome, Report, Spread, Write};
use policy_view::Heard;
use policy_wire::proto::{Realized, ReportRequest};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, sleep},
};
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
pub(crate) struct Desk {
    office: Arc<Office>,
    book: Mutex<Option<Book>>,
    /// What nodes have in force, for people who ask.
    heard: Mutex<Heard>,
}

impl Desk {
    pub(crate) fn new(office: Arc<Office>) -> Self {
        Self { office, book: Mutex::new(None), heard: Mutex::default() }
    }

    /// A node says what became of policies. Says whether this replica takes reports.
    pub(crate) fn report(&self, node: &str, request: ReportRequest) -> bool {
        // What is said of policies that are not read yet would be forgotten: the node says it again.
        if !self.office.with(|hub| hub.is_loaded()) {
            return false;
        }
        let now_ms = self.office.now_ms();
        let mut book = self.book();
        let Some(book) = book.as_mut() else { return false };
        self.heard().take(node, &request, now_ms);
        let reports: Vec<Report> = request.realized.into_iter().map(report).collect();
        book.report(node, request.full, &reports, now_ms);
        true
    }

    /// What nodes have in force; nothing where they report to another replica.
    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
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

fn take(book: &mut Book, turn: PolicyTurn, now_ms: u64) {
    let PolicyTurn { uid, key, now } = turn;
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
    desk: Arc<Desk>,
    metrics: Arc<Metrics>,
    mut leads: watch::Receiver<bool>,
) {
    let writer = Arc::new(Writer::new(client, metrics));
    // An error means that nobody stands for election any more: this replica ends.
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = hold(&writer, &desk) => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }
}

async fn hold(writer: &Arc<Writer>, desk: &Arc<Desk>) {
    // What the one before wrote of policies that are well now is to go.
    let found = writer.ours().await;
    desk.catch_up();
    desk.found(&found);
    let mut tidy = interval(TIDY);
    loop {
        desk.catch_up();
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
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = tidy.tick() => desk.tidy(),
        }
    }
}
