//! What do the witnesses say? Neither is believed alone when something is to be dropped.

mod doubt;

use crate::{
    Action, AttachmentState, CloudFault, Core, Effect, Family, Record, SeenEni, Severity, Topic,
    Witness,
    book::{Eni, EniFacts, amount, is_prefix},
    budget::is_throttling,
};
use config_model::{EniId, Span, SubnetId, Time};
use doubt::{Doubts, Subject};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};

/// The time that answers may lag behind a change; what a witness lacks or still shows within it
/// means nothing.
pub(crate) const SETTLING: Span = Span::seconds(60);
/// IMDS is asked so often.
const SWEEP_INTERVAL: Span = Span::seconds(60);
/// EC2 is asked at most so often; in between lies what makes two of its answers two witnesses.
const EC2_INTERVAL: Span = Span::seconds(30);
/// While its answers change nothing, the interval grows up to this.
const LONGEST_EC2_INTERVAL: Span = Span::seconds(900);
/// The pause after a witness that did not answer; it doubles up to [`SWEEP_INTERVAL`].
const SILENCE_PAUSE: Span = Span::seconds(1);
/// Tags that say whose an ENI is and that it must be left alone.
const TAG_INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";
const TAG_NO_MANAGE: &str = "node.k8s.amazonaws.com/no_manage";

/// What the witnesses said, and when they are asked next.
#[derive(Debug)]
pub(crate) struct Watch {
    imds: Turn,
    ec2: Turn,
    ec2_seen: bool,
    ec2_interval: Span,
    doubts: Doubts,
    gone_blocks: BTreeMap<IpNet, Time>,
    gone_enis: BTreeMap<EniId, Time>,
    cidrs: BTreeMap<SubnetId, Ipv4Net>,
    cidrs_v6: BTreeMap<SubnetId, Ipv6Net>,
}

#[derive(Debug, Default)]
struct Turn {
    asked: Option<Time>,
    in_flight: bool,
    next: Option<Time>,
    silences: u32,
}

impl Turn {
    fn want(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl Watch {
    pub(crate) fn new(now: Time) -> Self {
        let first = || Turn { next: Some(now), ..Turn::default() };
        Self {
            imds: first(),
            ec2: first(),
            ec2_seen: false,
            ec2_interval: EC2_INTERVAL,
            doubts: Doubts::default(),
            gone_blocks: BTreeMap::new(),
            gone_enis: BTreeMap::new(),
            cidrs: BTreeMap::new(),
            cidrs_v6: BTreeMap::new(),
        }
    }

    /// Whether EC2 has answered since the start: before, nothing is asked of it.
    pub(crate) fn ec2_seen(&self) -> bool {
        self.ec2_seen
    }

    pub(crate) fn want_imds(&mut self, now: Time) {
        self.imds.want(now);
    }

    /// EC2 is asked as soon as the interval allows.
    pub(crate) fn want_ec2(&mut self, now: Time) {
        let at = self.ec2.asked.map_or(now, |asked| now.max(asked + self.ec2_interval));
        self.ec2.want(at);
    }

    pub(crate) fn block_gone(&mut self, block: IpNet, now: Time) {
        self.gone_blocks.insert(block, now);
    }

    pub(crate) fn eni_gone(&mut self, eni: EniId, now: Time) {
        self.gone_enis.insert(eni, now);
    }

    /// EC2 gave it to us anew. Tells what of it was on record as gone, and is no more.
    pub(crate) fn block_back(&mut self, block: IpNet) -> Vec<IpNet> {
        let back: Vec<IpNet> = self.gone_of(block).map(|(net, _)| net).collect();
        for net in &back {
            self.gone_blocks.remove(net);
        }
        back
    }

    /// What went and shares an address with the block.
    fn gone_of(&self, block: IpNet) -> impl Iterator<Item = (IpNet, Time)> {
        let overlaps = move |net: &IpNet| net.contains(&block) || block.contains(net);
        self.gone_blocks.iter().filter(move |(net, _)| overlaps(net)).map(|(net, at)| (*net, *at))
    }

    fn turn(&mut self, witness: Witness) -> &mut Turn {
        match witness {
            Witness::Imds => &mut self.imds,
            Witness::Ec2 => &mut self.ec2,
        }
    }

    /// Whether an answer asked for at `started` may still show an ENI though it went.
    fn may_be_stale(&self, eni: &EniId, started: Time) -> bool {
        self.gone_enis.get(eni).is_some_and(|gone| started < *gone + SETTLING)
    }

    /// Whether an answer asked for at `started` may still show a block though it went.
    fn may_be_stale_of(&self, block: IpNet, started: Time) -> bool {
        self.gone_of(block).any(|(_, gone)| started < gone + SETTLING)
    }
}

impl Core {
    /// Asks the witnesses whose turn it is.
    pub(crate) fn look_around(&mut self, now: Time) {
        self.forget_the_long_gone(now);
        for witness in [Witness::Imds, Witness::Ec2] {
            let turn = self.watch.turn(witness);
            let Some(next) = turn.next.filter(|_| !turn.in_flight) else { continue };
            if !self.reached(next, now) {
                continue;
            }
            if witness == Witness::Ec2 {
                if !self.may(Action::Describe, now) {
                    continue;
                }
                self.budgets.take(Action::Describe, now);
            }
            let turn = self.watch.turn(witness);
            turn.next = None;
            turn.in_flight = true;
            turn.asked = Some(now);
            self.outbox.push(Effect::Look { witness });
        }
    }

    /// A witness that said nothing of use is asked again, ever less often.
    fn ask_again(&mut self, witness: Witness, now: Time) {
        let turn = self.watch.turn(witness);
        turn.in_flight = false;
        turn.silences += 1;
        let pause = (SILENCE_PAUSE.0 << (turn.silences - 1).min(10)).min(SWEEP_INTERVAL.0);
        let pause = self.budgets.jittered(Span(pause));
        self.watch.turn(witness).want(now + pause);
    }

    pub(crate) fn look_failed(&mut self, witness: Witness, fault: &CloudFault, now: Time) {
        self.ask_again(witness, now);
        if witness == Witness::Ec2 && is_throttling(fault) {
            let started = self.watch.turn(witness).asked.unwrap_or(now);
            self.learn(Action::Describe, fault, started, now);
        }
        let (object, next_step) = match witness {
            Witness::Imds => ("IMDS", "see that the node's metadata service answers"),
            Witness::Ec2 => ("EC2", "allow ec2:DescribeNetworkInterfaces to the node's role"),
        };
        self.report(Severity::Warning, Topic::WitnessSilent, object, fault.to_string(), next_step);
    }

    /// Holds what a witness showed against the book.
    pub(crate) fn sighted(
        &mut self,
        witness: Witness,
        started: Time,
        enis: Vec<SeenEni>,
        now: Time,
    ) {
        // We run on the primary ENI, so it is there: an answer without it is from before the
        // instance was known, and says nothing of what the node has or lacks.
        let shows_us = enis.iter().any(|eni| eni.id == self.node.primary_eni);
        if witness == Witness::Ec2 && !self.watch.ec2_seen && !shows_us {
            self.ask_again(witness, now);
            let object = self.node.primary_eni.clone();
            let cause = "EC2 does not show the node's primary ENI yet";
            self.report(Severity::Info, Topic::WitnessSilent, object, cause, "");
            return;
        }
        let turn = self.watch.turn(witness);
        turn.in_flight = false;
        turn.silences = 0;
        match witness {
            Witness::Imds => self.watch.imds.want(now + SWEEP_INTERVAL),
            Witness::Ec2 => {
                self.watch.ec2_seen = true;
                self.budgets.succeeded(Action::Describe, now);
            }
        }
        for eni in &enis {
            if let Some(cidr) = eni.subnet_cidr {
                self.watch.cidrs.insert(eni.subnet.clone(), cidr);
            }
            if let Some(cidr) = eni.subnet_cidr_v6 {
                self.watch.cidrs_v6.insert(eni.subnet.clone(), cidr);
            }
        }
        let mut changed = self.doubt_what_is_not_seen(witness, started, &enis, now);
        for seen in &enis {
            changed |= self.seen(witness, started, seen, now);
        }
        if witness == Witness::Ec2 {
            let doubled = Span((self.watch.ec2_interval.0 * 2).min(LONGEST_EC2_INTERVAL.0));
            self.watch.ec2_interval = if changed { EC2_INTERVAL } else { doubled };
        }
        if let Some(at) = self.watch.doubts.next_look() {
            self.watch.ec2.want(at.max(now));
        }
    }

    /// One ENI that was shown. True if the book changed.
    fn seen(&mut self, witness: Witness, started: Time, seen: &SeenEni, now: Time) -> bool {
        let id = &seen.id;
        if self.departures.contains_key(id) {
            return false;
        }
        if self.book.eni(id).is_some() {
            return self.seen_known(witness, started, seen, now);
        }
        let attached = seen.attachment.as_ref().filter(|a| a.instance == self.node.instance_id);
        let Some(attached) = attached.cloned() else { return false };
        if let Some(token) = self.making_of(id) {
            // Its own calls tell how far it is; a witness only helps out when a reply was lost.
            if witness == Witness::Ec2 && attached.state == AttachmentState::Attached {
                self.made(&token, seen, now);
                return true;
            }
            return false;
        }
        if self.watch.may_be_stale(id, started) {
            return false;
        }
        if witness == Witness::Imds {
            self.watch.want_ec2(now);
            return false;
        }
        self.adopt(seen, attached.state, started, now)
    }

    fn adopt(&mut self, seen: &SeenEni, state: AttachmentState, started: Time, now: Time) -> bool {
        // One of ours that still attaches is an earlier process's: this one may give it up.
        let attaching = state == AttachmentState::Attaching && self.is_ours(seen);
        if state != AttachmentState::Attached && !attaching {
            self.watch.want_ec2(now);
            return false;
        }
        if !self.take_in(seen, attaching, started, now) {
            self.watch.want_imds(now);
            self.watch.want_ec2(now);
            return false;
        }
        let cause = format!("found attached, with {}", amount(&seen.blocks));
        self.report(Severity::Info, Topic::Adopted, &seen.id, cause, "");
        true
    }

    fn making_of(&self, id: &EniId) -> Option<String> {
        let made =
            |(_, making): &(&String, &crate::growth::Making)| making.eni.as_ref() == Some(id);
        self.makings.iter().find(made).map(|(token, _)| token.clone())
    }

    /// Writes an ENI into the book; false if too little is known of it.
    pub(crate) fn take_in(
        &mut self,
        seen: &SeenEni,
        attached_here: bool,
        started: Time,
        now: Time,
    ) -> bool {
        let Some(facts) = self.facts_of(seen, attached_here) else { return false };
        let id = facts.id.clone();
        let managed = facts.managed;
        let mut eni = Eni::new(facts, now);
        eni.attached_here = attached_here;
        self.book.add_eni(eni);
        if managed && attached_here {
            self.add_given(&id, &seen.blocks, now);
        } else if managed {
            let fresh = self.not_stale(&seen.blocks, started);
            self.add_blocks(&id, &fresh, now);
        }
        self.node_changed();
        true
    }

    /// Whether its tags say that it was made for this node.
    fn is_ours(&self, seen: &SeenEni) -> bool {
        let Some(tags) = &seen.tags else { return false };
        let tagged = tags.get(TAG_INSTANCE).is_some_and(|id| id == self.node.instance_id.as_str());
        let all = self.node.tags.iter().all(|(name, value)| tags.get(name) == Some(value));
        tagged || (all && !self.node.tags.is_empty())
    }

    fn facts_of(&self, seen: &SeenEni, attached_here: bool) -> Option<EniFacts> {
        let attachment = seen.attachment.as_ref()?;
        let is_primary = seen.id == self.node.primary_eni;
        let at_home = seen.subnet == self.node.subnet;
        let subnet_cidr = seen.subnet_cidr.or(self.node.subnet_cidr.filter(|_| at_home)).or(self
            .watch
            .cidrs
            .get(&seen.subnet)
            .copied());
        let subnet_cidr_v6 = seen
            .subnet_cidr_v6
            .or(self.node.subnet_cidr_v6.filter(|_| at_home))
            .or(self.watch.cidrs_v6.get(&seen.subnet).copied());
        // Without its subnet's addresses an ENI's routing cannot be made.
        match self.config.family {
            Family::V4 => drop(subnet_cidr?),
            Family::V6 => drop(subnet_cidr_v6?),
        }
        let pool_card = self.targets.cards().contains(&attachment.card);
        let tag = |name: &str| seen.tags.as_ref().and_then(|tags| tags.get(name));
        let no_manage = tag(TAG_NO_MANAGE).is_some_and(|value| value == "true");
        let ours = attached_here || self.is_ours(seen);
        Some(EniFacts {
            id: seen.id.clone(),
            mac: seen.mac,
            card: attachment.card,
            device: attachment.device,
            subnet: seen.subnet.clone(),
            subnet_cidr,
            subnet_cidr_v6,
            primary_address: seen.primary_address,
            primary_v6: seen.ipv6_addresses.first().copied(),
            kind: seen.kind,
            groups: seen.groups.clone(),
            attachment: attachment.id.clone(),
            is_primary,
            managed: is_primary || (pool_card && !no_manage),
            excluded: is_primary && self.config.custom_networking,
            ours: ours && !is_primary && !no_manage,
            kept: attachment.delete_on_termination == Some(true),
        })
    }

    /// A known ENI that was shown: what is new of it.
    fn seen_known(&mut self, witness: Witness, started: Time, seen: &SeenEni, now: Time) -> bool {
        let Some(eni) = self.book.eni_mut(&seen.id) else { return false };
        let mut changed = false;
        if witness == Witness::Ec2 {
            changed |= std::mem::take(&mut eni.missing);
            if let Some(attachment) = &seen.attachment {
                changed |= eni.facts.device != attachment.device;
                eni.facts.device = attachment.device;
                eni.facts.attachment = attachment.id.clone().or(eni.facts.attachment.take());
                eni.facts.kept |= attachment.delete_on_termination == Some(true);
            }
            eni.facts.kind = seen.kind.or(eni.facts.kind);
            eni.facts.groups = seen.groups.clone().or(eni.facts.groups.take());
        }
        if changed {
            self.node_changed();
        }
        let Some(eni) = self.book.eni(&seen.id).filter(|eni| eni.facts.managed) else {
            return changed;
        };
        let news = seen
            .blocks
            .iter()
            .any(|block| !eni.has_block(*block) && !self.watch.may_be_stale_of(*block, started));
        match witness {
            Witness::Imds if news && eni.task == crate::book::Task::Idle && !eni.unsure => {
                self.watch.want_ec2(now);
            }
            Witness::Imds => {}
            Witness::Ec2 => {
                changed |= self.adopt_blocks(&seen.id, &seen.blocks, started, now);
            }
        }
        changed
    }

    /// Takes in blocks of a known ENI that EC2 shows, unless they may be a stale answer's.
    pub(crate) fn adopt_blocks(
        &mut self,
        id: &EniId,
        blocks: &[IpNet],
        started: Time,
        now: Time,
    ) -> bool {
        let Some(eni) = self.book.eni(id).filter(|eni| eni.facts.managed) else { return false };
        let unknown: Vec<IpNet> = blocks.iter().filter(|b| !eni.has_block(**b)).copied().collect();
        let fresh = self.not_stale(&unknown, started);
        let added = self.add_blocks(id, &fresh, now);
        if !added.is_empty() {
            let cause = format!("{} found that no answer told of", amount(&added));
            self.report(Severity::Info, Topic::Adopted, id, cause, "");
        }
        !added.is_empty()
    }

    /// Those that an answer asked for at `started` shows because they are there, not because it is
    /// old.
    fn not_stale(&self, blocks: &[IpNet], started: Time) -> Vec<IpNet> {
        let fresh = |block: &&IpNet| !self.watch.may_be_stale_of(**block, started);
        blocks.iter().filter(fresh).copied().collect()
    }

    fn doubt_what_is_not_seen(
        &mut self,
        witness: Witness,
        started: Time,
        enis: &[SeenEni],
        now: Time,
    ) -> bool {
        let seen: BTreeMap<&EniId, BTreeSet<IpNet>> =
            enis.iter().map(|eni| (&eni.id, eni.blocks.iter().copied().collect())).collect();
        let mut lacking = Vec::new();
        for eni in self.book.enis() {
            let subject = Subject::Eni(eni.facts.id.clone());
            let Some(blocks) = seen.get(&eni.facts.id) else {
                if started >= eni.known_since + SETTLING {
                    lacking.push(subject);
                }
                continue;
            };
            self.watch.doubts.allay(&subject, witness);
            for (net, block) in eni.blocks().filter(|(_, block)| !block.leaving) {
                let subject = Subject::Block(net);
                if blocks.contains(&net) {
                    self.watch.doubts.allay(&subject, witness);
                } else if started >= block.known_since + SETTLING {
                    lacking.push(subject);
                }
            }
        }
        let mut changed = false;
        for subject in lacking {
            if self.watch.doubts.raise(&subject, witness, started) {
                changed |= self.drop_what_is_gone(&subject, now);
            } else if witness == Witness::Imds && !self.watch.doubts.settled(&subject) {
                self.watch.want_ec2(now);
            }
        }
        changed
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
                    return false;
                }
                self.book.remove_block(*block);
                self.watch.doubts.forget(subject);
                let cause = "EC2 has taken it from the node; no pod held it";
                self.report(Severity::Warning, Topic::Vanished, named(*block), cause, "");
                true
            }
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
            self.book.remove_eni(id);
            self.watch.eni_gone(id.clone(), now);
            self.watch.doubts.forget(&Subject::Eni(id.clone()));
            let cause = "it was detached from the node; no pod held its addresses";
            self.report(Severity::Warning, Topic::Vanished, id, cause, "");
        }
        self.node_changed();
        true
    }

    /// What went so long ago that no answer can show it any more.
    fn forget_the_long_gone(&mut self, now: Time) {
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

/// A block for people: a single address without its length.
fn named(block: IpNet) -> String {
    if is_prefix(block) { block.to_string() } else { block.addr().to_string() }
}

/// How long what went is remembered: long enough for every answer on its way.
const GONE_MEMORY: Span = Span::seconds(180);
