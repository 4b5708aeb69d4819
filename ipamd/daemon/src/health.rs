//! Health by two names, kept up to date.

use crate::{
    cluster::Cluster,
    inbox::Inbox,
    repair::PassReport,
    view::{HOST_NETWORKING, KUBERNETES, Trouble, View},
};
use ipamd_rpc::server::{Health, HealthName};
use std::time::{Duration, Instant};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};

/// `live` says that the loop answers; `ready`, that the pool can serve. An empty pool does not make
/// the daemon dead: a restart would not fill it.
///
/// The node's condition in Kubernetes says the same as `ready`.
pub(crate) async fn report(
    health: Health,
    inbox: Inbox,
    cluster: Cluster,
    reports: watch::Receiver<PassReport>,
) {
    let mut ticks = interval(EVERY);
    let mut readiness = Readiness::default();
    let mut said = None;
    loop {
        ticks.tick().await;
        let view = timeout(ANSWER_TIME, inbox.view()).await.ok().and_then(Result::ok);
        let live = view.is_some();
        let troubles = troubles(view.as_ref(), &cluster, &reports.borrow());
        let ready = readiness.judge(!troubles.is_empty(), Instant::now());
        let texts: Vec<String> = troubles.iter().map(ToString::to_string).collect();
        let reasons = texts.join("; ");
        match troubles.first().filter(|_| !ready) {
            Some(first) => cluster.pool(false, first.reason, &reasons),
            None => cluster.pool(ready, "serves", "the pool serves"),
        }
        if said != Some((live, ready)) {
            if live && ready {
                tracing::info!(live, ready, "health");
            } else {
                tracing::warn!(live, ready, reasons, "health");
            }
        }
        said = Some((live, ready));
        health.set(HealthName::Live, live).await;
        health.set(HealthName::Ready, ready).await;
    }
}

fn troubles(view: Option<&View>, cluster: &Cluster, report: &PassReport) -> Vec<Trouble> {
    let trouble = |reason, text| Trouble { reason, text };
    let Some(view) = view else {
        return vec![trouble("silent", "the loop does not answer".to_owned())];
    };
    let mut troubles = view.troubles();
    troubles.extend(cluster.lacks().map(|lacks| trouble(KUBERNETES, lacks)));
    let networking = report.trouble.iter().map(|why| trouble(HOST_NETWORKING, why.clone()));
    troubles.extend(networking);
    troubles
}

/// A pool that a burst has emptied for a moment is at work, not in trouble.
#[derive(Debug, Default)]
struct Readiness {
    ready: bool,
    troubled: Option<Instant>,
}

impl Readiness {
    fn judge(&mut self, troubled: bool, now: Instant) -> bool {
        if troubled {
            let since = *self.troubled.get_or_insert(now);
            self.ready &= now.saturating_duration_since(since) < PATIENCE;
        } else {
            *self = Self { ready: true, troubled: None };
        }
        self.ready
    }
}

const EVERY: Duration = Duration::from_millis(250);
const ANSWER_TIME: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_ready_from_its_first_good_moment_and_through_short_trouble() {
        let start = Instant::now();
        let mut readiness = Readiness::default();
        assert!(!readiness.judge(true, start));
        assert!(readiness.judge(false, start));
        assert!(readiness.judge(true, start), "trouble has just begun");
        assert!(readiness.judge(false, start + PATIENCE * 2));
        assert!(readiness.judge(true, start + PATIENCE * 2), "another trouble has just begun");
        assert!(!readiness.judge(true, start + PATIENCE * 3));
        assert!(!readiness.judge(true, start + PATIENCE * 4));
        assert!(readiness.judge(false, start + PATIENCE * 5));
    }
}
