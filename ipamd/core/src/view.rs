//! What does the core look like from outside?

use crate::{
    CoolingView, Core, Counts, EniView, PodView, Snapshot,
    book::{Eni, Holder, Readiness, net_addresses},
};
use config_model::{PodKey, Time};

impl Core {
    /// Everything, for those who only look. Costs as much as there are addresses.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let mut enis: Vec<EniView> = self.book.enis().map(|eni| eni_view(eni, false)).collect();
        let departing = self.departures.values().filter_map(|departure| departure.eni.as_ref());
        enis.extend(departing.map(|eni| eni_view(eni, true)));
        enis.sort_by_key(|eni| (eni.card, eni.device));
        Snapshot {
            enis,
            pods: self.book.holders().map(|(key, holder)| self.pod_view(key, holder)).collect(),
            cooling: self
                .book
                .cooling()
                .map(|(address, cooling)| CoolingView {
                    address,
                    released: cooling.since,
                    until: cooling.until,
                    kernel_clean: cooling.kernel_clean,
                })
                .collect(),
            counts: self.counts(),
            waiting: self.explain(now),
        }
    }

    /// The pool in numbers, quickly.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            enis: self.places_taken(),
            max_enis: self.max_enis(),
            usable: self.book.usable(),
            reserved: count(self.book.reserved()),
            waiting: count(self.queue.len()),
            calls: count(self.calls.len()),
            ..Counts::default()
        };
        for eni in self.book.enis().filter(|eni| eni.counts()) {
            counts.total += eni.total();
            counts.assigned += eni.held;
            counts.cooling += eni.cooling;
            counts.free += eni.free();
        }
        counts
    }

    /// What the key holds.
    pub fn inspect(&self, key: &PodKey) -> Option<PodView> {
        self.book.holder(key).map(|holder| self.pod_view(key, holder))
    }

    fn pod_view(&self, key: &PodKey, holder: &Holder) -> PodView {
        let address = self.address_of(holder);
        PodView {
            key: key.clone(),
            pod: holder.pod.clone(),
            address: address.address,
            eni: address.eni,
            card: address.card,
            device: address.device,
            table: address.table,
            confirmed: holder.lapses.is_none(),
            host_interface: holder.host_interface.clone(),
            since: holder.since,
        }
    }
}

fn eni_view(eni: &Eni, leaving: bool) -> EniView {
    EniView {
        id: eni.facts.id.clone(),
        attachment: eni.facts.attachment.clone(),
        mac: eni.facts.mac,
        card: eni.facts.card,
        device: eni.facts.device,
        table: eni.facts.table(),
        subnet: eni.facts.subnet.clone(),
        subnet_cidr: eni.facts.subnet_cidr,
        primary_address: eni.facts.primary_address,
        addresses: eni.blocks().flat_map(|(net, _)| net_addresses(net)).collect(),
        ready: eni.readiness == Readiness::Ready,
        managed: eni.facts.managed,
        leaving,
        missing: eni.missing,
        counts: Counts {
            enis: 1,
            total: eni.total(),
            assigned: eni.held,
            cooling: eni.cooling,
            free: eni.free(),
            ..Counts::default()
        },
    }
}

fn count(things: usize) -> u32 {
    u32::try_from(things).unwrap_or(u32::MAX)
}
