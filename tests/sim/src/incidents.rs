//! The incidents of a life. Each is independent, so that a plan without some of them still runs.

use crate::{
    host::Host,
    kubelet::{Stage, pod_name},
    plan::{Incident, Weather},
    random::Rng,
    world::{AddStep, DueEvent, World},
};
use config_model::{EniId, Span};
use ipnet::IpNet;
use lab_cloud::{
    AssignPrivateIpAddresses, AttachNetworkInterface, CallError, Caller, CreateNetworkInterface,
    DeleteNetworkInterface, DescribeSubnets, Ec2Error, FaultId, Request, Response,
    UnassignPrivateIpAddresses,
};

impl World {
    pub(crate) fn apply_incident(&mut self, incident: &Incident) {
        match incident.clone() {
            Incident::Start { first, count, apart, dies } => {
                for nth in 0..count {
                    let pod = first + nth;
                    let known = self.kubelet.pods.entry(pod).or_default();
                    if !std::mem::replace(&mut known.wanted, true) {
                        self.start_pod(pod, Span(apart.0 * u64::from(nth)), dies);
                    }
                }
            }
            Incident::Delete { first, count, dels } => {
                for pod in first..first + count {
                    self.delete_pod(pod, &dels);
                }
            }
            Incident::Replace { first, count, after, dels } => {
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
            Incident::Weather { how, lasts } => self.weather(&how, lasts),
            Incident::Kill { after, down } => self.kill_daemon(after, down),
            Incident::Stop { down } => self.stop_daemon(down),
            Incident::Reconfigure { targets, prefixes } => {
                self.setup.targets = targets;
                self.setup.prefixes = prefixes;
                self.stop_daemon(RESTART);
            }
            Incident::Reboot { down } => self.reboot(down),
            Incident::PullEni { nth } => self.pull_eni(nth.into()),
            Incident::TakeAddress { nth } => self.take_address(nth.into()),
            Incident::ForeignEni { addresses } => self.foreign_eni(addresses),
            Incident::TenantsCome { percent, piece } => self.tenants_come(percent, piece),
            Incident::TenantsGo { percent } => self.tenants_go(percent),
            Incident::OthersCall { calls } => self.calls_of_other_nodes(calls),
            Incident::KernelRefuses { lasts } => {
                self.host.refuses = true;
                self.spell_begins();
                self.after(lasts, DueEvent::KernelYields);
            }
            Incident::KernelDrifts { nth } => {
                self.judge.extend_fault(self.now);
                self.host.drift(nth.into());
                self.kernel_changed();
            }
            Incident::DiskIsSlow { write, lasts } => {
                self.disk_write = Some(write);
                self.spell_begins();
                self.after(lasts, DueEvent::DiskRecovers);
            }
            Incident::Schedulable(schedulable) => self.set_schedulable(schedulable),
            Incident::NodeCidr(there) => self.set_pod_cidr(there),
            Incident::ControllerAway { lasts } => {
                self.branches.away += 1;
                self.after(lasts, DueEvent::ControllerBack);
            }
        }
    }

    /// Starts a new sandbox after a while, whatever the state of the previous one.
    fn start_pod(&mut self, pod: u16, after: Span, dies: Option<crate::plan::Death>) {
        let now = self.now;
        if after == Span(0) {
            self.new_sandbox(pod, dies);
        } else {
            let known = self.kubelet.pods.entry(pod).or_default();
            known.sandbox = None;
            self.at(now + after, DueEvent::Sync(pod));
        }
    }

    fn delete_pod(&mut self, pod: u16, dels: &[Span]) {
        self.pod_object_ends(pod, pod_name(pod));
        let Some(known) = self.kubelet.pods.get_mut(&pod) else { return };
        known.wanted = false;
        let Some(sandbox) = known.sandbox else { return };
        // The kubelet cancels its request.
        self.add(sandbox, AddStep::Dies);
        for del in dels {
            self.after(*del, DueEvent::Del(sandbox));
        }
    }

    fn weather(&mut self, how: &Weather, lasts: Span) {
        let fault = self.ec2.turn(self.now, how);
        self.spell_begins();
        let lasts = match how {
            Weather::CallsLost { .. } => lasts,
            // After an attachment that hangs, the planner pauses.
            Weather::AttachesHang => {
                self.judge.extend_fault(self.now + lasts + STUCK);
                lasts
            }
            _ => lasts,
        };
        self.after(lasts, DueEvent::WeatherEnds(fault));
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
        self.judge.extend_fault(now + down);
        self.judge.power_lost(now);
        self.branches_lose_power();
        let mut rng = Rng::new(self.draw("power", 0, u64::MAX - 1), "power");
        self.disk.power_lost(&mut rng);
        self.daemon = None;
        let instance = self.ec2.instance.clone();
        // An instance that does not run yet has no state to lose.
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
            // The kubelet deletes the sandboxes that it remembers, sooner or later.
            if was == Stage::Running {
                let takes = self.draw("after boot", 100, 40_000);
                self.at(now + down + Span(takes), DueEvent::Del(id));
            }
        }
        let wanted: Vec<u16> =
            self.kubelet.pods.iter().filter(|(_, pod)| pod.wanted).map(|(pod, _)| *pod).collect();
        for pod in wanted {
            let takes = self.draw("resync", 10, 5_000);
            self.at(now + down + Span(takes), DueEvent::Sync(pod));
        }
        self.after(down, DueEvent::Start);
    }

    fn pull_eni(&mut self, nth: usize) {
        let now = self.now;
        let enis = self.ec2.enis(now).to_vec();
        let foreign_call: Vec<_> = enis.iter().filter(|eni| eni.id != self.ec2.primary).collect();
        let Some(eni) = foreign_call.get(nth % foreign_call.len().max(1)) else { return };
        if self.ec2.cloud.pull_eni(now, &eni.id).is_err() {
            return;
        }
        self.judge.extend_fault(now);
        self.judge.harmed_enis.insert(eni.id.clone());
        let blocks = crate::ec2::blocks(eni);
        self.judge.harmed.extend(blocks.into_iter().map(|block| (block, eni.id.clone())));
        self.replace_pods(&crate::ec2::blocks(eni));
    }

    /// Replaces pods that lost their address, as an operator would.
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
            self.after(Span(takes), DueEvent::Del(sandbox));
            self.after(Span(takes + 500), DueEvent::Sync(pod));
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
        if self.foreign_call(request).is_ok() {
            self.judge.extend_fault(now);
            self.judge.harmed.insert(block, eni);
            self.replace_pods(&[block]);
        }
    }

    /// Makes a call of another program. Its lost replies do not matter.
    fn foreign_call(&mut self, request: impl Into<Request>) -> Result<Option<Response>, Ec2Error> {
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
        self.judge.extend_fault(now);
        match self.foreign_call(request) {
            Ok(_) => {
                self.foreign.insert(eni);
            }
            Err(_) => self.ec2.tenants.push(eni),
        }
    }

    fn make(&mut self, request: CreateNetworkInterface) -> Option<EniId> {
        match self.foreign_call(request) {
            Ok(Some(Response::CreateNetworkInterface { network_interface, .. })) => {
                Some(network_interface.id)
            }
            _ => None,
        }
    }

    fn tenants_come(&mut self, percent: u8, piece: u16) {
        self.judge.extend_fault(self.now);
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
        self.judge.extend_fault(self.now);
        let count = self.ec2.tenants.len() * usize::from(percent) / 100;
        for _ in 0..count {
            let nth = usize::try_from(self.draw("tenant", 0, 1000)).unwrap_or(0);
            let at = nth % self.ec2.tenants.len().max(1);
            let eni = self.ec2.tenants.swap_remove(at);
            let request =
                DeleteNetworkInterface { network_interface_id: Some(eni.clone()), dry_run: false };
            if self.foreign_call(request).is_err() {
                self.ec2.tenants.push(eni);
            }
        }
    }

    /// Deletes detached ENIs that were not attached again.
    pub(crate) fn pulled_enis_go(&mut self) {
        let attached: Vec<EniId> =
            self.ec2.enis(self.now).iter().map(|eni| eni.id.clone()).collect();
        let pulled = self.judge.harmed_enis.iter().filter(|eni| !attached.contains(eni));
        for eni in pulled.cloned().collect::<Vec<_>>() {
            // A leaving ENI stays; it has no pod's address.
            let request =
                DeleteNetworkInterface { network_interface_id: Some(eni), dry_run: false };
            let _ = self.foreign_call(request);
        }
    }

    /// Failed calls also count against the account's limits.
    fn calls_of_other_nodes(&mut self, calls: u16) {
        self.judge.extend_fault(self.now);
        for _ in 0..calls {
            let _ = self.foreign_call(AssignPrivateIpAddresses::default());
            let _ = self.foreign_call(CreateNetworkInterface::default());
            let _ = self.foreign_call(AttachNetworkInterface::default());
            let _ = self.foreign_call(DescribeSubnets::default());
        }
    }
}

/// The downtime of a daemon that gets new settings.
const RESTART: Span = Span::millis(300);
/// The pause after attaches that failed.
const STUCK: Span = Span::seconds(2400);
const TENANTS_AT_ONCE: u32 = 400;
