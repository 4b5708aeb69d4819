//! amazon-vpc-cni's ipamd: start, then an endless loop.

use super::{
    call_slot::CallSlot,
    ec2::{NewEni, Pauses, SDK_QUOTA, is_full, is_insufficient},
    store::Store,
    targets::Targets,
};
use crate::pool::{
    requests::Pod,
    setting::{COOLDOWN, NodeSetting, PoolSetting},
};
use config_model::{EniId, Span, Time};
use ipnet::Ipv4Net;
use lab_cloud::{Ec2Error, NetworkInterface};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    rc::Rc,
};

/// Half of the loop: it sleeps, checks the pool, sleeps, reconciles.
const HALF_LOOP: Span = Span::millis(2500);
const RECONCILE_INTERVAL: Span = Span::seconds(60);
const DECREASE_INTERVAL: Span = Span::seconds(30);
/// Time for which blocks that were freed are not added again.
const FREED_MEMORY: Span = Span::seconds(60);
const INSUFFICIENT_PAUSE: Span = Span::seconds(120);
/// Work of the process before its first call: region, limits, iptables, VPC CIDRs.
const START: Span = Span::millis(500);
/// The liveness probe restarts a process whose start has failed; then the kubelet backs off.
const PROBE_NOTICES: Span = Span::seconds(90);
const CRASH_PAUSE: Span = Span::seconds(10);
const LONGEST_CRASH_PAUSE: Span = Span::seconds(300);
/// Number of IMDS reads until a new ENI is visible.
const ENI_LOOKS: u32 = 12;
const ENI_PAUSES: Pauses = Pauses::Doubling { first: Span::millis(100), jitter_percent: 15 };

pub(super) struct Ipamd {
    pub(super) targets: Targets,
    pub(super) node: NodeSetting,
    pub(super) call_slot: CallSlot,
    /// Remaining quota of the SDK for retries.
    pub(super) sdk_quota: Cell<u32>,
    store: RefCell<Store>,
    freed: RefCell<BTreeMap<Ipv4Net, Time>>,
    ready: Cell<bool>,
    last_action: Cell<Time>,
    last_decrease: Cell<Option<Time>>,
    insufficient_since: Cell<Option<Time>>,
}

impl Ipamd {
    pub(super) fn new(pool: PoolSetting, node: NodeSetting, call_slot: CallSlot) -> Self {
        let targets = Targets {
            prefixes: pool.prefixes,
            warm_eni: pool.warm_eni,
            warm_ip: pool.warm_ip,
            minimum_ip: pool.minimum_ip,
            warm_prefix: pool.warm_prefix,
            slots_per_eni: node.slots_per_eni().into(),
            max_pods: node.max_pods,
        };
        Self {
            store: RefCell::new(Store::new(pool.prefixes, COOLDOWN)),
            targets,
            node,
            call_slot,
            sdk_quota: Cell::new(SDK_QUOTA),
            freed: RefCell::default(),
            ready: Cell::new(false),
            last_action: Cell::new(Time(0)),
            last_decrease: Cell::new(None),
            insufficient_since: Cell::new(None),
        }
    }

    /// True if the gRPC server answers. The node is ready then.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.get()
    }

    pub(super) fn assign(&self, pod: Pod, now: Time) -> Option<Ipv4Addr> {
        self.call_slot.draw(|rng| self.store.borrow_mut().assign(pod, now, rng))
    }

    pub(super) fn release(&self, pod: Pod, now: Time) {
        self.store.borrow_mut().release(pod, now);
    }

    pub(super) async fn run(self: Rc<Self>) {
        let mut crashes = 0;
        while self.start().await.is_err() {
            self.call_slot.sleep(PROBE_NOTICES).await;
            if crashes > 0 {
                let pause = CRASH_PAUSE.0.saturating_mul(1 << (crashes - 1).min(10));
                self.call_slot.sleep(Span(pause.min(LONGEST_CRASH_PAUSE.0))).await;
            }
            crashes += 1;
            *self.store.borrow_mut() = Store::new(self.targets.prefixes, COOLDOWN);
            self.sdk_quota.set(SDK_QUOTA);
        }
        self.ready.set(true);
        loop {
            self.call_slot.sleep(HALF_LOOP).await;
            self.look_at_pool().await;
            self.call_slot.sleep(HALF_LOOP).await;
            self.reconcile().await;
        }
    }

    /// Any error ends the process.
    async fn start(&self) -> Result<(), Ec2Error> {
        self.call_slot.sleep(START).await;
        let shown = self.call_slot.imds().await;
        let enis = self.describe(shown.iter().map(|eni| eni.id.clone()).collect()).await?;
        for eni in &enis {
            if !eni.tags.contains_key("node.k8s.amazonaws.com/instance_id") {
                self.tag(&eni.id).await?;
            }
            self.set_up(eni).await?;
        }
        for eni in &enis {
            let _ = self.write_groups(&eni.id).await;
        }
        if self.too_low() { self.increase().await } else { Ok(()) }
    }

    fn too_low(&self) -> bool {
        self.targets.too_low(self.store.borrow().stats())
    }

    async fn set_up(&self, eni: &NetworkInterface) -> Result<(), Ec2Error> {
        self.describe_subnets().await?;
        let primary =
            eni.attachment.as_ref().is_some_and(|attachment| attachment.device_index.0 == 0);
        let mut store = self.store.borrow_mut();
        store.add_eni(eni.id.clone(), primary, self.call_slot.now());
        for net in blocks_of(eni) {
            store.add_block(&eni.id, net);
        }
        Ok(())
    }

    async fn look_at_pool(&self) {
        let stats = self.store.borrow().stats();
        if self.targets.too_low(stats) {
            let _ = self.increase().await;
        } else if self.targets.too_high_by(stats) > 0 {
            self.decrease().await;
        }
        let removes = {
            let store = self.store.borrow();
            self.targets.should_remove_enis(store.stats(), store.has_eni_without_pods())
        };
        if removes {
            self.free_one_eni().await;
        }
    }

    /// One call for addresses, or else one new ENI.
    async fn increase(&self) -> Result<(), Ec2Error> {
        let now = self.call_slot.now();
        let paused = |since: Time| now.since(since) < INSUFFICIENT_PAUSE;
        if self.insufficient_since.get().is_some_and(paused) {
            return Ok(());
        }
        match self.fill_an_eni().await {
            Ok(true) => self.last_action.set(self.call_slot.now()),
            Ok(false) if self.has_room() => {
                if self.add_an_eni().await.is_ok() {
                    self.last_action.set(self.call_slot.now());
                }
            }
            Ok(false) => {}
            Err(error) if is_insufficient(&error) => {
                self.insufficient_since.set(Some(self.call_slot.now()));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The first ENI that accepts more ends the round. Returns true if the pool grew.
    async fn fill_an_eni(&self) -> Result<bool, Ec2Error> {
        let Some(need) = self.targets.ask_of_eni(self.store.borrow().stats()) else {
            return Ok(false);
        };
        let limit = self.targets.slots_per_eni;
        let enis: Vec<EniId> = self.store.borrow().enis().cloned().collect();
        for eni in self.call_slot.draw(|rng| rng.shuffled(enis)) {
            let has = self.store.borrow().blocks(&eni).len();
            let room = limit.saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
            if room == 0 {
                continue;
            }
            let mut answer = self.assign_blocks(&eni, need.min(room)).await;
            if answer.as_ref().is_err_and(|error| !is_full(error)) {
                answer = self.assign_blocks(&eni, 1).await;
            }
            match answer {
                Ok(nets) => self.take_in(&eni, nets),
                Err(error) if is_full(&error) => {
                    let described = self.describe(vec![eni.clone()]).await?;
                    self.take_in(&eni, described.iter().flat_map(blocks_of));
                }
                // With subnet discovery another ENI may be in a subnet that has free addresses.
                Err(error) if is_insufficient(&error) => continue,
                Err(error) => return Err(error),
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn take_in(&self, eni: &EniId, nets: impl IntoIterator<Item = Ipv4Net>) {
        let mut store = self.store.borrow_mut();
        for net in nets {
            store.add_block(eni, net);
        }
    }

    fn has_room(&self) -> bool {
        self.store.borrow().enis().count() < usize::from(self.node.max_enis())
    }

    async fn add_an_eni(&self) -> Result<(), Ec2Error> {
        let slots = self.targets.ask_of_new_eni(self.store.borrow().stats());
        if slots == 0 {
            return Ok(());
        }
        let new = self.make_eni(slots).await?;
        if let Some(eni) = self.wait_for(&new).await {
            self.set_up(&eni).await?;
        }
        Ok(())
    }

    /// Waits until IMDS has the ENI with all its blocks. `None` leaves it to the reconcile.
    async fn wait_for(&self, new: &NewEni) -> Option<NetworkInterface> {
        for look in 0..ENI_LOOKS {
            let shown = self.call_slot.imds().await;
            let eni = shown.iter().find(|eni| eni.id == new.id);
            if let Some(eni) = eni.filter(|eni| blocks_of(eni).count() >= new.slots) {
                return Some(NetworkInterface::clone(eni));
            }
            let pause = ENI_PAUSES.after(look, &self.call_slot);
            self.call_slot.sleep(pause).await;
        }
        None
    }

    async fn decrease(&self) {
        let now = self.call_slot.now();
        if self.last_decrease.get().is_some_and(|last| now.since(last) <= DECREASE_INTERVAL) {
            return;
        }
        self.last_decrease.set(Some(now));
        let mut over = self.targets.too_high_by(self.store.borrow().stats());
        let enis: Vec<EniId> = self.store.borrow().enis().cloned().collect();
        for eni in self.call_slot.draw(|rng| rng.shuffled(enis)) {
            let nets = self.take_out(&eni, &mut over);
            self.unassign_blocks(&eni, &nets).await;
        }
        self.last_decrease.set(Some(self.call_slot.now()));
        self.last_action.set(self.call_slot.now());
    }

    fn take_out(&self, eni: &EniId, over: &mut u32) -> Vec<Ipv4Net> {
        let (mut store, mut taken) = (self.store.borrow_mut(), Vec::new());
        for net in store.freeable_blocks(eni) {
            if *over > 0 && store.remove_block(eni, net, false) {
                *over -= 1;
                self.freed.borrow_mut().insert(net, self.call_slot.now());
                taken.push(net);
            }
        }
        taken
    }

    async fn free_one_eni(&self) {
        let now = self.call_slot.now();
        let deletable = self
            .call_slot
            .draw(|rng| self.store.borrow().deletable_eni(self.targets.keep(), now, rng));
        if let Some(eni) = deletable {
            self.store.borrow_mut().remove_eni(&eni);
            self.free_eni(&eni).await;
            self.last_action.set(self.call_slot.now());
        }
    }

    /// Reconciles the store with IMDS, at the earliest a minute after the last action.
    async fn reconcile(&self) {
        let now = self.call_slot.now();
        if now.since(self.last_action.get()) < RECONCILE_INTERVAL {
            return;
        }
        let shown = self.call_slot.imds().await;
        self.freed.borrow_mut().retain(|_, freed| now.since(*freed) < FREED_MEMORY);
        let unknown: Vec<EniId> = {
            let store = self.store.borrow();
            shown.iter().map(|eni| eni.id.clone()).filter(|id| !store.has(id)).collect()
        };
        if !unknown.is_empty() {
            let all = shown.iter().map(|eni| eni.id.clone()).collect();
            let Ok(described) = self.describe(all).await else { return };
            for eni in described.iter().filter(|eni| unknown.contains(&eni.id)) {
                if self.tag(&eni.id).await.is_ok() {
                    let _ = self.set_up(eni).await;
                }
            }
        }
        for eni in shown.iter().filter(|eni| !unknown.contains(&eni.id)) {
            self.reconcile_blocks(eni).await;
        }
        let gone: Vec<EniId> = {
            let store = self.store.borrow();
            let is_shown = |id: &&EniId| shown.iter().any(|eni| eni.id == **id);
            store.enis().filter(|id| !is_shown(id)).cloned().collect()
        };
        for eni in gone {
            self.store.borrow_mut().remove_eni(&eni);
        }
        self.last_action.set(self.call_slot.now());
    }

    async fn reconcile_blocks(&self, shown: &NetworkInterface) {
        let known: BTreeSet<Ipv4Net> = self.store.borrow().blocks(&shown.id).into_iter().collect();
        if blocks_of(shown).collect::<BTreeSet<_>>() == known {
            return;
        }
        let Ok(described) = self.describe(vec![shown.id.clone()]).await else { return };
        let real: BTreeSet<Ipv4Net> = described.iter().flat_map(blocks_of).collect();
        let mut store = self.store.borrow_mut();
        for net in real.difference(&known).filter(|net| !self.freed.borrow().contains_key(net)) {
            store.add_block(&shown.id, *net);
        }
        for net in known.difference(&real) {
            store.remove_block(&shown.id, *net, true);
        }
    }
}

/// The addresses and prefixes of an ENI besides its primary address.
fn blocks_of(eni: &NetworkInterface) -> impl Iterator<Item = Ipv4Net> + '_ {
    let singles = eni.secondary_addresses().map(Ipv4Net::from);
    singles.chain(eni.ipv4_prefixes.iter().copied())
}
