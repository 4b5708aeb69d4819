//! The snapshot of the core.

use crate::{
    CoolingView, Core, Counts, EniView, NodeCidrView, PodView, SeenSubnet, Snapshot, SubnetView,
    WaiterView,
    book::{Assignment, Block, Eni, Readiness},
    checkpoint::AssignedResource,
    placement::{self, ZoneSubnets},
    waiting::Waiter,
};
use config_model::{CardIndex, PodKey, SubnetId, Time};
use ipnet::IpNet;

/// The most waiting requests in a snapshot; the count covers the others.
const WAITERS_TOLD: usize = 32;
/// The card of which every pod gets an address.
const FIRST: CardIndex = CardIndex(0);

impl Core {
    /// Takes a snapshot of everything, in time linear in the number of addresses.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let mut enis: Vec<EniView> = self.ctx.book.enis().map(|eni| eni_view(eni, false)).collect();
        enis.extend(self.shrink.leaving().map(|eni| eni_view(eni, true)));
        enis.sort_by_key(|eni| (eni.card, eni.device));
        Snapshot {
            enis,
            pods: self.ctx.book.holders().map(|(key, holder)| self.pod_view(key, holder)).collect(),
            cooling: self
                .ctx
                .book
                .cooling()
                .map(|(address, cooling)| CoolingView {
                    address,
                    released: cooling.since,
                    until: cooling.until,
                    kernel_clean: cooling.kernel_clean,
                })
                .collect(),
            node_cidrs: self.ctx.book.node_cidrs().iter().map(node_cidr_view).collect(),
            counts: self.counts(),
            short: self.short(now),
            full: self.is_full(FIRST, now),
            waiting: self.explain(now),
            trunk_missing: self.trunk.reason(&self.ctx, |_| self.has_place_for_trunk()),
            waiters: self.ctx.queue.eldest(WAITERS_TOLD).map(waiter_view).collect(),
            budgets: self.ctx.budgets.views(now),
            subnets: self.subnet_views(),
        }
    }

    /// The counts of the pool, without a full snapshot.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            enis: self.ctx.targets.cards().iter().map(|card| self.places_taken(*card)).sum(),
            max_enis: self.ctx.targets.cards().iter().map(|card| self.ctx.max_enis(*card)).sum(),
            usable: self.ctx.book.usable(),
            reserved: count(self.ctx.book.reserved()),
            waiting: count(self.ctx.queue.len()),
            coming: self.ctx.cluster.expected(),
            calls: count(self.ctx.calls.len()),
            ..Counts::default()
        };
        for eni in self.ctx.book.enis().filter(|eni| eni.facts.managed && !eni.missing) {
            let of_eni = eni_counts(eni);
            counts.total += of_eni.total;
            counts.assigned += of_eni.assigned;
            counts.cooling += of_eni.cooling;
            counts.free += of_eni.free;
        }
        let of_node = self.ctx.book.node_cidrs();
        counts.total += of_node.total();
        counts.assigned += of_node.held();
        counts.cooling += of_node.cooling();
        counts.free += of_node.free();
        counts
    }

    /// The assignment of the key.
    pub fn inspect(&self, key: &PodKey) -> Option<PodView> {
        self.ctx.book.holder(key).map(|holder| self.pod_view(key, holder))
    }

    fn subnet_views(&self) -> Vec<SubnetView> {
        let ZoneSubnets::Known(seen) = self.zone.subnets() else { return Vec::new() };
        let usable = placement::place(
            &self.ctx.config,
            &self.ctx.node,
            self.ctx.cluster.eni_config(),
            self.zone.subnets(),
        );
        let usable = usable.map(|placement| placement.subnets).unwrap_or_default();
        seen.iter().filter_map(|subnet| self.subnet_view(subnet, &usable)).collect()
    }

    fn subnet_view(&self, subnet: &SeenSubnet, usable: &[SubnetId]) -> Option<SubnetView> {
        let samples = self.zone.samples().of(&subnet.id).to_vec();
        Some(SubnetView {
            id: subnet.id.clone(),
            zone: self.ctx.node.zone.clone(),
            cidr: subnet.cidr?,
            available: subnet.free_addresses,
            counted: samples.last()?.at,
            for_pods: usable.contains(&subnet.id),
            excluded: placement::is_shut(subnet),
            in_use: self.ctx.book.enis().any(|eni| eni.facts.subnet == subnet.id),
            fragmented: self.ctx.subnets.fragmented(&subnet.id),
            samples,
        })
    }

    fn short(&self, now: Time) -> u64 {
        let of = |card: &CardIndex| {
            self.ctx.targets.short(*card, self.growth.pool_at(&self.ctx, *card, now).0)
        };
        self.ctx.targets.cards().iter().map(of).sum()
    }

    fn is_full(&self, card: CardIndex, now: Time) -> bool {
        let (pool, _) = self.growth.pool_at(&self.ctx, card, now);
        let per_eni = self.ctx.targets.per_eni();
        let has_room = |eni: &Eni| eni.facts.card == card && eni.counts() && eni.room(per_eni) > 0;
        let places = self.places_taken(card) + self.ctx.places_for_trunk(card);
        let used_up = pool.held > 0 && pool.total == u64::from(pool.held) + u64::from(pool.cooling);
        let of_others = !self.ctx.config.provisioning || self.ctx.config.imds_only;
        let no_place = places >= self.ctx.max_enis(card) && !self.ctx.book.enis().any(has_room);
        let no_more = of_others || no_place;
        let node_used_up = self.ctx.book.node_cidrs().free() == 0;
        node_used_up && used_up && (no_more || pool.total >= u64::from(self.ctx.targets.max_pods))
    }

    fn pod_view(&self, key: &PodKey, holder: &Assignment) -> PodView {
        let branch = match &holder.what {
            AssignedResource::Branch(branch) => Some(branch.clone()),
            AssignedResource::Addresses(_) => None,
        };
        PodView {
            key: key.clone(),
            pod: holder.pod.clone(),
            addresses: self.ctx.addresses_of(holder.what.addresses()),
            branch,
            confirmed: holder.lapses.is_none(),
            host_interface: holder.host_interface.clone(),
            adopted: holder.adopted,
            since: holder.since,
        }
    }
}

fn waiter_view(waiter: &Waiter) -> WaiterView {
    let Waiter { ticket, pod, branch, .. } = waiter;
    WaiterView { ticket: *ticket, pod: pod.clone(), branch: branch.is_some() }
}

fn node_cidr_view((cidr, block): (IpNet, &Block)) -> NodeCidrView {
    let (total, used) = (block.size(), block.used());
    NodeCidrView { cidr, total, used, removed: block.lost().is_some() }
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
        subnet_cidr_v6: eni.facts.subnet_cidr_v6,
        primary_address: eni.facts.primary_address,
        primary_v6: eni.facts.primary_v6,
        kind: eni.facts.kind,
        blocks: eni.blocks.iter().map(|(net, _)| net).collect(),
        excluded: eni.facts.excluded,
        ready: eni.readiness == Readiness::Ready,
        managed: eni.facts.managed,
        leaving,
        missing: eni.missing,
        lost: eni
            .blocks
            .iter()
            .filter(|(_, block)| block.lost().is_some())
            .map(|(net, _)| net)
            .collect(),
        counts: eni_counts(eni),
    }
}

/// An excluded ENI counts only with its used addresses.
fn eni_counts(eni: &Eni) -> Counts {
    let used = u64::from(eni.blocks.held()) + u64::from(eni.blocks.cooling());
    let free = if eni.facts.excluded { 0 } else { eni.blocks.free() };
    Counts {
        enis: 1,
        total: used + free,
        assigned: eni.blocks.held(),
        cooling: eni.blocks.cooling(),
        free,
        ..Counts::default()
    }
}

fn count(things: usize) -> u32 {
    u32::try_from(things).unwrap_or(u32::MAX)
}
