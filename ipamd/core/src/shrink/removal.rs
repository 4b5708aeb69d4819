//! The removal of an ENI: detach, then delete. An ENI that does not exist is removed already.

use super::Shrink;
use crate::{
    Action, AttachmentState, CloudAnswer, CloudCall, Record, Remedy, SeenEni, Severity, Topic,
    book::Eni,
    calls::{CallSubject, CloudResult},
    ctx::Ctx,
    places::OccupiedPlace,
};
use config_model::{AttachmentId, EniId, Span, Time};

/// The usual time of a detach. EC2 refuses an earlier deletion, which would waste a call.
const DETACH_TIME: Span = Span::seconds(4);

/// An ENI that is being removed.
#[derive(Clone, Debug)]
pub(super) struct EniRemoval {
    /// The ENI as in the book; `None` if an earlier process started the removal.
    pub(super) eni: Option<Eni>,
    attachment: Option<AttachmentId>,
    /// EC2 has accepted the detach.
    detached: bool,
    /// An EC2 answer showed it attached to nothing.
    off: bool,
    /// A reply was lost, or the attachment is unknown. EC2 must describe the ENI first.
    unsure: bool,
    /// A reply to Detach was lost, so the ENI cannot be kept.
    detach_lost: bool,
    rest_until: Time,
    in_call: bool,
}

impl EniRemoval {
    fn new(eni: Option<Eni>) -> Self {
        let attachment = eni.as_ref().and_then(|eni| eni.facts.attachment.clone());
        Self {
            unsure: attachment.is_none(),
            attachment,
            eni,
            detached: false,
            off: false,
            detach_lost: false,
            rest_until: Time(0),
            in_call: false,
        }
    }

    /// A removal that an earlier process started.
    pub(super) fn resumed() -> Self {
        Self { detach_lost: true, ..Self::new(None) }
    }

    /// The place that it still occupies.
    pub(super) fn place(&self) -> Option<OccupiedPlace> {
        let facts = self.eni.as_ref().map(|eni| &eni.facts);
        let place = OccupiedPlace {
            card: facts.map(|facts| facts.card),
            device: facts.map(|facts| facts.device),
        };
        (!self.off).then_some(place)
    }
}

impl Shrink {
    /// Removes the ENI from the book and frees it.
    pub(crate) fn free_eni(&mut self, ctx: &mut Ctx, id: &EniId) {
        let Some(eni) = ctx.book.remove_eni(id) else { return };
        ctx.persist(Record::EniLeaving { eni: id.clone() });
        self.removals.insert(id.clone(), EniRemoval::new(Some(eni)));
        ctx.node_changed();
        self.advance(ctx);
    }

    pub(crate) fn advance(&mut self, ctx: &mut Ctx) {
        let ids: Vec<EniId> = self.removals.keys().cloned().collect();
        for id in ids {
            let Some(removal) = self.removals.get(&id) else { continue };
            let (in_call, rest_until) = (removal.in_call, removal.rest_until);
            if in_call || !ctx.reached(rest_until) {
                continue;
            }
            let Some(removal) = self.removals.get(&id) else { continue };
            let eni = id.clone();
            let call = match (&removal.attachment, removal.detached) {
                _ if removal.unsure => CloudCall::DescribeEni { eni },
                (_, true) => CloudCall::DeleteEni { eni },
                (Some(attachment), false) => {
                    CloudCall::DetachEni { eni, attachment: attachment.clone() }
                }
                (None, false) => CloudCall::DescribeEni { eni },
            };
            if ctx.may(call.action()) {
                if let Some(removal) = self.removals.get_mut(&id) {
                    removal.in_call = true;
                }
                ctx.call(CallSubject::Removal(id), call);
            }
        }
    }

    pub(crate) fn done(&mut self, ctx: &mut Ctx, id: &EniId, action: Action, result: CloudResult) {
        let Some(removal) = self.removals.get_mut(id) else { return };
        removal.in_call = false;
        match (action, result) {
            (Action::Detach, Ok(_)) => {
                removal.detached = true;
                removal.rest_until = ctx.now + DETACH_TIME;
            }
            (Action::Detach, Err(fault)) => match fault.remedy {
                Remedy::Gone => removal.detached = true,
                Remedy::RetryAfter { .. } => {}
                Remedy::Unknown => {
                    removal.unsure = true;
                    removal.detach_lost = true;
                }
                Remedy::NotifyOperator | Remedy::TryElsewhere | Remedy::LimitReached => {
                    if removal.detach_lost {
                        removal.unsure = true;
                    } else {
                        self.keep_eni(ctx, id);
                    }
                }
            },
            (Action::Delete, Ok(_)) => self.removed(ctx, id),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.removed(ctx, id),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::NotifyOperator | Remedy::TryElsewhere | Remedy::LimitReached => {
                    removal.unsure = true;
                }
            },
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.removal_described(ctx, id, &seen);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.removed(ctx, id);
            }
            // A description that failed is repeated; no other call is made for such an ENI.
            (_, _) => {}
        }
    }

    fn removal_described(&mut self, ctx: &mut Ctx, id: &EniId, seen: &SeenEni) {
        let Some(removal) = self.removals.get_mut(id) else { return };
        removal.unsure = false;
        match &seen.attachment {
            None => (removal.detached, removal.off) = (true, true),
            Some(found) if found.instance != ctx.node.instance_id => {
                let cause = format!("it is attached to {} by now", found.instance);
                ctx.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.forget_removal(ctx, id);
            }
            // An earlier process had checked the kernel. New pods may use the addresses since then.
            Some(_) if removal.eni.is_none() && !ctx.book.kernel_was_seen() => {
                removal.unsure = true;
                removal.rest_until = ctx.now + DETACH_TIME;
            }
            Some(found)
                if removal.eni.is_none()
                    && found.state != AttachmentState::Detaching
                    && ctx.book.uses_any_of(&seen.blocks) =>
            {
                let cause = "it was to be freed, but its addresses are in use: it stays";
                ctx.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.keep_eni(ctx, id);
                ctx.schedule.want_ec2_at(ctx.now);
            }
            Some(found) => {
                removal.attachment = found.id.clone();
                removal.detached = found.state == AttachmentState::Detaching;
                removal.rest_until = ctx.now + DETACH_TIME;
            }
        }
    }

    /// Puts the ENI back because EC2 refuses the removal.
    fn keep_eni(&mut self, ctx: &mut Ctx, id: &EniId) {
        let Some(removal) = self.removals.remove(id) else { return };
        if let Some(eni) = removal.eni {
            ctx.book.put_back(eni, ctx.now);
        }
        persist_removed(ctx, id);
        ctx.node_changed();
    }

    fn removed(&mut self, ctx: &mut Ctx, id: &EniId) {
        ctx.report(Severity::Info, Topic::PoolShrank, id, "detached and deleted", "");
        self.forget_removal(ctx, id);
    }

    fn forget_removal(&mut self, ctx: &mut Ctx, id: &EniId) {
        self.removals.remove(id);
        ctx.removed.eni_gone(id.clone(), ctx.now);
        persist_removed(ctx, id);
        ctx.node_changed();
    }
}

/// Ends the removal in the checkpoint. `EniLeft` also drops cooling addresses of the ENI, so those that still cool are
/// written again.
fn persist_removed(ctx: &mut Ctx, id: &EniId) {
    ctx.persist(Record::EniLeft { eni: id.clone() });
    let of_it = ctx.book.cooling().filter(|(_, cooling)| cooling.source.is_eni(id));
    let resting: Vec<Record> = of_it
        .map(|(at, cooling)| {
            Record::cooling(at, cooling.source.clone(), cooling.since, cooling.until)
        })
        .collect();
    for record in resting {
        ctx.persist(record);
    }
}
