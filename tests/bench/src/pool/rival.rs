//! The rival: amazon-vpc-cni v1.23.1's pool, written anew from a description of its algorithm.
//!
//! One loop for the node: every five seconds it looks at the pool, makes at most one call for
//! addresses or one ENI, one after the other, and waits for each. It does not receive failed ADDs.
//! [`store`] is what it knows, [`targets`] what it decides, [`ec2`] how it calls, [`ipamd`] the loop.
//! Left out is what costs no calls and changes no decision: introspection, metrics, branch ENIs,
//! other network cards, the kernel.

mod ec2;
#[cfg(test)]
mod golden;
mod hands;
mod ipamd;
mod store;
mod targets;

use super::{
    desk::{Daemon, DaemonReply, DaemonRequest, Outcome, Pod, RequestQueue, Tag},
    setting::{NodeSetting, PoolSetting},
};
use config_model::Time;
use hands::{CallSlot, Program};
use ipamd::Ipamd;
use std::{collections::BTreeSet, rc::Rc};

/// amazon-vpc-cni's daemon on one node.
pub(crate) struct Rival {
    ipamd: Rc<Ipamd>,
    program: Program,
    asked: Tag,
}

impl Rival {
    pub(crate) fn new(pool: PoolSetting, node: NodeSetting, seed: u64) -> Self {
        let hands = CallSlot::new(seed);
        let ipamd = Rc::new(Ipamd::new(pool, node, hands.clone()));
        let program = Program::new(hands, Rc::clone(&ipamd).run());
        Self { ipamd, program, asked: Tag(0) }
    }

    fn lay(&mut self, ask: Option<DaemonRequest>, desk: &mut RequestQueue) {
        if let Some(ask) = ask {
            self.asked = Tag(self.asked.0 + 1);
            desk.asks.push((self.asked, ask));
        }
    }
}

impl Daemon for Rival {
    fn boot(&mut self, now: Time, desk: &mut RequestQueue) {
        let ask = self.program.go_on(now, None);
        self.lay(ask, desk);
    }

    fn told(&mut self, _: Tag, told: DaemonReply, now: Time, desk: &mut RequestQueue) {
        let ask = self.program.go_on(now, Some(told));
        self.lay(ask, desk);
    }

    fn bound(&mut self, _: &BTreeSet<Pod>, _: Time, _: &mut RequestQueue) {}

    fn add(&mut self, pod: Pod, now: Time, desk: &mut RequestQueue) {
        let outcome = self.ipamd.assign(pod, now).map_or(Outcome::Failed, Outcome::Given);
        desk.outcomes.push((pod, outcome));
    }

    fn del(&mut self, pod: Pod, now: Time, _: &mut RequestQueue) {
        self.ipamd.release(pod, now);
    }

    fn is_ready(&self) -> bool {
        self.ipamd.is_ready()
    }
}
