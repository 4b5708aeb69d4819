//! What the daemon holds of the work with Kubernetes.

use crate::{
    EventKind, Needs, PodEvent, PoolHealth, Standings,
    events::{About, Asked, EventSender},
    pod_ips::{Wish, Wished},
    pods::Pods,
};
use config_model::PodName;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::timeout,
};

/// Tells Kubernetes what it should know. Nothing here waits for the API server, except where it says
/// so; clones speak for the same daemon. When all are dropped, all work ends.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pods: Pods,
    pub(crate) events: EventSender,
    pub(crate) pod_ips: mpsc::Sender<Wished>,
    pub(crate) health: watch::Sender<Option<PoolHealth>>,
    pub(crate) trunk: watch::Sender<bool>,
    pub(crate) standings: watch::Receiver<Standings>,
    pub(crate) stop: watch::Sender<bool>,
    /// Ended with the last handle.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Handle {
    /// What a pod needs of its networking; waits until the pod is known, which may be for ever: bound
    /// it. A pod that has been asked to end does not count, since a pod that is being set up under
    /// its name is the next one.
    pub async fn needs(&self, pod: &PodName) -> Needs {
        self.inner.pods.wait_for(pod).await.needs
    }

    /// The same if it is known now.
    pub fn known_needs(&self, pod: &PodName) -> Option<Needs> {
        self.inner.pods.get(pod).filter(|known| !known.ending).map(|known| known.needs)
    }

    /// Writes an event about a pod. Repeats are counted in a series, and both each pod's events and
    /// all together are bounded.
    pub fn event(&self, event: PodEvent) {
        self.inner.events.send(event);
    }

    /// The cloud refused this action for want of a permission: a warning event on the daemon's pod.
    pub fn missing_permission(&self, action: &str, note: &str) {
        self.inner.events.put(Asked {
            about: About::Daemon,
            kind: EventKind::Warning,
            reason: "MissingIAMPermissions".to_owned(),
            action: action.to_owned(),
            note: format!("{action}: {note}"),
        });
    }

    /// The pod has this address: with `ANNOTATE_POD_IP` its annotation says so soon.
    pub fn pod_has(&self, pod: PodName, address: IpAddr) {
        self.wish(pod, Wish::Has(address));
    }

    /// The pod had this address and lost it: if its annotation says the address, it is emptied.
    pub fn pod_lost(&self, pod: PodName, address: IpAddr) {
        self.wish(pod, Wish::Lost(address));
    }

    fn wish(&self, pod: PodName, wish: Wish) {
        let known = self.inner.pods.get(&pod).filter(|known| {
            // One that has been asked to end is not the one that just got an address.
            !known.ending || matches!(wish, Wish::Lost(_))
        });
        let uid = known.map(|known| known.uid);
        let _ = self.inner.pod_ips.try_send(Wished { pod, uid, wish });
    }

    /// How the pool is. A pool that is healthy loses the startup taint.
    pub fn pool(&self, health: PoolHealth) {
        self.inner.health.send_if_modified(|before| {
            let changes = before.as_ref() != Some(&health);
            *before = Some(health);
            changes
        });
    }

    /// A trunk is needed: from now on the CNINode has the feature `SecurityGroupsForPods` and, with
    /// custom networking, the ENIConfig's name.
    pub fn ask_for_trunk(&self) {
        self.inner.trunk.send_if_modified(|asked| !std::mem::replace(asked, true));
    }

    /// How everything stands, by [`Concern`](crate::Concern).
    pub fn standings(&self) -> watch::Receiver<Standings> {
        self.inner.standings.clone()
    }

    /// Ends all work. A lease that is held is given back, which waits for the API server for a
    /// moment.
    pub async fn stop(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = self.inner.tasks.lock().await;
        let ended = async { while tasks.join_next().await.is_some() {} };
        let _ = timeout(LAST_WORDS, ended).await;
        tasks.abort_all();
    }
}

/// A part of the ten seconds that Kubernetes gives.
const LAST_WORDS: Duration = Duration::from_secs(2);
