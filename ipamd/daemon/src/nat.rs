//! SNAT and connection marks: what netfilter does follows the VPC's ranges and the settings, and is
//! put right when somebody changes it.
//!
//! One loop, off the way of ADDs: observe, plan, apply, observe. What has failed is tried again;
//! until it succeeds the daemon says what pods cannot reach.

use crate::{
    inbox::{Ended, Inbox},
    metrics::Metrics,
    repair::PassReport,
};
use config_settings::{Family, NatBackend, RandomizeSnat, Settings};
use ipamd_cloud::Cloud;
use ipamd_node::desired;
use ipnet::Ipv4Net;
use routing_netfilter::{Error, Tools};
use routing_plan::nat::{Backend, Change, NatDesired, Ports, fitting, plan};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// How netfilter stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatReport {
    /// Who writes the rules, once something was written or found right.
    pub(crate) backend: Option<Backend>,
    /// What keeps pods from leaving the VPC, or node ports from answering.
    pub(crate) trouble: Option<String>,
}

/// Owns what netfilter does for pods.
pub(crate) struct Nat {
    pub(crate) tools: Tools,
    pub(crate) inbox: Inbox,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    /// The VPC's ranges.
    pub(crate) ranges: watch::Receiver<Vec<Ipv4Net>>,
    /// Passes of host networking, which know the primary ENI's link.
    pub(crate) passes: watch::Receiver<PassReport>,
    pub(crate) reports: watch::Sender<NatReport>,
}

/// How a pass ended.
enum Passed {
    /// What is wanted is not known yet.
    TooSoon,
    Unchanged,
    Changed,
}

/// Why a pass did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Netfilter(#[from] Error),
    #[error(
        "the node has neither iptables nor nft, so nothing translates addresses; install nftables, \
         or set AWS_VPC_K8S_CNI_EXTERNALSNAT=true and AWS_VPC_CNI_NODE_PORT_SUPPORT=false"
    )]
    NoTools,
    #[error("the daemon ends")]
    Ended,
}

impl Nat {
    /// Runs until the loop ends.
    pub(crate) async fn run(mut self) {
        if self.settings.family == Family::V6 {
            // IPv6 pods keep their addresses everywhere.
            return std::future::pending().await;
        }
        let tools = self.tools.clone();
        let mut tries = 0_u32;
        loop {
            let rest = match self.pass(&tools).await {
                Ok(Passed::TooSoon) => later(&mut tries),
                Ok(passed) => {
                    tries = 0;
                    // What was changed is looked at again before it counts.
                    if matches!(passed, Passed::Changed) { SOON } else { PERIOD }
                }
                Err(Fault::Ended) => return,
                Err(fault) => {
                    self.failed(&fault);
                    later(&mut tries)
                }
            };
            tokio::select! {
                () = sleep(rest) => {}
                Ok(()) = self.ranges.changed() => {}
            }
        }
    }

    async fn pass(&mut self, tools: &Tools) -> Result<Passed, Fault> {
        let Some(wanted) = self.desired().await? else { return Ok(Passed::TooSoon) };
        let seen = tools.observe().await?;
        let idle = wanted.snat.is_none() && !wanted.node_ports;
        let backend = match self.settings.nat_backend {
            Some(NatBackend::IptablesLegacy) => Backend::IptablesLegacy,
            Some(NatBackend::IptablesNft) => Backend::IptablesNft,
            Some(NatBackend::Nftables) => Backend::Nftables,
            None => match fitting(&seen) {
                Some(backend) => backend,
                None if idle => return Ok(Passed::Unchanged),
                None => return Err(Fault::NoTools),
            },
        };
        if !seen.has(backend) && !idle {
            return Err(Error::Missing(backend).into());
        }
        let changes = plan(Some(&wanted), backend, &seen);
        for change in &changes {
            tools.apply(change).await?;
            self.changed(change);
        }
        self.metrics.nat_passed(backend, if changes.is_empty() { "unchanged" } else { "changed" });
        let report = NatReport { backend: Some(backend), trouble: None };
        self.reports.send_if_modified(|last| std::mem::replace(last, report.clone()) != report);
        Ok(if changes.is_empty() { Passed::Unchanged } else { Passed::Changed })
    }

    /// `None` until the VPC's ranges and the primary ENI are known.
    async fn desired(&mut self) -> Result<Option<NatDesired>, Fault> {
        let vpc: Vec<Ipv4Net> = self.ranges.borrow_and_update().clone();
        let link = self.passes.borrow().primary_link.clone();
        let view = self.inbox.view().await.map_err(|Ended| Fault::Ended)?;
        let address = desired::primary(&view.snapshot).and_then(|eni| eni.primary_address);
        let (Some(primary_link), Some(primary_address)) = (link, address) else { return Ok(None) };
        if vpc.is_empty() {
            return Ok(None);
        }
        let settings = &self.settings;
        Ok(Some(NatDesired {
            primary_link,
            primary_address,
            vpc: vpc.into_iter().collect(),
            excluded: settings.exclude_snat_cidrs.iter().copied().collect(),
            snat: (!settings.external_snat).then(|| ports(settings)),
            node_ports: settings.node_port_support,
            mark: settings.connmark,
            veth_prefix: settings.veth_prefix.clone(),
        }))
    }

    fn changed(&self, change: &Change) {
        let lines = change.script.lines().count();
        tracing::info!(backend = change.backend.name(), lines, "netfilter's rules are set");
    }

    fn failed(&self, fault: &Fault) {
        let trouble = format!("SNAT: {fault}");
        tracing::error!("{trouble}");
        self.metrics.nat_failed();
        self.reports.send_modify(|report| report.trouble = Some(trouble));
    }
}

/// How a translated connection gets its source port.
pub(crate) fn ports(settings: &Settings) -> Ports {
    match settings.randomize_snat {
        RandomizeSnat::None => Ports::Kept,
        RandomizeSnat::Hash => Ports::Hashed,
        RandomizeSnat::Prng => Ports::Random,
    }
}

/// Keeps the VPC's ranges as the metadata service tells them. One that is silent changes nothing.
pub(crate) async fn follow_ranges(cloud: Arc<dyn Cloud>, ranges: watch::Sender<Vec<Ipv4Net>>) {
    loop {
        sleep(RANGES_EVERY).await;
        match timeout(RANGES_EVERY, cloud.vpc_v4_cidrs()).await {
            Ok(Ok(mut now)) if !now.is_empty() => {
                now.sort_unstable();
                let news = ranges.send_if_modified(|last| {
                    last.sort_unstable();
                    *last != now && {
                        last.clone_from(&now);
                        true
                    }
                });
                if news {
                    tracing::info!(?now, "the VPC's ranges have changed");
                }
            }
            Ok(Ok(_)) => tracing::warn!("the metadata service tells no range of the VPC"),
            Ok(Err(fault)) => tracing::warn!(%fault, "the VPC's ranges are not told"),
            Err(_) => tracing::warn!("the VPC's ranges are not told in time"),
        }
    }
}

/// A longer rest with each try, up to the period.
fn later(tries: &mut u32) -> Duration {
    *tries += 1;
    (SOON * 2_u32.pow((*tries).min(8))).min(PERIOD)
}

/// Netfilter is looked at so often.
const PERIOD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
/// As amazon-vpc-cni does.
const RANGES_EVERY: Duration = Duration::from_secs(30);
