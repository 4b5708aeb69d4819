//! The marks by which shared rules know an ENI's single addresses: kept in netfilter as the repair
//! pass wants them, and told to it as they are seen.
//!
//! A loop of its own, off the way of ADDs. The repair pass takes a pod's own rule away only once the
//! mark is seen here, and lets an address go from here only once the pod's own rule is seen there.

use crate::repair::{PassReport, Trigger};
use config_model::Mark;
use routing_netfilter::{Error, Tools};
use routing_plan::nat::{Backend, Change, sources};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};
use tokio::{sync::watch, time::timeout};

/// How netfilter marks what comes from these addresses.
pub(crate) type Marks = BTreeMap<Ipv4Addr, Mark>;

/// Owns the table of marks.
pub(crate) struct Sources {
    pub(crate) tools: Tools,
    /// Passes of host networking, which say what is wanted.
    pub(crate) passes: watch::Receiver<PassReport>,
    /// What is seen.
    pub(crate) seen: watch::Sender<Marks>,
    /// Pulled when that changes.
    pub(crate) repair: Trigger,
}

impl Sources {
    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let tools = self.tools.clone();
        let (mut failures, mut changes, mut warned) = (0_u32, 0_u32, false);
        // A daemon of before may have left marks, and then the first pass need not add rules.
        if let Ok(there) = tools.sources().await {
            self.tell(sources::seen(there.as_ref()));
        }
        // What is wanted is not known before that pass.
        while self.passes.borrow_and_update().number == 0 {
            if self.passes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        loop {
            let wanted = self.passes.borrow_and_update().marks.clone();
            if !wanted.is_empty() && !tools.has_nft() && !std::mem::replace(&mut warned, true) {
                tracing::warn!(
                    "FERRULE_RULES=compact: without nft the pods with single addresses on \
                     secondary ENIs keep a rule each; install nftables"
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
                // Who changes it back each time is not raced.
                Ok(Settled::Changed) => Some(if changes == 1 { Duration::ZERO } else { PERIOD }),
                Err(error) => {
                    failures += 1;
                    let error = anyhow::Error::from(error);
                    tracing::error!(error = format!("{error:#}"), "cannot mark pods' packets");
                    Some((SOON * 2_u32.pow(failures.min(8))).min(LONGEST))
                }
            };
            if self.next_wish(&wanted, rest).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a pass wants something else, or for as long.
    async fn next_wish(
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
        self.tell(sources::seen(there.as_ref()));
        let Some(script) = sources::plan(wanted, there.as_ref()) else {
            return Ok(if there.is_some() { Settled::Watched } else { Settled::Absent });
        };
        tools.apply(&Change { backend: Backend::Nftables, script }).await?;
        tracing::info!(addresses = wanted.len(), "the marks of single addresses are set");
        Ok(Settled::Changed)
    }

    fn tell(&self, now: Marks) {
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
    /// There is nothing of ours, and nothing is wanted.
    Absent,
    /// It is as wanted, and somebody may change it.
    Watched,
    /// It was changed, and is looked at again before it counts.
    Changed,
}

/// The table is looked at so often: nothing tells when somebody else changes it.
const PERIOD: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
