//! The daemon's handle of the connection to Kubernetes.

use crate::{
    ConcernStates, EventKind, Needs, PodEvent, PoolHealth,
    event_queue::{About, EventRequest, EventSender},
    pod_ips::{AnnotationRequest, DesiredAnnotation},
    pods::Pods,
    services::{self, ServicesRead},
};
use config_model::PodName;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::timeout,
};

/// No method waits for the API server, unless its comment states it. Clones share the connection, and it ends with the
/// last one.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pods: Pods,
    pub(crate) events: EventSender,
    pub(crate) pod_ips: mpsc::Sender<AnnotationRequest>,
    pub(crate) health: watch::Sender<Option<PoolHealth>>,
    pub(crate) trunk: watch::Sender<bool>,
    pub(crate) concern_states: watch::Receiver<ConcernStates>,
    pub(crate) services: services::Access,
    pub(crate) stop: watch::Sender<bool>,
    /// Aborted with the last handle.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Handle {
    /// The network requirements of a pod. Waits until the pod is known, possibly forever, so the caller needs a
    /// deadline. A pod that is being deleted does not count: an ADD under its name belongs to the next one.
    pub async fn needs(&self, pod: &PodName) -> Needs {
        self.inner.pods.wait_for(pod).await.needs
    }

    /// The same without waiting.
    pub fn known_needs(&self, pod: &PodName) -> Option<Needs> {
        self.inner.pods.get(pod).filter(|known| !known.ending).map(|known| known.needs)
    }

    /// Reads Services and EndpointSlices until the receiver is dropped: all of each kind, and then their changes.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn read_services(&self) -> mpsc::Receiver<ServicesRead> {
        let (to, read) = mpsc::channel(READS);
        tokio::spawn(self.inner.services.clone().read(to));
        read
    }

    /// Writes an event about a pod. Repeats increase a count. Events are bounded per pod and in total.
    pub fn event(&self, event: PodEvent) {
        self.inner.events.send(event);
    }

    /// EC2 refused this action because of a missing permission: writes a warning event about the daemon's pod.
    pub fn missing_permission(&self, action: &str, note: &str) {
        self.inner.events.put(EventRequest {
            about: About::Daemon,
            kind: EventKind::Warning,
            reason: "MissingIAMPermissions".to_owned(),
            action: action.to_owned(),
            note: format!("{action}: {note}"),
        });
    }

    /// The pod has this address. With `ANNOTATE_POD_IP` its annotation follows soon.
    pub fn pod_has(&self, pod: PodName, address: IpAddr) {
        self.request_annotation(pod, DesiredAnnotation::Has(address));
    }

    /// The pod lost this address. The annotation is emptied if it holds the address.
    pub fn pod_lost(&self, pod: PodName, address: IpAddr) {
        self.request_annotation(pod, DesiredAnnotation::Lost(address));
    }

    fn request_annotation(&self, pod: PodName, desired: DesiredAnnotation) {
        let known = self.inner.pods.get(&pod).filter(|known| {
            // A pod that is being deleted is not the one that just got an address.
            !known.ending || matches!(desired, DesiredAnnotation::Lost(_))
        });
        let uid = known.map(|known| known.uid);
        let _ = self.inner.pod_ips.try_send(AnnotationRequest { pod, uid, desired });
    }

    /// Sets the state of the pool. A healthy pool removes the startup taint.
    pub fn pool(&self, health: PoolHealth) {
        self.inner.health.send_if_modified(|before| {
            let changes = before.as_ref() != Some(&health);
            *before = Some(health);
            changes
        });
    }

    /// Requests a trunk ENI: the CNINode gets the feature `SecurityGroupsForPods` and, with custom networking, the
    /// name of the ENIConfig.
    pub fn ask_for_trunk(&self) {
        self.inner.trunk.send_if_modified(|asked| !std::mem::replace(asked, true));
    }

    /// The state of each [`Concern`](crate::Concern).
    pub fn concern_states(&self) -> watch::Receiver<ConcernStates> {
        self.inner.concern_states.clone()
    }

    /// Stops all tasks. A held Lease is released, which waits for the API server for a moment.
    pub async fn stop(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = self.inner.tasks.lock().await;
        let ended = async { while tasks.join_next().await.is_some() {} };
        let _ = timeout(LAST_WORDS, ended).await;
        tasks.abort_all();
    }
}

/// A part of the ten seconds that Kubernetes grants.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Messages that wait for the agent; if the queue is full, the watches wait.
const READS: usize = 16;
