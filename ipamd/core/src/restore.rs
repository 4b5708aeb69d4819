//! The start from the checkpoint of an earlier process.

use crate::{
    BlockSource, Checkpoint, Core, Effect, RECORD_FORMAT, Record, Severity, Topic,
    book::Assignment,
    checkpoint::{AssignedResource, AssignmentRecord, CoolingRecord},
};
use config_model::{PodKey, Time};
use std::net::IpAddr;

impl Core {
    /// Keeps the assignments of this boot. Assignments of another boot have no sandbox, so their addresses cool.
    pub(crate) fn restore(&mut self, restored: Checkpoint, boot_id: &str, now: Time) {
        let same_boot = restored.boot_id.as_deref() == Some(boot_id);
        let held = restored.held.len();
        for held in restored.held.values().filter(|_| same_boot).flat_map(|of| of.what.addresses())
        {
            // Also if the node no longer has the CIDR: its assigned addresses stay known.
            if let BlockSource::NodeCidr(cidr) = held.source {
                self.ctx.book.add_node_cidr(cidr, now);
            }
        }
        for (key, held) in restored.held {
            if same_boot {
                self.hold_again(key, held, now);
            } else {
                match held.what {
                    AssignedResource::Addresses(addresses) => {
                        for held in addresses {
                            self.cool_again(held.address, held.source, now);
                        }
                    }
                    AssignedResource::Branch(_) => self.ctx.persist(Record::BranchReleased { key }),
                }
            }
        }
        for (address, cooled) in restored.cooling {
            if same_boot {
                let CoolingRecord { source, since, until } = cooled;
                self.ctx.book.cool(address, source, since, until);
            } else {
                self.cool_again(address, cooled.source, now);
            }
        }
        for block in restored.leaving.into_keys() {
            self.ctx.removed.block_gone(block, now);
        }
        for (token, made) in restored.making {
            self.growth.resume(token, made);
        }
        for eni in restored.enis_leaving {
            self.shrink.resume(eni);
        }
        // Also after a reboot: the pods of the node and their annotations are the same.
        self.branches.restore(restored.named);
        // Last: if the file ends before this record, the next process repeats all of it.
        if !same_boot {
            self.ctx.persist(Record::Boot { format: RECORD_FORMAT, boot_id: boot_id.to_owned() });
        }
        if held > 0 {
            let fate = if same_boot { "hold their addresses" } else { "are gone with their boot" };
            let cause = format!("{held} pods of an earlier process {fate}");
            self.ctx.report(Severity::Info, Topic::Restored, "checkpoint", cause, "");
        }
        self.ctx.push(Effect::NodeChanged);
    }

    fn hold_again(&mut self, key: PodKey, held: AssignmentRecord, now: Time) {
        let confirmed = held.host_interface.is_some();
        let holder = Assignment {
            pod: held.pod,
            what: held.what,
            since: now,
            lapses: (!confirmed).then_some(held.lapses),
            host_interface: held.host_interface,
            adopted: held.adopted,
        };
        self.ctx.book.hold(key, holder);
    }

    fn cool_again(&mut self, address: IpAddr, source: BlockSource, now: Time) {
        let until = now + self.ctx.config.cooldown;
        self.ctx.book.cool(address, source.clone(), now, until);
        self.ctx.persist(Record::cooling(address, source, now, until));
    }
}
