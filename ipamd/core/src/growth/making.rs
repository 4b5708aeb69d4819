//! How far is a new ENI? Create → attach → the book. A step that fails is undone or looked up.

mod outcome;

use super::Growth;
use crate::{
    Action, CloudCall, SeenEni, Want, book::block_size, calls::About, checkpoint::Made, ctx::Ctx,
    places::OccupiedPlaces, warm::Unit,
};
use config_model::{CardIndex, DeviceIndex, EniId, SecurityGroupId, Span, SubnetId, Time};
use std::collections::BTreeSet;

/// Device indexes end before this.
const DEVICE_INDEXES: u16 = 100;
/// Device indexes tried before an attach is given up.
const MAX_PLACES_TRIED: usize = 16;
/// The pause after the answer that there is no such ENI: reads lag behind a creation.
const NOT_FOUND_PAUSE: Span = Span::seconds(2);

/// An ENI on its way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Making {
    /// What it was asked for with; the token is good for exactly that.
    made: Made,
    /// The ENI, once it is known to exist.
    pub(crate) eni: Option<EniId>,
    /// How it looks, once it was seen.
    seen: Option<SeenEni>,
    /// A reply to Create was lost: the same token must be asked with again.
    create_unsure: bool,
    /// A reply to Attach was lost: look first.
    unsure: bool,
    /// Some reply to Attach was lost: what fails now may fail because it had worked.
    attach_lost: bool,
    /// It is to be deleted.
    undo: bool,
    device: Option<DeviceIndex>,
    places_tried: BTreeSet<DeviceIndex>,
    /// Since when EC2 says that there is no such ENI.
    not_found: Option<Time>,
    rest_until: Time,
    in_call: bool,
}

impl Making {
    pub(crate) fn new(
        card: CardIndex,
        want: Want,
        subnet: SubnetId,
        groups: Vec<SecurityGroupId>,
    ) -> Self {
        Self::of(Made { want, subnet: Some(subnet), groups: Some(groups), card, eni: None })
    }

    fn of(made: Made) -> Self {
        Self {
            eni: made.eni.clone(),
            made,
            seen: None,
            create_unsure: false,
            unsure: false,
            attach_lost: false,
            undo: false,
            device: None,
            places_tried: BTreeSet::new(),
            not_found: None,
            rest_until: Time(0),
            in_call: false,
        }
    }

    /// One that an earlier process began.
    pub(crate) fn resumed(made: Made) -> Self {
        let unsure = made.eni.is_some();
        Self { create_unsure: true, unsure, attach_lost: unsure, ..Self::of(made) }
    }

    pub(crate) fn card(&self) -> CardIndex {
        self.made.card
    }

    pub(crate) fn made(&self) -> &Made {
        &self.made
    }

    /// The addresses that can still be put on it once it is attached.
    pub(crate) fn room(&self, per_eni: u32) -> u64 {
        let unit = match self.made.want {
            Want::Addresses(_) => Unit::Address,
            Want::Prefixes(_) => Unit::Prefix,
            Want::Ipv6Prefixes(_) => Unit::Ipv6Prefix,
        };
        let room = per_eni.saturating_sub(u32::from(self.made.want.blocks()));
        if self.undo { 0 } else { u64::from(room) * unit.size() }
    }

    /// The addresses that it will bring.
    pub(crate) fn coming(&self) -> u64 {
        match &self.seen {
            _ if self.undo => 0,
            Some(seen) => seen.blocks.iter().map(|block| block_size(*block)).sum(),
            None => self.made.want.addresses(),
        }
    }
}

impl Growth {
    pub(crate) fn advance(&mut self, ctx: &mut Ctx, occupied: &OccupiedPlaces) {
        let tokens: Vec<String> = self.makings.keys().cloned().collect();
        for token in tokens {
            let Some(making) = self.makings.get(&token) else { continue };
            let rest_until = making.rest_until;
            if making.in_call || !ctx.reached(rest_until) {
                continue;
            }
            let Some(making) = self.makings.get(&token) else { continue };
            match making.eni.clone() {
                None => {
                    if ctx.may(Action::Create) {
                        self.create(ctx, &token);
                    }
                }
                Some(eni) if making.unsure || making.seen.is_none() => {
                    if ctx.may(Action::Describe) {
                        self.call_for(ctx, &token, CloudCall::DescribeEni { eni });
                    }
                }
                Some(eni) if making.undo => {
                    if ctx.may(Action::Delete) {
                        self.call_for(ctx, &token, CloudCall::DeleteEni { eni });
                    }
                }
                Some(eni) => self.attach(ctx, occupied, &token, eni),
            }
        }
    }

    pub(super) fn create(&mut self, ctx: &mut Ctx, token: &str) {
        let Some(making) = self.makings.get(token) else { return };
        let call = CloudCall::CreateEni {
            token: token.to_owned(),
            subnet: making.made.subnet.clone().unwrap_or(ctx.node.subnet.clone()),
            groups: making.made.groups.clone().unwrap_or(ctx.node.security_groups.clone()),
            want: making.made.want,
            tags: ctx.node.tags.clone(),
            description: ctx.node.description.clone(),
        };
        self.call_for(ctx, token, call);
    }

    fn attach(&mut self, ctx: &mut Ctx, occupied: &OccupiedPlaces, token: &str, eni: EniId) {
        if !ctx.may(Action::Attach) {
            return;
        }
        let Some(card) = self.makings.get(token).map(Making::card) else { return };
        let no_place = occupied.attached(ctx, card) >= ctx.max_enis(card);
        let device = self.free_device(ctx, occupied, token, card);
        let Some(making) = self.makings.get_mut(token) else { return };
        let (false, Some(device)) = (no_place, device) else {
            making.undo = true;
            self.call_for(ctx, token, CloudCall::DeleteEni { eni });
            return;
        };
        making.device = Some(device);
        let instance = ctx.node.instance_id.clone();
        self.call_for(ctx, token, CloudCall::AttachEni { eni, instance, card, device });
    }

    /// The lowest place that no other ENI has, is about to have, or was found to have.
    fn free_device(
        &self,
        ctx: &Ctx,
        occupied: &OccupiedPlaces,
        token: &str,
        card: CardIndex,
    ) -> Option<DeviceIndex> {
        let mut taken: BTreeSet<DeviceIndex> = ctx
            .book
            .enis()
            .filter(|eni| eni.facts.card == card && !eni.missing)
            .map(|eni| eni.facts.device)
            .collect();
        taken.extend(occupied.devices(card));
        for (other, making) in &self.makings {
            if other != token && making.card() == card {
                taken.extend(making.device);
            }
        }
        let tried = &self.makings.get(token)?.places_tried;
        if tried.len() >= MAX_PLACES_TRIED {
            return None;
        }
        let free = |device: &DeviceIndex| !taken.contains(device) && !tried.contains(device);
        // On card 0 the first place is the primary ENI's.
        let first = u16::from(card == CardIndex(0));
        (first..DEVICE_INDEXES).map(DeviceIndex).find(free)
    }

    fn call_for(&mut self, ctx: &mut Ctx, token: &str, call: CloudCall) {
        if let Some(making) = self.makings.get_mut(token) {
            making.in_call = true;
            ctx.call(About::Making(token.to_owned()), call);
        }
    }
}
