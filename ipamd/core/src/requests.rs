//! The requests of pods: reserve, confirm, release.

use crate::{
    Answer, Cards, Core, Effect, HeldAddress, Notice, Record, Refusal, RefusalReason, ReleaseCause,
    Severity, Ticket, Topic,
    book::{Assignment, single},
    checkpoint::AssignedResource,
    waiting::{MAX_WAITING, Waiter},
};
use config_model::{CardIndex, PodKey, PodName, Span, Time};

/// The card of pods that need one address.
const FIRST: CardIndex = CardIndex(0);

impl Core {
    pub(crate) fn reserve(&mut self, waiter: Waiter, now: Time) {
        let (ticket, pod) = (waiter.ticket, waiter.pod.clone());
        self.ctx.cluster.met(&pod);
        if self.stopping {
            self.refuse(ticket, stopping());
        } else if self.ctx.book.holder(&waiter.key).is_some() {
            self.reserve_again(ticket, &waiter.key, &waiter.pod, now);
        } else if let Some(refusal) = self.veth_in_use(&waiter) {
            self.refuse(ticket, refusal);
        } else if !self.ctx.queue.push(waiter) {
            let message = format!("no address for pod {pod}: too many requests wait for one");
            let next_step = "the kubelet retries".to_owned();
            self.refuse(ticket, Refusal { reason: RefusalReason::TryAgain, message, next_step });
        } else {
            self.serve_branch(&pod, now);
        }
    }

    /// A repeated request gets the same address.
    pub(crate) fn reserve_again(&mut self, ticket: Ticket, key: &PodKey, pod: &PodName, now: Time) {
        let Some(holder) = self.ctx.book.holder(key) else { return };
        if holder.pod != *pod {
            let message = format!("{key} belongs to pod {}, not to {pod}", holder.pod);
            let next_step = "delete the older sandbox of that id first".to_owned();
            self.refuse(ticket, Refusal { reason: RefusalReason::Invalid, message, next_step });
            return;
        }
        let answer = self.reserved(holder);
        if holder.lapses.is_some() {
            let lapses = now + self.ctx.config.reservation_lifetime;
            self.ctx.book.extend(key, lapses);
            self.persist_reservation(key);
        }
        self.ctx.reply(ticket, answer);
    }

    fn reserved(&self, holder: &Assignment) -> Answer {
        match &holder.what {
            AssignedResource::Addresses(held) => {
                Answer::Reserved { addresses: self.ctx.addresses_of(held) }
            }
            AssignedResource::Branch(branch) => Answer::ReservedBranch(branch.clone()),
        }
    }

    fn persist_reservation(&mut self, key: &PodKey) {
        let Some(holder) = self.ctx.book.holder(key) else { return };
        let Some(lapses) = holder.lapses else { return };
        let (key, pod) = (key.clone(), holder.pod.clone());
        let record = match holder.what.clone() {
            AssignedResource::Addresses(addresses) => Record::reserved(key, pod, addresses, lapses),
            AssignedResource::Branch(branch) => {
                Some(Record::ReservedBranch { key, pod, branch, lapses })
            }
        };
        if let Some(record) = record {
            self.ctx.persist(record);
        }
    }

    /// Serves waiting requests in order of arrival, as far as there are addresses.
    pub(crate) fn serve_waiting(&mut self, now: Time) {
        if self.ctx.queue.is_empty() || self.zone.awaits_tags(&mut self.ctx) {
            return;
        }
        while self.serve_one_of_all(now) || self.serve_one(now) {}
    }

    /// Serves the first request for an address of card 0: from an ENI, otherwise from a pod CIDR of the node. Addresses
    /// of ENIs for earlier requests of several cards are reserved.
    fn serve_one(&mut self, now: Time) -> bool {
        let Some(first) = self.ctx.queue.first() else { return false };
        let ticket = first.ticket;
        if self.ctx.book.holder(&first.key).is_some() {
            return self.serve(ticket, Vec::new(), now);
        }
        let behind = self.ctx.queue.first_of_all().is_some_and(|(_, eldest)| eldest);
        let scarce = behind && self.ctx.book.usable_on(FIRST) <= self.ctx.queue.waiting_on_all();
        // No address is reserved for a request that another card cannot complete.
        let reserved = scarce && !self.growth.other_card_is_stuck(FIRST);
        let of_enis = if reserved { None } else { self.ctx.book.pick(FIRST) };
        match of_enis.or_else(|| self.ctx.book.pick_of_node_cidrs()) {
            Some(held) => self.serve(ticket, vec![held], now),
            None => false,
        }
    }

    /// Serves the first request for an address of every card: with all of them or with none.
    fn serve_one_of_all(&mut self, now: Time) -> bool {
        // An earlier request for card 0 alone still waits because there is no address for it.
        let eldest = self.ctx.queue.first_of_all().filter(|(_, eldest)| *eldest);
        let Some((first, _)) = eldest else { return false };
        let ticket = first.ticket;
        if self.ctx.book.holder(&first.key).is_some() {
            return self.serve(ticket, Vec::new(), now);
        }
        let cards = self.ctx.pool_cards();
        let picked = cards.iter().map(|card| self.ctx.book.pick(*card));
        match picked.collect::<Option<Vec<HeldAddress>>>() {
            Some(held) => self.serve(ticket, held, now),
            None => false,
        }
    }

    /// Answers a request with these addresses, or with the existing assignment of the key.
    fn serve(&mut self, ticket: Ticket, held: Vec<HeldAddress>, now: Time) -> bool {
        let Some(waiter) = self.ctx.queue.remove(ticket) else { return false };
        if self.ctx.book.holder(&waiter.key).is_some() {
            self.reserve_again(ticket, &waiter.key, &waiter.pod, now);
        } else if let Some(refusal) = self.veth_in_use(&waiter) {
            self.refuse(ticket, refusal);
        } else if !held.is_empty() {
            self.give(waiter, AssignedResource::Addresses(held), now);
        }
        true
    }

    /// The plugin deletes the link of an earlier sandbox by its name. Another pod of the same name would lose its link.
    pub(crate) fn veth_in_use(&mut self, waiter: &Waiter) -> Option<Refusal> {
        let pod = &waiter.pod;
        let interfaces = match waiter.cards {
            Cards::First => 1,
            Cards::All => self.ctx.pool_cards().len(),
        };
        let (hash, key, holder) = self.ctx.book.veth_holder(pod, interfaces)?;
        let (key, holder) = (key.clone(), holder.pod.clone());
        let cause = format!(
            "the names of two pods have one hash, {hash}, which names their host veth: {pod} waits for \
             {holder} ({key})"
        );
        let next_step = format!("delete pod {holder}, or create {pod} under another name");
        if self.collisions.len() > MAX_WAITING {
            self.collisions.clear();
        }
        let is_new = self.collisions.insert(pod.clone(), holder.clone()).as_ref() != Some(&holder);
        for (of, object) in [(pod, &waiter.key), (&holder, &key)].into_iter().filter(|_| is_new) {
            self.ctx.push(Effect::Report(Notice {
                severity: Severity::Warning,
                topic: Topic::VethNameInUse,
                object: format!("{of} ({object})"),
                pod: Some(of.clone()),
                cause: cause.clone(),
                next_step: next_step.clone(),
            }));
        }
        Some(Refusal { reason: RefusalReason::TryAgain, message: cause, next_step })
    }

    pub(crate) fn give(&mut self, waiter: Waiter, what: AssignedResource, now: Time) {
        let Waiter { ticket, key, pod, .. } = waiter;
        self.collisions.remove(&pod);
        let lapses = Some(now + self.ctx.config.reservation_lifetime);
        let (host_interface, adopted) = (None, false);
        let holder = Assignment { pod, what, since: now, lapses, host_interface, adopted };
        let answer = self.reserved(&holder);
        self.ctx.book.hold(key.clone(), holder);
        self.persist_reservation(&key);
        self.ctx.reply(ticket, answer);
    }

    pub(crate) fn confirm(
        &mut self,
        ticket: Ticket,
        key: &PodKey,
        host_interface: String,
        now: Time,
    ) {
        // A lapsed reservation is invalid, even if no event has removed it yet.
        let stands =
            self.ctx.book.holder(key).is_some_and(|h| h.lapses.is_none_or(|lapses| lapses > now));
        if stands {
            let known = self.ctx.book.holder(key).and_then(|h| h.host_interface.clone());
            if known.as_ref() != Some(&host_interface) {
                self.ctx.book.confirm(key, host_interface.clone());
                let (key, marked) = (key.clone(), true);
                self.ctx.persist(Record::Confirmed { key, host_interface, marked });
                self.ctx.node_changed();
            }
        }
        self.ctx.reply(ticket, Answer::Confirmed { confirmed: stands });
    }

    pub(crate) fn release(&mut self, ticket: Ticket, key: &PodKey, cause: ReleaseCause, now: Time) {
        for waiter in self.ctx.queue.remove_key(key) {
            let why = match cause {
                ReleaseCause::PodDeleted => "its pod was deleted",
                ReleaseCause::SetupFailed => "its set-up failed",
            };
            let message = format!("{key} stopped waiting for an address: {why}");
            let reason = RefusalReason::TryAgain;
            let next_step = "the kubelet sends another ADD if the pod still exists".to_owned();
            self.refuse(waiter.ticket, Refusal { reason, message, next_step });
        }
        let held = self.cool_down(key, now);
        if let Some(holder) = held.as_ref().filter(|_| cause == ReleaseCause::SetupFailed) {
            self.ctx.expect_again(&holder.pod);
        }
        let addresses = held.as_ref().map_or(&[][..], |holder| holder.what.addresses());
        let addresses = self.ctx.addresses_of(addresses);
        self.ctx.reply(ticket, Answer::Released { known: held.is_some(), addresses });
    }

    pub(crate) fn lapse_reservations(&mut self, now: Time) {
        while let Some(key) = self.ctx.book.lapsed(now) {
            let Some(holder) = self.cool_down(&key, now) else { return };
            self.ctx.expect_again(&holder.pod);
            let object = format!("{} ({key})", holder.pod);
            let cause = format!("{} was reserved and never confirmed", named(&holder.what));
            self.ctx.report(Severity::Warning, Topic::ReservationLapsed, object, cause, "");
            self.ctx.push(Effect::Forget { key, pod: holder.pod });
        }
    }

    fn cool_down(&mut self, key: &PodKey, now: Time) -> Option<Assignment> {
        let until = now + self.ctx.config.cooldown;
        let holder = self.ctx.book.release(key, now, until)?;
        match &holder.what {
            AssignedResource::Addresses(addresses) => {
                for held in addresses {
                    let source = held.source.clone();
                    self.ctx.persist(Record::cooling(held.address, source, now, until));
                    self.witnesses.drop_lost_block_of(&mut self.ctx, held.address);
                }
            }
            AssignedResource::Branch(_) => {
                self.ctx.persist(Record::BranchReleased { key: key.clone() })
            }
        }
        self.ctx.node_changed();
        Some(holder)
    }

    pub(crate) fn free_ripe_addresses(&mut self, now: Time) {
        while let Some(address) = self.ctx.book.free_ripe(now) {
            if self.ctx.book.block_of(address).is_none() {
                self.ctx.persist(Record::settled(vec![single(address)]));
            }
        }
    }

    pub(crate) fn report_stuck_in_kernel(&mut self, now: Time) {
        for address in self.ctx.book.stuck_in_kernel(now, KERNEL_PATIENCE) {
            self.ctx.report(
                Severity::Warning,
                Topic::KernelDirty,
                address,
                "no pod holds it, but the kernel has a route or rule of it",
                format!("look at `ip rule` and `ip route show table all` for {address}"),
            );
        }
    }

    /// Refuses the requests whose deadline is over.
    pub(crate) fn dismiss_overdue(&mut self, now: Time) {
        while let Some(waiter) = self.ctx.queue.pop_overdue(now) {
            self.dismiss(waiter);
        }
    }

    /// Refuses the requests that nothing can help before their deadline. The runtime then retries sooner and may have
    /// more luck.
    pub(crate) fn dismiss_hopeless(&mut self, now: Time) {
        if self.ctx.queue.is_empty() {
            return;
        }
        let Some(help) = self.next_help(now) else { return };
        while let Some(waiter) = self.ctx.queue.pop_hopeless(help) {
            self.dismiss(waiter);
        }
        // A release after this time is too late for the first of them.
        let first = self.ctx.queue.next_deadline().filter(|_| help.is_some());
        let too_late = first.map(|deadline| deadline - self.ctx.config.cooldown + Span::millis(1));
        self.ctx.wake_by(too_late.filter(|at| *at > now));
    }

    fn dismiss(&mut self, waiter: Waiter) {
        let refusal = if waiter.branch.is_some() {
            self.no_branch(&waiter.pod)
        } else {
            self.ctx.expect_again(&waiter.pod);
            self.refusal(waiter.cards)
        };
        self.dismiss_with(waiter, refusal);
    }

    /// Refuses the request and reports the refusal.
    pub(crate) fn dismiss_with(&mut self, waiter: Waiter, refusal: Refusal) {
        let notice = Notice {
            severity: Severity::Warning,
            topic: Topic::ReserveRefused,
            object: format!("{} ({})", waiter.pod, waiter.key),
            pod: Some(waiter.pod),
            cause: refusal.message.clone(),
            next_step: refusal.next_step.clone(),
        };
        self.ctx.push(Effect::Report(notice));
        self.refuse(waiter.ticket, refusal);
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.write_order();
        while let Some(waiter) = self.ctx.queue.pop() {
            self.refuse(waiter.ticket, stopping());
        }
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.ctx.reply(ticket, Answer::Refused(refusal));
    }
}

/// Formats an assignment for a message.
fn named(what: &AssignedResource) -> String {
    match what {
        AssignedResource::Addresses(held) => {
            let addresses: Vec<String> = held.iter().map(|held| held.address.to_string()).collect();
            addresses.join(", ")
        }
        AssignedResource::Branch(branch) => format!("branch {}", branch.eni),
    }
}

fn stopping() -> Refusal {
    Refusal {
        reason: RefusalReason::Stopping,
        message: "the daemon is stopping".to_owned(),
        next_step: "the next daemon serves the retry".to_owned(),
    }
}

/// The time after a cooldown for which the kernel may still use the address without a report.
const KERNEL_PATIENCE: Span = Span::seconds(60);
