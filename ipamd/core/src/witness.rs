//! The observations of the witnesses IMDS and EC2. The book drops nothing on one observation alone.

mod absence;
mod arrival;
mod loss;

use crate::{
    Action, AttachmentState, SeenAttachment, SeenEni, Severity, Topic, Witness,
    ctx::Ctx,
    groups::Groups,
    growth::Growth,
    places::OccupiedPlace,
    schedule::{EC2_INTERVAL, SETTLING},
    shrink::Shrink,
    zone::ZoneState,
};
use absence::Absences;
use config_model::{EniId, SubnetId, Time};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;

/// The comparison of what IMDS and EC2 show with the address book.
#[derive(Debug)]
pub(crate) struct Witnesses {
    absences: Absences,
    groups: Groups,
    /// Attached ENIs that EC2 showed and whose subnet's CIDR is unknown until IMDS shows it. They occupy places.
    unplaced: BTreeMap<EniId, UnplacedEni>,
    /// The places of the ENIs in IMDS's last answer that the book lacked, with the start of that observation. EC2's
    /// answers can lag behind an attach, for example of an earlier process.
    only_in_imds: BTreeMap<EniId, (OccupiedPlace, Time)>,
    cidrs: BTreeMap<SubnetId, Ipv4Net>,
    cidrs_v6: BTreeMap<SubnetId, Ipv6Net>,
}

/// An observed ENI, with the start of that observation.
#[derive(Debug)]
struct UnplacedEni {
    seen: SeenEni,
    started: Time,
}

impl Witnesses {
    pub(crate) fn new(imds_only: bool) -> Self {
        Self {
            absences: Absences::new(imds_only),
            groups: Groups::default(),
            unplaced: BTreeMap::new(),
            only_in_imds: BTreeMap::new(),
            cidrs: BTreeMap::new(),
            cidrs_v6: BTreeMap::new(),
        }
    }

    /// The places of attached ENIs that a witness shows and that no other part of the planner knows.
    pub(crate) fn unadopted<'a>(
        &'a self,
        ctx: &'a Ctx,
        growth: &'a Growth,
        shrink: &'a Shrink,
    ) -> impl Iterator<Item = OccupiedPlace> + 'a {
        let of_ec2 = self.unplaced.iter().filter_map(|(id, UnplacedEni { seen, started })| {
            Some((id, (place_of(seen.attachment.as_ref()?), *started)))
        });
        let of_imds = self.only_in_imds.iter().map(|(id, shown)| (id, *shown));
        // EC2 and IMDS may show the same ENI.
        let shown: BTreeMap<&EniId, (OccupiedPlace, Time)> = of_ec2.chain(of_imds).collect();
        let unknown = |id: &EniId, started: Time| {
            ctx.book.eni(id).is_none()
                && !shrink.is_leaving(id)
                && growth.creation_of(id).is_none()
                && !ctx.removed.may_be_stale(id, started)
        };
        let unadopted = shown.into_iter().filter(move |(id, (_, started))| unknown(id, *started));
        unadopted.map(|(_, (place, _))| place)
    }

    /// Compares an observation, by its witness and from its start, with the book.
    pub(crate) fn sighted(
        &mut self,
        ctx: &mut Ctx,
        growth: &mut Growth,
        shrink: &Shrink,
        zone: &ZoneState,
        (witness, started): (Witness, Time),
        mut enis: Vec<SeenEni>,
    ) {
        for eni in &mut enis {
            eni.blocks.retain(|block| ctx.config.family.has(*block));
        }
        // The daemon runs on the primary ENI, so it is attached. An answer without it predates the instance and proves
        // nothing.
        let shows_us = enis.iter().any(|eni| eni.id == ctx.node.primary_eni);
        if !shows_us {
            ctx.ask_again(witness);
            let object = ctx.node.primary_eni.clone();
            let cause = match witness {
                Witness::Imds => "IMDS does not show the node's primary ENI",
                Witness::Ec2 => "EC2 does not show the node's primary ENI",
            };
            ctx.report(Severity::Info, Topic::WitnessSilent, object, cause, "");
            return;
        }
        ctx.schedule.answered(witness, ctx.now);
        if witness == Witness::Ec2 {
            ctx.budgets.succeeded(Action::Describe, ctx.now);
        }
        for eni in &enis {
            if let Some(cidr) = eni.subnet_cidr {
                self.cidrs.insert(eni.subnet.clone(), cidr);
            }
            if let Some(cidr) = eni.subnet_cidr_v6 {
                self.cidrs_v6.insert(eni.subnet.clone(), cidr);
            }
        }
        for seen in &enis {
            self.groups.note(ctx, witness, started, seen);
        }
        let waited = std::mem::take(&mut self.unplaced);
        if witness == Witness::Imds {
            let attached =
                |eni: &SeenEni| Some((eni.id.clone(), attachment_here(ctx, eni)?.clone()));
            let unknown =
                enis.iter().filter_map(attached).filter(|(id, _)| ctx.book.eni(id).is_none());
            self.only_in_imds = unknown.map(|(id, at)| (id, (place_of(&at), started))).collect();
            for UnplacedEni { seen, started } in waited.into_values() {
                self.seen(ctx, growth, shrink, zone, (Witness::Ec2, started), &seen);
            }
        }
        let mut changed = self.compare_with_book(ctx, witness, started, &enis);
        for seen in &enis {
            changed |= self.seen(ctx, growth, shrink, zone, (witness, started), seen);
        }
        Groups::compare(ctx);
        if witness == Witness::Ec2 {
            ctx.schedule.ec2_changed(changed);
            // An answer that lacks an attached ENI is too old.
            if self.unadopted(ctx, growth, shrink).next().is_some() {
                ctx.schedule.want_ec2(ctx.now);
            }
        }
        if let Some(at) = self.absences.next_look() {
            ctx.schedule.want_ec2_at(at.max(ctx.now));
        }
    }

    /// Takes one observed ENI. Returns true if the book changed.
    fn seen(
        &mut self,
        ctx: &mut Ctx,
        growth: &mut Growth,
        shrink: &Shrink,
        zone: &ZoneState,
        (witness, started): (Witness, Time),
        seen: &SeenEni,
    ) -> bool {
        let id = &seen.id;
        if shrink.is_leaving(id) {
            return false;
        }
        if ctx.book.eni(id).is_some() {
            return self.seen_known(ctx, zone, witness, started, seen);
        }
        let Some(attached) = attachment_here(ctx, seen).cloned() else { return false };
        if let Some(token) = growth.creation_of(id).map(str::to_owned) {
            // The results of its own calls show its state; an observation counts only after a lost reply.
            if witness == Witness::Ec2 && attached.state == AttachmentState::Attached {
                growth.made(ctx, self, zone, &token, seen);
                return true;
            }
            return false;
        }
        if ctx.removed.may_be_stale(id, started) {
            return false;
        }
        if witness == Witness::Imds && !ctx.config.imds_only {
            // The new ENI may be the trunk that pods wait for.
            if ctx.lacks_trunk() {
                ctx.schedule.want_ec2_at(ctx.now);
            } else if ctx.schedule.ec2_seen() {
                ctx.schedule.want_ec2(ctx.now);
            }
            // The first EC2 observation is scheduled already.
            return false;
        }
        self.adopt(ctx, zone, seen, attached.state, started)
    }
}

/// The ENI's attachment to this node.
fn attachment_here<'a>(ctx: &Ctx, eni: &'a SeenEni) -> Option<&'a SeenAttachment> {
    eni.attachment.as_ref().filter(|at| at.instance == ctx.node.instance_id)
}

fn place_of(at: &SeenAttachment) -> OccupiedPlace {
    OccupiedPlace { card: Some(at.card), device: Some(at.device) }
}
