//! Is something gone? What two witnesses lack is dropped, unless a pod holds it.

use super::{SETTLING, Witnesses, doubt::Subject};
use crate::{
    SeenEni, Severity, Topic, Witness,
    book::{Block, Stand, is_prefix},
    ctx::Ctx,
};
use config_model::{EniId, Time};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

impl Witnesses {
    pub(super) fn doubt_what_is_not_seen(
        &mut self,
        ctx: &mut Ctx,
        witness: Witness,
        started: Time,
        enis: &[SeenEni],
    ) -> bool {
        self.doubt_only_what_stands(ctx);
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
            self.doubts.allay(&subject, witness);
            for (net, block) in eni.blocks().filter(|(_, block)| !block.leaving()) {
                let subject = Subject::Block(net);
                if blocks.contains(&net) {
                    self.doubts.allay(&subject, witness);
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
            ctx.book.set_stand(net, Stand::Stays);
        }
        for subject in lacking {
            if self.doubts.raise(&subject, witness, started) {
                changed |= self.drop_what_is_gone(ctx, &subject);
            } else if witness == Witness::Imds && !self.doubts.settled(&subject) {
                if self.doubts.is_new(&subject) {
                    // Pods may wait for what takes its place.
                    ctx.schedule.want_ec2_at(ctx.now);
                } else {
                    ctx.schedule.want_ec2(ctx.now);
                }
            }
        }
        changed
    }

    /// What left the book, or is on its way out, was never judged: EC2 would be asked about it for
    /// ever.
    fn doubt_only_what_stands(&mut self, ctx: &Ctx) {
        let book = &ctx.book;
        self.doubts.keep(|subject| match subject {
            Subject::Eni(id) => book.eni(id).is_some(),
            Subject::Block(net) => book.place_of(net.network()).is_some_and(|(eni, of)| {
                let block = book.eni(eni).filter(|eni| !eni.missing).and_then(|eni| eni.block(of));
                of == *net && block.is_some_and(|block| !block.leaving())
            }),
        });
    }

    /// Two witnesses lack it. What a pod holds stays with the pod, and is reported once.
    fn drop_what_is_gone(&mut self, ctx: &mut Ctx, subject: &Subject) -> bool {
        match subject {
            Subject::Eni(id) => self.drop_eni(ctx, id),
            Subject::Block(block) => {
                if let Some(key) = ctx.book.holder_within(*block) {
                    let cause = format!("EC2 has taken it from the node while {key} holds it");
                    let next_step = "delete the pod, so that it gets another address";
                    let (severity, topic) = (Severity::Error, Topic::AssignedVanished);
                    ctx.report(severity, topic, named(*block), cause, next_step);
                    self.doubts.settle(subject);
                    self.lose(ctx, *block);
                    return false;
                }
                self.lose(ctx, *block);
                let cause = "EC2 has taken it from the node; no pod held it";
                ctx.report(Severity::Warning, Topic::Vanished, named(*block), cause, "");
                true
            }
        }
    }

    /// A block is gone from its ENI. What pods hold of it they keep; nobody else gets any of it.
    pub(crate) fn lose(&mut self, ctx: &mut Ctx, block: IpNet) {
        if ctx.book.holder_within(block).is_some() {
            ctx.book.set_stand(block, Stand::Lost { since: ctx.now });
        } else {
            ctx.book.remove_block(block);
            self.doubts.forget(&Subject::Block(block));
        }
    }

    /// EC2 gave it to the ENI once more.
    pub(crate) fn regain(&mut self, ctx: &mut Ctx, id: &EniId, block: IpNet) {
        let known = ctx.book.eni(id).and_then(|eni| eni.block(block));
        if known.is_some_and(|known| known.lost().is_some()) {
            ctx.book.set_stand(block, Stand::Stays);
            self.doubts.forget(&Subject::Block(block));
        }
    }

    /// A pod has let go of its address: if its block was lost, and this was the last, it goes.
    pub(crate) fn drop_what_was_kept_for_a_pod(&mut self, ctx: &mut Ctx, address: IpAddr) {
        let Some((eni, block)) = ctx.book.place_of(address) else { return };
        let known = ctx.book.eni(eni).and_then(|eni| eni.block(block));
        let lost = known.is_some_and(|known| known.lost().is_some());
        if lost && ctx.book.holder_within(block).is_none() {
            self.lose(ctx, block);
            // Another ENI of ours may have it by now.
            ctx.schedule.want_ec2(ctx.now);
        }
    }

    fn drop_eni(&mut self, ctx: &mut Ctx, id: &EniId) -> bool {
        let Some(eni) = ctx.book.eni_mut(id) else { return false };
        let held = eni.held;
        if held > 0 {
            eni.missing = true;
            let cause =
                format!("it was detached from the node while {held} pods hold its addresses");
            let next_step = "delete those pods, so that they get other addresses";
            ctx.report(Severity::Error, Topic::AssignedVanished, id, cause, next_step);
            self.doubts.settle(&Subject::Eni(id.clone()));
        } else {
            let nets: Vec<IpNet> = eni.blocks().map(|(net, _)| net).collect();
            for net in nets {
                self.doubts.forget(&Subject::Block(net));
            }
            ctx.forget_eni(id);
            self.doubts.forget(&Subject::Eni(id.clone()));
            let cause = "it was detached from the node; no pod held its addresses";
            ctx.report(Severity::Warning, Topic::Vanished, id, cause, "");
        }
        ctx.node_changed();
        true
    }
}

/// Whether EC2 shows again what was lost, in an answer that is no older than the loss.
fn is_back(block: &Block, started: Time) -> bool {
    block.lost().is_some_and(|since| started >= since + SETTLING)
}

/// A block for people: a single address without its length.
fn named(block: IpNet) -> String {
    if is_prefix(block) { block.to_string() } else { block.addr().to_string() }
}
