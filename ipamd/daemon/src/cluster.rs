//! The connection to Kubernetes, if any: facts come in, and pod annotations, events and conditions go out.
//!
//! Only the ADD of a pod that may use a branch ENI waits for the API server, because only the pod object has that
//! information. The wait ends at the ADD's deadline. If a mode needs the API server, the daemon is not ready
//! until it is reachable, but stays live.

mod options;

pub use options::{Access, options};

use crate::{clock, inbox::Inbox, messages::Input};
use config_model::{PodName, Time};
use config_settings::Settings;
use ipamd_core::{CloudFault, ClusterFact, Notice, Severity, Topic};
use ipamd_kube::{
    Concern, ConcernState, ConcernStates, EventKind, Handle, Needs, Options, PodEvent, PoolHealth,
    Report, ReportLevel,
};
use std::{net::IpAddr, sync::Arc};
use tokio::{sync::mpsc, time::timeout};

/// `None` without Kubernetes. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster(Option<Arc<Connected>>);

#[derive(Debug)]
struct Connected {
    handle: Handle,
    /// The daemon is ready only if these work.
    needed: Vec<Concern>,
    branches: bool,
    annotates: bool,
}

/// The queues of facts and reports.
pub(crate) struct ClusterQueues {
    facts: mpsc::Receiver<ClusterFact>,
    reports: mpsc::Receiver<Report>,
    anticipate: bool,
}

impl Cluster {
    /// Starts to connect to the API server and returns at once.
    pub(crate) fn start(
        options: Option<Options>,
        settings: &Settings,
    ) -> (Self, Option<ClusterQueues>) {
        let Some(options) = options else { return (Self(None), None) };
        let needed = needed(settings);
        let (sender, reports) = mpsc::channel(REPORTS);
        let (handle, facts) = ipamd_kube::start(options, sender);
        let connected = Connected {
            handle,
            needed,
            branches: settings.pod_enis.is_some(),
            annotates: settings.annotate_pod_ip,
        };
        let queues = ClusterQueues { facts, reports, anticipate: settings.anticipate_pods };
        (Self(Some(Arc::new(connected))), Some(queues))
    }

    /// The connection to the API server, if any.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|it| it.handle.clone())
    }

    /// The state of each concern.
    pub(crate) fn concern_states(&self) -> ConcernStates {
        self.0.as_ref().map(|it| it.handle.concern_states().borrow().clone()).unwrap_or_default()
    }

    /// A concern that the daemon's modes need and that does not work yet.
    pub(crate) fn lacks(&self) -> Option<String> {
        let it = self.0.as_ref()?;
        let concern_states = it.handle.concern_states();
        let concern_states = concern_states.borrow();
        it.needed.iter().find_map(|concern| match concern_states.get(concern) {
            Some(ConcernState::Good) => None,
            Some(ConcernState::Waiting(what)) => Some(format!("{concern}: waiting for {what}")),
            Some(ConcernState::Failing(why)) => Some(format!("{concern}: {why}")),
            None => Some(format!("{concern}: not started")),
        })
    }

    /// The requirements of the pod object. The wait until `give_up_at` happens only if pods may use branch ENIs. The
    /// error names the missing information.
    pub(crate) async fn needs(&self, pod: &PodName, give_up_at: Time) -> Result<Needs, String> {
        let Some(it) = &self.0 else { return Ok(Needs::default()) };
        if !it.branches {
            // As with amazon-vpc-cni, such a pod then gets an address of the pool.
            let known = it.handle.known_needs(pod).unwrap_or_default();
            return Ok(Needs { branch: false, ..known });
        }
        let needs = it.handle.needs(pod);
        timeout(clock::until(give_up_at), needs).await.map_err(|_| {
            let cause = self
                .lacks()
                .unwrap_or_else(|| "the API server lists no such pod on this node".to_owned());
            format!("ENABLE_POD_ENI: cannot learn whether pod {pod} uses a branch ENI: {cause}")
        })
    }

    /// Pods are annotated with their addresses.
    pub(crate) fn annotates(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.annotates)
    }

    pub(crate) fn pod_has(&self, pod: PodName, address: IpAddr) {
        if let Some(it) = self.0.as_ref().filter(|it| it.annotates) {
            it.handle.pod_has(pod, address);
        }
    }

    pub(crate) fn pod_lost(&self, pod: PodName, address: IpAddr) {
        if let Some(it) = self.0.as_ref().filter(|it| it.annotates) {
            it.handle.pod_lost(pod, address);
        }
    }

    /// Writes an event if the notice names a pod.
    pub(crate) fn noticed(&self, notice: &Notice) {
        let (Some(it), Some(pod)) = (&self.0, &notice.pod) else { return };
        let Notice { cause, next_step, .. } = notice;
        let note = match next_step.as_str() {
            "" => cause.clone(),
            next_step => format!("{cause}. Next step: {next_step}"),
        };
        it.handle.event(PodEvent {
            pod: pod.clone(),
            kind: match notice.severity {
                Severity::Info => EventKind::Normal,
                Severity::Warning | Severity::Error => EventKind::Warning,
            },
            reason: reason(notice.topic),
            action: "AssignAddress".to_owned(),
            note,
        });
    }

    /// Reports a missing permission as an event on the daemon's own pod.
    pub(crate) fn call_failed(&self, action: &str, fault: &CloudFault) {
        let missing = matches!(fault.code.as_str(), "UnauthorizedOperation" | "AccessDenied");
        if let Some(it) = self.0.as_ref().filter(|_| missing) {
            it.handle.missing_permission(action, &fault.message);
        }
    }

    pub(crate) fn ask_for_trunk(&self) {
        match &self.0 {
            Some(it) => it.handle.ask_for_trunk(),
            None => tracing::warn!(
                "cannot request a trunk ENI: the daemon has no connection to the API server"
            ),
        }
    }

    /// Sets the node's condition. A healthy pool also allows removing the startup taint.
    pub(crate) fn pool(&self, healthy: bool, reason: &str, message: &str) {
        if let Some(it) = &self.0 {
            let (reason, message) = (camel_case(reason), message.to_owned());
            it.handle.pool(PoolHealth { healthy, reason, message });
        }
    }

    /// Releases the Lease.
    pub(crate) async fn stop(&self) {
        if let Some(it) = &self.0 {
            it.handle.stop().await;
        }
    }
}

impl ClusterQueues {
    /// Forwards facts and logs reports, forever.
    pub(crate) async fn pass_on(mut self, inbox: Inbox) {
        loop {
            tokio::select! {
                Some(fact) = self.facts.recv() => {
                    let coming = matches!(fact, ClusterFact::Coming(_));
                    if (!coming || self.anticipate) && inbox.send(Input::Cluster(fact)).await.is_err() {
                        break;
                    }
                }
                Some(report) = self.reports.recv() => log(&report),
                else => break,
            }
        }
        std::future::pending().await
    }
}

fn log(report: &Report) {
    let Report { level, concern, object, cause, next_step } = report;
    let concern = concern.name();
    match level {
        ReportLevel::Info => tracing::info!(concern, object, next_step, "Kubernetes: {cause}"),
        ReportLevel::Warning => tracing::warn!(concern, object, next_step, "Kubernetes: {cause}"),
    }
}

fn needed(settings: &Settings) -> Vec<Concern> {
    let mut needed = Vec::new();
    if settings.needs_kubernetes() {
        needed.extend([Concern::Api, Concern::Node]);
    }
    if settings.custom_networking.is_some() {
        needed.push(Concern::EniConfig);
    }
    if settings.pod_enis.is_some() {
        needed.push(Concern::Pods);
    }
    needed
}

/// The reason of an event, as `kubectl describe` shows it.
fn reason(topic: Topic) -> String {
    if topic == Topic::ReserveRefused {
        return "FailedAddressAssignment".to_owned();
    }
    camel_case(topic.name())
}

/// `no_usable_address` as `NoUsableAddress`.
fn camel_case(words: &str) -> String {
    let capitalized = |word: &str| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    };
    words.split('_').map(capitalized).collect()
}

/// Reports that wait to be logged; more are dropped.
const REPORTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_one_word() {
        assert_eq!(camel_case("no_usable_address"), "NoUsableAddress");
        assert_eq!(camel_case(""), "");
        assert_eq!(reason(Topic::ReserveRefused), "FailedAddressAssignment");
        assert_eq!(reason(Topic::AssignedVanished), "AssignedVanished");
    }
}
