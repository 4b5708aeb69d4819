//! The rival: the pool of amazon-vpc-cni v1.23.1, implemented from a description of its algorithm.
//!
//! One loop serves the node. Every five seconds it checks the pool and makes at most one call for addresses
//! or for one ENI. Calls are sequential. Failed ADDs do not reach the loop. [`store`] contains its state,
//! [`targets`] its decisions, [`ec2`] its calls, [`ipamd`] the loop. Parts that make no calls and change no
//! decision are left out: introspection, metrics, branch ENIs, other network cards, the kernel.

mod call_slot;
mod ec2;
#[cfg(test)]
mod golden;
mod ipamd;
mod store;
mod targets;

use super::{
    requests::{Daemon, DaemonReply, DaemonRequest, Outcome, Pod, RequestQueue, Tag},
    setting::{NodeSetting, PoolSetting},
};
use call_slot::{CallSlot, Program};
use config_model::Time;
use ipamd::Ipamd;
use std::{collections::BTreeSet, rc::Rc};

/// amazon-vpc-cni's daemon on one node.
pub(crate) struct Rival {
    ipamd: Rc<Ipamd>,
    program: Program,
    last_tag: Tag,
}

impl Rival {
    pub(crate) fn new(pool: PoolSetting, node: NodeSetting, seed: u64) -> Self {
        let call_slot = CallSlot::new(seed);
        let ipamd = Rc::new(Ipamd::new(pool, node, call_slot.clone()));
        let program = Program::new(call_slot, Rc::clone(&ipamd).run());
        Self { ipamd, program, last_tag: Tag(0) }
    }

    fn push_request(&mut self, request: Option<DaemonRequest>, queue: &mut RequestQueue) {
        if let Some(request) = request {
            self.last_tag = Tag(self.last_tag.0 + 1);
            queue.requests.push((self.last_tag, request));
        }
    }
}

impl Daemon for Rival {
    fn boot(&mut self, now: Time, queue: &mut RequestQueue) {
        let request = self.program.resume(now, None);
        self.push_request(request, queue);
    }

    fn on_reply(&mut self, _: Tag, reply: DaemonReply, now: Time, queue: &mut RequestQueue) {
        let request = self.program.resume(now, Some(reply));
        self.push_request(request, queue);
    }

    fn bound(&mut self, _: &BTreeSet<Pod>, _: Time, _: &mut RequestQueue) {}

    fn add(&mut self, pod: Pod, now: Time, queue: &mut RequestQueue) {
        let outcome = self.ipamd.assign(pod, now).map_or(Outcome::Failed, Outcome::Given);
        queue.outcomes.push((pod, outcome));
    }

    fn del(&mut self, pod: Pod, now: Time, _: &mut RequestQueue) {
        self.ipamd.release(pod, now);
    }

    fn is_ready(&self) -> bool {
        self.ipamd.is_ready()
    }
}
