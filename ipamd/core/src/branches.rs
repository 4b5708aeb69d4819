//! Pods with branch ENIs.
//!
//! The annotation that names a pod's branch ENI may be a tenant's. A branch serves a pod only after EC2 has listed an
//! equal branch ENI of the node's trunk. Tenants can write annotations, but no ENI and no tag of one.

use crate::{
    Action, BranchEni, CloudAnswer, CloudCall, Core, Refusal, RefusalReason, SeenEni,
    book::Eni,
    branch_checks::{Comparison, compare},
    calls::{CallSubject, CloudResult},
    checkpoint::AssignedResource,
};
use config_model::{EniId, PodName, SubnetId, Time};
use ipnet::Ipv4Net;
use std::{collections::BTreeMap, net::IpAddr};

/// The annotation with which the VPC resource controller announces a pod's branch ENI.
const BRANCH_ANNOTATION: &str = "vpc.amazonaws.com/pod-eni";
/// The next step for an annotation that the VPC resource controller cannot have written.
const NOT_BY_CONTROLLER: &str =
    "find the writer of the annotation; only the VPC resource controller should write it";

impl Core {
    /// Serves the requests for this pod's branch ENI, once it is known and EC2 has confirmed it.
    pub(crate) fn serve_branch(&mut self, pod: &PodName, now: Time) {
        let Some(annotated) = self.ctx.cluster.branch(pod).cloned() else { return };
        let confirmed = self.branches.confirms(pod, &annotated);
        let (uid, branch) = annotated;
        while let Some(waiter) = self.ctx.queue.first_for_branch(pod, &uid).cloned() {
            let ticket = waiter.ticket;
            if self.ctx.book.holder(&waiter.key).is_some() {
                self.ctx.queue.remove(ticket);
                self.reserve_again(ticket, &waiter.key, &waiter.pod, now);
                continue;
            }
            if let Some(refusal) = self.veth_in_use(&waiter) {
                self.ctx.queue.remove(ticket);
                self.refuse(ticket, refusal);
            } else if let Some(refusal) = self.branch_in_use(pod, &branch) {
                self.ctx.queue.remove(ticket);
                self.dismiss_with(waiter, refusal);
            } else if confirmed {
                self.ctx.queue.remove(ticket);
                // The order of annotations is as durable as the assignment.
                self.write_order();
                self.give(waiter, AssignedResource::Branch(branch.clone()), now);
            } else {
                return;
            }
        }
    }

    /// Writes the order of annotations to the checkpoint if it has changed, with a pause between two writes.
    pub(crate) fn write_due_order(&mut self) {
        if let Some(at) = self.branches.next_write()
            && self.ctx.reached(at)
        {
            self.write_order();
        }
    }

    pub(crate) fn write_order(&mut self) {
        let changes = self.branches.take_changes(&self.ctx.journal().named, self.ctx.now);
        changes.into_iter().for_each(|change| self.ctx.persist(change.into()));
    }

    /// Asks EC2 for the trunk's branch ENIs while a request waits for the confirmation of one.
    pub(crate) fn confirm_branches(&mut self) {
        if self.branches.is_asking || self.unconfirmed().next().is_none() {
            return;
        }
        if let Some(next) = self.branches.next_ask().filter(|next| *next > self.ctx.now) {
            self.ctx.wake_by(Some(next));
            return;
        }
        let Some(trunk) = self.ctx.trunk().cloned() else { return };
        if self.ctx.may(Action::Describe) {
            self.branches.is_asking = true;
            self.branches.asked = Some(self.ctx.now);
            let call = CloudCall::DescribeBranches { trunk: trunk.clone() };
            self.ctx.call(CallSubject::Branches(trunk), call);
        }
    }

    /// The pods with a waiting request and an annotation that EC2 has not confirmed.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = (&PodName, &(String, BranchEni))> {
        self.ctx.queue.branch_pods().filter_map(|(pod, uid)| {
            let annotated = self.ctx.cluster.branch(pod).filter(|(of, _)| of == uid)?;
            (!self.branches.confirms(pod, annotated)).then_some((pod, annotated))
        })
    }

    pub(crate) fn branches_seen(&mut self, trunk: &EniId, result: CloudResult) {
        self.branches.is_asking = false;
        let Ok(CloudAnswer::Branches(seen)) = result else { return };
        // An answer about an earlier trunk confirms no branch.
        if self.ctx.trunk() != Some(trunk) {
            return;
        }
        let seen: BTreeMap<&EniId, &SeenEni> = seen.iter().map(|eni| (&eni.id, eni)).collect();
        let waiting: BTreeMap<PodName, (String, BranchEni)> =
            self.unconfirmed().map(|(pod, annotated)| (pod.clone(), annotated.clone())).collect();
        let mut fruitless = !waiting.is_empty();
        for (pod, annotated) in waiting {
            let Some(seen) = seen.get(&annotated.1.eni) else { continue };
            match compare(&annotated.1, seen, trunk, self.range_of(&seen.subnet)) {
                Comparison::Equal => {
                    fruitless = false;
                    self.branches.confirmed.insert(pod.clone(), annotated);
                    self.serve_branch(&pod, self.ctx.now);
                }
                Comparison::NotYet => {}
                Comparison::Different(difference) => {
                    self.refuse_branch(&pod, &annotated, &difference);
                }
            }
        }
        self.branches.fruitless =
            if fruitless { self.branches.fruitless.saturating_add(1) } else { 0 };
    }

    /// The IPv4 range of a subnet of this zone, if EC2 or IMDS has shown it. Subnets of the zone are known with
    /// `ENABLE_SUBNET_DISCOVERY`; the others are those of the node's own ENIs.
    fn range_of(&self, subnet: &SubnetId) -> Option<Ipv4Net> {
        let own = self.ctx.book.enis().filter(|eni| eni.facts.subnet == *subnet);
        let own = own.filter_map(|eni| eni.facts.subnet_cidr).next();
        self.zone.subnet(subnet).and_then(|seen| seen.cidr).or(own)
    }

    fn refuse_branch(&mut self, pod: &PodName, of_pod: &(String, BranchEni), difference: &str) {
        let (uid, branch) = of_pod;
        while let Some(waiter) = self.ctx.queue.first_for_branch(pod, uid).cloned() {
            self.ctx.queue.remove(waiter.ticket);
            let refusal = Refusal {
                reason: RefusalReason::TryAgain,
                message: format!(
                    "the annotation {BRANCH_ANNOTATION} of pod {pod} differs from EC2 about {}: \
                     {difference}",
                    branch.eni
                ),
                next_step: NOT_BY_CONTROLLER.to_owned(),
            };
            self.dismiss_with(waiter, refusal);
        }
    }

    /// The annotation may be a tenant's. A branch has one holder for its ENI, VLAN, MAC and addresses, and no address of
    /// the node. Another sandbox of the same pod may have the same branch.
    fn branch_in_use(&self, pod: &PodName, branch: &BranchEni) -> Option<Refusal> {
        let of_node = branch.addresses().find(|address| self.is_of_node(*address));
        if let Some(address) = of_node {
            return Some(Refusal {
                reason: RefusalReason::TryAgain,
                message: format!(
                    "the annotation {BRANCH_ANNOTATION} of pod {pod} names address {address} for {}, which \
                     this node has itself",
                    branch.eni
                ),
                next_step: NOT_BY_CONTROLLER.to_owned(),
            });
        }
        let branches = self.ctx.book.holders().filter_map(|(key, holder)| match &holder.what {
            AssignedResource::Branch(other) => Some((key, holder, other)),
            AssignedResource::Addresses(_) => None,
        });
        let mut conflicts = branches.filter_map(|(key, holder, other)| {
            let what = if other.vlan == branch.vlan && other.eni != branch.eni {
                format!("VLAN {}", branch.vlan)
            } else if holder.pod == *pod {
                return None;
            } else if other.eni == branch.eni {
                "the same ENI".to_owned()
            } else if other.mac == branch.mac {
                format!("MAC address {}", branch.mac)
            } else {
                let mut shared =
                    branch.addresses().filter(|it| other.addresses().any(|of| of == *it));
                format!("address {}", shared.next()?)
            };
            Some((what, key, holder, other))
        });
        let Some((what, key, holder, other)) = conflicts.next() else {
            return self.named_before(pod, branch);
        };
        Some(Refusal {
            reason: RefusalReason::TryAgain,
            message: format!(
                "the annotation {BRANCH_ANNOTATION} of pod {pod} names {what} for {}, which pod {} ({key}) \
                 uses for {}",
                branch.eni, holder.pod, other.eni
            ),
            next_step: "wait for the other pod's sandbox to be removed; if it lives, read \
                        the log of the VPC resource controller about both"
                .to_owned(),
        })
    }

    /// A copy of an annotation comes later than the annotation.
    fn named_before(&self, pod: &PodName, branch: &BranchEni) -> Option<Refusal> {
        let first = self.branches.earlier(pod, branch)?;
        Some(Refusal {
            reason: RefusalReason::TryAgain,
            message: format!(
                "the annotation {BRANCH_ANNOTATION} of pod {pod} names {}, which the annotation of pod {first} \
                 named before",
                branch.eni
            ),
            next_step: NOT_BY_CONTROLLER.to_owned(),
        })
    }

    /// True for an address of an ENI of the node or of its pod CIDRs, in use or free.
    fn is_of_node(&self, address: IpAddr) -> bool {
        let own = |eni: &Eni| {
            let primary = eni.facts.primary_address.map(IpAddr::V4);
            primary.into_iter().chain(eni.facts.primary_v6.map(IpAddr::V6)).any(|it| it == address)
        };
        self.ctx.book.block_of(address).is_some() || self.ctx.book.enis().any(own)
    }

    /// The refusal for a request that waited for its branch ENI until its deadline.
    pub(crate) fn no_branch(&self, pod: &PodName) -> Refusal {
        let fault = self.ctx.budgets.fault(Action::Describe);
        let (message, next_step) = match (self.ctx.cluster.branch(pod), self.ctx.trunk()) {
            (Some((_, branch)), Some(_)) if let Some(fault) = fault => (
                format!(
                    "EC2 has not confirmed branch ENI {} of pod {pod}: {} failed: {fault}",
                    branch.eni,
                    Action::Describe
                ),
                "fix the cause in EC2's message; the daemon retries",
            ),
            (Some((_, branch)), Some(trunk)) => (
                format!(
                    "EC2 does not list {} of pod {pod} among the branch ENIs of trunk {trunk}",
                    branch.eni
                ),
                NOT_BY_CONTROLLER,
            ),
            (Some((_, branch)), None) => (
                format!("no trunk ENI is known for branch ENI {} of pod {pod}", branch.eni),
                "check the log of the VPC resource controller about the node",
            ),
            (None, trunk) => (
                format!(
                    "pod {pod} has no annotation {BRANCH_ANNOTATION} yet, which names its branch \
                     ENI{}",
                    if trunk.is_some() { "" } else { "; the node has no trunk ENI either" }
                ),
                "check that the VPC resource controller runs, and its log about the pod",
            ),
        };
        let next_step = next_step.to_owned();
        Refusal { reason: RefusalReason::TryAgain, message, next_step }
    }
}
