//! The plugin's requests, which become messages to the event loop.

use crate::{
    clock,
    cluster::Cluster,
    inbox::{Ended, Inbox},
    messages::Question,
    metrics::Metrics,
    pass_report::PassReport,
    policy,
    start::UNKNOWN_NAMESPACE,
    tombstones::Tombstones,
    view::Phase,
};
use config_model::{HostEndMode, Mac, PodKey, PodName, RuleLayout, Span};
use datapath_rpc::AgentAt;
use ipamd_core::{Answer, BranchEni, Cards, PodAddress, Refusal, RefusalReason, ReleaseCause};
use ipamd_node::desired;
use ipamd_rpc::{
    self as rpc, Assignment, Branch, Collect, Collected, Enforcer, Enforcing, PoolStatus, Reason,
    Release, Released, Reservation, Reserve, ReserveOutcome,
    server::{CallFailed, Ipam},
};
use ipnet::Ipv4Net;
use routing_plan::Family;
use std::{net::IpAddr, sync::Arc};
use tokio::sync::watch;

/// The settings of a pod's network besides its addresses.
#[derive(Clone, Debug)]
pub(crate) struct PodSettings {
    /// The IPv4 CIDRs of the VPC; empty until the start has read them.
    pub(crate) vpc_cidrs: watch::Receiver<Vec<Ipv4Net>>,
    /// Another device translates source addresses (`AWS_VPC_K8S_CNI_EXTERNALSNAT`).
    pub(crate) external_snat: bool,
    /// The policy agent of the node, if any.
    pub(crate) enforcer: Option<Enforcer>,
    /// The longest wait of an ADD for an address.
    pub(crate) add_wait: Span,
    /// A pod may have an interface on each network card.
    pub(crate) multi_nic: bool,
    /// The routing of branch ENIs.
    pub(crate) enforcing: Enforcing,
    pub(crate) family: Family,
    pub(crate) rules: RuleLayout,
    pub(crate) host_end: HostEndMode,
    /// The last repair pass, which shows whether pods reach destinations of the other family.
    pub(crate) passes: watch::Receiver<PassReport>,
}

/// The server of the plugin's requests.
#[derive(Debug)]
pub(crate) struct Service {
    inbox: Inbox,
    tombstones: Tombstones,
    pod_settings: PodSettings,
    cluster: Cluster,
    metrics: Arc<Metrics>,
    status: watch::Receiver<PoolStatus>,
}

impl Service {
    pub(crate) fn new(
        inbox: Inbox,
        tombstones: Tombstones,
        pod_settings: PodSettings,
        cluster: Cluster,
        metrics: Arc<Metrics>,
        status: watch::Receiver<PoolStatus>,
    ) -> Self {
        Self { inbox, tombstones, pod_settings, cluster, metrics, status }
    }

    fn reservation(&self, addresses: Vec<PodAddress>) -> Reservation {
        Reservation {
            addresses: addresses.into_iter().map(address).collect(),
            vpc_v4_cidrs: self.pod_settings.vpc_cidrs.borrow().clone(),
            use_external_snat: self.pod_settings.external_snat,
            rules: self.pod_settings.rules,
            // A bridged pod has no second address.
            egress: self.pod_settings.host_end == HostEndMode::Routed
                && self.pod_settings.passes.borrow().egress,
            host_end: self.pod_settings.host_end.clone(),
        }
    }

    /// The pod of the key and its first address, if pods are annotated with their addresses.
    async fn annotated(&self, key: &PodKey) -> Option<(PodName, IpAddr)> {
        if !self.cluster.annotates() {
            return None;
        }
        let held = self.inbox.inspect(key.clone()).await.ok()??;
        let address = held.addresses.first()?.address;
        Some((held.pod, address))
    }

    async fn give_back(&self, key: PodKey, cause: ReleaseCause) -> Result<Released, CallFailed> {
        self.metrics.released(cause);
        let annotated = self.annotated(&key).await;
        let question = Question::Release { key: key.clone(), cause };
        match self.inbox.ask(question).await.map_err(unable)? {
            Answer::Released { known, addresses } => {
                tracing::info!(%key, ?cause, known, count = addresses.len(), "released");
                if let Some((pod, address)) = annotated {
                    self.cluster.pod_lost(pod, address);
                }
                let addresses = addresses.into_iter().map(address).collect();
                Ok(if known { Released::Known(addresses) } else { Released::Unknown })
            }
            Answer::Refused(refusal) => Err(CallFailed { message: refusal.message }),
            other @ (Answer::Reserved { .. }
            | Answer::ReservedBranch(_)
            | Answer::Confirmed { .. }) => Err(misfit("release", &other)),
        }
    }

    /// A DEL of this key that could not reach the daemon comes before its next ADD.
    async fn drain_tombstone(&self, key: &PodKey) -> Result<(), CallFailed> {
        if self.tombstones.of(key).is_none() {
            return Ok(());
        }
        self.tombstones.drain(&self.inbox, key, self.agent().as_ref()).await.map_err(unable)
    }

    fn agent(&self) -> Option<AgentAt> {
        policy::client(self.pod_settings.enforcer.as_ref())
    }
}

impl Ipam for Service {
    async fn reserve(&self, request: Reserve) -> Result<ReserveOutcome, CallFailed> {
        self.metrics.add_requests.inc();
        self.drain_tombstone(&request.key).await?;
        let give_up_at = clock::now() + request.wait.min(self.pod_settings.add_wait);
        let needs = match self.cluster.needs(&request.pod.name, give_up_at).await {
            Ok(needs) => needs,
            Err(why) => return Ok(ReserveOutcome::Refused(unknown_needs(why))),
        };
        let every_card = self.pod_settings.multi_nic && (request.multi_nic || needs.every_card);
        let question = Question::Reserve {
            key: request.key.clone(),
            pod: request.pod.name.clone(),
            cards: if every_card { Cards::All } else { Cards::First },
            branch: needs.branch.then_some(needs.uid),
            give_up_at,
        };
        let outcome = match self.inbox.ask(question).await {
            Ok(Answer::Reserved { addresses }) => {
                ReserveOutcome::Reserved(self.reservation(addresses))
            }
            Ok(Answer::ReservedBranch(branch)) => {
                let view = self.inbox.view().await.map_err(unable)?;
                let trunk = desired::trunk(&view.snapshot);
                let PodSettings { enforcing, family, .. } = self.pod_settings;
                branch_of(&request.pod.name, branch, enforcing, family, trunk)
                    .map_or_else(ReserveOutcome::Refused, ReserveOutcome::ReservedBranch)
            }
            Ok(Answer::Refused(refusal)) => ReserveOutcome::Refused(refusal_of(refusal)),
            Ok(other) => return Err(misfit("reserve", &other)),
            Err(Ended) => ReserveOutcome::Refused(stopping()),
        };
        match &outcome {
            ReserveOutcome::Reserved(held) => {
                let address = held.addresses.first().and_then(|a| a.ipv4).map(|ip| ip.to_string());
                tracing::info!(key = %request.key, pod = %request.pod.name, address, "reserved");
            }
            ReserveOutcome::ReservedBranch(branch) => {
                let (eni, vlan) = (&branch.eni, branch.vlan);
                tracing::info!(key = %request.key, pod = %request.pod.name, %eni, vlan, "reserved");
            }
            ReserveOutcome::Refused(refusal) => {
                tracing::warn!(key = %request.key, pod = %request.pod.name, reason = ?refusal.reason,
                    "refused: {}", refusal.message);
            }
        }
        Ok(outcome)
    }

    async fn confirm(&self, request: rpc::Confirm) -> Result<bool, CallFailed> {
        let rpc::Confirm { key, host_interface } = request;
        let question = Question::Confirm { key: key.clone(), host_interface };
        match self.inbox.ask(question).await.map_err(unable)? {
            Answer::Confirmed { confirmed } => {
                tracing::info!(%key, confirmed, "confirm");
                if confirmed && let Some((pod, address)) = self.annotated(&key).await {
                    self.cluster.pod_has(pod, address);
                }
                Ok(confirmed)
            }
            Answer::Refused(refusal) => Err(CallFailed { message: refusal.message }),
            other @ (Answer::Reserved { .. }
            | Answer::ReservedBranch(_)
            | Answer::Released { .. }) => Err(misfit("confirm", &other)),
        }
    }

    async fn release(&self, request: Release) -> Result<Released, CallFailed> {
        let Release { key, cause, .. } = request;
        let cause = match cause {
            rpc::ReleaseCause::PodDeleted => ReleaseCause::PodDeleted,
            rpc::ReleaseCause::SetupFailed => ReleaseCause::SetupFailed,
        };
        self.give_back(key, cause).await
    }

    async fn inspect(&self, key: PodKey) -> Result<Option<Assignment>, CallFailed> {
        let Some(pod) = self.inbox.inspect(key).await.map_err(unable)? else { return Ok(None) };
        let branch = match pod.branch {
            Some(branch) => {
                let view = self.inbox.view().await.map_err(unable)?;
                let trunk = desired::trunk(&view.snapshot);
                let PodSettings { enforcing, family, .. } = self.pod_settings;
                let reply_branch = branch_of(&pod.pod, branch, enforcing, family, trunk);
                Some(reply_branch.map_err(|refusal| CallFailed { message: refusal.message })?)
            }
            None => None,
        };
        let addresses = pod.addresses.into_iter().map(address).collect();
        let (confirmed, rules) = (pod.confirmed, self.pod_settings.rules);
        // A pod that was recovered from the kernel has a placeholder.
        let pod = Some(pod.pod).filter(|pod| pod.namespace != UNKNOWN_NAMESPACE);
        let host_end = self.pod_settings.host_end.clone();
        Ok(Some(Assignment { pod, addresses, branch, confirmed, rules, host_end }))
    }

    async fn holds(&self, pod: &PodName) -> Result<bool, CallFailed> {
        let view = self.inbox.view().await.map_err(unable)?;
        Ok(view.snapshot.pods.iter().any(|held| held.pod == *pod))
    }

    fn host_end(&self) -> HostEndMode {
        self.pod_settings.host_end.clone()
    }

    fn enforcer(&self) -> Option<Enforcer> {
        self.pod_settings.enforcer.clone()
    }

    async fn status(&self) -> Result<PoolStatus, CallFailed> {
        Ok(self.status.borrow().clone())
    }

    /// A reservation after the view of the book belongs to an ADD that the runtime cannot list yet, so it stays.
    async fn collect(&self, request: Collect) -> Result<Collected, CallFailed> {
        let Collect { network, valid } = request;
        let view = self.inbox.view().await.map_err(unable)?;
        if let Phase::Starting(_) | Phase::Stopping = view.phase {
            return Err(CallFailed { message: format!("the daemon is {}", view.phase) });
        }
        let mut collected = Collected::default();
        for pod in view.snapshot.pods {
            if pod.key.network != network || valid.contains(&pod.key) {
                continue;
            }
            if !pod.confirmed && view.now.since(pod.since) < UNDER_WAY {
                collected.spared.insert(pod.key);
                continue;
            }
            match self.give_back(pod.key.clone(), ReleaseCause::PodDeleted).await {
                Ok(Released::Known(addresses)) => {
                    policy::forget(self.agent().as_ref(), &self.inbox, &pod.key, Some(&pod.pod))
                        .await;
                    collected.released.insert(pod.key, addresses);
                }
                // Another request released it first.
                Ok(Released::Unknown) => {}
                Err(CallFailed { message }) => {
                    collected.failed.insert(pod.key, message);
                }
            }
        }
        let Collected { released, spared, failed } = &collected;
        let (released, spared, failed) = (released.len(), spared.len(), failed.len());
        tracing::info!(network, valid = valid.len(), released, spared, failed, "collected");
        Ok(collected)
    }
}

fn address(held: PodAddress) -> rpc::PodAddress {
    let (ipv4, ipv6) = match held.address {
        IpAddr::V4(address) => (Some(address), None),
        IpAddr::V6(address) => (None, Some(address)),
    };
    let eni = held.source.eni().cloned();
    rpc::PodAddress { ipv4, ipv6, device: held.device, table: held.table, eni }
}

fn refusal_of(refusal: Refusal) -> rpc::Refusal {
    let reason = match refusal.reason {
        RefusalReason::TryAgain => Reason::TryAgain,
        RefusalReason::Exhausted => Reason::Exhausted,
        RefusalReason::Invalid => Reason::Invalid,
        RefusalReason::Stopping => Reason::Stopping,
    };
    rpc::Refusal { reason, message: refusal.message, next_step: refusal.next_step }
}

fn unknown_needs(message: String) -> rpc::Refusal {
    rpc::Refusal {
        reason: Reason::TryAgain,
        message,
        next_step: "check that this node reaches the API server".to_owned(),
    }
}

/// Returns the branch ENI's address of the pods' family, its gateway and its trunk.
fn branch_of(
    pod: &PodName,
    branch: BranchEni,
    enforcing: Enforcing,
    family: Family,
    trunk: Option<Mac>,
) -> Result<Branch, rpc::Refusal> {
    let lacks = |reason, message: String| rpc::Refusal {
        reason,
        message,
        next_step: "check the log of the VPC resource controller for this pod".to_owned(),
    };
    let eni = &branch.eni;
    let Some((address, gateway)) = desired::way_of(&branch, family) else {
        let lacking = match family {
            Family::V4 => "privateIp and subnetCidr",
            Family::V6 => "ipv6Addr",
        };
        let message = format!("the annotation of pod {pod} has no {lacking} for {eni}");
        return Err(lacks(Reason::Invalid, message));
    };
    let Some(trunk) = trunk else {
        let message = format!("no trunk ENI is known for branch ENI {eni} of pod {pod}");
        return Err(lacks(Reason::TryAgain, message));
    };
    let BranchEni { eni, mac, vlan, .. } = branch;
    Ok(Branch { eni, mac, vlan, address, gateway, trunk, enforcing })
}

fn stopping() -> rpc::Refusal {
    rpc::Refusal {
        reason: Reason::Stopping,
        message: Ended.to_string(),
        next_step: "try again".to_owned(),
    }
}

fn unable(ended: Ended) -> CallFailed {
    CallFailed { message: ended.to_string() }
}

fn misfit(attempt: &str, answer: &Answer) -> CallFailed {
    tracing::error!(?answer, "the event loop sent another kind of answer to {attempt}");
    CallFailed { message: format!("cannot {attempt}: the event loop sent another kind of answer") }
}

/// An unconfirmed reservation of this age belongs to no running ADD: twice the longest wait for an address.
const UNDER_WAY: Span = Span::seconds(360);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::registry;
    use std::net::Ipv4Addr;

    #[test]
    fn a_branch_eni_comes_with_the_gateway_of_its_subnet() {
        let branch = BranchEni {
            eni: "eni-b".into(),
            mac: Mac([2, 0, 0, 0, 0, 7]),
            address: Some(Ipv4Addr::new(10, 0, 3, 9)),
            address_v6: Some("2600::9".parse().unwrap()),
            vlan: 7,
            subnet_cidr: Some("10.0.3.0/24".parse().unwrap()),
            subnet_cidr_v6: None,
        };
        let pod = PodName { namespace: "shop".into(), name: "web-0".into() };
        let trunk = Some(Mac([2, 0, 0, 0, 0, 1]));
        let convert =
            |branch, family, trunk| branch_of(&pod, branch, Enforcing::Standard, family, trunk);
        let reply_branch = convert(branch.clone(), Family::V4, trunk).unwrap();
        assert_eq!(reply_branch.gateway, Ipv4Addr::new(10, 0, 3, 1));
        assert_eq!(reply_branch.address, Ipv4Addr::new(10, 0, 3, 9));
        assert_eq!(
            (reply_branch.vlan, reply_branch.enforcing, Some(reply_branch.trunk)),
            (7, Enforcing::Standard, trunk)
        );
        let reply_branch = convert(branch.clone(), Family::V6, trunk).unwrap();
        assert_eq!(reply_branch.gateway, registry::VPC_GATEWAY_V6);
        let refusal = convert(branch.clone(), Family::V4, None).unwrap_err();
        assert!(refusal.message.contains("no trunk ENI") && refusal.message.contains("eni-b"));
        let lacking = BranchEni { subnet_cidr: None, ..branch };
        let refusal = convert(lacking, Family::V4, trunk).unwrap_err();
        assert!(refusal.message.contains("shop/web-0") && refusal.message.contains("subnetCidr"));
    }
}
