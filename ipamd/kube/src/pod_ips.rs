//! The annotation that tells a pod's address before its status does (`ANNOTATE_POD_IP`).

use crate::{
    Concern, Loudness, Report,
    backoff::Backoff,
    fault::{Fault, Kind},
    pods::{Known, Pods},
    request,
    teller::Teller,
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

/// What the annotation should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// This address.
    Has(IpAddr),
    /// Nothing, if it says this address.
    Lost(IpAddr),
}

/// A wish that is not fulfilled yet. A later one of the same pod replaces it.
struct Open {
    wish: Wish,
    at: Instant,
    backoff: Backoff,
    attempts: u32,
}

pub(crate) struct Annotator {
    pub(crate) client: Client,
    pub(crate) pods: Pods,
    pub(crate) teller: Teller,
}

impl Annotator {
    pub(crate) async fn run(self, mut wishes: mpsc::Receiver<(PodName, Wish)>) {
        self.teller.waiting(Concern::PodIps, "the first pod");
        let mut open: BTreeMap<PodName, Open> = BTreeMap::new();
        loop {
            let next = open.iter().min_by_key(|(_, open)| open.at);
            let next = next.map(|(pod, open)| (pod.clone(), open.at));
            tokio::select! {
                biased;
                wish = wishes.recv() => match wish {
                    Some((pod, wish)) => {
                        let at = Instant::now();
                        let new = Open { wish, at, backoff: Backoff::new(), attempts: 0 };
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
        let fault = match self.fulfil(pod, open.wish).await {
            Ok(()) => {
                all.remove(pod);
                return;
            }
            Err(fault) => fault,
        };
        open.attempts += 1;
        let again = matches!(fault.kind, Kind::Unreachable | Kind::Conflict | Kind::Other);
        if !again || open.attempts >= ATTEMPTS {
            self.teller.failing(Concern::PodIps, POD_IPS, &fault);
            all.remove(pod);
            return;
        }
        open.at = Instant::now() + open.backoff.pause();
    }

    async fn fulfil(&self, pod: &PodName, wish: Wish) -> Result<(), Fault> {
        let known = self.pods.get(pod);
        let patched = match wish {
            Wish::Has(address) => self.set(pod, address, known).await,
            Wish::Lost(address) => self.clear(pod, address, known).await,
        };
        match patched {
            Ok(()) => self.teller.good(Concern::PodIps, POD_IPS),
            // The pod is gone and its annotation with it.
            Err(fault) if fault.kind == Kind::NotFound => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    async fn set(&self, pod: &PodName, address: IpAddr, known: Option<Known>) -> Result<(), Fault> {
        // By the name alone it might be the next pod of that name.
        let Some(known) = known else { return Err(unknown(pod)) };
        let text = address.to_string();
        if known.pod_ips.as_deref() == Some(&text) {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "uid": known.uid, "annotations": { (POD_IPS): text } },
        });
        match self.patch(pod, &Patch::Merge(&patch)).await {
            Err(fault) if fault.kind == Kind::Invalid => {
                self.mismatch(pod, "it is another pod by now".to_owned());
                Ok(())
            }
            done => done,
        }
    }

    async fn clear(
        &self,
        pod: &PodName,
        address: IpAddr,
        known: Option<Known>,
    ) -> Result<(), Fault> {
        let Some(known) = known else { return Ok(()) };
        let path = jsonptr::PointerBuf::from_tokens(["metadata", "annotations", POD_IPS]);
        let value = json!(address.to_string());
        let uid = TestOperation {
            path: jsonptr::PointerBuf::from_tokens(["metadata", "uid"]),
            value: json!(known.uid),
        };
        let patch = JsonPatch(vec![
            PatchOperation::Test(uid),
            PatchOperation::Test(TestOperation { path: path.clone(), value }),
            PatchOperation::Replace(ReplaceOperation { path, value: json!("") }),
        ]);
        match self.patch(pod, &Patch::Json::<()>(patch)).await {
            Err(fault) if fault.kind == Kind::Invalid => {
                let now = self.pods.get(pod).and_then(|known| known.pod_ips).unwrap_or_default();
                if !now.is_empty() {
                    let text = format!("it says {now:?}, and the pod had {address}; it is left so");
                    self.mismatch(pod, text);
                }
                Ok(())
            }
            done => done,
        }
    }

    async fn patch<P>(&self, pod: &PodName, patch: &Patch<P>) -> Result<(), Fault>
    where
        P: serde::Serialize + std::fmt::Debug,
    {
        let api = Api::<wire::Pod>::namespaced(self.client.clone(), &pod.namespace);
        request::patch(&api, &pod.name, "pods", patch).await.map(|_| ())
    }

    fn mismatch(&self, pod: &PodName, cause: String) {
        self.teller.tell(Report {
            loudness: Loudness::Warning,
            concern: Concern::PodIps,
            object: format!("pod {pod}"),
            cause: format!("annotation {POD_IPS} was not written: {cause}"),
            next_step: "see who else writes it".to_owned(),
        });
    }
}

fn unknown(pod: &PodName) -> Fault {
    Fault {
        kind: Kind::Other,
        cause: format!("pod {pod} is not among this node's pods"),
        next_step: "see whether pods can be watched".to_owned(),
    }
}

/// With the pauses between them, some minutes.
const ATTEMPTS: u32 = 10;
