//! What came of a call for an ENI on its way in? A step that failed is undone or looked up.

use super::NOT_FOUND_PAUSE;
use crate::{
    Action, AttachmentState, CloudAnswer, CloudFault, Core, Record, Remedy, SeenEni, Severity,
    Topic, book::amount, calls::CloudResult, witness::SETTLING,
};
use config_model::{SubnetId, Time};

impl Core {
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
        self.subnets.told_missing(subnet, fault, now);
        if let Some(name) = self.eni_config_name() {
            let cause = fault.to_string();
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
        if !self.take_in(seen, true, None, now) {
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
