//! This node's pods.

use crate::{
    ClusterFact, Concern, EventKind, Needs, PodEvent, Report, ReportLevel, branch,
    event_queue::EventSender,
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
    wire,
};
use config_model::PodName;
use kube::{Api, Client, runtime::watcher::Event};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
};
use tokio::sync::{mpsc, watch};

/// The kept fields of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedPod {
    pub(crate) uid: String,
    pub(crate) needs: Needs,
    pub(crate) ending: bool,
    /// The pod is bound to this node, uses an address of the pool and has none yet.
    pub(crate) coming: bool,
    /// The annotation `vpc.amazonaws.com/pod-eni`, unparsed.
    pub(crate) branch: Option<String>,
    /// The annotation `vpc.amazonaws.com/pod-ips`, unparsed.
    pub(crate) pod_ips: Option<String>,
}

impl CachedPod {
    /// `branches`: whether a pod that requests a branch ENI gets one, and then none of the pool.
    fn of(pod: wire::Pod, branches: bool) -> Option<(PodName, Self)> {
        let wire::Pod { metadata, .. } = pod;
        let name = PodName { namespace: metadata.namespace?, name: metadata.name? };
        let uid = metadata.uid.unwrap_or_default();
        let (branch, every_card) = (pod.branch_limit, pod.every_card);
        let needs = Needs { uid: uid.clone(), branch, every_card };
        let served_elsewhere = pod.host_network || (branches && branch);
        let known = Self {
            uid,
            needs,
            ending: pod.ending,
            coming: !served_elsewhere && !pod.ended && !pod.ending && !pod.has_address,
            branch: pod.branch,
            pod_ips: pod.pod_ips,
        };
        Some((name, known))
    }
}

/// The known pods. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Pods {
    known: Arc<RwLock<BTreeMap<PodName, CachedPod>>>,
    /// Counts changes.
    changes: Arc<watch::Sender<u64>>,
}

impl Pods {
    pub(crate) fn new() -> Self {
        Self { known: Arc::default(), changes: Arc::new(watch::channel(0).0) }
    }

    pub(crate) fn get(&self, pod: &PodName) -> Option<CachedPod> {
        runtime_lock::read(&self.known).get(pod).cloned()
    }

    /// Waits until the pod is known. A pod that is being deleted does not count: an ADD under its name belongs to the
    /// next one.
    pub(crate) async fn wait_for(&self, pod: &PodName) -> CachedPod {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(known) = self.get(pod).filter(|known| !known.ending) {
                return known;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<PodName, CachedPod>)) {
        change(&mut runtime_lock::write(&self.known));
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Watches the pods and sends facts to the pool.
pub(crate) struct Watcher {
    pub(crate) pods: Pods,
    pub(crate) branches: bool,
    pub(crate) facts: mpsc::Sender<ClusterFact>,
    pub(crate) events: EventSender,
    pub(crate) status: StatusReporter,
}

impl Watcher {
    pub(crate) async fn run(self, client: Client, node: String) {
        let subject = Subject {
            concern: Concern::Pods,
            resource: "pods",
            fields: format!("spec.nodeName={node}"),
            labels: String::new(),
            page: None,
        };
        let mut watch = Watch::new(Api::<wire::Pod>::all(client), subject, self.status.clone());
        let mut listed: Option<BTreeMap<PodName, CachedPod>> = None;
        let mut sent = SentFacts::default();
        loop {
            if self.take_batch(watch.batch().await, &mut listed, &mut sent).await.is_err() {
                return;
            }
        }
    }

    /// Sends the changes of a batch. Of two annotations with one branch ENI the first counts, so the annotations of an
    /// event are sent before those of the next one.
    async fn take_batch(
        &self,
        batch: Vec<Event<wire::Pod>>,
        listed: &mut Option<BTreeMap<PodName, CachedPod>>,
        sent: &mut SentFacts,
    ) -> Result<(), mpsc::error::SendError<ClusterFact>> {
        for event in batch {
            self.take_in(event, listed);
            // An incomplete list proves nothing about missing pods.
            if listed.is_none() {
                self.send_branches(sent).await?;
            }
        }
        if listed.is_none() { self.send_coming(sent).await } else { Ok(()) }
    }

    fn take_in(&self, event: Event<wire::Pod>, listed: &mut Option<BTreeMap<PodName, CachedPod>>) {
        match event {
            Event::Init => *listed = Some(BTreeMap::new()),
            Event::InitApply(pod) => {
                if let (Some(all), Some((name, known))) =
                    (listed, CachedPod::of(pod, self.branches))
                {
                    all.insert(name, known);
                }
            }
            Event::InitDone => {
                if let Some(all) = listed.take() {
                    self.pods.change(|pods| *pods = all);
                }
            }
            Event::Apply(pod) => {
                if let Some((name, known)) = CachedPod::of(pod, self.branches) {
                    self.pods.change(|pods| {
                        pods.insert(name, known);
                    });
                }
            }
            Event::Delete(pod) => {
                if let Some((name, known)) = CachedPod::of(pod, self.branches) {
                    self.pods.change(|pods| {
                        if pods.get(&name).is_some_and(|now| now.uid == known.uid) {
                            pods.remove(&name);
                        }
                    });
                }
            }
        }
    }

    /// Sends the changes of annotations since the last call.
    async fn send_branches(
        &self,
        sent: &mut SentFacts,
    ) -> Result<(), mpsc::error::SendError<ClusterFact>> {
        if !self.branches {
            return Ok(());
        }
        let branches: BTreeMap<PodName, (String, String)> = {
            let known = runtime_lock::read(&self.pods.known);
            let uid_and_branch = |pod: &CachedPod| Some((pod.uid.clone(), pod.branch.clone()?));
            known
                .iter()
                .filter_map(|(name, pod)| Some((name.clone(), uid_and_branch(pod)?)))
                .collect()
        };
        let gone = sent.branches.iter().filter(|(pod, _)| !branches.contains_key(*pod));
        for (pod, (uid, _)) in gone {
            let (pod, uid) = (pod.clone(), uid.clone());
            self.facts.send(ClusterFact::Branch { pod, uid, branch: None }).await?;
        }
        for (pod, (uid, text)) in &branches {
            if sent
                .branches
                .get(pod)
                .is_none_or(|(sent_uid, sent_text)| (sent_uid, sent_text) != (uid, text))
            {
                let branch = self.branch(pod, text);
                let (pod, uid) = (pod.clone(), uid.clone());
                self.facts.send(ClusterFact::Branch { pod, uid, branch }).await?;
            }
        }
        sent.branches = branches;
        Ok(())
    }

    /// Sends the pods that need an address, if they have changed since the last call.
    async fn send_coming(
        &self,
        sent: &mut SentFacts,
    ) -> Result<(), mpsc::error::SendError<ClusterFact>> {
        let coming: BTreeSet<PodName> = {
            let known = runtime_lock::read(&self.pods.known);
            known.iter().filter(|(_, pod)| pod.coming).map(|(name, _)| name.clone()).collect()
        };
        if sent.coming.as_ref() != Some(&coming) {
            self.facts.send(ClusterFact::Coming(coming.clone())).await?;
            sent.coming = Some(coming);
        }
        Ok(())
    }

    fn branch(&self, pod: &PodName, text: &str) -> Option<crate::BranchEni> {
        match branch::parse(text) {
            Ok(branch) => Some(branch),
            Err(why) => {
                let cause = format!("cannot use annotation {}: {why}", wire::BRANCH);
                let next_step =
                    "check the log of the VPC resource controller for this pod".to_owned();
                self.events.send(PodEvent {
                    pod: pod.clone(),
                    kind: EventKind::Warning,
                    reason: "InvalidBranchENI".to_owned(),
                    action: "ReadAnnotation".to_owned(),
                    note: format!("{cause}; {next_step}"),
                });
                self.status.report(Report {
                    level: ReportLevel::Warning,
                    concern: Concern::Branch,
                    object: format!("pod {pod}"),
                    cause,
                    next_step,
                });
                None
            }
        }
    }
}

/// The facts as last sent.
#[derive(Default)]
struct SentFacts {
    coming: Option<BTreeSet<PodName>>,
    /// The pod's UID and the annotation.
    branches: BTreeMap<PodName, (String, String)>,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::json;

    fn known(object: serde_json::Value, branches: bool) -> CachedPod {
        let mut whole = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        whole.as_object_mut().unwrap().extend(object.as_object().unwrap().clone());
        CachedPod::of(serde_json::from_value(whole).unwrap(), branches).unwrap().1
    }

    #[test]
    fn a_pod_is_coming_until_it_has_an_address_or_needs_none() {
        assert!(known(json!({"status": {"phase": "Pending"}}), true).coming);
        assert!(!known(json!({"status": {"podIP": "10.0.0.1"}}), true).coming);
        assert!(!known(json!({"status": {"phase": "Succeeded"}}), true).coming);
        assert!(!known(json!({"spec": {"hostNetwork": true}}), true).coming);
    }

    #[test]
    fn a_pod_with_a_branch_needs_no_address_of_the_pool() {
        let limits = json!({"limits": {"vpc.amazonaws.com/pod-eni": "1"}});
        let spec = json!({"spec": {"containers": [{"resources": limits}]}});
        assert!(!known(spec.clone(), true).coming);
        assert!(known(spec, false).coming);
    }

    #[tokio::test]
    async fn annotations_of_one_batch_are_sent_in_the_order_of_their_events() {
        let (facts, mut sent_facts) = mpsc::channel(8);
        let (events, _written) = EventSender::open();
        let (reports, _reported) = mpsc::channel(8);
        let (status, _states) = StatusReporter::new(reports);
        let watcher = Watcher { pods: Pods::new(), branches: true, facts, events, status };
        let branch = r#"[{"eniId":"eni-0b","ifAddress":"0a:11:22:33:44:55",
            "privateIp":"10.0.3.9","vlanId":3,"subnetCidr":"10.0.3.0/24"}]"#;
        let applied = |name: &str| {
            let annotations = json!({"vpc.amazonaws.com/pod-eni": branch});
            let metadata =
                json!({"name": name, "namespace": "n", "uid": name, "annotations": annotations});
            Event::Apply(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        // The copy has the first name.
        let batch = vec![applied("z-first"), applied("a-copy")];
        watcher.take_batch(batch, &mut None, &mut SentFacts::default()).await.unwrap();
        let mut order = Vec::new();
        while let Ok(fact) = sent_facts.try_recv() {
            if let ClusterFact::Branch { pod, .. } = fact {
                order.push(pod.name);
            }
        }
        assert_eq!(order, ["z-first", "a-copy"]);
    }

    #[tokio::test]
    async fn a_wait_for_a_pod_returns_the_next_one_of_its_name() {
        let pods = Pods::new();
        let name = PodName { namespace: "n".into(), name: "p".into() };
        let old = CachedPod { ending: true, ..known(json!({}), false) };
        pods.change(|all| drop(all.insert(name.clone(), old)));
        let waiting = tokio::spawn({
            let (pods, name) = (pods.clone(), name.clone());
            async move { pods.wait_for(&name).await }
        });
        tokio::task::yield_now().await;
        let next = CachedPod { uid: "next".into(), ..known(json!({}), false) };
        pods.change(|all| drop(all.insert(name, next)));
        assert_eq!(waiting.await.unwrap().uid, "next");
    }
}
