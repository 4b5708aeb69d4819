//! What do the witnesses say? Neither is believed alone when something is to be dropped.

mod arrival;
mod doubt;
mod loss;

use crate::{
    Action, AttachmentState, CloudFault, Core, Effect, SeenEni, Severity, Topic, Witness,
    budget::{LONG_CALM, is_throttling},
};
use config_model::{EniId, Span, SubnetId, Time};
use doubt::Doubts;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;

/// The time that answers may lag behind a change; what a witness lacks or still shows within it
/// means nothing.
pub(crate) const SETTLING: Span = Span::seconds(60);
/// IMDS is asked so often.
const SWEEP_INTERVAL: Span = Span::seconds(60);
/// IMDS is asked at most so often.
const IMDS_INTERVAL: Span = Span::seconds(1);
/// EC2 is asked at most so often; in between lies what makes two of its answers two witnesses.
const EC2_INTERVAL: Span = Span::seconds(30);
/// While its answers change nothing, the interval grows up to this.
const LONGEST_EC2_INTERVAL: Span = Span::seconds(900);
/// The pause after a witness that did not answer; it doubles up to [`SWEEP_INTERVAL`].
const SILENCE_PAUSE: Span = Span::seconds(1);

/// What the witnesses said, and when they are asked next.
#[derive(Debug)]
pub(crate) struct Watch {
    imds: Turn,
    ec2: Turn,
    /// EC2 is never asked, and IMDS believed where it says the same again and again.
    imds_only: bool,
    ec2_seen: bool,
    ec2_interval: Span,
    doubts: Doubts,
    gone_blocks: BTreeMap<IpNet, Time>,
    gone_enis: BTreeMap<EniId, Time>,
    /// Attached ENIs that EC2 showed and that wait for their subnet's addresses, which IMDS tells:
    /// they have their places all the same.
    unplaced: BTreeMap<EniId, Unplaced>,
    cidrs: BTreeMap<SubnetId, Ipv4Net>,
    cidrs_v6: BTreeMap<SubnetId, Ipv6Net>,
}

/// As it was shown, and when the answer was asked for.
#[derive(Debug)]
struct Unplaced {
    seen: SeenEni,
    started: Time,
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
    pub(crate) fn new(imds_only: bool, now: Time) -> Self {
        let first = || Turn { next: Some(now), ..Turn::default() };
        Self {
            imds: first(),
            ec2: if imds_only { Turn::default() } else { first() },
            imds_only,
            ec2_seen: false,
            ec2_interval: EC2_INTERVAL,
            doubts: Doubts::new(imds_only),
            gone_blocks: BTreeMap::new(),
            gone_enis: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            cidrs: BTreeMap::new(),
            cidrs_v6: BTreeMap::new(),
        }
    }

    /// Whether EC2 has answered since the start: before, nothing is asked of it.
    pub(crate) fn ec2_seen(&self) -> bool {
        self.ec2_seen
    }

    /// IMDS is asked as soon as the interval allows.
    pub(crate) fn want_imds(&mut self, at: Time) {
        self.imds.want(self.imds.asked.map_or(at, |asked| at.max(asked + IMDS_INTERVAL)));
    }

    /// EC2 is asked as soon as the interval allows.
    pub(crate) fn want_ec2(&mut self, now: Time) {
        self.want_ec2_after(now, self.ec2_interval);
    }

    /// EC2 is asked at that time, even if nothing has changed for long.
    pub(crate) fn want_ec2_at(&mut self, at: Time) {
        self.want_ec2_after(at, EC2_INTERVAL);
    }

    fn want_ec2_after(&mut self, at: Time, interval: Span) {
        if !self.imds_only {
            self.ec2.want(self.ec2.asked.map_or(at, |asked| at.max(asked + interval)));
        }
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
                // What it has told is enough to go on with.
                if self.watch.ec2_seen && self.put_off(LONG_CALM, now).is_some() {
                    continue;
                }
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
        if witness == Witness::Ec2 && is_throttling(fault) {
            // Its budget says when it is asked again.
            let turn = self.watch.turn(witness);
            turn.in_flight = false;
            turn.want(now);
            let started = turn.asked.unwrap_or(now);
            self.learn(Action::Describe, fault, started, now);
        } else {
            self.ask_again(witness, now);
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
        mut enis: Vec<SeenEni>,
        now: Time,
    ) {
        for eni in &mut enis {
            eni.blocks.retain(|block| self.config.family.has(*block));
        }
        // We run on the primary ENI, so it is there: an answer without it is from before the
        // instance was known, and says nothing of what the node has or lacks.
        let shows_us = enis.iter().any(|eni| eni.id == self.node.primary_eni);
        if !shows_us {
            self.ask_again(witness, now);
            let object = self.node.primary_eni.clone();
            let cause = match witness {
                Witness::Imds => "IMDS does not show the node's primary ENI",
                Witness::Ec2 => "EC2 does not show the node's primary ENI",
            };
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
        for seen in &enis {
            self.note_groups(witness, started, seen);
        }
        let waited = std::mem::take(&mut self.watch.unplaced);
        if witness == Witness::Imds {
            for Unplaced { seen, started } in waited.into_values() {
                self.seen(Witness::Ec2, started, &seen, now);
            }
        }
        let mut changed = self.doubt_what_is_not_seen(witness, started, &enis, now);
        for seen in &enis {
            changed |= self.seen(witness, started, seen, now);
        }
        self.compare_groups();
        if witness == Witness::Ec2 {
            let doubled = Span((self.watch.ec2_interval.0 * 2).min(LONGEST_EC2_INTERVAL.0));
            self.watch.ec2_interval = if changed { EC2_INTERVAL } else { doubled };
        }
        if let Some(at) = self.watch.doubts.next_look() {
            self.watch.want_ec2_at(at.max(now));
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
        if witness == Witness::Imds && !self.config.imds_only {
            // It may be the trunk that pods wait for.
            if self.lacks_trunk() {
                self.watch.want_ec2_at(now);
            } else if self.watch.ec2_seen {
                self.watch.want_ec2(now);
            }
            // Before its first answer EC2 is asked as it is.
            return false;
        }
        self.adopt(seen, attached.state, started, now)
    }
}
