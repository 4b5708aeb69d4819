//! Lost ENIs and blocks. The book drops what two witnesses lack, unless a pod uses it.

use super::{SETTLING, Witnesses, absence::Subject};
use crate::{
    SeenEni, Severity, Topic, Witness,
    book::{Block, BlockState, is_prefix},
    ctx::Ctx,
};
use config_model::{EniId, Time};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

impl Witnesses {
    pub(super) fn compare_with_book(
        &mut self,
        ctx: &mut Ctx,
        witness: Witness,
        started: Time,
        enis: &[SeenEni],
    ) -> bool {
        self.forget_obsolete_absences(ctx);
        let seen: BTreeMap<&EniId, BTreeSet<IpNet>> =
            enis.iter().map(|eni| (&eni.id, eni.blocks.iter().copied().collect())).collect();
        let (mut lacking, mut back) = (Vec::new(), Vec::new());
        for eni in ctx.book.enis() {
            let subject = Subject::Eni(eni.facts.id.clone());
            let Some(blocks) = seen.get(&eni.facts.id) else {
                if started >= eni.known_since + SETTLING {
                    lacking.push(subject);
                }
                continue;
            };
            self.absences.record_presence(&subject, witness);
            for (net, block) in eni.blocks.iter().filter(|(_, block)| !block.leaving()) {
                let subject = Subject::Block(net);
                if blocks.contains(&net) {
                    self.absences.record_presence(&subject, witness);
                    if witness == Witness::Ec2 && is_back(block, started) {
                        back.push(net);
                    }
                } else if started >= block.known_since + SETTLING {
                    lacking.push(subject);
                }
            }
        }
        let mut changed = !back.is_empty();
        for net in back {
            ctx.book.set_block_state(net, BlockState::Stays);
        }
        for subject in lacking {
            if self.absences.record_absence(&subject, witness, started) {
                changed |= self.drop_absent(ctx, &subject);
            } else if witness == Witness::Imds && !self.absences.settled(&subject) {
                if self.absences.is_new(&subject) {
                    // Pods may wait for a replacement.
                    ctx.schedule.want_ec2_at(ctx.now);
                } else {
                    ctx.schedule.want_ec2(ctx.now);
                }
            }
        }
        changed
    }

    /// Forgets absences of objects that left the book or are leaving. Otherwise EC2 would be asked about them forever.
    fn forget_obsolete_absences(&mut self, ctx: &Ctx) {
        let book = &ctx.book;
        self.absences.keep(|subject| match subject {
            Subject::Eni(id) => book.eni(id).is_some(),
            Subject::Block(net) => book.block_of(net.network()).is_some_and(|(source, of)| {
                let eni = source.eni().and_then(|id| book.eni(id)).filter(|eni| !eni.missing);
                let block = eni.and_then(|eni| eni.blocks.get(of));
                of == *net && block.is_some_and(|block| !block.leaving())
            }),
        });
    }

    /// Handles an object that two witnesses lack. A pod keeps its address, which is reported once.
    fn drop_absent(&mut self, ctx: &mut Ctx, subject: &Subject) -> bool {
        match subject {
            Subject::Eni(id) => self.drop_eni(ctx, id),
            Subject::Block(block) => {
                if let Some(key) = ctx.book.holder_within(*block) {
                    let cause = format!("EC2 removed it from the node while {key} holds it");
                    let next_step = "delete the pod, so that it gets another address";
                    let (severity, topic) = (Severity::Error, Topic::AssignedVanished);
                    ctx.report(severity, topic, named(*block), cause, next_step);
                    self.absences.settle(subject);
                    self.lose(ctx, *block);
                    return false;
                }
                self.lose(ctx, *block);
                let cause = "EC2 removed it from the node; no pod held it";
                ctx.report(Severity::Warning, Topic::Vanished, named(*block), cause, "");
                true
            }
        }
    }

    /// Takes a block from its ENI. Pods keep its used addresses; its free ones are not assigned.
    pub(crate) fn lose(&mut self, ctx: &mut Ctx, block: IpNet) {
        if ctx.book.holder_within(block).is_some() {
            ctx.book.set_block_state(block, BlockState::Lost { since: ctx.now });
        } else {
            ctx.book.remove_block(block);
            self.absences.forget(&Subject::Block(block));
        }
    }

    /// Takes a lost block back after EC2 assigned it to the ENI again.
    pub(crate) fn regain(&mut self, ctx: &mut Ctx, id: &EniId, block: IpNet) {
        let known = ctx.book.eni(id).and_then(|eni| eni.blocks.get(block));
        if known.is_some_and(|known| known.lost().is_some()) {
            ctx.book.set_block_state(block, BlockState::Stays);
            self.absences.forget(&Subject::Block(block));
        }
    }

    /// Removes a lost block after the release of its last used address.
    pub(crate) fn drop_lost_block_of(&mut self, ctx: &mut Ctx, address: IpAddr) {
        let Some((source, block)) = ctx.book.block_of(address) else { return };
        let eni = source.eni().and_then(|id| ctx.book.eni(id));
        let known = eni.and_then(|eni| eni.blocks.get(block));
        let lost = known.is_some_and(|known| known.lost().is_some());
        if lost && ctx.book.holder_within(block).is_none() {
            self.lose(ctx, block);
            // Another ENI of the node may have the block now.
            ctx.schedule.want_ec2(ctx.now);
        }
    }

    fn drop_eni(&mut self, ctx: &mut Ctx, id: &EniId) -> bool {
        let Some(eni) = ctx.book.eni_mut(id) else { return false };
        let held = eni.blocks.held();
        if held > 0 {
            eni.missing = true;
            let cause =
                format!("it was detached from the node while {held} pods hold its addresses");
            let next_step = "delete those pods, so that they get other addresses";
            ctx.report(Severity::Error, Topic::AssignedVanished, id, cause, next_step);
            self.absences.settle(&Subject::Eni(id.clone()));
        } else {
            let nets: Vec<IpNet> = eni.blocks.iter().map(|(net, _)| net).collect();
            for net in nets {
                self.absences.forget(&Subject::Block(net));
            }
            ctx.forget_eni(id);
            self.absences.forget(&Subject::Eni(id.clone()));
            let cause = "it was detached from the node; no pod held its addresses";
            ctx.report(Severity::Warning, Topic::Vanished, id, cause, "");
        }
        ctx.node_changed();
        true
    }
}

/// Returns whether EC2 shows a lost block again in an answer that is newer than the loss.
fn is_back(block: &Block, started: Time) -> bool {
    block.lost().is_some_and(|since| started >= since + SETTLING)
}

/// Formats a block; a single address without its length.
fn named(block: IpNet) -> String {
    if is_prefix(block) { block.to_string() } else { block.addr().to_string() }
}
