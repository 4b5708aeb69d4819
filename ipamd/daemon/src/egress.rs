//! The translation of pod addresses to the other family: netfilter tables that follow the settings. Changes by
//! others are repaired.
//!
//! The loop is independent of ADDs and of the backend of SNAT: it needs `nft`. It removes tables that remain from
//! other settings.

use crate::{metrics::Metrics, nat::ports, pass_report::PassReport};
use config_settings::Settings;
use ipamd_node::desired;
use routing_netfilter::{Error, Tools};
use routing_plan::nat::{
    Backend, Change,
    egress::{Egress, Tables, plan},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Owns the tables.
pub(crate) struct Translation {
    pub(crate) tools: Tools,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    /// The last repair pass, which shows whether pods have such addresses.
    pub(crate) passes: watch::Receiver<PassReport>,
    /// The reason why pods cannot reach the other family.
    pub(crate) trouble: watch::Sender<Option<String>>,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Netfilter(#[from] Error),
    #[error(
        "cannot translate pod addresses to the other family: the node has no nft; install nftables, \
         or set {0}=false"
    )]
    NoTool(&'static str),
}

impl Translation {
    /// Never returns.
    pub(crate) async fn run(mut self) {
        let mut failures = 0_u32;
        // The desired tables are unknown before the first pass.
        if self.passes.wait_for(|report| report.number > 0).await.is_err() {
            return std::future::pending().await;
        }
        loop {
            let wanted = self.passes.borrow_and_update().egress;
            let rest = match self.pass(wanted).await {
                Ok(Settled::Changed) => Some(SOON),
                Ok(settled) => {
                    failures = 0;
                    self.trouble.send_if_modified(|last| last.take().is_some());
                    (settled == Settled::Watched).then_some(PERIOD)
                }
                Err(fault) => {
                    failures += 1;
                    self.failed(&fault);
                    Some((SOON * 2_u32.pow(failures.min(8))).min(PERIOD))
                }
            };
            let news = self.passes.wait_for(|report| report.egress != wanted);
            let ended = match rest {
                Some(rest) => timeout(rest, news).await.is_ok_and(|news| news.is_err()),
                None => news.await.is_err(),
            };
            if ended {
                return std::future::pending().await;
            }
        }
    }

    async fn pass(&self, wanted: bool) -> Result<Settled, Fault> {
        if !self.tools.has_nft() {
            return if wanted { Err(Fault::NoTool(self.setting())) } else { Ok(Settled::Absent) };
        }
        let there = self.tools.egress().await?;
        let family = desired::family(&self.settings).other();
        let wanted = wanted.then(|| Egress { family, ports: ports(&self.settings) });
        let Some(script) = plan(wanted, &there) else {
            let absent = there == Tables::default();
            return Ok(if absent { Settled::Absent } else { Settled::Watched });
        };
        let lines = script.lines().count();
        self.tools.apply(&Change { backend: Backend::Nftables, script }).await?;
        tracing::info!(lines, "installed the translation to the other family");
        Ok(Settled::Changed)
    }

    fn setting(&self) -> &'static str {
        match desired::family(&self.settings) {
            routing_plan::Family::V4 => "ENABLE_V6_EGRESS",
            routing_plan::Family::V6 => "ENABLE_V4_EGRESS",
        }
    }

    fn failed(&self, fault: &Fault) {
        let trouble = format!("egress: {fault}");
        tracing::error!("{trouble}");
        self.metrics.nat_failed();
        self.trouble.send_replace(Some(trouble));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// No table exists, and none is desired.
    Absent,
    /// The tables are as desired. Another program may change them.
    Watched,
    /// The tables were changed. The next observation decides.
    Changed,
}

/// The time between observations: the kernel sends no event if another program changes the tables.
const PERIOD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
