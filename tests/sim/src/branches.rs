//! Pods with security groups of their own: a minimal API server, and the VPC resource controller, which is the lab's.
//!
//! The controller observes the API server periodically, acts in the same EC2 and writes missing annotations. A lost
//! write is repeated. The annotations reach the daemon through a watch, in order and late. The plugin finishes such
//! pods without any effect on the core's view of the kernel.

use crate::{
    judge::Law,
    kubelet::SandboxId,
    plan::Mode,
    planted::Planted,
    world::{DueEvent, World},
};
use config_model::{EniId, PodKey, PodName, Span, Time};
use ipamd_core::{BranchEni, CloudCall, ClusterFact, Event};
use lab_cloud::{
    AttachmentStatus, ClusterSnapshot, ClusterWrite, InstanceType, InterfaceKind, ObservedNode,
    ObservedPod, PodEni, ResourceController,
};
use std::collections::{BTreeMap, BTreeSet};

/// The API server, the resource controller, and the branches of pods.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    controller: ResourceController,
    seen: ClusterSnapshot,
    /// The number of spells that stop the controller.
    pub(crate) away: u32,
    /// Pods that are terminating.
    ending: BTreeSet<PodName>,
    uids: u64,
    /// The daemon's watch; no event arrives before this time.
    watch: Option<(u32, Time)>,
    /// The branches that this daemon has received, by pod.
    received: BTreeMap<PodName, String>,
    /// The pod of each branch.
    owners: BTreeMap<EniId, String>,
    /// The branches by their pods' UIDs.
    annotated: BTreeMap<String, BranchEni>,
    /// The branches of keys until their release.
    holds: BTreeMap<PodKey, EniId>,
}

const NODE: &str = "node";
/// Every third pod has security groups of its own.
const EVERY: u16 = 3;

impl World {
    pub(crate) fn wants_branch(&self, pod: u16) -> bool {
        self.setup.mode == Mode::Trunk && pod.is_multiple_of(EVERY)
    }

    /// Adds the node to the cluster and starts the controller.
    pub(crate) fn join(&mut self) {
        if self.setup.mode == Mode::Trunk {
            self.branches.seen.nodes.insert(NODE.to_owned(), ObservedNode::default());
            self.after(Span(0), DueEvent::Controller);
        }
    }

    /// Creates the pod's object with its sandbox and returns its UID.
    pub(crate) fn pod_object(&mut self, pod: u16, name: &PodName) -> Option<String> {
        if !self.wants_branch(pod) {
            return None;
        }
        if self.branches.ending.contains(name) {
            // The next pod of the name is created after the previous one is gone.
            self.pod_object_goes(name);
        }
        if let Some(there) = self.branches.seen.pods.get(name) {
            return Some(there.uid.clone());
        }
        self.branches.uids += 1;
        let uid = format!("uid-{}", self.branches.uids);
        let seen = ObservedPod { uid: uid.clone(), node: NODE.to_owned(), annotation: None };
        self.branches.seen.pods.insert(name.clone(), seen);
        Some(uid)
    }

    /// Marks the pod as terminating; its object goes with the kubelet's or a forced deletion.
    pub(crate) fn pod_object_ends(&mut self, pod: u16, name: PodName) {
        if self.wants_branch(pod) && self.branches.seen.pods.contains_key(&name) {
            self.branches.ending.insert(name.clone());
            let takes = self.draw("pod object", 0, 20_000);
            self.after(Span(takes), DueEvent::PodGone(Box::new(name)));
        }
    }

    pub(crate) fn pod_object_goes(&mut self, name: &PodName) {
        if !self.branches.ending.remove(name) {
            return;
        }
        let Some(gone) = self.branches.seen.pods.remove(name) else { return };
        self.note(|| format!("pod {name} ({}) is gone", gone.uid));
        if gone.annotation.is_some() {
            self.announce(name, &gone.uid, None);
        }
    }

    /// Writes the daemon's request for a trunk to its CNINode, if that exists.
    pub(crate) fn ask_for_trunk(&mut self) {
        let lost = self.draw("feature", 0, 99) > 90;
        if let Some(features) = self.branches.seen.cni_nodes.get_mut(NODE).filter(|_| !lost) {
            features.insert("SecurityGroupsForPods".to_owned(), String::new());
        }
    }

    /// Runs one pass of the controller.
    pub(crate) fn controller_works(&mut self) {
        let now = self.now;
        let pause = self.draw("controller", 100, 3_000);
        self.after(Span(pause), DueEvent::Controller);
        if self.branches.away > 0 {
            return;
        }
        let instances = BTreeMap::from([(NODE.to_owned(), self.ec2.instance.clone())]);
        let branches = &mut self.branches;
        branches.controller.observe(now, &instances, &branches.seen);
        let news = branches.controller.step(now, &mut self.ec2.cloud);
        for news in news {
            self.note(|| format!("controller: {news:?}"));
        }
        for write in self.branches.controller.writes(&instances, &self.branches.seen) {
            // The next pass repeats a lost write.
            if self.draw("write is lost", 0, 99) <= 80 {
                self.written_to_cluster(write);
            }
        }
    }

    fn written_to_cluster(&mut self, write: ClusterWrite) {
        match write {
            ClusterWrite::CreateCniNode { node, .. } => {
                self.branches.seen.cni_nodes.insert(node, BTreeMap::new());
            }
            ClusterWrite::AnnounceTrunk { node, branches } => {
                if let Some(node) = self.branches.seen.nodes.get_mut(&node) {
                    (node.labeled, node.branches) = (true, [Some(branches); 2]);
                }
            }
            ClusterWrite::Annotate { pod, uid, annotation } => {
                let branch = self.branches.controller.branch_of(&self.ec2.instance, &pod).cloned();
                let there = self.branches.seen.pods.get_mut(&pod).filter(|it| it.uid == uid);
                let (Some(there), Some(branch)) = (there, branch) else { return };
                there.annotation = Some(annotation);
                let before = self.branches.owners.insert(branch.eni.clone(), uid.clone());
                let now = self.now;
                self.judge.demand(before.is_none_or(|of| of == uid), Law::World, now, || {
                    format!("{} is created for two pods", branch.eni)
                });
                let branch = announced(&branch);
                self.branches.annotated.insert(uid.clone(), branch.clone());
                self.announce(&pod, &uid, Some(branch));
            }
        }
    }

    /// Sends a watch event, in order.
    fn announce(&mut self, pod: &PodName, uid: &str, branch: Option<BranchEni>) {
        let lag = self.draw("watch", 5, 4_000);
        let Some((life, before)) = self.branches.watch else { return };
        let at = before.max(self.now + Span(lag));
        self.branches.watch = Some((life, at));
        let (pod, uid) = (pod.clone(), uid.to_owned());
        let fact = ClusterFact::Branch { pod, uid, branch };
        self.at(at, DueEvent::Announced(life, Box::new(fact)));
    }

    pub(crate) fn announced(&mut self, life: u32, fact: ClusterFact) {
        if !self.is_alive(life) {
            return;
        }
        if let ClusterFact::Branch { pod, uid, branch } = &fact {
            if branch.is_some() {
                self.branches.received.insert(pod.clone(), uid.clone());
            } else {
                self.branches.received.remove(pod);
            }
        }
        self.deliver(Event::Cluster(fact));
    }

    /// Lists the branches at the start of the daemon's watch.
    pub(crate) fn list_branches(&mut self, life: u32) {
        if self.setup.mode != Mode::Trunk {
            return;
        }
        self.branches.received.clear();
        self.branches.watch = Some((life, self.now));
        let pods = self.branches.seen.pods.iter();
        let annotated = pods.filter(|(_, seen)| seen.annotation.is_some());
        let all: Vec<(PodName, String)> =
            annotated.map(|(pod, seen)| (pod.clone(), seen.uid.clone())).collect();
        for (pod, uid) in all {
            let branch = self.branches.annotated.get(&uid).cloned();
            self.announced(life, ClusterFact::Branch { pod, uid, branch });
        }
        // The list is complete. No pod of it needs an address of the pool.
        self.announced(life, ClusterFact::Coming(BTreeSet::new()));
    }

    /// The pod of which the request informs the daemon.
    pub(crate) fn uid_asked_for(&self, key: &PodKey, pod: &PodName) -> Option<String> {
        let mut sandboxes = self.kubelet.sandboxes.values();
        let uid = sandboxes.find(|sandbox| sandbox.key == *key)?.uid.clone()?;
        match self.planted {
            Some(Planted::BranchByName) => {
                Some(self.branches.received.get(pod).cloned().unwrap_or(uid))
            }
            _ => Some(uid),
        }
    }

    /// Law: a branch is given only to its own pod, and a repeated request gets the same one.
    pub(crate) fn judge_branch(&mut self, sandbox: SandboxId, given: &BranchEni) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&sandbox) else { return };
        let (key, uid) = (sandbox.key.clone(), sandbox.uid.clone());
        let (now, owner) = (self.now, self.branches.owners.get(&given.eni).cloned());
        self.judge.demand(owner.is_some() && owner == uid, Law::BranchOfAnother, now, || {
            format!("{key} of {uid:?} gets {}, which belongs to {owner:?}", given.eni)
        });
        let before = self.branches.holds.insert(key.clone(), given.eni.clone());
        let same = before.as_ref().is_none_or(|before| *before == given.eni);
        self.judge.demand(same, Law::Readdressed, now, || {
            format!("{key} had {before:?}, now {}", given.eni)
        });
    }

    /// Law: no request fails whose branch was announced before it.
    pub(crate) fn judge_no_branch(&mut self, sandbox: SandboxId, asked: Time, why: &str) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&sandbox) else { return };
        let Some(uid) = sandbox.uid.clone().filter(|_| why.contains("has no annotation")) else {
            return;
        };
        let life = self.daemon.as_ref().map(|daemon| daemon.life);
        let listed = life.is_some() && self.branches.watch.map(|(life, _)| life) == life;
        let announced = listed && self.branches.received.get(&sandbox.name) == Some(&uid);
        let (now, name) = (self.now, sandbox.name.clone());
        self.judge.demand(!announced, Law::NotServed, now, || {
            format!(
                "{name} waited {} ms for a branch that was announced: {why}",
                now.since(asked).0
            )
        });
    }

    pub(crate) fn branch_released(&mut self, key: &PodKey) {
        self.branches.holds.remove(key);
    }

    /// Forgets all assignments after a boot.
    pub(crate) fn branches_lose_power(&mut self) {
        self.branches.holds.clear();
    }

    /// Law: the daemon does not touch trunk and branches, which belong to the controller.
    pub(crate) fn judge_trunk(&mut self, call: &CloudCall) {
        let (CloudCall::Assign { eni, .. }
        | CloudCall::Unassign { eni, .. }
        | CloudCall::DetachEni { eni, .. }
        | CloudCall::DeleteEni { eni }) = call
        else {
            return;
        };
        if self.setup.mode != Mode::Trunk {
            return;
        }
        let now = self.now;
        let all = self.ec2.cloud.all_enis(now);
        let of = all.iter().find(|it| it.id == *eni).map(|it| it.kind);
        let theirs = matches!(of, Some(InterfaceKind::Trunk | InterfaceKind::Branch));
        self.judge.demand(!theirs, Law::Returned, now, || format!("{call:?} of a {of:?}"));
    }

    /// Law: a trunk has at most as many branches as its type allows, each with another VLAN.
    pub(crate) fn judge_branches(&mut self) {
        if self.setup.mode != Mode::Trunk {
            return;
        }
        let (now, most) = (self.now, usize::from(self.limits().branch_enis));
        let truth = self.ec2.cloud.truth_of(now, &self.ec2.instance);
        let branches = truth.map(|truth| truth.branches).unwrap_or_default();
        self.judge.demand(branches.len() <= most, Law::AboveLimits, now, || {
            format!("{} branches, though the type has {most}", branches.len())
        });
    }

    /// Returns whether branch pods can be served in the quiet phase: there is a trunk, or only the pool took its
    /// place.
    pub(crate) fn trunk_could_be(&mut self) -> bool {
        let mut enis = self.ec2.enis(self.now).iter();
        let trunk = enis.find(|eni| eni.kind == InterfaceKind::Trunk);
        match trunk.and_then(|trunk| trunk.attachment.as_ref()) {
            // Only the operator can end an attachment that hangs.
            Some(attachment) => attachment.status == AttachmentStatus::Attached,
            None => self.foreign.is_empty() && self.setup.max_eni.is_none_or(|most| most != 1),
        }
    }

    /// The most branch pods at a time.
    pub(crate) fn max_branches(&mut self) -> usize {
        let most = usize::from(self.limits().branch_enis);
        if self.trunk_could_be() { most } else { 0 }
    }
}

/// The annotation as the core's type.
fn announced(branch: &PodEni) -> BranchEni {
    BranchEni {
        eni: branch.eni.clone(),
        mac: branch.mac,
        address: Some(branch.private_ip),
        address_v6: branch.ipv6,
        vlan: branch.vlan,
        subnet_cidr: Some(branch.subnet_cidr),
        subnet_cidr_v6: branch.subnet_v6_cidr,
    }
}

/// The most branches of a type's trunk; 0 if the mode has none.
pub(crate) fn branches_of(mode: Mode, kind: Option<&InstanceType>) -> u16 {
    kind.filter(|_| mode == Mode::Trunk).map_or(0, |kind| kind.branch_interfaces)
}
