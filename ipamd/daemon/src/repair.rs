//! The repair pass: observe the kernel, compare it with the address book, apply the plan.
//!
//! The order protects pods during ADD and DEL: missed DELs come first, then the observation, and only then the
//! read of the address book. An object in the kernel was in the book before its creation, so the book knows it.

mod watch;

pub(crate) use watch::watch_sysctls;
pub use watch::{ProcSys, watch_kernel};

use crate::{
    clock,
    inbox::{Ended, Inbox},
    messages::{Input, RepairOutcome},
    metrics::Metrics,
    pass_report::{Marks, PassReport},
    policy,
    tombstones::Tombstones,
    trigger::Trigger,
};
use config_model::{Mark, PodKey};
use config_settings::Settings;
use ipamd_node::{desired, readiness};
use routing_netlink::Kernel;
use routing_plan::{Observed, addresses_in_use};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch as channel,
    time::{sleep, timeout},
};

/// Owns the kernel adapter and runs one pass at a time.
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

/// The connections of the repair loop besides the kernel.
pub(crate) struct Tools {
    pub(crate) inbox: Inbox,
    pub(crate) tombstones: Tombstones,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trigger: Trigger,
    pub(crate) reports: channel::Sender<PassReport>,
    /// The observed marks of single addresses.
    pub(crate) marks: channel::Receiver<Marks>,
}

impl<K: Kernel> Repair<K> {
    pub(crate) fn new(kernel: K, tools: Tools) -> Self {
        let Tools { inbox, tombstones, settings, metrics, trigger, reports, marks } = tools;
        Self { kernel, inbox, tombstones, settings, metrics, trigger, reports, marks }
    }

    /// Runs a pass after each change, and periodically without one, until the event loop stops.
    pub(crate) async fn run(mut self) -> Ended {
        loop {
            let began = Instant::now();
            match self.pass().await {
                Ok(rest) => sleep(rest.saturating_sub(began.elapsed())).await,
                Err(ended) => return ended,
            }
            if timeout(PERIOD, self.trigger.pulled()).await.is_ok() {
                // Changes arrive in bursts.
                sleep(DEBOUNCE).await;
            }
        }
    }

    /// Runs one pass. Returns the shortest time from its start to the next pass.
    async fn pass(&mut self) -> Result<Duration, Ended> {
        let word = self.trigger.taken();
        self.drain_tombstones().await?;
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
            self.send_outcome(RepairOutcome {
                started,
                in_use,
                ready: Vec::new(),
                not_ready: Vec::new(),
                disconnected: Vec::new(),
            })
            .await?;
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
        let is_new = |(key, _): &(&PodKey, &String)| !previous.disconnected.contains_key(key);
        let disconnected = report.disconnected.iter().filter(is_new);
        let disconnected = disconnected.map(|(key, why)| (key.clone(), why.clone())).collect();
        // The report comes before the answer to an ADD that waits for this pass.
        self.reports.send_replace(report);
        let outcome = RepairOutcome { started, in_use, ready, not_ready, disconnected };
        self.send_outcome(outcome).await?;
        if !plan.ops.is_empty() {
            // A change counts only after the next observation.
            self.trigger.pull();
        }
        let patience = unsettled.saturating_sub(QUICK_PASSES).min(5);
        let gap = (GAP * 2_u32.pow(patience)).min(GAP_MAX);
        Ok(gap.max(began.elapsed() * REST_FACTOR).min(GAP_MAX))
    }

    async fn drain_tombstones(&mut self) -> Result<(), Ended> {
        let (found, unusable) = self.tombstones.read();
        for error in unusable {
            tracing::warn!(%error, "skipped a tombstone");
        }
        let agent = policy::agent(&self.settings);
        for found in found {
            self.tombstones.drain(&self.inbox, &found.tombstone.key, agent.as_ref()).await?;
        }
        Ok(())
    }

    async fn send_outcome(&mut self, outcome: RepairOutcome) -> Result<(), Ended> {
        self.inbox.send(Input::Repaired(outcome)).await
    }
}

fn by_address(marks: Marks) -> BTreeMap<IpAddr, Mark> {
    marks.into_iter().map(|(address, mark)| (address.into(), mark)).collect()
}

/// The longest time between passes.
const PERIOD: Duration = Duration::from_secs(10);
/// The wait for more changes after the first one.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// The shortest time between the starts of two passes.
const GAP: Duration = Duration::from_millis(40);
/// The time between the starts of two passes is at least this many times the length of the first. A burst of changes
/// then does not keep the node busy.
const REST_FACTOR: u32 = 4;
const GAP_MAX: Duration = Duration::from_secs(1);
/// After this many passes that repaired the same subject, passes become less frequent.
const QUICK_PASSES: u32 = 4;
const AFTER_FAILURE: Duration = Duration::from_millis(500);
