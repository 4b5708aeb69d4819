//! The state that must be reached after the last incident.

use super::{Demand, Judge, Law, has};
use crate::{
    ec2::blocks,
    kubelet::{Sandbox, Stage},
    plan::{Mode, Setup},
    world::World,
};
use config_model::EniId;
use ipnet::IpNet;
use lab_cloud::{InterfaceKind, NetworkInterface};
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

const TAG_INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";

/// A property that does not hold.
pub(crate) type Mismatch = (Law, String);

impl Judge {
    fn is_harmed_eni(&self, eni: &EniId) -> bool {
        self.harmed_enis.contains(eni)
    }
}

impl World {
    /// Law: at most as many ENIs and addresses as type and settings allow.
    pub(crate) fn judge_limits(&mut self, enis: &[Arc<NetworkInterface>]) {
        let (now, limits) = (self.now, self.limits());
        for card in &limits.cards {
            let on_card = enis.iter().filter(|eni| {
                eni.attachment.as_ref().is_some_and(|a| a.network_card_index == card.card)
            });
            let count = on_card.count();
            self.judge.demand(count <= usize::from(card.enis), Law::AboveLimits, now, || {
                format!("{count} ENIs on card {}", card.card.0)
            });
        }
        if let Some(most) = self.setup.max_eni
            && self.foreign.is_empty()
        {
            // The limit counts for each card.
            let first = enis
                .iter()
                .filter(|eni| eni.attachment.as_ref().is_some_and(|a| a.network_card_index.0 == 0));
            let count = first.count();
            let fits = count <= usize::try_from(most).unwrap_or(usize::MAX);
            self.judge.demand(fits, Law::AboveLimits, now, || {
                format!("{count} ENIs, though MAX_ENI is {most}")
            });
        }
    }

    /// The maximum number of ENIs.
    fn max_enis(&self) -> u32 {
        let enis = self.limits().cards.first().map_or(0, |card| u32::from(card.enis));
        self.setup.max_eni.filter(|most| *most >= 1).map_or(enis, |most| most.min(enis))
    }

    /// The maximum number of pod addresses on the node's ENIs.
    fn max_addresses(&self) -> u64 {
        let foreign = u32::try_from(self.foreign.len()).unwrap_or(u32::MAX);
        let unused = foreign + u32::from(!self.setup.mode.uses_primary());
        let with_trunk = self.max_enis().saturating_sub(unused + u32::from(self.limits().trunk));
        let ours = if self.limits().trunk { with_trunk.max(1) } else { with_trunk };
        let per_eni = u64::from(self.limits().secondary_per_eni());
        match self.setup.mode {
            Mode::Ipv6 => 1 << 48,
            Mode::NotProvisioned | Mode::ImdsOnly => per_eni,
            _ => u64::from(ours) * per_eni,
        }
    }

    pub(crate) fn capacity(&mut self) -> u64 {
        let room = if self.setup.mode.provisions() {
            self.max_addresses()
        } else {
            // The daemon may not add any.
            self.ec2.enis(self.now).iter().map(|eni| blocks(eni).len() as u64).sum()
        };
        let of_node = self.pod_cidr.map_or(0, |cidr| size(cidr) - 3);
        (room + of_node).min(self.setup.max_pods.into())
    }

    pub(crate) fn demand(&mut self) -> Demand {
        let now = self.now;
        if self.spells > 0 {
            self.judge.extend_fault(now);
        }
        Demand {
            wanted: self.judge.wanted(now),
            capacity: self.capacity(),
            subnet_free: self.ec2.free_addresses(now),
            subnet_needs: 2 * (u32::from(self.limits().ipv4_per_eni) + 2),
        }
    }

    /// The properties that do not hold.
    pub(crate) fn mismatches(&mut self) -> Vec<Mismatch> {
        let now = self.now;
        let enis = self.ec2.enis(now).to_vec();
        let mut mismatches = Vec::new();
        self.check_pods(&mut mismatches);
        self.check_leaks(&enis, &mut mismatches);
        self.check_book(&enis, &mut mismatches);
        self.check_pool(&enis, &mut mismatches);
        mismatches
    }

    fn check_pods(&mut self, mismatches: &mut Vec<Mismatch>) {
        for (number, pod) in self.kubelet.pods.iter().filter(|(_, pod)| pod.wanted) {
            let sandbox = pod.sandbox.and_then(|id| self.kubelet.sandboxes.get(&id));
            match sandbox.filter(|sandbox| sandbox.stage == Stage::Running) {
                None => mismatches.push((Law::NotServed, format!("pod {number} does not run"))),
                Some(sandbox) => {
                    let cut = sandbox.nets.iter().find(|net| !self.host.connected(net));
                    let describe = |net: &routing_plan::pod::PodNet| {
                        (Law::CutOff, format!("{} of {} is cut off", net.address, net.key))
                    };
                    mismatches.extend(cut.map(describe));
                }
            }
        }
        // EC2 may give the address of an ended pod to a branch, before the repair has removed its rules.
        let addresses = |sandbox: &Sandbox| [sandbox.result.clone(), sandbox.of_branch.clone()];
        let running: BTreeSet<IpAddr> =
            self.kubelet.running().flat_map(addresses).flatten().collect();
        let left = self.host.in_use().into_iter().find(|address| !running.contains(address));
        mismatches.extend(left.map(|address| {
            (Law::KernelDirty, format!("the kernel has {address}, which no pod has"))
        }));
        if let Some(key) = self.tombstones.keys().next() {
            mismatches.push((Law::NotAnsweredOnce, format!("the tombstone of {key} remains")));
        }
    }

    fn check_leaks(&mut self, enis: &[Arc<NetworkInterface>], mismatches: &mut Vec<Mismatch>) {
        let attached: BTreeSet<&EniId> = enis.iter().map(|eni| &eni.id).collect();
        let instance = self.ec2.instance.to_string();
        let (foreign, primary) = (&self.foreign, &self.ec2.primary);
        let is_ours = |eni: &NetworkInterface| {
            let tagged = eni.tags.get(TAG_INSTANCE) == Some(&instance);
            // A trunk belongs to the controller, though it has the node's tag.
            let tagged = tagged && eni.kind != InterfaceKind::Trunk;
            tagged && !foreign.contains(&eni.id) && eni.id != *primary
        };
        for eni in self.ec2.cloud.all_enis(self.now) {
            if is_ours(&eni) && !attached.contains(&eni.id) && !self.judge.is_harmed_eni(&eni.id) {
                mismatches.push((Law::Leaked, format!("{} is not attached", eni.id)));
            }
        }
        for eni in enis {
            let goes = eni.attachment.as_ref().is_some_and(|a| a.delete_on_termination);
            if is_ours(eni) && !goes {
                let what = format!("{} would remain after the termination of the instance", eni.id);
                mismatches.push((Law::Leaked, what));
            }
        }
    }

    /// The book must agree with EC2.
    fn check_book(&mut self, enis: &[Arc<NetworkInterface>], mismatches: &mut Vec<Mismatch>) {
        let clock = self.host.clock(self.now);
        let Some(core) = self.daemon.as_ref().and_then(|daemon| daemon.core.as_ref()) else {
            mismatches.push((Law::World, "the daemon is not up".to_owned()));
            return;
        };
        let book = core.snapshot(clock);
        for eni in enis {
            let Some(known) = book.enis.iter().find(|known| known.id == eni.id) else {
                mismatches.push((Law::Leaked, format!("the address book lacks {}", eni.id)));
                continue;
            };
            // The node ignores the other family.
            let v6 = self.setup.mode == Mode::Ipv6;
            let there = blocks(eni).into_iter().filter(|net| matches!(net, IpNet::V6(_)) == v6);
            let (known, there): (BTreeSet<IpNet>, BTreeSet<IpNet>) =
                (known.blocks.iter().copied().collect(), there.collect());
            let held = |block: &IpNet| {
                let mut running = self.kubelet.running().flat_map(|sandbox| &sandbox.result);
                running.any(|address| block.contains(address))
            };
            // Addresses that EC2 removed stay with their pods.
            let taken = |block: &IpNet| self.judge.harmed.get(block) == Some(&eni.id);
            let harmed = |block: &&IpNet| taken(block) && held(block);
            if let Some(block) = there.difference(&known).next() {
                let what = format!("the address book lacks {block} of {}", eni.id);
                mismatches.push((Law::Leaked, what));
            }
            if let Some(block) = known.difference(&there).find(|block| !harmed(block)) {
                let what = format!("the address book has {block}, which {} lacks", eni.id);
                mismatches.push((Law::NotOnEni, what));
            }
        }
        for pod in &book.pods {
            if !self.kubelet.running().any(|sandbox| sandbox.key == pod.key) {
                mismatches.push((Law::Leaked, format!("{} still has an address", pod.key)));
            }
        }
    }

    /// The pool must match its targets. A target in addresses allows no surplus; targets in ENIs and prefixes allow what
    /// an ENI or prefix in use brings.
    fn check_pool(&mut self, enis: &[Arc<NetworkInterface>], mismatches: &mut Vec<Mismatch>) {
        let needs = self.demand().subnet_needs;
        if self.ec2.free_addresses(self.now) < needs {
            return;
        }
        let held: Vec<IpAddr> =
            self.kubelet.running().flat_map(|sandbox| sandbox.result.iter().copied()).collect();
        let (mode, primary) = (self.setup.mode, &self.ec2.primary);
        let first_card = |eni: &NetworkInterface| {
            eni.attachment.as_ref().is_some_and(|a| a.network_card_index.0 == 0)
        };
        let usable = enis.iter().filter(|eni| {
            let used = mode.uses_primary() || eni.id != *primary;
            used && eni.kind != InterfaceKind::Trunk
                && first_card(eni)
                && !self.judge.is_harmed_eni(&eni.id)
        });
        let on_first = |address: &&IpAddr| usable.clone().any(|eni| has(eni, **address));
        let pool = PoolState {
            total: usable.clone().flat_map(|eni| blocks(eni)).map(size).sum(),
            held: held.iter().filter(on_first).count() as u64,
            room: self.max_addresses(),
            per_eni: self.limits().secondary_per_eni().into(),
        };
        let idle: Vec<u64> = usable
            .filter(|eni| eni.id != self.ec2.primary && !self.foreign.contains(&eni.id))
            .filter(|eni| !held.iter().any(|address| has(eni, *address)))
            .map(|eni| blocks(eni).len() as u64)
            .collect();
        let prefixes = usable_prefixes(enis);
        let idle_prefixes = prefixes.filter(|net| !held.iter().any(|held| net.contains(held)));
        let idle_prefixes = idle_prefixes.count() as u64;
        mismatches.extend(match mode {
            Mode::Secondary
            | Mode::Cards
            | Mode::Custom
            | Mode::Discovery
            | Mode::Unschedulable
            | Mode::Trunk
            | Mode::NodeCidr => judge_singles(&self.setup, pool, &idle),
            Mode::Prefixes if self.setup.prefixes => {
                judge_prefixes(&self.setup, pool, idle_prefixes)
            }
            // The rest of a prefix stays until its last pod is gone.
            Mode::Prefixes => judge_singles(&self.setup, pool, &[])
                .filter(|(law, _)| *law != Law::PoolOver || usable_prefixes(enis).count() == 0),
            Mode::Ipv6 => (pool.total == 0).then(|| (Law::PoolShort, "no /80".to_owned())),
            Mode::NotProvisioned | Mode::ImdsOnly => None,
        });
    }
}

/// The actual pool.
#[derive(Clone, Copy, Debug)]
struct PoolState {
    total: u64,
    held: u64,
    /// The capacity of all possible ENIs.
    room: u64,
    per_eni: u64,
}

fn size(block: IpNet) -> u64 {
    let bits = block.max_prefix_len() - block.prefix_len();
    1_u64.checked_shl(bits.into()).unwrap_or(u64::MAX)
}

/// The /28 prefixes of all ENIs.
fn usable_prefixes(enis: &[Arc<NetworkInterface>]) -> impl Iterator<Item = IpNet> {
    let v4 = |net: &IpNet| matches!(net, IpNet::V4(net) if net.prefix_len() == 28);
    enis.iter().flat_map(|eni| blocks(eni)).filter(v4).collect::<Vec<_>>().into_iter()
}

fn judge_prefixes(setup: &Setup, pool: PoolState, idle: u64) -> Option<Mismatch> {
    let PoolState { total, held, room, .. } = pool;
    let (targets, free) = (setup.targets, total.saturating_sub(held));
    let (warm, least) = (u64::from(targets.warm_ips), u64::from(targets.minimum_ips));
    let most = room.min(setup.max_pods.into());
    let describe = |wanted: u64| {
        format!(
            "{total} addresses, {held} held, {wanted} required, {most} possible, {idle} idle /28"
        )
    };
    let by_addresses = warm > 0 || least > 0;
    let wanted = if by_addresses {
        (held + warm).max(least)
    } else {
        held + (u64::from(targets.warm_prefixes) * 16).max(1)
    };
    if total < wanted.min(most) {
        return Some((Law::PoolShort, describe(wanted)));
    }
    let spare = if by_addresses { 1 } else { u64::from(targets.warm_prefixes).max(1) + 1 };
    (idle > spare && free >= 32 && total - 16 >= wanted + 16)
        .then(|| (Law::PoolOver, describe(wanted)))
}

fn judge_singles(setup: &Setup, pool: PoolState, idle: &[u64]) -> Option<Mismatch> {
    let PoolState { total, held, room, per_eni } = pool;
    let free = total.saturating_sub(held);
    let targets = setup.targets;
    let (warm, least) = (u64::from(targets.warm_ips), u64::from(targets.minimum_ips));
    let most = room.min(setup.max_pods.into());
    if warm > 0 || least > 0 {
        let wanted = (held + warm).max(least);
        if total < wanted.min(most) {
            let what =
                format!("{total} addresses, {held} held, {wanted} required, {most} possible");
            return Some((Law::PoolShort, what));
        }
        return (total > wanted).then(|| {
            (Law::PoolOver, format!("{total} addresses, {held} held, {wanted} required"))
        });
    }
    let wanted = u64::from(targets.warm_enis) * per_eni;
    let low = free < wanted || (wanted == 0 && free == 0);
    if low && total < most {
        let what =
            format!("{total} addresses, {held} held, {wanted} free required, {most} possible");
        return Some((Law::PoolShort, what));
    }
    let spare = idle.iter().find(|eni| {
        let rest = free - *eni;
        free >= wanted + per_eni && rest >= wanted && rest > 0
    });
    spare.map(|eni| {
        let what = format!("{free} addresses are free, {wanted} required, an idle ENI has {eni}");
        (Law::PoolOver, what)
    })
}
