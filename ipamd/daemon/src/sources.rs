//! The netfilter marks on packets from single addresses of secondary ENIs, by which pods share rules.
//!
//! This loop is independent of ADDs. The repair pass deletes a pod's own rule only after this loop observed the
//! mark. This loop deletes a mark only after the repair pass observed the pod's own rule.

use crate::{
    pass_report::{Marks, PassReport},
    trigger::Trigger,
};
use routing_netfilter::{Error, Tools};
use routing_plan::nat::{Backend, Change, sources};
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

/// Owns the table of marks.
pub(crate) struct Sources {
    pub(crate) tools: Tools,
    /// The last repair pass, which has the desired marks.
    pub(crate) passes: watch::Receiver<PassReport>,
    /// The observed marks.
    pub(crate) seen: watch::Sender<Marks>,
    /// Requests a repair pass after the observed marks changed.
    pub(crate) repair: Trigger,
}

impl Sources {
    /// Never returns.
    pub(crate) async fn run(mut self) {
        let tools = self.tools.clone();
        let (mut failures, mut changes, mut warned) = (0_u32, 0_u32, false);
        // An earlier daemon may have left marks. The first pass then need not add rules.
        if let Ok(there) = tools.sources().await {
            self.publish(sources::seen(there.as_ref()));
        }
        // The desired marks are unknown before the first pass.
        while self.passes.borrow_and_update().number == 0 {
            if self.passes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        loop {
            let wanted = self.passes.borrow_and_update().marks.clone();
            if !wanted.is_empty() && !tools.has_nft() && !std::mem::replace(&mut warned, true) {
                tracing::warn!(
                    "FERRULE_RULES=compact: the node has no nft, so each pod with a single \
                     address on a secondary ENI has its own rule; install nftables"
                );
            }
            let settled = self.pass(&tools, &wanted).await;
            if settled.is_ok() {
                failures = 0;
            }
            changes = if matches!(settled, Ok(Settled::Changed)) { changes + 1 } else { 0 };
            let rest = match settled {
                Ok(Settled::Absent) => None,
                Ok(Settled::Watched) => Some(PERIOD),
                // If another program reverts each change, the loop does not compete with it.
                Ok(Settled::Changed) => Some(if changes == 1 { Duration::ZERO } else { PERIOD }),
                Err(error) => {
                    failures += 1;
                    let error = anyhow::Error::from(error);
                    tracing::error!(
                        error = format!("{error:#}"),
                        "cannot set the marks of single addresses"
                    );
                    Some((SOON * 2_u32.pow(failures.min(8))).min(LONGEST))
                }
            };
            if self.next_change(&wanted, rest).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a pass desires other marks, or until `rest` is over.
    async fn next_change(
        &mut self,
        wanted: &Marks,
        rest: Option<Duration>,
    ) -> Result<(), watch::error::RecvError> {
        let news = self.passes.wait_for(|report| report.marks != *wanted);
        match rest {
            Some(rest) if rest.is_zero() => Ok(()),
            Some(rest) => timeout(rest, news).await.map_or(Ok(()), |news| news.map(drop)),
            None => news.await.map(drop),
        }
    }

    async fn pass(&self, tools: &Tools, wanted: &Marks) -> Result<Settled, Error> {
        if !tools.has_nft() {
            return Ok(Settled::Absent);
        }
        let there = tools.sources().await?;
        self.publish(sources::seen(there.as_ref()));
        let Some(script) = sources::plan(wanted, there.as_ref()) else {
            return Ok(if there.is_some() { Settled::Watched } else { Settled::Absent });
        };
        tools.apply(&Change { backend: Backend::Nftables, script }).await?;
        tracing::info!(addresses = wanted.len(), "updated the marks of single addresses");
        Ok(Settled::Changed)
    }

    fn publish(&self, now: Marks) {
        let news = self.seen.send_if_modified(|last| {
            let news = *last != now;
            *last = now;
            news
        });
        if news {
            self.repair.pull();
        }
    }
}

enum Settled {
    /// No table exists, and none is desired.
    Absent,
    /// The table is as desired. Another program may change it.
    Watched,
    /// The table was changed. The next observation decides.
    Changed,
}

/// The time between observations: the kernel sends no event if another program changes the table.
const PERIOD: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
