//! What came of a call for an ENI on its way in? A step that failed is undone or looked up.

use super::{Growth, NOT_FOUND_PAUSE};
use crate::{
    Action, AttachmentState, CloudAnswer, CloudFault, Record, Remedy, SeenEni, Severity, Topic,
    book::amount, calls::CloudResult, ctx::Ctx, growth::eni_config_name, schedule::SETTLING,
    witness::Witnesses, zone::ZoneWatch,
};
use config_model::SubnetId;

impl Growth {
    pub(crate) fn done(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneWatch,
        token: &str,
        action: Action,
        result: CloudResult,
    ) {
        let Some(making) = self.makings.get_mut(token) else { return };
        making.in_call = false;
        match (action, result) {
            (Action::Create, Ok(CloudAnswer::Created(seen))) => self.created(ctx, token, seen),
            (Action::Create, Ok(_)) => making.create_unsure = true,
            (Action::Create, Err(fault)) => self.create_failed(ctx, token, &fault),
            (Action::Attach, Ok(CloudAnswer::Attached { attachment })) => {
                let (device, card) = (making.device, making.card());
                if let Some((mut seen, device)) = making.seen.clone().zip(device) {
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
                making.unsure = true;
                making.attach_lost = true;
            }
            (Action::Attach, Err(fault)) => self.attach_failed(ctx, token, &fault),
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.making_described(ctx, witnesses, zone, token, seen);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.making_not_found(ctx, token);
            }
            (Action::Delete, Ok(_)) => self.unmade(ctx, token),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.unmade(ctx, token),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::TryElsewhere | Remedy::TellOperator | Remedy::LimitReached => {
                    making.unsure = true;
                }
            },
            // A look that failed is repeated; no other call is made for an ENI on its way in.
            (_, _) => {}
        }
    }

    fn created(&mut self, ctx: &mut Ctx, token: &str, seen: SeenEni) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let eni = seen.id.clone();
        making.eni = Some(eni.clone());
        making.create_unsure = false;
        // A repeated token answers with an ENI that may be further on than new.
        making.unsure = seen.attachment.is_some();
        let subnet = seen.subnet.clone();
        making.seen = Some(seen);
        let want = making.made.want;
        ctx.subnet_gave(&subnet, want);
        ctx.persist(Record::EniMade { token: token.to_owned(), eni });
    }

    fn create_failed(&mut self, ctx: &mut Ctx, token: &str, fault: &CloudFault) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let want = making.made.want;
        let subnet = making.made.subnet.clone().unwrap_or_else(|| ctx.node.subnet.clone());
        match fault.remedy {
            Remedy::Unknown => making.create_unsure = true,
            // An earlier try may have made it: only the same token tells.
            Remedy::RetryAfter { .. } | Remedy::TellOperator | Remedy::Gone
                if making.create_unsure && fault.code != "IdempotentParameterMismatch" => {}
            Remedy::TryElsewhere => {
                ctx.subnet_refused(&subnet, want, fault);
                self.settle_making(ctx, token);
            }
            Remedy::Gone => {
                self.subnet_or_group_missing(ctx, &subnet, fault);
                self.settle_making(ctx, token);
            }
            Remedy::RetryAfter { .. } | Remedy::TellOperator | Remedy::LimitReached => {
                ctx.subnets.not_answered(&subnet, want);
                self.settle_making(ctx, token);
            }
        }
    }

    /// The subnet or a security group does not exist: it is not asked for in every round.
    fn subnet_or_group_missing(&mut self, ctx: &mut Ctx, subnet: &SubnetId, fault: &CloudFault) {
        ctx.subnets.told_missing(subnet, fault, ctx.now);
        if let Some(name) = eni_config_name(ctx) {
            let cause = fault.to_string();
            let next_step = format!("put an existing subnet and groups into ENIConfig {name}");
            ctx.report(Severity::Error, Topic::EniConfigInvalid, name, cause, next_step);
        }
    }

    fn attach_failed(&mut self, ctx: &mut Ctx, token: &str, fault: &CloudFault) {
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
            Remedy::Gone => self.making_not_found(ctx, token),
            Remedy::TellOperator | Remedy::LimitReached => {
                making.undo = true;
                making.unsure = making.attach_lost;
                ctx.schedule.want_ec2(ctx.now);
            }
        }
    }

    fn making_not_found(&mut self, ctx: &mut Ctx, token: &str) {
        let Some(making) = self.makings.get_mut(token) else { return };
        let first = *making.not_found.get_or_insert(ctx.now);
        making.rest_until = ctx.now + NOT_FOUND_PAUSE;
        if ctx.now >= first + SETTLING {
            self.unmade(ctx, token);
        }
    }

    fn making_described(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneWatch,
        token: &str,
        seen: SeenEni,
    ) {
        let Some(making) = self.makings.get_mut(token) else { return };
        making.unsure = false;
        making.not_found = None;
        let attachment = seen.attachment.clone();
        making.seen = Some(seen.clone());
        match attachment {
            None => {}
            Some(found) if found.instance != ctx.node.instance_id => {
                let cause = format!("we made it, but it is attached to {}", found.instance);
                ctx.report(Severity::Warning, Topic::CallFailed, &seen.id, cause, "");
                self.settle_making(ctx, token);
            }
            Some(found) if found.state == AttachmentState::Detaching => {
                making.unsure = true;
                making.rest_until = ctx.now + NOT_FOUND_PAUSE;
            }
            Some(_) => self.made(ctx, witnesses, zone, token, &seen),
        }
    }

    /// It is attached, or about to be: its addresses are in the book from now on.
    pub(crate) fn made(
        &mut self,
        ctx: &mut Ctx,
        witnesses: &mut Witnesses,
        zone: &ZoneWatch,
        token: &str,
        seen: &SeenEni,
    ) {
        if !witnesses.take_in(ctx, zone, seen, true, None) {
            // Its subnet's addresses are not known yet; the next look at IMDS tells.
            ctx.schedule.want_imds(ctx.now);
            if let Some(making) = self.makings.get_mut(token) {
                making.unsure = true;
                making.rest_until = ctx.now + NOT_FOUND_PAUSE;
            }
            return;
        }
        let cause = format!("a new ENI with {}", amount(&seen.blocks));
        ctx.report(Severity::Info, Topic::PoolGrew, &seen.id, cause, "");
        self.settle_making(ctx, token);
    }

    fn unmade(&mut self, ctx: &mut Ctx, token: &str) {
        if let Some(eni) = self.makings.get(token).and_then(|making| making.eni.clone()) {
            ctx.gone.eni_gone(eni, ctx.now);
        }
        self.settle_making(ctx, token);
    }

    fn settle_making(&mut self, ctx: &mut Ctx, token: &str) {
        self.makings.remove(token);
        ctx.persist(Record::EniSettled { token: token.to_owned() });
    }
}
