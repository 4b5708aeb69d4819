//! The translation of pods' addresses of the other family: kept in netfilter as the settings say, and
//! put right when somebody changes it.
//!
//! A loop of its own, off the way of ADDs, beside whatever backend SNAT has: it needs `nft`. What of
//! it is left from other settings goes.

use crate::{metrics::Metrics, nat::ports, repair::PassReport};
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
    /// Passes of host networking, which say whether pods have such addresses.
    pub(crate) passes: watch::Receiver<PassReport>,
    /// What keeps pods from the other family.
    pub(crate) trouble: watch::Sender<Option<String>>,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Netfilter(#[from] Error),
    #[error(
        "the node has no nft, so nothing translates pods' addresses of the other family; install \
         nftables, or set {0}=false"
    )]
    NoTool(&'static str),
}

impl Translation {
    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut failures = 0_u32;
        // What is wanted is not known before the first pass.
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
        tracing::info!(lines, "the translation to the other family is set");
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
    /// There is nothing of ours, and nothing is wanted.
    Absent,
    /// It is as wanted, and somebody may change it.
    Watched,
    /// It was changed, and is looked at again before it counts.
    Changed,
}

/// Netfilter is looked at so often: nothing tells when somebody else changes it.
const PERIOD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
