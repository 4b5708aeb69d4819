//! How far is a new ENI? Create → attach → the book. A step that fails is undone or looked up.

use crate::{
    Action, AttachmentState, CloudAnswer, CloudCall, CloudFault, Core, EniConfig, Record, Remedy,
    SeenEni, Severity, Topic, Want,
    book::{amount, block_size},
    checkpoint::Made,
    core::{About, CloudResult},
    warm::Unit,
    witness::SETTLING,
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

impl Core {
    pub(crate) fn advance_makings(&mut self, now: Time) {
        let tokens: Vec<String> = self.makings.keys().cloned().collect();
        for token in tokens {
            let Some(making) = self.makings.get(&token) else { continue };
            let rest_until = making.rest_until;
            if making.in_call || !self.reached(rest_until, now) {
                continue;
            }
            let Some(making) = self.makings.get(&token) else { continue };
            match making.eni.clone() {
                None => {
                    if self.may(Action::Create, now) {
                        self.create(&token, now);
                    }
                }
                Some(eni) if making.unsure || making.seen.is_none() => {
                    if self.may(Action::Describe, now) {
                        self.call_for(&token, CloudCall::DescribeEni { eni }, now);
                    }
                }
                Some(eni) if making.undo => {
                    if self.may(Action::Delete, now) {
                        self.call_for(&token, CloudCall::DeleteEni { eni }, now);
                    }
                }
                Some(eni) => self.attach(&token, eni, now),
            }
        }
    }

    pub(super) fn create(&mut self, token: &str, now: Time) {
        let Some(making) = self.makings.get(token) else { return };
        let call = CloudCall::CreateEni {
            token: token.to_owned(),
            subnet: making.made.subnet.clone().unwrap_or(self.node.subnet.clone()),
            groups: making.made.groups.clone().unwrap_or(self.node.security_groups.clone()),
            want: making.made.want,
            tags: self.node.tags.clone(),
            description: self.node.description.clone(),
        };
        self.call_for(token, call, now);
    }

    fn attach(&mut self, token: &str, eni: EniId, now: Time) {
        if !self.may(Action::Attach, now) {
            return;
        }
        let Some(card) = self.makings.get(token).map(Making::card) else { return };
        let no_place = self.places_attached(card) >= self.max_enis(card);
        let device = self.free_device(token, card);
        let Some(making) = self.makings.get_mut(token) else { return };
        let (false, Some(device)) = (no_place, device) else {
            making.undo = true;
            self.call_for(token, CloudCall::DeleteEni { eni }, now);
            return;
        };
        making.device = Some(device);
        let instance = self.node.instance_id.clone();
        self.call_for(token, CloudCall::AttachEni { eni, instance, card, device }, now);
    }

    /// The lowest place that no other ENI has, is about to have, or was found to have.
    fn free_device(&self, token: &str, card: CardIndex) -> Option<DeviceIndex> {
        let mut taken: BTreeSet<DeviceIndex> = self
            .book
            .enis()
            .filter(|eni| eni.facts.card == card && !eni.missing)
            .map(|eni| eni.facts.device)
            .collect();
        taken.extend(self.departures.values().filter_map(|departure| departure.device(card)));
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

    fn call_for(&mut self, token: &str, call: CloudCall, now: Time) {
        if let Some(making) = self.makings.get_mut(token) {
            making.in_call = true;
            self.call(About::Making(token.to_owned()), call, now);
        }
    }

    pub(crate) fn making_done(
        &mut self,
        token: &str,
        action: Action,
        result: CloudResult,
        now: Time,
    ) {
        let Some(making) = self.makings.get_mut(token) else { return };
        making.in_call = false;
        match (action, result) {
            (Action::Create, Ok(CloudAnswer::Created(seen))) => self.created(token, seen),
            (Action::Create, Ok(_)) => making.create_unsure = true,
            (Action::Create, Err(fault)) => self.create_failed(token, &fault, now),
            (Action::Attach, Ok(CloudAnswer::Attached { attachment })) => {
                let (device, card) = (making.device, making.card());
                if let Some((mut seen, device)) = making.seen.clone().zip(device) {
                    seen.attachment = Some(crate::SeenAttachment {
                        id: Some(attachment),
                        instance: self.node.instance_id.clone(),
                        card,
                        device,
                        state: AttachmentState::Attaching,
                        delete_on_termination: Some(false),
                    });
                    self.made(token, &seen, now);
                }
            }
            (Action::Attach, Ok(_)) => {
                making.unsure = true;
                making.attach_lost = true;
            }
            (Action::Attach, Err(fault)) => self.attach_failed(token, &fault, now),
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.making_described(token, seen, now);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.making_not_found(token, now);
            }
            (Action::Delete, Ok(_)) => self.unmade(token, now),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.unmade(token, now),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::TryElsewhere | Remedy::TellOperator | Remedy::LimitReached => {
                    making.unsure = true;
                }
            },
            // A look that failed is repeated; no other call is made for an ENI on its way in.
            (_, _) => {}
        }
    }

    fn created(&mut self, token: &str, seen: SeenEni) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let eni = seen.id.clone();
        making.eni = Some(eni.clone());
        making.create_unsure = false;
        // A repeated token answers with an ENI that may be further on than new.
        making.unsure = seen.attachment.is_some();
        let subnet = seen.subnet.clone();
        making.seen = Some(seen);
        let want = making.made.want;
        self.subnet_gave(&subnet, want);
        self.persist(Record::EniMade { token: token.to_owned(), eni });
    }

    fn create_failed(&mut self, token: &str, fault: &CloudFault, now: Time) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let want = making.made.want;
        let subnet = making.made.subnet.clone().unwrap_or_else(|| self.node.subnet.clone());
        match fault.remedy {
            Remedy::Unknown => making.create_unsure = true,
            // An earlier try may have made it: only the same token tells.
            Remedy::RetryAfter { .. } | Remedy::TellOperator | Remedy::Gone
                if making.create_unsure && fault.code != "IdempotentParameterMismatch" => {}
            Remedy::TryElsewhere => {
                self.subnet_refused(&subnet, want, fault, now);
                self.settle_making(token);
            }
            Remedy::Gone => {
                self.subnet_or_group_missing(&subnet, fault, now);
                self.settle_making(token);
            }
            Remedy::RetryAfter { .. } | Remedy::TellOperator | Remedy::LimitReached => {
                self.subnets.not_answered(&subnet, want);
                self.settle_making(token);
            }
        }
    }

    /// The subnet or a security group does not exist: it is not asked for in every round.
    fn subnet_or_group_missing(&mut self, subnet: &SubnetId, fault: &CloudFault, now: Time) {
        self.subnets.refused(subnet, Want::Addresses(1), now);
        if let EniConfig::Found { name, .. } = &self.cluster.eni_config
            && self.config.custom_networking
        {
            let (name, cause) = (name.clone(), fault.to_string());
            let next_step = format!("put an existing subnet and groups into ENIConfig {name}");
            self.report(Severity::Error, Topic::EniConfigInvalid, name, cause, next_step);
        }
    }

    fn attach_failed(&mut self, token: &str, fault: &CloudFault, now: Time) {
        let Some(making) = self.makings.get_mut(token) else { return };
        match fault.remedy {
            Remedy::Unknown => {
                making.unsure = true;
                making.attach_lost = true;
            }
            Remedy::RetryAfter { .. } => {}
            Remedy::TryElsewhere => {
                making.places_tried.extend(making.device.take());
                // The place may be taken by this very ENI, if an earlier reply was lost.
                making.unsure = making.attach_lost;
            }
            Remedy::Gone => self.making_not_found(token, now),
            Remedy::TellOperator | Remedy::LimitReached => {
                making.undo = true;
                making.unsure = making.attach_lost;
                self.watch.want_ec2(now);
            }
        }
    }

    fn making_not_found(&mut self, token: &str, now: Time) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let first = *making.not_found.get_or_insert(now);
        making.rest_until = now + NOT_FOUND_PAUSE;
        if now >= first + SETTLING {
            self.unmade(token, now);
        }
    }

    fn making_described(&mut self, token: &str, seen: SeenEni, now: Time) {
        let Some(making) = self.makings.get_mut(token) else { return };
        making.unsure = false;
        making.not_found = None;
        let attachment = seen.attachment.clone();
        making.seen = Some(seen.clone());
        match attachment {
            None => {}
            Some(found) if found.instance != self.node.instance_id => {
                let cause = format!("we made it, but it is attached to {}", found.instance);
                self.report(Severity::Warning, Topic::CallFailed, &seen.id, cause, "");
                self.settle_making(token);
            }
            Some(found) if found.state == AttachmentState::Detaching => {
                making.unsure = true;
                making.rest_until = now + NOT_FOUND_PAUSE;
            }
            Some(_) => self.made(token, &seen, now),
        }
    }

    /// It is attached, or about to be: its addresses are in the book from now on.
    pub(crate) fn made(&mut self, token: &str, seen: &SeenEni, now: Time) {
        if !self.take_in(seen, true, now, now) {
            // Its subnet's addresses are not known yet; the next look at IMDS tells.
            self.watch.want_imds(now);
            if let Some(making) = self.makings.get_mut(token) {
                making.unsure = true;
                making.rest_until = now + NOT_FOUND_PAUSE;
            }
            return;
        }
        let cause = format!("a new ENI with {}", amount(&seen.blocks));
        self.report(Severity::Info, Topic::PoolGrew, &seen.id, cause, "");
        self.settle_making(token);
    }

    fn unmade(&mut self, token: &str, now: Time) {
        if let Some(eni) = self.makings.get(token).and_then(|making| making.eni.clone()) {
            self.watch.eni_gone(eni, now);
        }
        self.settle_making(token);
    }

    fn settle_making(&mut self, token: &str) {
        self.makings.remove(token);
        self.persist(Record::EniSettled { token: token.to_owned() });
    }
}
