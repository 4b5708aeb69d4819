//! The check of pods' source addresses: one table of nftables that follows the settings. Changes by others are
//! repaired.
//!
//! The loop is independent of ADDs: the rule reads the routes to pods, so it needs no change for a pod.

use crate::{metrics::Metrics, pass_report::PassReport, repeated_message::RepeatedMessage};
use config_settings::{PolicyBackend, Settings};
use routing_netfilter::{Error, Tools};
use routing_plan::nat::{Backend, Change, source_check};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// Owns the table.
pub(crate) struct SourceCheck {
    pub(crate) tools: Tools,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    /// The last repair pass. After the first pass the host has its routes to the pods.
    pub(crate) passes: watch::Receiver<PassReport>,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Netfilter(#[from] Error),
    #[error("the node has no nft")]
    NoTool,
}

impl SourceCheck {
    /// Returns only when the daemon exits.
    pub(crate) async fn run(mut self) {
        if self.passes.wait_for(|report| report.number > 0).await.is_err() {
            return std::future::pending().await;
        }
        let mut failing = RepeatedMessage::default();
        loop {
            let rest = match self.pass().await {
                Ok(true) => SOON,
                Ok(false) => {
                    self.metrics.source_check(self.is_wanted());
                    PERIOD
                }
                Err(fault) => {
                    self.metrics.source_check(false);
                    let text = format!(
                        "cannot check the source addresses of pods: {fault}; a pod can send with the \
                         address of another pod of the node; install nftables, or set \
                         FERRULE_SOURCE_CHECK=false"
                    );
                    failing.print(text, &mut |text| tracing::error!("{text}"));
                    PERIOD
                }
            };
            sleep(rest).await;
        }
    }

    /// With the backend `ebpf` the agent checks the sources.
    fn is_wanted(&self) -> bool {
        let by_agent = self.settings.policy && self.settings.agent.backend == PolicyBackend::Ebpf;
        self.settings.source_check && !by_agent
    }

    /// Returns whether the table was changed. The next observation decides then.
    async fn pass(&self) -> Result<bool, Fault> {
        let wanted = self.is_wanted().then_some(self.settings.veth_prefix.as_str());
        if !self.tools.has_nft() {
            return if wanted.is_some() { Err(Fault::NoTool) } else { Ok(false) };
        }
        let there = self.tools.source_check().await?;
        let Some(script) = source_check::plan(wanted, there.as_ref()) else { return Ok(false) };
        self.tools.apply(&Change { backend: Backend::Nftables, script }).await?;
        tracing::info!(wanted = wanted.is_some(), "updated the check of pods' source addresses");
        Ok(true)
    }
}

/// The time between observations: the kernel sends no event if another program changes the table.
const PERIOD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
