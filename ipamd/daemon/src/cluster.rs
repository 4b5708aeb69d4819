//! Kubernetes, where there is one: facts come in, and what it should know goes out.
//!
//! Nothing waits for the API server but an ADD of a pod that may have a branch ENI, since only the
//! pod's object says so; and that within its own deadline. A mode that cannot work without the API
//! server makes the daemon not ready until it is heard, and keeps it live.

mod options;

pub use options::{Access, options};

use crate::{
    clock,
    inbox::{Inbox, Input},
};
use config_model::{PodName, Time};
use config_settings::Settings;
use ipamd_core::{CloudFault, ClusterFact, Notice, Severity, Topic};
use ipamd_kube::{
    Concern, EventKind, Handle, Loudness, Needs, Options, PodEvent, PoolHealth, Report, Standing,
    Standings,
};
use std::{net::IpAddr, sync::Arc};
use tokio::{sync::mpsc, time::timeout};

/// The way to Kubernetes, or none. Clones speak for the same daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster(Option<Arc<Connected>>);

#[derive(Debug)]
struct Connected {
    handle: Handle,
    /// What must work before the daemon is ready.
    needed: Vec<Concern>,
    branches: bool,
    annotates: bool,
}

/// What Kubernetes tells, until somebody passes it on.
pub(crate) struct Told {
    facts: mpsc::Receiver<ClusterFact>,
    reports: mpsc::Receiver<Report>,
    anticipate: bool,
}

impl Cluster {
    /// Begins to speak to the API server, and returns at once.
    pub(crate) fn start(options: Option<Options>, settings: &Settings) -> (Self, Option<Told>) {
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
        let told = Told { facts, reports, anticipate: settings.anticipate_pods };
        (Self(Some(Arc::new(connected))), Some(told))
    }

    /// How everything stands.
    pub(crate) fn standings(&self) -> Standings {
        self.0.as_ref().map(|it| it.handle.standings().borrow().clone()).unwrap_or_default()
    }

    /// What the daemon's modes still need of the API server.
    pub(crate) fn lacks(&self) -> Option<String> {
        let it = self.0.as_ref()?;
        let standings = it.handle.standings();
        let standings = standings.borrow();
        it.needed.iter().find_map(|concern| match standings.get(concern) {
            Some(Standing::Good) => None,
            Some(Standing::Waiting(what)) => Some(format!("{concern}: waiting for {what}")),
            Some(Standing::Failing(why)) => Some(format!("{concern}: {why}")),
            None => Some(format!("{concern}: not begun")),
        })
    }

    /// What the pod's object asks for. Only where pods may have branch ENIs is it worth waiting for,
    /// until the caller gives up; the error says what could not be learned.
    pub(crate) async fn needs(&self, pod: &PodName, give_up_at: Time) -> Result<Needs, String> {
        let Some(it) = &self.0 else { return Ok(Needs::default()) };
        if !it.branches {
            // As with amazon-vpc-cni, such a pod then gets an address of the pool.
            let known = it.handle.known_needs(pod).unwrap_or_default();
            return Ok(Needs { branch: false, ..known });
        }
        let needs = it.handle.needs(pod);
        timeout(clock::until(give_up_at), needs).await.map_err(|_| {
            let cause = self.lacks().unwrap_or_else(|| "no such pod of this node".to_owned());
            format!(
                "ENABLE_POD_ENI: whether pod {pod} has security groups of its own is not known: \
                 {cause}"
            )
        })
    }

    /// Whether anybody wants to know which addresses pods have.
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

    /// Attaches what concerns a pod to that pod.
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

    /// A missing permission is told on the daemon's own pod.
    pub(crate) fn call_failed(&self, action: &str, fault: &CloudFault) {
        let missing = matches!(fault.code.as_str(), "UnauthorizedOperation" | "AccessDenied");
        if let Some(it) = self.0.as_ref().filter(|_| missing) {
            it.handle.missing_permission(action, &fault.message);
        }
    }

    pub(crate) fn ask_for_trunk(&self) {
        match &self.0 {
            Some(it) => it.handle.ask_for_trunk(),
            None => tracing::warn!("a trunk ENI is wanted, and there is nobody to ask for it"),
        }
    }

    /// The node's condition, and whether it may lose its startup taint.
    pub(crate) fn pool(&self, healthy: bool, reason: &str, message: &str) {
        if let Some(it) = &self.0 {
            let (reason, message) = (camel_case(reason), message.to_owned());
            it.handle.pool(PoolHealth { healthy, reason, message });
        }
    }

    /// Gives back what it holds of the cluster.
    pub(crate) async fn stop(&self) {
        if let Some(it) = &self.0 {
            it.handle.stop().await;
        }
    }
}

impl Told {
    /// Passes on what Kubernetes tells, for ever.
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
    let Report { loudness, concern, object, cause, next_step } = report;
    let concern = concern.name();
    match loudness {
        Loudness::Info => tracing::info!(concern, object, next_step, "Kubernetes: {cause}"),
        Loudness::Warning => tracing::warn!(concern, object, next_step, "Kubernetes: {cause}"),
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

/// The reason of an event, as `kubectl describe` lists it.
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

/// As many reports wait to be written; the rest is left out.
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
