//! How far is an ENI on its way out? Detach → delete; what does not exist has gone already.

use crate::{
    Action, AttachmentState, CloudAnswer, CloudCall, Core, Record, Remedy, SeenEni, Severity,
    Topic,
    book::Eni,
    calls::{About, CloudResult},
};
use config_model::{AttachmentId, CardIndex, DeviceIndex, EniId, Span, Time};

/// How long EC2 usually takes to detach; deleting earlier is refused, and would be one call more.
const DETACH_TIME: Span = Span::seconds(4);

/// An ENI on its way out.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    /// As it was in the book; `None` if an earlier process began.
    pub(crate) eni: Option<Eni>,
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
    pub(crate) fn resumed() -> Self {
        Self { detach_lost: true, ..Self::new(None) }
    }

    /// Whether it may have a place on the card: what nobody knows may be anywhere.
    pub(crate) fn is_on(&self, card: CardIndex) -> bool {
        !self.off && self.eni.as_ref().is_none_or(|eni| eni.facts.card == card)
    }

    /// The place on the card that it still has.
    pub(crate) fn device(&self, card: CardIndex) -> Option<DeviceIndex> {
        let facts = &self.eni.as_ref()?.facts;
        (!self.off && facts.card == card).then_some(facts.device)
    }
}

impl Core {
    /// Takes the ENI out of the book, for good.
    pub(crate) fn depart(&mut self, id: &EniId, now: Time) {
        let Some(eni) = self.book.remove_eni(id) else { return };
        self.persist(Record::EniLeaving { eni: id.clone() });
        self.departures.insert(id.clone(), Departure::new(Some(eni)));
        self.node_changed();
        self.advance_departures(now);
    }

    pub(crate) fn advance_departures(&mut self, now: Time) {
        let ids: Vec<EniId> = self.departures.keys().cloned().collect();
        for id in ids {
            let Some(departure) = self.departures.get(&id) else { continue };
            let (in_call, rest_until) = (departure.in_call, departure.rest_until);
            if in_call || !self.reached(rest_until, now) {
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
            if self.may(call.action(), now) {
                if let Some(departure) = self.departures.get_mut(&id) {
                    departure.in_call = true;
                }
                self.call(About::Departure(id), call, now);
            }
        }
    }

    pub(crate) fn departure_done(
        &mut self,
        id: &EniId,
        action: Action,
        result: CloudResult,
        now: Time,
    ) {
        let Some(departure) = self.departures.get_mut(id) else { return };
        departure.in_call = false;
        match (action, result) {
            (Action::Detach, Ok(_)) => {
                departure.detached = true;
                departure.rest_until = now + DETACH_TIME;
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
                        self.stay_after_all(id, now);
                    }
                }
            },
            (Action::Delete, Ok(_)) => self.departed(id, now),
            (Action::Delete, Err(fault)) => match fault.remedy {
                Remedy::Gone => self.departed(id, now),
                Remedy::RetryAfter { .. } | Remedy::Unknown => {}
                Remedy::TellOperator | Remedy::TryElsewhere | Remedy::LimitReached => {
                    departure.unsure = true;
                }
            },
            (Action::Describe, Ok(CloudAnswer::Described(seen))) => {
                self.departure_described(id, &seen, now);
            }
            (Action::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                self.departed(id, now);
            }
            // A look that failed is repeated; no other call is made for an ENI on its way out.
            (_, _) => {}
        }
    }

    fn departure_described(&mut self, id: &EniId, seen: &SeenEni, now: Time) {
        let Some(departure) = self.departures.get_mut(id) else { return };
        departure.unsure = false;
        match &seen.attachment {
            None => (departure.detached, departure.off) = (true, true),
            Some(found) if found.instance != self.node.instance_id => {
                let cause = format!("it is attached to {} by now", found.instance);
                self.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.forget_departure(id, now);
            }
            // An earlier process had looked at the kernel. What was there since, nobody knows.
            Some(_) if departure.eni.is_none() && !self.book.kernel_was_seen() => {
                departure.unsure = true;
                departure.rest_until = now + DETACH_TIME;
            }
            Some(found)
                if departure.eni.is_none()
                    && found.state != AttachmentState::Detaching
                    && self.book.uses_any_of(&seen.blocks) =>
            {
                let cause = "it was to be freed, but its addresses are in use: it stays";
                self.report(Severity::Warning, Topic::PoolShrank, id, cause, "");
                self.stay_after_all(id, now);
                self.watch.want_ec2_at(now);
            }
            Some(found) => {
                departure.attachment = found.id.clone();
                departure.detached = found.state == AttachmentState::Detaching;
                departure.rest_until = now + DETACH_TIME;
            }
        }
    }

    /// EC2 refuses to let it go: its addresses serve on.
    fn stay_after_all(&mut self, id: &EniId, now: Time) {
        let Some(departure) = self.departures.remove(id) else { return };
        if let Some(eni) = departure.eni {
            self.book.put_back(eni, now);
        }
        self.persist_left(id);
        self.node_changed();
    }

    fn departed(&mut self, id: &EniId, now: Time) {
        self.report(Severity::Info, Topic::PoolShrank, id, "detached and deleted", "");
        self.forget_departure(id, now);
    }

    fn forget_departure(&mut self, id: &EniId, now: Time) {
        self.departures.remove(id);
        self.watch.eni_gone(id.clone(), now);
        self.persist_left(id);
        self.node_changed();
    }

    /// The record ends all that the checkpoint says of the ENI. Addresses that rest still do: the ENI
    /// stayed, or another has them by now.
    fn persist_left(&mut self, id: &EniId) {
        self.persist(Record::EniLeft { eni: id.clone() });
        let of_it = self.book.cooling().filter(|(_, cooling)| cooling.eni == *id);
        let resting: Vec<Record> = of_it
            .map(|(at, cooling)| Record::cooling(at, id.clone(), cooling.since, cooling.until))
            .collect();
        for record in resting {
            self.persist(record);
        }
    }
}
