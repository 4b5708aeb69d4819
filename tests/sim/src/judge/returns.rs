//! Law: nothing in use goes back to EC2.

use super::{Judge, Law};
use crate::{ec2::blocks, host::Host};
use config_model::{EniId, Time};
use ipamd_core::CloudCall;
use ipnet::IpNet;
use lab_cloud::NetworkInterface;
use std::{net::IpAddr, sync::Arc};

impl Judge {
    /// A call arrives at EC2. The addresses that it removes must be free, cooled and unknown to the kernel.
    pub(crate) fn arrives(
        &mut self,
        call: &CloudCall,
        enis: &[Arc<NetworkInterface>],
        host: &Host,
        now: Time,
    ) {
        let of = |id: &EniId| enis.iter().find(|eni| eni.id == *id);
        let taken: Vec<IpNet> = match call {
            // Only existing blocks are removed.
            CloudCall::Unassign { eni, blocks: wanted } => {
                let there = of(eni).map(|eni| blocks(eni)).unwrap_or_default();
                if !wanted.iter().all(|block| there.contains(block)) {
                    return;
                }
                wanted.clone()
            }
            CloudCall::DetachEni { eni, attachment } => {
                let there = of(eni).filter(|eni| {
                    eni.attachment.as_ref().is_some_and(|found| found.id == *attachment)
                });
                there.map(|eni| blocks(eni)).unwrap_or_default()
            }
            _ => return,
        };
        let in_use = host.in_use();
        for block in &taken {
            self.judge_held(block, call, now);
            if let Some(address) = in_use.iter().find(|address| block.contains(*address)) {
                self.report_violation(Law::Returned, now, || {
                    format!("{call:?} returns {address}, which the kernel has")
                });
            }
        }
    }

    fn judge_held(&mut self, block: &IpNet, call: &CloudCall, now: Time) {
        let (lifetime, cooldown) = (self.lifetime, self.cooldown);
        let of_block = self.holds.iter().filter(|(address, _)| block.contains(*address));
        let held = of_block.clone().find(|(_, hold)| {
            hold.running || (hold.over.is_none() && now < hold.reserved + lifetime)
        });
        if let Some((address, hold)) = held.map(|(address, hold)| (*address, hold.clone())) {
            self.report_violation(Law::Returned, now, || {
                format!("{call:?} returns {address} of {}", hold.key)
            });
            return;
        }
        let held = of_block.map(|(address, hold)| (*address, hold.rests_from(lifetime)));
        let resting = self.resting.iter().filter(|(address, _)| block.contains(*address));
        let mut all = held.chain(resting.map(|(address, from)| (*address, *from)));
        let warm: Option<(IpAddr, Time)> = all.find(|(_, from)| now < *from + cooldown);
        if let Some((address, from)) = warm {
            let rested = now.since(from).0;
            self.report_violation(Law::Returned, now, || {
                format!("{call:?} returns {address} after {rested} ms of cooldown")
            });
        }
    }

    /// EC2 has removed the addresses, so their history ends.
    pub(crate) fn gone(&mut self, taken: &[IpNet]) {
        let keeps = |address: &IpAddr| !taken.iter().any(|block| block.contains(address));
        self.holds.retain(|address, hold| keeps(address) || hold.running);
        self.resting.retain(|address, _| keeps(address));
    }
}
