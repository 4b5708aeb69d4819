//! How far is an ENI on its way out? Detach → delete; what does not exist has gone already.

use super::Shrink;
use crate::{
    Action, AttachmentState, CloudAnswer, CloudCall, Record, Remedy, SeenEni, Severity, Topic,
    book::Eni,
    calls::{About, CloudResult},
    ctx::Ctx,
    places::OccupiedPlace,
};
use config_model::{AttachmentId, EniId, Span, Time};

/// How long EC2 usually takes to detach; deleting earlier is refused, and would be one call more.
const DETACH_TIME: Span = Span::seconds(4);

/// An ENI on its way out.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    /// As it was in the book; `None` if an earlier process began.
    pub(super) eni: Option<Eni>,
    attachment: Option<AttachmentId>,
    /// EC2 has accepted the detach.
    detached: bool,
    /// EC2 was seen to show it attached to nothing.
    off: bool,
    /// A reply was lost, or nothing is known: look first.
    unsure: bool,
    /// Some reply to Detach was lost: there is no way back.
    detach_lost: bool,
    rest_until: Time,
    in_call: bool,
}

impl Departure {
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

    /// One that an earlier process began.
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
    /// Takes the ENI out of the book, for good.
    pub(crate) fn depart(&mut self, ctx: &mut Ctx, id: &EniId) {
        let Some(eni) = ctx.book.remove_eni(id) else { return };
        ctx.persist(Record::EniLeaving { eni: id.clone() });
        self.departures.insert(id.clone(), Departure::new(Some(eni)));
        ctx.node_changed();
        self.advance(ctx);
    }

    pub(crate) fn advance(&mut self, ctx: &mut Ctx) {
        let ids: Vec<EniId> = self.departures.keys().cloned().collect();
        for id in ids {
            let Some(departure) = self.departures.get(&id) else { continue };
            let (in_call, rest_until) = (departure.in_call, departure.rest_until);
            if in_call || !ctx.reached(rest_until) {
                continue;
            }
            let Some(departure) = self.departures.get(&id) else { continue };
            let eni = id.clone();
            let call = match (&departure.attachment, departure.detached) {
                _ if departure.unsure => CloudCall::DescribeEni { eni },
                (_, true) => CloudCall::DeleteEni { eni },
                (Some(attachment), false) => {
                    CloudCall::DetachEni { eni, attachment: attachment.clone() }
                }
                (None, false) => CloudCall::DescribeEni { eni },
            };
            if ctx.may(call.action()) {
                if let Some(departure) = self.departures.get_mut(&id) {
                    departure.in_call = true;
                }
                ctx.call(About::Departure(id), call);
            }
        }
    }

    pub(crate) fn done(&mut self, ctx: &mut Ctx, id: &EniId, action: Action, result: CloudResult) {
        let Some(departure) = self.departures.get_mut(id) else { return };
        departure.in_call = false;
        match (action, result) {
            (Action::Detach, Ok(_)) => {
                departure.detached = true;
                departure.rest_until = ctx.now + DETACH_TIME;
            }
            (Action::Detach, Err(fault)) => match fault.remedy {
                Remedy::Gone => departure.detached = true,
                Remedy::RetryAfter { .. } => {}
                Remedy::Unknown => {
                    departure.unsure = true;
                    departure.detach_lost = true;
                }
                Remedy::TellOperator | Remedy::TryElsewhere | Remedy::LimitReached => {
                    if departure.detach_lost {
                        departure.unsure = true;
                    } else {
                        self.stay_after_all(ctx, id);
                    }
                }
            },
            (Action::Delete, Ok(_)) => self.departed(ctx, id),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.departed(ctx, id),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::TellOperator | Remedy::TryElsewhere | Remedy::LimitReached => {
                    departure.unsure = true;
                }
            },
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.departure_described(ctx, id, &seen);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.departed(ctx, id);
            }
            // A look that failed is repeated; no other call is made for an ENI on its way out.
            (_, _) => {}
        }
    }

    fn departure_described(&mut self, ctx: &mut Ctx, id: &EniId, seen: &SeenEni) {
        let Some(departure) = self.departures.get_mut(id) else { return };
        departure.unsure = false;
        match &seen.attachment {
            None => (departure.detached, departure.off) = (true, true),
            Some(found) if found.instance != ctx.node.instance_id => {
                let cause = format!("it is attached to {} by now", found.instance);
                ctx.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.forget_departure(ctx, id);
            }
            // An earlier process had looked at the kernel. What was there since, nobody knows.
            Some(_) if departure.eni.is_none() && !ctx.book.kernel_was_seen() => {
                departure.unsure = true;
                departure.rest_until = ctx.now + DETACH_TIME;
            }
            Some(found)
                if departure.eni.is_none()
                    && found.state != AttachmentState::Detaching
                    && ctx.book.uses_any_of(&seen.blocks) =>
            {
                let cause = "it was to be freed, but its addresses are in use: it stays";
                ctx.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.stay_after_all(ctx, id);
                ctx.schedule.want_ec2_at(ctx.now);
            }
            Some(found) => {
                departure.attachment = found.id.clone();
                departure.detached = found.state == AttachmentState::Detaching;
                departure.rest_until = ctx.now + DETACH_TIME;
            }
        }
    }

    /// EC2 refuses to let it go: its addresses serve on.
    fn stay_after_all(&mut self, ctx: &mut Ctx, id: &EniId) {
        let Some(departure) = self.departures.remove(id) else { return };
        if let Some(eni) = departure.eni {
            ctx.book.put_back(eni, ctx.now);
        }
        persist_left(ctx, id);
        ctx.node_changed();
    }

    fn departed(&mut self, ctx: &mut Ctx, id: &EniId) {
        ctx.report(Severity::Info, Topic::PoolShrank, id, "detached and deleted", "");
        self.forget_departure(ctx, id);
    }

    fn forget_departure(&mut self, ctx: &mut Ctx, id: &EniId) {
        self.departures.remove(id);
        ctx.gone.eni_gone(id.clone(), ctx.now);
        persist_left(ctx, id);
        ctx.node_changed();
    }
}

/// The record ends all that the checkpoint says of the ENI. Addresses that rest still do: the ENI
/// stayed, or another has them by now.
fn persist_left(ctx: &mut Ctx, id: &EniId) {
    ctx.persist(Record::EniLeft { eni: id.clone() });
    let of_it = ctx.book.cooling().filter(|(_, cooling)| cooling.eni == *id);
    let resting: Vec<Record> = of_it
        .map(|(at, cooling)| Record::cooling(at, id.clone(), cooling.since, cooling.until))
        .collect();
    for record in resting {
        ctx.persist(record);
    }
}
