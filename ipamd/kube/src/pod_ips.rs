//! The annotation that shows a pod's address earlier than its status (`ANNOTATE_POD_IP`).

use crate::{
    Concern, Report, ReportLevel,
    fault::{Fault, Kind},
    pods::{CachedPod, Pods},
    request,
    status_reporter::StatusReporter,
    wire::{self, POD_IPS},
};
use config_model::PodName;
use json_patch::{Patch as JsonPatch, PatchOperation, ReplaceOperation, TestOperation, jsonptr};
use kube::{Api, Client, api::Patch};
use serde_json::json;
use std::{collections::BTreeMap, net::IpAddr};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// The content of the annotation `vpc.amazonaws.com/pod-ips` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredAnnotation {
    /// This address.
    Has(IpAddr),
    /// Empty, if it is this address.
    Lost(IpAddr),
}

/// The desired annotation of a pod.
#[derive(Clone, Debug)]
pub(crate) struct AnnotationRequest {
    pub(crate) pod: PodName,
    /// `None` if unknown. The next pod of that name must not get the address.
    pub(crate) uid: Option<String>,
    pub(crate) desired: DesiredAnnotation,
}

/// A pending write. A later one for the same pod replaces it.
struct Open {
    uid: Option<String>,
    desired: DesiredAnnotation,
    at: Instant,
    backoff: runtime_apiserver::Backoff,
    attempts: u32,
}

pub(crate) struct Annotator {
    pub(crate) client: Client,
    pub(crate) pods: Pods,
    pub(crate) status: StatusReporter,
}

impl Annotator {
    pub(crate) async fn run(self, mut requests: mpsc::Receiver<AnnotationRequest>) {
        self.status.waiting(Concern::PodIps, "the first pod");
        let mut open: BTreeMap<PodName, Open> = BTreeMap::new();
        loop {
            let next = open.iter().min_by_key(|(_, open)| open.at);
            let next = next.map(|(pod, open)| (pod.clone(), open.at));
            tokio::select! {
                biased;
                desired = requests.recv() => match desired {
                    Some(AnnotationRequest { pod, uid, desired }) => {
                        let at = Instant::now();
                        let new = Open { uid, desired, at, backoff: request::backoff(), attempts: 0 };
                        open.insert(pod, new);
                    }
                    None => return,
                },
                () = sleep_until(next.as_ref().map_or_else(Instant::now, |(_, at)| *at)),
                    if next.is_some() =>
                {
                    if let Some((pod, _)) = next {
                        self.attempt(&pod, &mut open).await;
                    }
                }
            }
        }
    }

    async fn attempt(&self, pod: &PodName, all: &mut BTreeMap<PodName, Open>) {
        let Some(open) = all.get_mut(pod) else { return };
        if open.uid.is_none() {
            open.uid = self.pods.get(pod).filter(|known| !known.ending).map(|known| known.uid);
        }
        let patched = match (&open.uid, open.desired) {
            (Some(uid), DesiredAnnotation::Has(address)) => self.set(pod, uid, address).await,
            (Some(uid), DesiredAnnotation::Lost(address)) => self.clear(pod, uid, address).await,
            // The pod is deleted, with its annotation.
            (None, DesiredAnnotation::Lost(_)) => Ok(()),
            (None, DesiredAnnotation::Has(_)) => Err(unknown(pod)),
        };
        let fault = match patched {
            Err(fault) if fault.kind != Kind::NotFound => fault,
            done => {
                if done.is_ok() {
                    self.status.good(Concern::PodIps, POD_IPS);
                }
                all.remove(pod);
                return;
            }
        };
        open.attempts += 1;
        if fault.kind == Kind::Forbidden || open.attempts >= ATTEMPTS {
            self.status.failing(Concern::PodIps, POD_IPS, &fault);
            all.remove(pod);
            return;
        }
        open.at = Instant::now() + open.backoff.pause();
    }

    async fn set(&self, pod: &PodName, uid: &str, address: IpAddr) -> Result<(), Fault> {
        let text = address.to_string();
        let is_set = |known: &CachedPod| known.uid == uid && known.pod_ips.as_ref() == Some(&text);
        if self.pods.get(pod).as_ref().is_some_and(is_set) {
            return Ok(());
        }
        let patch = json!({ "metadata": { "uid": uid, "annotations": { (POD_IPS): text } } });
        let patched = self.patch(pod, &Patch::Merge(&patch)).await;
        if let Some(other) = refused(&patched) {
            self.mismatch(pod, format!("another pod has that name now ({other})"));
            return Ok(());
        }
        patched
    }

    async fn clear(&self, pod: &PodName, uid: &str, address: IpAddr) -> Result<(), Fault> {
        let path = jsonptr::PointerBuf::from_tokens(["metadata", "annotations", POD_IPS]);
        let value = json!(address.to_string());
        let same_pod = TestOperation {
            path: jsonptr::PointerBuf::from_tokens(["metadata", "uid"]),
            value: json!(uid),
        };
        let patch = JsonPatch(vec![
            PatchOperation::Test(same_pod),
            PatchOperation::Test(TestOperation { path: path.clone(), value }),
            PatchOperation::Replace(ReplaceOperation { path, value: json!("") }),
        ]);
        let patched = self.patch(pod, &Patch::Json::<()>(patch)).await;
        if refused(&patched).is_some() {
            let now = self.pods.get(pod).filter(|known| known.uid == uid);
            let now = now.and_then(|known| known.pod_ips).unwrap_or_default();
            if !now.is_empty() {
                let text = format!(
                    "it holds {now:?}, and the pod had {address}; the daemon leaves it unchanged"
                );
                self.mismatch(pod, text);
            }
            return Ok(());
        }
        patched
    }

    async fn patch<P>(&self, pod: &PodName, patch: &Patch<P>) -> Result<(), Fault>
    where
        P: serde::Serialize + std::fmt::Debug,
    {
        let api = Api::<wire::Pod>::namespaced(self.client.clone(), &pod.namespace);
        request::patch(&api, &pod.name, "pods", patch).await.map(|_| ())
    }

    fn mismatch(&self, pod: &PodName, cause: String) {
        self.status.report(Report {
            level: ReportLevel::Warning,
            concern: Concern::PodIps,
            object: format!("pod {pod}"),
            cause: format!("cannot write annotation {POD_IPS}: {cause}"),
            next_step: "find the other writer of the annotation".to_owned(),
        });
    }
}

/// The API server's reason why the object is not the one of the patch.
fn refused(patched: &Result<(), Fault>) -> Option<&str> {
    let fault = patched.as_ref().err()?;
    matches!(fault.kind, Kind::Invalid).then_some(&fault.cause)
}

fn unknown(pod: &PodName) -> Fault {
    Fault {
        kind: Kind::Other,
        cause: format!("the API server lists no pod {pod} on this node"),
        next_step: "check that the daemon can watch pods".to_owned(),
    }
}

/// Some minutes, with the pauses between them.
const ATTEMPTS: u32 = 10;
