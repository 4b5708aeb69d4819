//! SNAT and connection marks: the netfilter rules follow the CIDRs of the VPC and the settings, and changes by
//! others are repaired.
//!
//! The loop is independent of ADDs: observe, plan, apply, observe. A failed step is retried. Until it succeeds,
//! the daemon reports the destinations that pods cannot reach.

use crate::{
    inbox::{Ended, Inbox},
    metrics::Metrics,
    pass_report::PassReport,
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

/// The state of the netfilter rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatReport {
    /// The backend of the rules, after they were written or found complete.
    pub(crate) backend: Option<Backend>,
    /// The destinations that pods cannot reach, or node ports that do not answer.
    pub(crate) trouble: Option<String>,
}

/// Owns the netfilter rules for pods.
pub(crate) struct Nat {
    pub(crate) tools: Tools,
    pub(crate) inbox: Inbox,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    /// The IPv4 CIDRs of the VPC.
    pub(crate) ranges: watch::Receiver<Vec<Ipv4Net>>,
    /// The last repair pass, which has the name of the primary ENI's link.
    pub(crate) passes: watch::Receiver<PassReport>,
    pub(crate) reports: watch::Sender<NatReport>,
}

/// The result of a pass.
enum Passed {
    /// The desired rules are not known yet.
    TooSoon,
    Unchanged,
    Changed,
}

/// The reason why a pass failed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Netfilter(#[from] Error),
    #[error(
        "cannot translate pod addresses: the node has neither iptables nor nft; install nftables, or \
         set AWS_VPC_K8S_CNI_EXTERNALSNAT=true and AWS_VPC_CNI_NODE_PORT_SUPPORT=false"
    )]
    NoTools,
    #[error("the daemon exits")]
    Ended,
}

impl Nat {
    /// Runs until the event loop stops.
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
                    // A change counts only after the next observation.
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

    /// `None` until the VPC's CIDRs and the primary ENI are known.
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
        tracing::info!(backend = change.backend.name(), lines, "updated the netfilter rules");
    }

    fn failed(&self, fault: &Fault) {
        let trouble = format!("SNAT: {fault}");
        tracing::error!("{trouble}");
        self.metrics.nat_failed();
        self.reports.send_modify(|report| report.trouble = Some(trouble));
    }
}

/// The choice of source ports for translated connections.
pub(crate) fn ports(settings: &Settings) -> Ports {
    match settings.randomize_snat {
        RandomizeSnat::None => Ports::Kept,
        RandomizeSnat::Hash => Ports::Hashed,
        RandomizeSnat::Prng => Ports::Random,
    }
}

/// Follows the VPC's CIDRs in the metadata service. A failed read changes nothing.
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
                    tracing::info!(?now, "the CIDRs of the VPC changed");
                }
            }
            Ok(Ok(_)) => tracing::warn!("the metadata service lists no CIDR of the VPC"),
            Ok(Err(fault)) => tracing::warn!(%fault, "cannot read the CIDRs of the VPC"),
            Err(_) => tracing::warn!("cannot read the CIDRs of the VPC: timeout"),
        }
    }
}

/// A pause that grows with each attempt, up to the period.
fn later(tries: &mut u32) -> Duration {
    *tries += 1;
    (SOON * 2_u32.pow((*tries).min(8))).min(PERIOD)
}

/// The time between observations of netfilter.
const PERIOD: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
/// As in amazon-vpc-cni.
const RANGES_EVERY: Duration = Duration::from_secs(30);
