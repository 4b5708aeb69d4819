//! New facts in an observation. Only EC2's answers add an ENI to the book.

use super::{UnplacedEni, Witnesses};
use crate::{
    AttachmentState, Family, SeenEni, Severity, Topic, Witness,
    book::{Eni, EniFacts, Task, amount},
    classify::{Class, classify, is_of_this_node},
    ctx::Ctx,
    zone::ZoneState,
};
use config_model::{EniId, Time};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

impl Witnesses {
    pub(super) fn adopt(
        &mut self,
        ctx: &mut Ctx,
        zone: &ZoneState,
        seen: &SeenEni,
        state: AttachmentState,
        started: Time,
    ) -> bool {
        // An attaching ENI of this node is from an earlier process; this process may give it up.
        let attaching = state == AttachmentState::Attaching && is_of_this_node(&ctx.node, seen);
        if state != AttachmentState::Attached && !attaching {
            ctx.schedule.want_ec2(ctx.now);
            return false;
        }
        if !self.take_in(ctx, zone, seen, attaching, Some(started)) {
            self.unplaced.insert(seen.id.clone(), UnplacedEni { seen: seen.clone(), started });
            ctx.schedule.want_imds(ctx.now);
            ctx.schedule.want_ec2(ctx.now);
            return false;
        }
        let cause = format!("found attached, with {}", amount(&seen.blocks));
        ctx.report(Severity::Info, Topic::Adopted, &seen.id, cause, "");
        true
    }

    /// Adds an ENI to the book. Returns false if too little is known about it. `shown` is the start of the
    /// observation, which may still show blocks that were removed shortly before. `None`: our own call created the
    /// ENI, so all its blocks are new.
    pub(crate) fn take_in(
        &mut self,
        ctx: &mut Ctx,
        zone: &ZoneState,
        seen: &SeenEni,
        attached_here: bool,
        shown: Option<Time>,
    ) -> bool {
        let Some(facts) = self.facts_of(ctx, zone, seen, attached_here) else { return false };
        let id = facts.id.clone();
        let managed = facts.managed;
        let mut eni = Eni::new(facts, ctx.now);
        eni.attached_here = attached_here;
        ctx.book.add_eni(eni);
        match shown {
            None if managed => {
                self.add_given(ctx, &id, &seen.blocks);
            }
            Some(started) if managed => {
                let fresh = ctx.not_stale(&seen.blocks, started);
                ctx.add_blocks(&id, &fresh);
            }
            None | Some(_) => {}
        }
        ctx.node_changed();
        true
    }

    fn facts_of(
        &self,
        ctx: &Ctx,
        zone: &ZoneState,
        seen: &SeenEni,
        attached_here: bool,
    ) -> Option<EniFacts> {
        let attachment = seen.attachment.as_ref()?;
        let class = self.class_of(ctx, zone, seen, attached_here)?;
        let is_primary = seen.id == ctx.node.primary_eni;
        let (subnet_cidr, subnet_cidr_v6) = self.cidrs_of(ctx, zone, seen);
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
            managed: class.managed,
            excluded: !class.pods || zone.excludes(&ctx.config, &seen.subnet),
            ours: class.ours,
            untagged: class.untagged,
            kept: attachment.delete_on_termination == Some(true),
        })
    }

    /// The class of the ENI. `None` if its subnet's CIDR, which its routing needs, is unknown.
    fn class_of(
        &self,
        ctx: &Ctx,
        zone: &ZoneState,
        seen: &SeenEni,
        made_here: bool,
    ) -> Option<Class> {
        let card = seen.attachment.as_ref()?.card;
        let class = classify(&ctx.config, &ctx.node, seen, card, made_here);
        let (v4, v6) = self.cidrs_of(ctx, zone, seen);
        let (own, other) = match ctx.config.family {
            Family::V4 => (v4.is_some() && seen.primary_address.is_some(), v6.is_some()),
            Family::V6 => (v6.is_some(), v4.is_some()),
        };
        // An ENI of the other family only occupies a place.
        let of_other_family = !own && (other || seen.primary_address.is_none());
        if class.managed && !own && !of_other_family {
            return None;
        }
        Some(if of_other_family { class.unused() } else { class })
    }

    fn cidrs_of(
        &self,
        ctx: &Ctx,
        zone: &ZoneState,
        seen: &SeenEni,
    ) -> (Option<Ipv4Net>, Option<Ipv6Net>) {
        let at_home = seen.subnet == ctx.node.subnet;
        let in_zone = zone.subnet(&seen.subnet);
        let v4 = seen
            .subnet_cidr
            .or(ctx.node.subnet_cidr.filter(|_| at_home))
            .or(self.cidrs.get(&seen.subnet).copied())
            .or(in_zone.and_then(|subnet| subnet.cidr));
        let v6 = seen
            .subnet_cidr_v6
            .or(ctx.node.subnet_cidr_v6.filter(|_| at_home))
            .or(self.cidrs_v6.get(&seen.subnet).copied())
            .or(in_zone.and_then(|subnet| subnet.cidr_v6));
        (v4, v6)
    }

    /// Takes the new facts about a known ENI.
    pub(super) fn seen_known(
        &mut self,
        ctx: &mut Ctx,
        zone: &ZoneState,
        witness: Witness,
        started: Time,
        seen: &SeenEni,
    ) -> bool {
        let believed = witness == Witness::Ec2 || ctx.config.imds_only;
        let mut changed = false;
        if witness == Witness::Ec2 {
            changed |= self.seen_by_ec2(ctx, zone, started, seen);
        }
        if changed {
            ctx.node_changed();
        }
        let Some(eni) = ctx.book.eni(&seen.id).filter(|eni| eni.facts.managed) else {
            return changed;
        };
        let news = seen
            .blocks
            .iter()
            .any(|block| !eni.blocks.has(*block) && !ctx.removed.may_be_stale_of(*block, started));
        if believed {
            changed |= ctx.adopt_blocks(&seen.id, &seen.blocks, started);
        } else if news && eni.task == Task::Idle && !eni.unsure {
            ctx.schedule.want_ec2(ctx.now);
        }
        changed
    }

    /// Takes the attachment and the class of a known ENI from an EC2 answer.
    fn seen_by_ec2(
        &mut self,
        ctx: &mut Ctx,
        zone: &ZoneState,
        started: Time,
        seen: &SeenEni,
    ) -> bool {
        let Some(eni) = ctx.book.eni(&seen.id) else { return false };
        let class = self.class_of(ctx, zone, seen, eni.attached_here);
        let shut = zone.excludes(&ctx.config, &seen.subnet);
        let Some(eni) = ctx.book.eni_mut(&seen.id) else { return false };
        let mut changed = std::mem::take(&mut eni.missing);
        if let Some(attachment) = &seen.attachment {
            changed |= eni.facts.device != attachment.device;
            eni.facts.device = attachment.device;
            eni.facts.attachment = attachment.id.clone().or(eni.facts.attachment.take());
            eni.shown_kept(attachment.delete_on_termination, started);
        }
        eni.facts.kind = seen.kind.or(eni.facts.kind);
        if let Some(class) = class {
            let in_use = !eni.blocks.is_unused();
            // Pods keep their addresses of an ENI that is no longer managed; it gets no new pods.
            let managed = class.managed || (eni.facts.managed && in_use);
            changed |= eni.facts.managed != managed;
            eni.facts.managed = managed;
            eni.facts.excluded = !class.pods || shut;
            eni.facts.ours = class.ours;
            eni.facts.untagged = class.untagged && eni.tagged_at.is_none_or(|at| started > at);
        }
        changed
    }
}

impl Ctx {
    /// Adds blocks that EC2 shows on a known ENI, unless the answer may be stale.
    pub(crate) fn adopt_blocks(&mut self, id: &EniId, blocks: &[IpNet], started: Time) -> bool {
        let Some(eni) = self.book.eni(id).filter(|eni| eni.facts.managed) else { return false };
        let unknown: Vec<IpNet> = blocks.iter().filter(|b| !eni.blocks.has(**b)).copied().collect();
        let fresh = self.not_stale(&unknown, started);
        let added = self.add_blocks(id, &fresh);
        if !added.is_empty() {
            let cause = format!("{} found that no answer had reported", amount(&added));
            self.report(Severity::Info, Topic::Adopted, id, cause, "");
        }
        !added.is_empty()
    }
}
