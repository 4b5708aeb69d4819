//! The repair pass: observe the kernel, compare it with the address book, put it right.
//!
//! The order is what keeps a pod that is being made or unmade safe: DELs that were missed come
//! first, then the kernel is observed, and only then is the book read. Whatever the kernel showed
//! was in the book before it was made, so the book knows it.

mod report;
mod trigger;
mod watch;

pub(crate) use report::PassReport;
pub use trigger::Trigger;
pub(crate) use watch::watch_sysctls;
pub use watch::{ProcSys, watch_kernel};

use crate::{
    clock,
    inbox::{Ended, Inbox, Input},
    metrics::Metrics,
    policy,
    service::bury,
    sources::Marks,
    tombstones::Tombstones,
};
use config_model::{EniId, Mark, Time};
use config_settings::Settings;
use ipamd_node::{desired, readiness};
use routing_netlink::Kernel;
use routing_plan::{Observed, addresses_in_use};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch as channel,
    time::{sleep, timeout},
};

/// What a pass tells the address book.
#[derive(Debug)]
pub(crate) struct Seen {
    /// When the observation began.
    pub(crate) started: Time,
    /// Addresses that the kernel still names.
    pub(crate) in_use: BTreeSet<IpAddr>,
    /// ENIs that were seen as they should be, and were not before.
    pub(crate) ready: Vec<EniId>,
    /// ENIs that cannot be made right, and why.
    pub(crate) not_ready: Vec<(EniId, String)>,
}

/// Owns the kernel and runs passes, one after the other.
pub(crate) struct Repair<K> {
    kernel: K,
    inbox: Inbox,
    tombstones: Tombstones,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    trigger: Trigger,
    reports: channel::Sender<PassReport>,
    marks: channel::Receiver<Marks>,
}

/// What a repair needs beside the kernel.
pub(crate) struct Tools {
    pub(crate) inbox: Inbox,
    pub(crate) tombstones: Tombstones,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trigger: Trigger,
    pub(crate) reports: channel::Sender<PassReport>,
    /// What is seen of the marks of single addresses.
    pub(crate) marks: channel::Receiver<Marks>,
}

impl<K: Kernel> Repair<K> {
    pub(crate) fn new(kernel: K, tools: Tools) -> Self {
        let Tools { inbox, tombstones, settings, metrics, trigger, reports, marks } = tools;
        Self { kernel, inbox, tombstones, settings, metrics, trigger, reports, marks }
    }

    /// Runs until the loop ends: at a word of change, and now and then without one.
    pub(crate) async fn run(mut self) -> Ended {
        loop {
            let began = Instant::now();
            match self.pass().await {
                Ok(rest) => sleep(rest.saturating_sub(began.elapsed())).await,
                Err(ended) => return ended,
            }
            if timeout(PERIOD, self.trigger.pulled()).await.is_ok() {
                // One change seldom comes alone.
                sleep(DEBOUNCE).await;
            }
        }
    }

    /// One pass. Tells how far from its beginning the next one may begin.
    async fn pass(&mut self) -> Result<Duration, Ended> {
        let word = self.trigger.taken();
        self.bury().await?;
        let (started, began) = (clock::now(), Instant::now());
        let marks = self.marks.borrow().clone();
        let observed = match self.kernel.observe().await {
            Ok(observed) => Observed { marked: by_address(marks), ..observed },
            Err(error) => {
                self.metrics.pass_failed();
                let error = anyhow::Error::from(error);
                tracing::error!(error = format!("{error:#}"), "cannot observe host networking");
                self.reports.send_modify(|report| {
                    report.trouble = vec![format!("cannot observe host networking: {error:#}")];
                });
                return Ok(AFTER_FAILURE);
            }
        };
        let in_use = addresses_in_use(&observed);
        let book = self.inbox.view().await?.snapshot;
        let Some(desired) = desired::node(&book, &self.settings) else {
            self.tell(Seen { started, in_use, ready: Vec::new(), not_ready: Vec::new() }).await?;
            return Ok(GAP);
        };
        let plan = routing_plan::plan(&desired, &observed);
        let applied = self.kernel.apply(&plan.ops).await;
        let (ready, not_ready) = readiness(&book, &plan, &applied);
        let previous = self.reports.borrow().clone();
        let mut report =
            PassReport::of(&plan, &applied, &previous, began.elapsed(), word.elapsed());
        report.egress = desired.egress;
        report.log(&plan, &previous);
        self.metrics.passed(&report);
        let unsettled = report.unsettled;
        // Before an ADD that waits for what is ready now is answered with it.
        self.reports.send_replace(report);
        self.tell(Seen { started, in_use, ready, not_ready }).await?;
        if !plan.ops.is_empty() {
            // What was changed is looked at again before it counts.
            self.trigger.pull();
        }
        let patience = unsettled.saturating_sub(QUICK_PASSES).min(5);
        let gap = (GAP * 2_u32.pow(patience)).min(GAP_MAX);
        Ok(gap.max(began.elapsed() * REST_FACTOR).min(GAP_MAX))
    }

    async fn bury(&mut self) -> Result<(), Ended> {
        let (found, unusable) = self.tombstones.read();
        for error in unusable {
            tracing::warn!(%error, "a tombstone is passed over");
        }
        let agent = policy::agent(&self.settings);
        for found in found {
            bury(&self.inbox, &self.tombstones, &found.tombstone.key, agent.as_ref()).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, seen: Seen) -> Result<(), Ended> {
        self.inbox.send(Input::Seen(seen)).await
    }
}

fn by_address(marks: Marks) -> BTreeMap<IpAddr, Mark> {
    marks.into_iter().map(|(address, mark)| (address.into(), mark)).collect()
}

/// A pass comes at least this often.
const PERIOD: Duration = Duration::from_secs(10);
/// After the first word of a change, more words are waited for this long.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// Passes begin at least this far apart.
const GAP: Duration = Duration::from_millis(40);
/// A pass is followed by a rest of this many times its length less one, so that a burst of changes
/// does not keep the node busy.
const REST_FACTOR: u32 = 4;
const GAP_MAX: Duration = Duration::from_secs(1);
/// After as many passes in a row that repaired the same, they come less often.
const QUICK_PASSES: u32 = 4;
const AFTER_FAILURE: Duration = Duration::from_millis(500);
