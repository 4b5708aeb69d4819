//! What the controller is told of what became of policies: who is told, what was told, what is owed.

use config_model::{Span, Time};
use control_wire::proto::{Reached, Realized, ReportRequest};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Changes that come within this time are one report.
const COALESCE: Span = Span::millis(200);
/// How far the cluster was read is told so late at most, if nothing else is to be told.
const PROGRESS: Span = Span::seconds(5);
/// After a report that did not arrive; doubled up to [`PAUSE_LAST`].
const PAUSE_FIRST: Span = Span::seconds(1);
const PAUSE_LAST: Span = Span::seconds(60);
/// All is told anew this often: who takes reports may have been restarted where it was.
const FULL_EVERY: Span = Span::seconds(600);
/// Of an error so many bytes are told.
const ERROR_BYTES: usize = 512;

/// Who takes reports: the address that the bookmark names, and the run of the replica that named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTo {
    /// Where.
    pub at: SocketAddr,
    /// The run of the replica that this node follows.
    pub epoch: Vec<u8>,
}

/// A report that is to be sent now.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whom it is for.
    pub to: SocketAddr,
    /// What it says.
    pub message: ReportRequest,
}

/// A policy's generation, and the error if it is not in force.
pub(crate) type State = BTreeMap<String, (i64, String)>;

/// The book of reports.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    to: Option<ReportTo>,
    now: State,
    told: State,
    /// How far the cluster was read for what is in force, and what was told of that.
    reached: BTreeMap<String, u64>,
    reached_told: BTreeMap<String, u64>,
    /// All is due: nothing is sure of what the other has.
    full: bool,
    under_way: Option<(State, BTreeMap<String, u64>)>,
    /// Not before.
    due_at: Option<Time>,
    failures: u32,
    full_at: Time,
}

impl Reports {
    /// Who takes reports from now on.
    pub(crate) fn to(&mut self, to: Option<ReportTo>, now: Time) {
        if self.to == to {
            return;
        }
        self.full |= to.is_some();
        (self.to, self.failures) = (to, 0);
        // What is under way is for another; its end says nothing of this one.
        self.under_way = None;
        self.due_at = Some(now);
    }

    /// What is in force now, and what is not.
    pub(crate) fn is(&mut self, state: State, now: Time) {
        let state =
            state.into_iter().map(|(uid, (generation, error))| (uid, (generation, cut(error))));
        self.now = state.collect();
        self.due_by(now + COALESCE);
    }

    /// How far the cluster was read for what is in force now.
    pub(crate) fn reached(&mut self, reached: BTreeMap<String, u64>, now: Time) {
        if self.reached != reached {
            self.reached = reached;
            self.due_by(now + PROGRESS);
        }
    }

    fn due_by(&mut self, at: Time) {
        // What did not arrive has a pause of its own.
        if self.failures == 0 {
            self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
        } else {
            self.due_at.get_or_insert(at);
        }
    }

    /// What is to be sent, if anything is. One is under way at a time.
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
        let realized = if self.full { all(&self.now) } else { changes(&self.told, &self.now) };
        if realized.is_empty() && !self.full && self.reached == self.reached_told {
            return None;
        }
        self.under_way = Some((self.now.clone(), self.reached.clone()));
        let reached = self.reached.iter();
        let reached = reached.map(|(kind, at)| Reached { kind: kind.clone(), version: *at });
        let reached = reached.collect();
        let message = ReportRequest { full: self.full, realized, reached, unenforced: false };
        Some(Report { to: to.at, message })
    }

    /// What became of the report for this one.
    pub(crate) fn sent(&mut self, to: SocketAddr, arrived: bool, now: Time) {
        if self.to.as_ref().is_none_or(|is| is.at != to) {
            return;
        }
        let Some((state, reached)) = self.under_way.take() else { return };
        if arrived {
            (self.told, self.reached_told) = (state, reached);
            (self.full, self.failures, self.full_at) = (false, 0, now);
            if self.told != self.now {
                self.due_by(now + COALESCE);
            } else if self.reached != self.reached_told {
                self.due_by(now + PROGRESS);
            }
            return;
        }
        // It may have forgotten what it was told before.
        self.full = true;
        let doubled = PAUSE_FIRST.0.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.due_at = Some(now + Span(doubled.min(PAUSE_LAST.0)));
    }

    /// When [`Self::due`] may have something, if nothing happens before.
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

fn changes(told: &State, now: &State) -> Vec<Realized> {
    let uids: BTreeSet<&String> = told.keys().chain(now.keys()).collect();
    let change = |uid: &String| match (told.get(uid), now.get(uid)) {
        (was, Some(is)) if was != Some(is) => Some(realized(uid, is, false)),
        (Some((generation, _)), None) => Some(realized(uid, &(*generation, String::new()), true)),
        (_, Some(_)) | (None, None) => None,
    };
    uids.into_iter().filter_map(change).collect()
}
