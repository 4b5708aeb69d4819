//! The state of each concern, and a report for each change of it. Repeated failures are reported once.

use crate::{Concern, Loudness, Report, Standing, Standings, fault::Fault};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Clones share the receivers.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    reports: mpsc::Sender<Report>,
    standings: Arc<watch::Sender<Standings>>,
}

impl Teller {
    pub(crate) fn new(reports: mpsc::Sender<Report>) -> (Self, watch::Receiver<Standings>) {
        let (standings, seen) = watch::channel(Standings::new());
        (Self { reports, standings: Arc::new(standings) }, seen)
    }

    /// The concern has no result yet.
    pub(crate) fn waiting(&self, concern: Concern, what: impl Into<String>) {
        self.stands(concern, Standing::Waiting(what.into()));
    }

    /// The concern works. Reported if it did not before.
    pub(crate) fn good(&self, concern: Concern, object: &str) {
        let before = self.stands(concern, Standing::Good);
        if before != Some(Standing::Good) {
            let cause = match before {
                Some(Standing::Failing(_)) => "works again",
                Some(Standing::Good | Standing::Waiting(_)) | None => "works",
            };
            self.tell(Report {
                loudness: Loudness::Info,
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
        let before = self.stands(concern, Standing::Failing(text.clone()));
        if before != Some(Standing::Failing(text)) {
            self.tell(Report {
                loudness: Loudness::Warning,
                concern,
                object: object.to_owned(),
                cause: fault.cause.clone(),
                next_step: fault.next_step.clone(),
            });
        }
    }

    /// Reports an event that is not a lasting state.
    pub(crate) fn tell(&self, report: Report) {
        // A slow reader must not block the tasks. The standings have the state.
        let _ = self.reports.try_send(report);
    }

    fn stands(&self, concern: Concern, standing: Standing) -> Option<Standing> {
        let mut before = None;
        self.standings.send_if_modified(|standings| {
            let changes = standings.get(&concern) != Some(&standing);
            before = standings.insert(concern, standing.clone());
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
        let (reports, mut told) = mpsc::channel(16);
        let (teller, standings) = Teller::new(reports);
        teller.waiting(Concern::Pods, "the API server");
        for _ in 0..3 {
            teller.failing(Concern::Pods, "pods", &fault("refused"));
        }
        teller.failing(Concern::Pods, "pods", &fault("forbidden"));
        teller.good(Concern::Pods, "pods");
        teller.good(Concern::Pods, "pods");
        let causes: Vec<String> =
            std::iter::from_fn(|| told.try_recv().ok()).map(|report| report.cause).collect();
        assert_eq!(causes, ["refused", "forbidden", "works again"]);
        assert_eq!(standings.borrow().get(&Concern::Pods).unwrap(), &Standing::Good);
    }
}
