//! What befalls the node: each deed stands for itself, so that a plan without some of them runs.

use crate::{
    dice::Rng,
    host::Host,
    kubelet::{Stage, pod_name},
    plan::{Deed, Weather},
    world::{AddStep, Happening, World},
};
use config_model::{EniId, Span};
use ipnet::IpNet;
use lab_cloud::{
    AssignPrivateIpAddresses, AttachNetworkInterface, CallError, Caller, CreateNetworkInterface,
    DeleteNetworkInterface, DescribeSubnets, Ec2Error, FaultId, Request, Response,
    UnassignPrivateIpAddresses,
};

impl World {
    pub(crate) fn do_deed(&mut self, deed: &Deed) {
        match deed.clone() {
            Deed::Start { first, count, apart, dies } => {
                for nth in 0..count {
                    let pod = first + nth;
                    let known = self.kubelet.pods.entry(pod).or_default();
                    if !std::mem::replace(&mut known.wanted, true) {
                        self.start_pod(pod, Span(apart.0 * u64::from(nth)), dies);
                    }
                }
            }
            Deed::Delete { first, count, dels } => {
                for pod in first..first + count {
                    self.delete_pod(pod, &dels);
                }
            }
            Deed::Replace { first, count, after, dels } => {
                for pod in first..first + count {
                    let wanted = self.kubelet.pods.get(&pod).is_some_and(|pod| pod.wanted);
                    if wanted {
                        self.delete_pod(pod, &dels);
                        if let Some(pod) = self.kubelet.pods.get_mut(&pod) {
                            pod.wanted = true;
                        }
                        self.start_pod(pod, after, None);
                    }
                }
            }
            Deed::Weather { how, lasts } => self.weather(&how, lasts),
            Deed::Kill { after, down } => self.kill_daemon(after, down),
            Deed::Stop { down } => self.stop_daemon(down),
            Deed::Reconfigure { targets, prefixes } => {
                self.setup.targets = targets;
                self.setup.prefixes = prefixes;
                self.stop_daemon(RESTART);
            }
            Deed::Reboot { down } => self.reboot(down),
            Deed::PullEni { nth } => self.pull_eni(nth.into()),
            Deed::TakeAddress { nth } => self.take_address(nth.into()),
            Deed::ForeignEni { addresses } => self.foreign_eni(addresses),
            Deed::TenantsCome { percent, piece } => self.tenants_come(percent, piece),
            Deed::TenantsGo { percent } => self.tenants_go(percent),
            Deed::OthersCall { calls } => self.others_call(calls),
            Deed::KernelRefuses { lasts } => {
                self.host.refuses = true;
                self.spell_begins();
                self.after(lasts, Happening::KernelYields);
            }
            Deed::KernelDrifts { nth } => {
                self.judge.trouble(self.now);
                self.host.drift(nth.into());
                self.kernel_changed();
            }
            Deed::DiskIsSlow { write, lasts } => {
                self.disk_write = Some(write);
                self.spell_begins();
                self.after(lasts, Happening::DiskRecovers);
            }
            Deed::Schedulable(schedulable) => self.set_schedulable(schedulable),
            Deed::ControllerAway { lasts } => {
                self.branches.away += 1;
                self.after(lasts, Happening::ControllerBack);
            }
        }
    }

    /// A new sandbox after a while, whatever became of the one before.
    fn start_pod(&mut self, pod: u16, after: Span, dies: Option<crate::plan::Death>) {
        let now = self.now;
        if after == Span(0) {
            self.new_sandbox(pod, dies);
        } else {
            let known = self.kubelet.pods.entry(pod).or_default();
            known.sandbox = None;
            self.at(now + after, Happening::Sync(pod));
        }
    }

    fn delete_pod(&mut self, pod: u16, dels: &[Span]) {
        self.pod_object_ends(pod, pod_name(pod));
        let Some(known) = self.kubelet.pods.get_mut(&pod) else { return };
        known.wanted = false;
        let Some(sandbox) = known.sandbox else { return };
        // The kubelet cancels what it has asked for.
        self.add(sandbox, AddStep::Dies);
        for del in dels {
            self.after(*del, Happening::Del(sandbox));
        }
    }

    fn weather(&mut self, how: &Weather, lasts: Span) {
        let fault = self.ec2.turn(self.now, how);
        self.spell_begins();
        let lasts = match how {
            Weather::CallsLost { .. } => lasts,
            // An attachment that never comes is given up, and then nothing is tried for a while.
            Weather::AttachesHang => {
                self.judge.trouble(self.now + lasts + STUCK);
                lasts
            }
            _ => lasts,
        };
        self.after(lasts, Happening::WeatherEnds(fault));
    }

    pub(crate) fn weather_ends(&mut self, fault: Option<FaultId>) {
        match fault {
            Some(fault) => {
                self.ec2.cloud.clear_fault(self.now, fault);
            }
            None => {
                self.ec2.lost.pop();
            }
        }
        self.spell_ends();
    }

    fn reboot(&mut self, down: Span) {
        let now = self.now;
        self.judge.trouble(now + down);
        self.judge.power_lost(now);
        self.branches_lose_power();
        let mut rng = Rng::new(self.draw("power", 0, u64::MAX - 1), "power");
        self.disk.power_lost(&mut rng);
        self.daemon = None;
        let instance = self.ec2.instance.clone();
        // An instance that is not running yet has nothing to lose.
        let _ = self.ec2.cloud.reboot(now, &instance);
        let refuses = self.host.refuses;
        self.host =
            Host::boot(self.host.boot + 1, ipamd_node::desired::family(&self.settings), now);
        self.host.refuses = refuses;
        self.kubelet.dels.clear();
        let ids: Vec<u32> = self.kubelet.sandboxes.keys().copied().collect();
        for id in ids {
            let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { continue };
            let was = std::mem::replace(&mut sandbox.stage, Stage::Ended);
            sandbox.namespace = false;
            self.judge.gave_up(id);
            // The kubelet clears up what it remembers, more or less soon.
            if was == Stage::Running {
                let takes = self.draw("after boot", 100, 40_000);
                self.at(now + down + Span(takes), Happening::Del(id));
            }
        }
        let wanted: Vec<u16> =
            self.kubelet.pods.iter().filter(|(_, pod)| pod.wanted).map(|(pod, _)| *pod).collect();
        for pod in wanted {
            let takes = self.draw("resync", 10, 5_000);
            self.at(now + down + Span(takes), Happening::Sync(pod));
        }
        self.after(down, Happening::Start);
    }

    fn pull_eni(&mut self, nth: usize) {
        let now = self.now;
        let enis = self.ec2.enis(now).to_vec();
        let others: Vec<_> = enis.iter().filter(|eni| eni.id != self.ec2.primary).collect();
        let Some(eni) = others.get(nth % others.len().max(1)) else { return };
        if self.ec2.cloud.pull_eni(now, &eni.id).is_err() {
            return;
        }
        self.judge.trouble(now);
        self.judge.harmed_enis.insert(eni.id.clone());
        let blocks = crate::ec2::blocks(eni);
        self.judge.harmed.extend(blocks.into_iter().map(|block| (block, eni.id.clone())));
        self.replace_pods(&crate::ec2::blocks(eni));
    }

    /// Pods without their address cannot work; in time somebody replaces them.
    pub(crate) fn replace_pods(&mut self, lost: &[IpNet]) {
        let lost: Vec<(u32, u16)> = self
            .kubelet
            .sandboxes
            .iter()
            .filter(|(_, sandbox)| {
                sandbox.nets.iter().any(|net| lost.iter().any(|block| block.contains(&net.address)))
            })
            .map(|(id, sandbox)| (*id, sandbox.pod))
            .collect();
        for (sandbox, pod) in lost {
            let takes = self.draw("replace", 1_000, 60_000);
            self.after(Span(takes), Happening::Del(sandbox));
            self.after(Span(takes + 500), Happening::Sync(pod));
        }
    }

    fn take_address(&mut self, nth: usize) {
        let now = self.now;
        let enis = self.ec2.enis(now).to_vec();
        let all: Vec<(EniId, IpNet)> = enis
            .iter()
            .flat_map(|eni| {
                crate::ec2::blocks(eni).into_iter().map(|block| (eni.id.clone(), block))
            })
            .collect();
        let Some((eni, block)) = all.get(nth % all.len().max(1)).cloned() else { return };
        let IpNet::V4(net) = block else { return };
        let single = net.prefix_len() == 32;
        let request = UnassignPrivateIpAddresses {
            network_interface_id: Some(eni.clone()),
            private_ip_addresses: single.then(|| net.addr()).into_iter().collect(),
            ipv4_prefixes: (!single).then_some(net).into_iter().collect(),
            ..UnassignPrivateIpAddresses::default()
        };
        if self.others(request).is_ok() {
            self.judge.trouble(now);
            self.judge.harmed.insert(block, eni);
            self.replace_pods(&[block]);
        }
    }

    /// Somebody else's call. A lost reply is his own affair.
    fn others(&mut self, request: impl Into<Request>) -> Result<Option<Response>, Ec2Error> {
        match self.ec2.cloud.call(self.now, &Caller::Administrator, request) {
            Ok(response) => Ok(Some(response)),
            Err(CallError::ReplyLost) => Ok(None),
            Err(CallError::Refused(error)) => Err(error),
        }
    }

    fn foreign_eni(&mut self, addresses: u16) {
        let now = self.now;
        let request = CreateNetworkInterface {
            subnet_id: Some(self.ec2.growth.clone()),
            secondary_private_ip_address_count: (addresses > 0).then(|| addresses.into()),
            ..CreateNetworkInterface::default()
        };
        let Some(eni) = self.make(request) else { return };
        let taken: Vec<u16> = self
            .ec2
            .enis(now)
            .iter()
            .filter_map(|eni| eni.attachment.as_ref().map(|a| a.device_index.0))
            .collect();
        let device = (1..).find(|device| !taken.contains(device));
        let request = AttachNetworkInterface {
            network_interface_id: Some(eni.clone()),
            instance_id: Some(self.ec2.instance.clone()),
            device_index: device,
            ..AttachNetworkInterface::default()
        };
        self.judge.trouble(now);
        match self.others(request) {
            Ok(_) => {
                self.foreign.insert(eni);
            }
            Err(_) => self.ec2.tenants.push(eni),
        }
    }

    fn make(&mut self, request: CreateNetworkInterface) -> Option<EniId> {
        match self.others(request) {
            Ok(Some(Response::CreateNetworkInterface { network_interface, .. })) => {
                Some(network_interface.id)
            }
            _ => None,
        }
    }

    fn tenants_come(&mut self, percent: u8, piece: u16) {
        self.judge.trouble(self.now);
        let mut left = self.ec2.free_addresses(self.now) * u32::from(percent) / 100;
        for _ in 0..TENANTS_AT_ONCE {
            if left < u32::from(piece) + 1 {
                return;
            }
            let request = CreateNetworkInterface {
                subnet_id: Some(self.ec2.growth.clone()),
                secondary_private_ip_address_count: Some(piece.into()),
                ..CreateNetworkInterface::default()
            };
            let Some(eni) = self.make(request) else { return };
            self.ec2.tenants.push(eni);
            left -= u32::from(piece) + 1;
        }
    }

    pub(crate) fn tenants_go(&mut self, percent: u8) {
        self.judge.trouble(self.now);
        let count = self.ec2.tenants.len() * usize::from(percent) / 100;
        for _ in 0..count {
            let nth = usize::try_from(self.draw("tenant", 0, 1000)).unwrap_or(0);
            let at = nth % self.ec2.tenants.len().max(1);
            let eni = self.ec2.tenants.swap_remove(at);
            let request =
                DeleteNetworkInterface { network_interface_id: Some(eni.clone()), dry_run: false };
            if self.others(request).is_err() {
                self.ec2.tenants.push(eni);
            }
        }
    }

    /// Who pulled ENIs out deletes them, where nobody has put them back.
    pub(crate) fn pulled_enis_go(&mut self) {
        let attached: Vec<EniId> =
            self.ec2.enis(self.now).iter().map(|eni| eni.id.clone()).collect();
        let pulled = self.judge.harmed_enis.iter().filter(|eni| !attached.contains(eni));
        for eni in pulled.cloned().collect::<Vec<_>>() {
            // What is still on its way out stays; it takes no pod's address.
            let request =
                DeleteNetworkInterface { network_interface_id: Some(eni), dry_run: false };
            let _ = self.others(request);
        }
    }

    /// Calls that fail cost the account's buckets as much as others.
    fn others_call(&mut self, calls: u16) {
        self.judge.trouble(self.now);
        for _ in 0..calls {
            let _ = self.others(AssignPrivateIpAddresses::default());
            let _ = self.others(CreateNetworkInterface::default());
            let _ = self.others(AttachNetworkInterface::default());
            let _ = self.others(DescribeSubnets::default());
        }
    }
}

/// How long a daemon that gets new settings is away.
const RESTART: Span = Span::millis(300);
/// After attaches that never came, none is tried for as long.
const STUCK: Span = Span::seconds(2400);
const TENANTS_AT_ONCE: u32 = 400;
