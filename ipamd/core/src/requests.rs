//! Who asks for an address, keeps it, gives it back?

use crate::{
    Answer, Core, Record, Refusal, RefusalReason, ReleaseCause, Severity, Ticket, Topic,
    book::{Holder, single},
    checkpoint::Holding,
    waiting::Waiter,
};
use config_model::{PodKey, PodName, Time};

impl Core {
    pub(crate) fn reserve(&mut self, waiter: Waiter, now: Time) {
        let ticket = waiter.ticket;
        if self.stopping {
            self.refuse(ticket, stopping());
        } else if self.book.holder(&waiter.key).is_some() {
            self.reserve_again(ticket, &waiter.key, &waiter.pod, now);
        } else if !self.queue.push(waiter) {
            let message = "too many requests wait for an address".to_owned();
            let next_step = "the kubelet tries again by itself".to_owned();
            self.refuse(ticket, Refusal { reason: RefusalReason::TryAgain, message, next_step });
        }
    }

    /// The same key gets the same address.
    fn reserve_again(&mut self, ticket: Ticket, key: &PodKey, pod: &PodName, now: Time) {
        let Some(holder) = self.book.holder(key) else { return };
        if holder.pod != *pod {
            let message = format!("{key} belongs to pod {}, not to {pod}", holder.pod);
            let next_step = "delete the older sandbox of that id first".to_owned();
            self.refuse(ticket, Refusal { reason: RefusalReason::Invalid, message, next_step });
            return;
        }
        let answer = self.reserved(holder);
        if holder.lapses.is_some() {
            let lapses = now + self.config.reservation_lifetime;
            self.book.extend(key, lapses);
            self.persist_reservation(key);
        }
        self.reply(ticket, answer);
    }

    fn reserved(&self, holder: &Holder) -> Answer {
        match &holder.what {
            Holding::Addresses(held) => Answer::Reserved { addresses: self.addresses_of(held) },
            Holding::Branch(branch) => Answer::ReservedBranch(branch.clone()),
        }
    }

    fn persist_reservation(&mut self, key: &PodKey) {
        let Some(holder) = self.book.holder(key) else { return };
        let Some(lapses) = holder.lapses else { return };
        let (key, pod) = (key.clone(), holder.pod.clone());
        let record = match holder.what.clone() {
            Holding::Addresses(addresses) => Record::reserved(key, pod, addresses, lapses),
            Holding::Branch(branch) => Some(Record::ReservedBranch { key, pod, branch, lapses }),
        };
        if let Some(record) = record {
            self.persist(record);
        }
    }

    /// Serves those who wait, in the order they came, as far as addresses reach.
    pub(crate) fn serve_waiting(&mut self, now: Time) {
        while let Some(first) = self.queue.first() {
            if self.book.holder(&first.key).is_some() {
                if let Some(Waiter { ticket, key, pod, .. }) = self.queue.pop() {
                    self.reserve_again(ticket, &key, &pod, now);
                }
                continue;
            }
            let Some(address) = self.book.pick(self.card()) else { return };
            let Some(Waiter { ticket, key, pod, .. }) = self.queue.pop() else { return };
            let holder = Holder {
                pod,
                what: Holding::Addresses(vec![address]),
                since: now,
                lapses: Some(now + self.config.reservation_lifetime),
                host_interface: None,
            };
            let answer = self.reserved(&holder);
            self.book.hold(key.clone(), holder);
            self.persist_reservation(&key);
            self.reply(ticket, answer);
        }
    }

    pub(crate) fn confirm(
        &mut self,
        ticket: Ticket,
        key: &PodKey,
        host_interface: String,
        now: Time,
    ) {
        // A reservation whose time is over is gone, also if nobody looked at the clock since.
        let stands =
            self.book.holder(key).is_some_and(|h| h.lapses.is_none_or(|lapses| lapses > now));
        if stands {
            let known = self.book.holder(key).and_then(|h| h.host_interface.clone());
            if known.as_ref() != Some(&host_interface) {
                self.book.confirm(key, host_interface.clone());
                self.persist(Record::Confirmed { key: key.clone(), host_interface });
                self.node_changed();
            }
        }
        self.reply(ticket, Answer::Confirmed { confirmed: stands });
    }

    pub(crate) fn release(&mut self, ticket: Ticket, key: &PodKey, cause: ReleaseCause, now: Time) {
        for waiter in self.queue.remove_key(key) {
            let why = match cause {
                ReleaseCause::PodDeleted => "its pod was deleted",
                ReleaseCause::SetupFailed => "its set-up was given up",
            };
            let message = format!("{key} stopped waiting for an address: {why}");
            let reason = RefusalReason::TryAgain;
            self.refuse(waiter.ticket, Refusal { reason, message, next_step: String::new() });
        }
        let held = self.cool_down(key, now);
        let addresses = held.as_ref().map_or(&[][..], |holder| holder.what.addresses());
        let addresses = self.addresses_of(addresses);
        self.reply(ticket, Answer::Released { known: held.is_some(), addresses });
    }

    pub(crate) fn lapse_reservations(&mut self, now: Time) {
        while let Some(key) = self.book.lapsed(now) {
            let Some(holder) = self.cool_down(&key, now) else { return };
            let object = format!("{} ({key})", holder.pod);
            let cause = format!("{} was reserved and never confirmed", named(&holder.what));
            self.report(Severity::Warning, Topic::ReservationLapsed, object, cause, "");
        }
    }

    fn cool_down(&mut self, key: &PodKey, now: Time) -> Option<Holder> {
        let until = now + self.config.cooldown;
        let holder = self.book.release(key, now, until)?;
        match &holder.what {
            Holding::Addresses(addresses) => {
                for held in addresses {
                    let eni = held.eni.clone();
                    self.persist(Record::cooling(held.address, eni, now, until));
                }
            }
            Holding::Branch(_) => self.persist(Record::BranchReleased { key: key.clone() }),
        }
        self.node_changed();
        Some(holder)
    }

    pub(crate) fn free_what_has_cooled(&mut self, now: Time) {
        while let Some(address) = self.book.free_ripe(now) {
            if self.book.place_of(address).is_none() {
                self.persist(Record::settled(vec![single(address)]));
            }
        }
    }

    pub(crate) fn report_stuck_in_kernel(&mut self, now: Time) {
        for address in self.book.stuck_in_kernel(now, KERNEL_PATIENCE) {
            self.report(
                Severity::Warning,
                Topic::KernelDirty,
                address,
                "no pod holds it, but the kernel keeps a route or rule of it",
                format!("look at `ip rule` and `ip route show table all` for {address}"),
            );
        }
    }

    /// Answers those whose time is over.
    pub(crate) fn dismiss_overdue(&mut self, now: Time) {
        while let Some(waiter) = self.queue.pop_overdue(now) {
            let refusal = self.refusal(now);
            self.report(
                Severity::Warning,
                Topic::ReserveRefused,
                format!("{} ({})", waiter.pod, waiter.key),
                refusal.message.clone(),
                refusal.next_step.clone(),
            );
            self.refuse(waiter.ticket, refusal);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        while let Some(waiter) = self.queue.pop() {
            self.refuse(waiter.ticket, stopping());
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.reply(ticket, Answer::Refused(refusal));
    }
}

/// What a key holds, for people.
fn named(what: &Holding) -> String {
    match what {
        Holding::Addresses(held) => {
            let addresses: Vec<String> = held.iter().map(|held| held.address.to_string()).collect();
            addresses.join(", ")
        }
        Holding::Branch(branch) => format!("branch {}", branch.eni),
    }
}

fn stopping() -> Refusal {
    Refusal {
        reason: RefusalReason::Stopping,
        message: "the daemon is going away".to_owned(),
        next_step: "its successor serves the next try".to_owned(),
    }
}

/// How long the kernel may keep an address whose cooldown is over before it is reported.
const KERNEL_PATIENCE: config_model::Span = config_model::Span::seconds(60);
