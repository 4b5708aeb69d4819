//! Is something gone? What two witnesses lack is dropped, unless a pod holds it.

use super::{SETTLING, doubt::Subject};
use crate::{
    Core, Record, SeenEni, Severity, Topic, Witness,
    book::{Block, Stand, is_prefix},
};
use config_model::{EniId, Span, Time};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// How long what went is remembered: long enough for every answer on its way.
const GONE_MEMORY: Span = Span::seconds(180);

impl Core {
    pub(super) fn doubt_what_is_not_seen(
        &mut self,
        witness: Witness,
        started: Time,
        enis: &[SeenEni],
        now: Time,
    ) -> bool {
        self.doubt_only_what_stands();
        let seen: BTreeMap<&EniId, BTreeSet<IpNet>> =
            enis.iter().map(|eni| (&eni.id, eni.blocks.iter().copied().collect())).collect();
        let (mut lacking, mut back) = (Vec::new(), Vec::new());
        for eni in self.book.enis() {
            let subject = Subject::Eni(eni.facts.id.clone());
            let Some(blocks) = seen.get(&eni.facts.id) else {
                if started >= eni.known_since + SETTLING {
                    lacking.push(subject);
                }
                continue;
            };
            self.watch.doubts.allay(&subject, witness);
            for (net, block) in eni.blocks().filter(|(_, block)| !block.leaving()) {
                let subject = Subject::Block(net);
                if blocks.contains(&net) {
                    self.watch.doubts.allay(&subject, witness);
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
            self.book.set_stand(net, Stand::Stays);
        }
        for subject in lacking {
            if self.watch.doubts.raise(&subject, witness, started) {
                changed |= self.drop_what_is_gone(&subject, now);
            } else if witness == Witness::Imds && !self.watch.doubts.settled(&subject) {
                if self.watch.doubts.is_new(&subject) {
                    // Pods may wait for what takes its place.
                    self.watch.want_ec2_at(now);
                } else {
                    self.watch.want_ec2(now);
                }
            }
        }
        changed
    }

    /// What left the book, or is on its way out, was never judged: EC2 would be asked about it for
    /// ever.
    fn doubt_only_what_stands(&mut self) {
        let book = &self.book;
        self.watch.doubts.keep(|subject| match subject {
            Subject::Eni(id) => book.eni(id).is_some(),
            Subject::Block(net) => book.place_of(net.network()).is_some_and(|(eni, of)| {
                let block = book.eni(eni).filter(|eni| !eni.missing).and_then(|eni| eni.block(of));
                of == *net && block.is_some_and(|block| !block.leaving())
            }),
        });
    }

    /// Two witnesses lack it. What a pod holds stays with the pod, and is reported once.
    fn drop_what_is_gone(&mut self, subject: &Subject, now: Time) -> bool {
        match subject {
            Subject::Eni(id) => self.drop_eni(id, now),
            Subject::Block(block) => {
                if let Some(key) = self.book.holder_within(*block) {
                    let cause = format!("EC2 has taken it from the node while {key} holds it");
                    let next_step = "delete the pod, so that it gets another address";
                    let (severity, topic) = (Severity::Error, Topic::AssignedVanished);
                    self.report(severity, topic, named(*block), cause, next_step);
                    self.watch.doubts.settle(subject);
                    self.lose(*block, now);
                    return false;
                }
                self.lose(*block, now);
                let cause = "EC2 has taken it from the node; no pod held it";
                self.report(Severity::Warning, Topic::Vanished, named(*block), cause, "");
                true
            }
        }
    }

    /// A block is gone from its ENI. What pods hold of it they keep; nobody else gets any of it.
    pub(crate) fn lose(&mut self, block: IpNet, now: Time) {
        if self.book.holder_within(block).is_some() {
            self.book.set_stand(block, Stand::Lost { since: now });
        } else {
            self.book.remove_block(block);
            self.watch.doubts.forget(&Subject::Block(block));
        }
    }

    /// EC2 gave it to the ENI once more.
    pub(crate) fn regain(&mut self, id: &EniId, block: IpNet) {
        let known = self.book.eni(id).and_then(|eni| eni.block(block));
        if known.is_some_and(|known| known.lost().is_some()) {
            self.book.set_stand(block, Stand::Stays);
            self.watch.doubts.forget(&Subject::Block(block));
        }
    }

    /// A pod has let go of its address: if its block was lost, and this was the last, it goes.
    pub(crate) fn drop_what_was_kept_for_a_pod(&mut self, address: IpAddr, now: Time) {
        let Some((eni, block)) = self.book.place_of(address) else { return };
        let known = self.book.eni(eni).and_then(|eni| eni.block(block));
        let lost = known.is_some_and(|known| known.lost().is_some());
        if lost && self.book.holder_within(block).is_none() {
            self.lose(block, now);
            // Another ENI of ours may have it by now.
            self.watch.want_ec2(now);
        }
    }

    fn drop_eni(&mut self, id: &EniId, now: Time) -> bool {
        let Some(eni) = self.book.eni_mut(id) else { return false };
        let held = eni.held;
        if held > 0 {
            eni.missing = true;
            let cause =
                format!("it was detached from the node while {held} pods hold its addresses");
            let next_step = "delete those pods, so that they get other addresses";
            self.report(Severity::Error, Topic::AssignedVanished, id, cause, next_step);
            self.watch.doubts.settle(&Subject::Eni(id.clone()));
        } else {
            let nets: Vec<IpNet> = eni.blocks().map(|(net, _)| net).collect();
            for net in nets {
                self.watch.doubts.forget(&Subject::Block(net));
            }
            self.forget_eni(id, now);
            self.watch.doubts.forget(&Subject::Eni(id.clone()));
            let cause = "it was detached from the node; no pod held its addresses";
            self.report(Severity::Warning, Topic::Vanished, id, cause, "");
        }
        self.node_changed();
        true
    }

    /// What went so long ago that no answer can show it any more.
    pub(super) fn forget_the_long_gone(&mut self, now: Time) {
        let watch = &mut self.watch;
        watch.gone_enis.retain(|_, gone| now < *gone + GONE_MEMORY);
        let over: Vec<IpNet> = watch
            .gone_blocks
            .iter()
            .filter(|(_, gone)| now >= **gone + GONE_MEMORY)
            .map(|(block, _)| *block)
            .collect();
        for block in &over {
            watch.gone_blocks.remove(block);
        }
        let (prefixes, singles): (Vec<IpNet>, Vec<IpNet>) =
            over.into_iter().partition(|block| is_prefix(*block));
        for blocks in [prefixes, singles].into_iter().filter(|blocks| !blocks.is_empty()) {
            self.persist(Record::settled(blocks));
        }
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
