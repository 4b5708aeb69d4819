//! Reports to the controller: which policies are in force on this node, and what was reported already.

use config_model::{Span, Time};
use control_wire::proto::{Reached, Realized, ReportRequest};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Changes within this time are one report.
const COALESCE: Span = Span::millis(200);
/// The longest delay of a report that contains only how far the cluster was read.
const PROGRESS: Span = Span::seconds(5);
/// The pause after a report that did not arrive; doubled up to [`PAUSE_LAST`].
const PAUSE_FIRST: Span = Span::seconds(1);
const PAUSE_LAST: Span = Span::seconds(60);
/// The interval of full reports: the recipient may have been restarted at the same address.
const FULL_EVERY: Span = Span::seconds(600);
/// The longest error in a report, in bytes.
const ERROR_BYTES: usize = 512;

/// The recipient of reports: the address in the bookmark, and the epoch of the replica that sent the bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTo {
    /// The recipient's address.
    pub at: SocketAddr,
    /// The epoch of the replica that this node follows.
    pub epoch: Vec<u8>,
}

/// A report that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The recipient.
    pub to: SocketAddr,
    /// The message as it is sent.
    pub message: ReportRequest,
}

/// A policy's generation, and the error if it is not in force.
pub(crate) type State = BTreeMap<String, (i64, String)>;

/// The reports that were sent and that are due.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    to: Option<ReportTo>,
    now: State,
    reported: State,
    /// Resource versions of the state in force by kind, and those of the last report.
    reached: BTreeMap<String, u64>,
    reported_reached: BTreeMap<String, u64>,
    /// The next report is a full one: the recipient's state is not known.
    full: bool,
    under_way: Option<(State, BTreeMap<String, u64>)>,
    /// The next report is not sent before this time.
    due_at: Option<Time>,
    failures: u32,
    full_at: Time,
}

impl Reports {
    pub(crate) fn set_recipient(&mut self, to: Option<ReportTo>, now: Time) {
        if self.to == to {
            return;
        }
        self.full |= to.is_some();
        (self.to, self.failures) = (to, 0);
        // The report under way is for the earlier recipient; its outcome does not count for this one.
        self.under_way = None;
        self.due_at = Some(now);
    }

    /// Sets the policies with their errors.
    pub(crate) fn set(&mut self, state: State, now: Time) {
        let state =
            state.into_iter().map(|(uid, (generation, error))| (uid, (generation, cut(error))));
        self.now = state.collect();
        self.due_by(now + COALESCE);
    }

    /// Sets how far the cluster was read for the state in force.
    pub(crate) fn reached(&mut self, reached: BTreeMap<String, u64>, now: Time) {
        if self.reached != reached {
            self.reached = reached;
            self.due_by(now + PROGRESS);
        }
    }

    fn due_by(&mut self, at: Time) {
        // A report that did not arrive has its own pause.
        if self.failures == 0 {
            self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
        } else {
            self.due_at.get_or_insert(at);
        }
    }

    /// The report that is due, if any. One is under way at a time.
    pub(crate) fn due(&mut self, now: Time) -> Option<Report> {
        let to = self.to.as_ref()?;
        if self.under_way.is_some() {
            return None;
        }
        if now >= self.full_at + FULL_EVERY && self.failures == 0 {
            self.full = true;
            self.due_at = Some(self.due_at.unwrap_or(now).min(now));
        }
        if self.due_at.is_none_or(|at| now < at) {
            return None;
        }
        self.due_at = None;
        let realized = if self.full { all(&self.now) } else { changes(&self.reported, &self.now) };
        if realized.is_empty() && !self.full && self.reached == self.reported_reached {
            return None;
        }
        self.under_way = Some((self.now.clone(), self.reached.clone()));
        let reached = self.reached.iter();
        let reached = reached.map(|(kind, at)| Reached { kind: kind.clone(), version: *at });
        let reached = reached.collect();
        let message = ReportRequest { full: self.full, realized, reached, unenforced: false };
        Some(Report { to: to.at, message })
    }

    /// The outcome of the report to this recipient.
    pub(crate) fn sent(&mut self, to: SocketAddr, arrived: bool, now: Time) {
        if self.to.as_ref().is_none_or(|is| is.at != to) {
            return;
        }
        let Some((state, reached)) = self.under_way.take() else { return };
        if arrived {
            (self.reported, self.reported_reached) = (state, reached);
            (self.full, self.failures, self.full_at) = (false, 0, now);
            if self.reported != self.now {
                self.due_by(now + COALESCE);
            } else if self.reached != self.reported_reached {
                self.due_by(now + PROGRESS);
            }
            return;
        }
        // The recipient may have lost the earlier reports.
        self.full = true;
        let doubled = PAUSE_FIRST.0.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.due_at = Some(now + Span(doubled.min(PAUSE_LAST.0)));
    }

    /// The time at which [`Self::due`] may return a report, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.to.as_ref()?;
        if self.under_way.is_some() {
            return None;
        }
        let full_at = (self.failures == 0).then_some(self.full_at + FULL_EVERY);
        [self.due_at, full_at].into_iter().flatten().min()
    }

    /// Policies that are not in force, each with the reason.
    pub(crate) fn failing(&self) -> impl Iterator<Item = (&String, &String)> {
        self.now.iter().filter(|(_, (_, error))| !error.is_empty()).map(|(uid, (_, e))| (uid, e))
    }
}

fn cut(mut error: String) -> String {
    let end = (0..=ERROR_BYTES.min(error.len())).rev().find(|at| error.is_char_boundary(*at));
    error.truncate(end.unwrap_or(0));
    error
}

fn realized(uid: &str, (generation, error): &(i64, String), gone: bool) -> Realized {
    Realized { uid: uid.to_owned(), generation: *generation, error: error.clone(), gone }
}

fn all(state: &State) -> Vec<Realized> {
    state.iter().map(|(uid, is)| realized(uid, is, false)).collect()
}

fn changes(reported: &State, now: &State) -> Vec<Realized> {
    let uids: BTreeSet<&String> = reported.keys().chain(now.keys()).collect();
    let change = |uid: &String| match (reported.get(uid), now.get(uid)) {
        (was, Some(is)) if was != Some(is) => Some(realized(uid, is, false)),
        (Some((generation, _)), None) => Some(realized(uid, &(*generation, String::new()), true)),
        (_, Some(_)) | (None, None) => None,
    };
    uids.into_iter().filter_map(change).collect()
}
