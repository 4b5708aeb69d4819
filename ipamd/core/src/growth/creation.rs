//! The steps of a new ENI: create, attach, add to the book. A step that fails is undone or checked.

mod outcome;

use super::Growth;
use crate::{
    Action, CloudCall, SeenEni, Want, book::block_size, calls::CallSubject,
    checkpoint::CreationRecord, ctx::Ctx, places::OccupiedPlaces, warm::Unit,
};
use config_model::{CardIndex, DeviceIndex, EniId, SecurityGroupId, Span, SubnetId, Time};
use std::collections::BTreeSet;

/// The first device index that EC2 does not accept.
const DEVICE_INDEXES: u16 = 100;
/// The number of device indexes tried before an attach is given up.
const MAX_PLACES_TRIED: usize = 16;
/// The pause after EC2 reports that the ENI does not exist: reads lag behind a creation.
const NOT_FOUND_PAUSE: Span = Span::seconds(2);

/// An ENI that is being created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EniCreation {
    /// The parameters of the request. The token is valid only with exactly these.
    made: CreationRecord,
    /// `None` until EC2 has confirmed that it exists.
    pub(crate) eni: Option<EniId>,
    /// EC2's last description of it.
    seen: Option<SeenEni>,
    /// A reply to Create was lost. The same token must be used again.
    create_unsure: bool,
    /// A reply to Attach was lost. EC2 must describe the ENI first.
    unsure: bool,
    /// A reply to Attach was lost earlier, so a later failure may mean that it succeeded.
    attach_lost: bool,
    /// The ENI must be deleted.
    undo: bool,
    device: Option<DeviceIndex>,
    places_tried: BTreeSet<DeviceIndex>,
    /// The first time that EC2 reported that the ENI does not exist.
    not_found: Option<Time>,
    rest_until: Time,
    in_call: bool,
}

impl EniCreation {
    pub(crate) fn new(
        card: CardIndex,
        want: Want,
        subnet: SubnetId,
        groups: Vec<SecurityGroupId>,
    ) -> Self {
        Self::of(CreationRecord {
            want,
            subnet: Some(subnet),
            groups: Some(groups),
            card,
            eni: None,
        })
    }

    fn of(made: CreationRecord) -> Self {
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

    /// A creation that an earlier process started.
    pub(crate) fn resumed(made: CreationRecord) -> Self {
        let unsure = made.eni.is_some();
        Self { create_unsure: true, unsure, attach_lost: unsure, ..Self::of(made) }
    }

    pub(crate) fn card(&self) -> CardIndex {
        self.made.card
    }

    pub(crate) fn made(&self) -> &CreationRecord {
        &self.made
    }

    /// The number of addresses that can still be assigned once it is attached.
    pub(crate) fn room(&self, per_eni: u32) -> u64 {
        let unit = match self.made.want {
            Want::Addresses(_) => Unit::Address,
            Want::Prefixes(_) => Unit::Prefix,
            Want::Ipv6Prefixes(_) => Unit::Ipv6Prefix,
        };
        let room = per_eni.saturating_sub(u32::from(self.made.want.blocks()));
        if self.undo { 0 } else { u64::from(room) * unit.size() }
    }

    /// The number of addresses that it will bring.
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
        let tokens: Vec<String> = self.creations.keys().cloned().collect();
        for token in tokens {
            let Some(creation) = self.creations.get(&token) else { continue };
            let rest_until = creation.rest_until;
            if creation.in_call || !ctx.reached(rest_until) {
                continue;
            }
            let Some(creation) = self.creations.get(&token) else { continue };
            match creation.eni.clone() {
                None => {
                    if ctx.may(Action::Create) {
                        self.create(ctx, &token);
                    }
                }
                Some(eni) if creation.unsure || creation.seen.is_none() => {
                    if ctx.may(Action::Describe) {
                        self.call_for(ctx, &token, CloudCall::DescribeEni { eni });
                    }
                }
                Some(eni) if creation.undo => {
                    if ctx.may(Action::Delete) {
                        self.call_for(ctx, &token, CloudCall::DeleteEni { eni });
                    }
                }
                Some(eni) => self.attach(ctx, occupied, &token, eni),
            }
        }
    }

    pub(super) fn create(&mut self, ctx: &mut Ctx, token: &str) {
        let Some(creation) = self.creations.get(token) else { return };
        let call = CloudCall::CreateEni {
            token: token.to_owned(),
            subnet: creation.made.subnet.clone().unwrap_or(ctx.node.subnet.clone()),
            groups: creation.made.groups.clone().unwrap_or(ctx.node.security_groups.clone()),
            want: creation.made.want,
            tags: ctx.node.tags.clone(),
            description: ctx.node.description.clone(),
        };
        self.call_for(ctx, token, call);
    }

    fn attach(&mut self, ctx: &mut Ctx, occupied: &OccupiedPlaces, token: &str, eni: EniId) {
        if !ctx.may(Action::Attach) {
            return;
        }
        let Some(card) = self.creations.get(token).map(EniCreation::card) else { return };
        let no_place = self.attached(ctx, occupied, card) >= ctx.max_enis(card);
        let device = self.free_device(ctx, occupied, token, card);
        let Some(creation) = self.creations.get_mut(token) else { return };
        let (false, Some(device)) = (no_place, device) else {
            creation.undo = true;
            self.call_for(ctx, token, CloudCall::DeleteEni { eni });
            return;
        };
        creation.device = Some(device);
        let instance = ctx.node.instance_id.clone();
        self.call_for(ctx, token, CloudCall::AttachEni { eni, instance, card, device });
    }

    /// The lowest device number that no other ENI has, is about to get, or was found to have.
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
        taken.extend(self.refused_devices(ctx, occupied, card));
        for (other, creation) in &self.creations {
            if other != token && creation.card() == card {
                taken.extend(creation.device);
            }
        }
        let tried = &self.creations.get(token)?.places_tried;
        if tried.len() >= MAX_PLACES_TRIED {
            return None;
        }
        let free = |device: &DeviceIndex| !taken.contains(device) && !tried.contains(device);
        // Device 0 of card 0 is the primary ENI's.
        let first = u16::from(card == CardIndex(0));
        (first..DEVICE_INDEXES).map(DeviceIndex).find(free)
    }

    fn call_for(&mut self, ctx: &mut Ctx, token: &str, call: CloudCall) {
        if let Some(creation) = self.creations.get_mut(token) {
            creation.in_call = true;
            ctx.call(CallSubject::Creation(token.to_owned()), call);
        }
    }
}
