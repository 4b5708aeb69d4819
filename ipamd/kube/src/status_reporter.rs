//! The state of each concern, and a report for each change of it. Repeated failures are reported once.

use crate::{Concern, ConcernState, ConcernStates, Report, ReportLevel, fault::Fault};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Clones share the receivers.
#[derive(Clone, Debug)]
pub(crate) struct StatusReporter {
    reports: mpsc::Sender<Report>,
    concern_states: Arc<watch::Sender<ConcernStates>>,
}

impl StatusReporter {
    pub(crate) fn new(reports: mpsc::Sender<Report>) -> (Self, watch::Receiver<ConcernStates>) {
        let (concern_states, seen) = watch::channel(ConcernStates::new());
        (Self { reports, concern_states: Arc::new(concern_states) }, seen)
    }

    /// The concern has no result yet.
    pub(crate) fn waiting(&self, concern: Concern, what: impl Into<String>) {
        self.set_state(concern, ConcernState::Waiting(what.into()));
    }

    /// The concern works. Reported if it did not before.
    pub(crate) fn good(&self, concern: Concern, object: &str) {
        let before = self.set_state(concern, ConcernState::Good);
        if before != Some(ConcernState::Good) {
            let cause = match before {
                Some(ConcernState::Failing(_)) => "works again",
                Some(ConcernState::Good | ConcernState::Waiting(_)) | None => "works",
            };
            self.report(Report {
                level: ReportLevel::Info,
                concern,
                object: object.to_owned(),
                cause: cause.to_owned(),
                next_step: String::new(),
            });
        }
    }

    /// The concern fails. Reported if the failure is new.
    pub(crate) fn failing(&self, concern: Concern, object: &str, fault: &Fault) {
        let text = format!("{object}: {}", fault.cause);
        let before = self.set_state(concern, ConcernState::Failing(text.clone()));
        if before != Some(ConcernState::Failing(text)) {
            self.report(Report {
                level: ReportLevel::Warning,
                concern,
                object: object.to_owned(),
                cause: fault.cause.clone(),
                next_step: fault.next_step.clone(),
            });
        }
    }

    /// Reports an event that is not a lasting state.
    pub(crate) fn report(&self, report: Report) {
        // A slow reader must not block the tasks. The concern_states have the state.
        let _ = self.reports.try_send(report);
    }

    fn set_state(&self, concern: Concern, state: ConcernState) -> Option<ConcernState> {
        let mut before = None;
        self.concern_states.send_if_modified(|concern_states| {
            let changes = concern_states.get(&concern) != Some(&state);
            before = concern_states.insert(concern, state.clone());
            changes
        });
        before
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn fault(cause: &str) -> Fault {
        Fault { kind: crate::fault::Kind::Other, cause: cause.into(), next_step: String::new() }
    }

    #[test]
    fn repeated_failures_are_reported_once_and_so_is_the_recovery() {
        let (reports, mut reported) = mpsc::channel(16);
        let (status, concern_states) = StatusReporter::new(reports);
        status.waiting(Concern::Pods, "the API server");
        for _ in 0..3 {
            status.failing(Concern::Pods, "pods", &fault("refused"));
        }
        status.failing(Concern::Pods, "pods", &fault("forbidden"));
        status.good(Concern::Pods, "pods");
        status.good(Concern::Pods, "pods");
        let causes: Vec<String> =
            std::iter::from_fn(|| reported.try_recv().ok()).map(|report| report.cause).collect();
        assert_eq!(causes, ["refused", "forbidden", "works again"]);
        assert_eq!(concern_states.borrow().get(&Concern::Pods).unwrap(), &ConcernState::Good);
    }
}
