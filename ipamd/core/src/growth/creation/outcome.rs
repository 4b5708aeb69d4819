//! The results of the calls for an ENI that is being created.

use super::{Growth, NOT_FOUND_PAUSE};
use crate::{
    Action, AttachmentState, CloudAnswer, CloudFault, Record, Remedy, SeenEni, Severity, Topic,
    book::amount, calls::CloudResult, ctx::Ctx, growth::eni_config_name, schedule::SETTLING,
    witness::Witnesses, zone::ZoneState,
};
use config_model::SubnetId;

impl Growth {
    pub(crate) fn done(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneState,
        token: &str,
        action: Action,
        result: CloudResult,
    ) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        creation.in_call = false;
        match (action, result) {
            (Action::Create, Ok(CloudAnswer::Created(seen))) => self.created(ctx, token, seen),
            (Action::Create, Ok(_)) => creation.create_unsure = true,
            (Action::Create, Err(fault)) => self.create_failed(ctx, token, &fault),
            (Action::Attach, Ok(CloudAnswer::Attached { attachment })) => {
                let (device, card) = (creation.device, creation.card());
                if let Some((mut seen, device)) = creation.seen.clone().zip(device) {
                    seen.attachment = Some(crate::SeenAttachment {
                        id: Some(attachment),
                        instance: ctx.node.instance_id.clone(),
                        card,
                        device,
                        state: AttachmentState::Attaching,
                        delete_on_termination: Some(false),
                    });
                    self.made(ctx, witnesses, zone, token, &seen);
                }
            }
            (Action::Attach, Ok(_)) => {
                creation.unsure = true;
                creation.attach_lost = true;
            }
            (Action::Attach, Err(fault)) => self.attach_failed(ctx, token, &fault),
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.creation_described(ctx, witnesses, zone, token, seen);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.creation_not_found(ctx, token);
            }
            (Action::Delete, Ok(_)) => self.creation_undone(ctx, token),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.creation_undone(ctx, token),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::TryElsewhere | Remedy::NotifyOperator | Remedy::LimitReached => {
                    creation.unsure = true;
                }
            },
            // A description that failed is repeated; no other call is made for such an ENI.
            (_, _) => {}
        }
    }

    fn created(&mut self, ctx: &mut Ctx, token: &str, seen: SeenEni) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        let eni = seen.id.clone();
        creation.eni = Some(eni.clone());
        creation.create_unsure = false;
        // The answer to a repeated token may show an ENI that is attached already.
        creation.unsure = seen.attachment.is_some();
        let subnet = seen.subnet.clone();
        creation.seen = Some(seen);
        let want = creation.made.want;
        ctx.subnet_gave(&subnet, want);
        ctx.persist(Record::EniMade { token: token.to_owned(), eni });
    }

    fn create_failed(&mut self, ctx: &mut Ctx, token: &str, fault: &CloudFault) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        let want = creation.made.want;
        let subnet = creation.made.subnet.clone().unwrap_or_else(|| ctx.node.subnet.clone());
        match fault.remedy {
            Remedy::Unknown => creation.create_unsure = true,
            // An earlier try may have created it; only the same token shows that.
            Remedy::RetryAfter { .. } | Remedy::NotifyOperator | Remedy::Gone
                if creation.create_unsure && fault.code != "IdempotentParameterMismatch" => {}
            Remedy::TryElsewhere => {
                ctx.subnet_refused(&subnet, want, fault);
                self.settle_creation(ctx, token);
            }
            Remedy::Gone => {
                self.subnet_or_group_missing(ctx, &subnet, fault);
                self.settle_creation(ctx, token);
            }
            Remedy::RetryAfter { .. } | Remedy::NotifyOperator | Remedy::LimitReached => {
                ctx.subnets.not_answered(&subnet, want);
                self.settle_creation(ctx, token);
            }
        }
    }

    /// Pauses requests for a subnet that does not exist or lacks a security group.
    fn subnet_or_group_missing(&mut self, ctx: &mut Ctx, subnet: &SubnetId, fault: &CloudFault) {
        ctx.subnets.mark_missing(subnet, fault, ctx.now);
        if let Some(name) = eni_config_name(ctx) {
            let cause = fault.to_string();
            let next_step = format!("put an existing subnet and groups into ENIConfig {name}");
            ctx.report(Severity::Error, Topic::EniConfigInvalid, name, cause, next_step);
        }
    }

    fn attach_failed(&mut self, ctx: &mut Ctx, token: &str, fault: &CloudFault) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        match fault.remedy {
            Remedy::Unknown => {
                creation.unsure = true;
                creation.attach_lost = true;
            }
            Remedy::RetryAfter { .. } => {}
            Remedy::TryElsewhere => {
                let (card, device) = (creation.card(), creation.device.take());
                creation.places_tried.extend(device);
                // This very ENI may occupy the place if an earlier reply was lost.
                creation.unsure = creation.attach_lost;
                if let Some(device) = device.filter(|_| !creation.attach_lost) {
                    self.refused_places.insert((card, device), ctx.now);
                    ctx.schedule.want_ec2(ctx.now);
                }
            }
            Remedy::Gone => self.creation_not_found(ctx, token),
            Remedy::NotifyOperator | Remedy::LimitReached => {
                creation.undo = true;
                creation.unsure = creation.attach_lost;
                ctx.schedule.want_ec2(ctx.now);
            }
        }
    }

    fn creation_not_found(&mut self, ctx: &mut Ctx, token: &str) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        let first = *creation.not_found.get_or_insert(ctx.now);
        creation.rest_until = ctx.now + NOT_FOUND_PAUSE;
        if ctx.now >= first + SETTLING {
            self.creation_undone(ctx, token);
        }
    }

    fn creation_described(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneState,
        token: &str,
        seen: SeenEni,
    ) {
        let Some(creation) = self.creations.get_mut(token) else { return };
        creation.unsure = false;
        creation.not_found = None;
        let attachment = seen.attachment.clone();
        creation.seen = Some(seen.clone());
        match attachment {
            None => {}
            Some(found) if found.instance != ctx.node.instance_id => {
                let cause = format!(
                    "it was created for this node, but it is attached to {}",
                    found.instance
                );
                ctx.report(Severity::Warning, Topic::CallFailed, &seen.id, cause, "");
                self.settle_creation(ctx, token);
            }
            Some(found) if found.state == AttachmentState::Detaching => {
                creation.unsure = true;
                creation.rest_until = ctx.now + NOT_FOUND_PAUSE;
            }
            Some(_) => self.made(ctx, witnesses, zone, token, &seen),
        }
    }

    /// Adds an attached or attaching ENI to the book.
    pub(crate) fn made(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneState,
        token: &str,
        seen: &SeenEni,
    ) {
        if !witnesses.take_in(ctx, zone, seen, true, None) {
            // The CIDR of its subnet is unknown; the next IMDS observation shows it.
            ctx.schedule.want_imds(ctx.now);
            if let Some(creation) = self.creations.get_mut(token) {
                creation.unsure = true;
                creation.rest_until = ctx.now + NOT_FOUND_PAUSE;
            }
            return;
        }
        let cause = format!("a new ENI with {}", amount(&seen.blocks));
        ctx.report(Severity::Info, Topic::PoolGrew, &seen.id, cause, "");
        self.settle_creation(ctx, token);
    }

    fn creation_undone(&mut self, ctx: &mut Ctx, token: &str) {
        if let Some(eni) = self.creations.get(token).and_then(|creation| creation.eni.clone()) {
            ctx.removed.eni_gone(eni, ctx.now);
        }
        self.settle_creation(ctx, token);
    }

    fn settle_creation(&mut self, ctx: &mut Ctx, token: &str) {
        self.creations.remove(token);
        ctx.persist(Record::EniSettled { token: token.to_owned() });
    }
}
