//! The plugin in the container runtime: ADD reserves, builds and confirms; DEL releases and cleans the kernel; without
//! a daemon it writes a tombstone.

use crate::{
    daemon::{Question, Sender},
    judge::Law,
    kubelet::{COLLIDING, SandboxId, Stage, pod_name},
    plan::Death,
    planted::Planted,
    world::{AddStep, DelStep, DueEvent, World},
};
use config_model::{PodKey, PodName, Span, registry};
use ipamd_core::{Answer, PodAddress, ReleaseCause};
use routing_plan::{PodDesired, pod::PodNet};

impl World {
    /// The kubelet starts the pod's sandbox.
    pub(crate) fn sync_pod(&mut self, pod: u16) {
        let Some(known) = self.kubelet.pods.get(&pod) else { return };
        let stage = |id| self.kubelet.sandboxes.get(&id).map(|sandbox| sandbox.stage);
        let idle = known.sandbox.and_then(stage).is_none_or(|stage| stage == Stage::Ended);
        if known.wanted && idle {
            self.new_sandbox(pod, None);
        }
    }

    pub(crate) fn new_sandbox(&mut self, pod: u16, dies: Option<Death>) {
        if let Some(sandbox) = self.kubelet.new_sandbox(pod, dies, self.now) {
            self.note(|| format!("ADD of sandbox {sandbox}, pod {pod}"));
            let uid = self.pod_object(pod, &crate::kubelet::pod_name(pod));
            if uid.is_none() {
                self.judge.asks(sandbox, self.now);
            }
            if let Some(made) = self.kubelet.sandboxes.get_mut(&sandbox) {
                made.uid = uid;
            }
            self.add(sandbox, AddStep::Dial);
        }
    }

    pub(crate) fn add(&mut self, id: SandboxId, step: AddStep) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        match (step, sandbox.stage) {
            (AddStep::Dial, Stage::Dialing) => self.dial(id),
            (AddStep::Dial, Stage::Redialing) => self.confirm(id),
            (AddStep::Link, Stage::Building) => self.link(id),
            (AddStep::Connect, Stage::Building) => self.connect(id),
            (AddStep::Dies, Stage::Running | Stage::Ended) => {}
            (AddStep::Dies, stage) => {
                let ticket = sandbox.ticket.filter(|_| stage == Stage::Waiting);
                ticket.into_iter().for_each(|ticket| self.abandon(ticket));
                self.plugin_dies(id);
            }
            _ => {}
        }
    }

    fn dial(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        let (key, pod) = (sandbox.key.clone(), sandbox.name.clone());
        let (deadline, dies) = (sandbox.deadline, sandbox.dies);
        if self.daemon.is_none() || self.now + HEARING > deadline {
            if self.now + REDIAL < deadline {
                let takes = self.draw("dial", 50, 250);
                self.after(Span(takes), DueEvent::Add(id, AddStep::Dial));
            } else {
                self.judge.gave_up(id);
                self.add_failed(id);
            }
            return;
        }
        if self.tombstones.contains_key(&key) {
            let release = Question::Release(key.clone(), ReleaseCause::PodDeleted);
            self.ask(release, Sender::TombstoneInPass(key.clone()));
        }
        let give_up = self.host.clock(deadline - HEARING);
        let pod = match self.planted {
            Some(Planted::VethByName) if pod == pod_name(COLLIDING[1]) => {
                PodName { name: format!("{}-planted", pod.name), ..pod }
            }
            _ => pod,
        };
        self.set_stage(id, Stage::Waiting);
        let ticket = self.ask(Question::Reserve(key, pod, give_up), Sender::Add(id));
        if let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) {
            sandbox.ticket = ticket;
        }
        if dies == Some(Death::Waiting) {
            let takes = self.draw("death", 1, 3000);
            self.after(Span(takes), DueEvent::Add(id, AddStep::Dies));
        }
    }

    fn set_stage(&mut self, id: SandboxId, stage: Stage) {
        if let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) {
            sandbox.stage = stage;
        }
    }

    /// Delivers an answer to its sender, if that still waits.
    pub(crate) fn answered(&mut self, sender: Sender, answer: Answer) {
        match sender {
            Sender::Add(id) => self.on_add_answer(id, answer),
            Sender::Confirm(id) => self.on_confirm_answer(id, &answer),
            Sender::Del(del) => self.on_del_answer(del, answer),
            Sender::TombstoneInPass(key) => {
                if matches!(answer, Answer::Released { .. }) {
                    self.tombstones.remove(&key);
                }
            }
            Sender::RollBack(id) => {
                if !matches!(answer, Answer::Released { .. }) {
                    self.leave_tombstone(id);
                }
            }
            Sender::TombstoneAtStart(_) => {}
        }
    }

    fn on_add_answer(&mut self, id: SandboxId, answer: Answer) {
        let waits = |s: &crate::kubelet::Sandbox| s.stage == Stage::Waiting;
        if !self.kubelet.sandboxes.get(&id).is_some_and(waits) {
            self.judge.gave_up(id);
            return;
        }
        let demand = self.demand();
        match answer {
            Answer::Reserved { addresses } => {
                self.judge.waited(id, None, demand, self.now);
                self.reserved(id, &addresses);
            }
            // It has no address of the pool, and the simulated kernel has no links of branches.
            Answer::ReservedBranch(branch) => {
                if let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) {
                    sandbox.of_branch = branch.addresses().collect();
                }
                self.reserved(id, &[]);
            }
            Answer::Refused(refusal) => {
                let why = Some(refusal.message.as_str());
                self.judge.waited(id, why, demand, self.now);
                self.add_failed(id);
            }
            _ => self.add_failed(id),
        }
    }

    fn reserved(&mut self, id: SandboxId, addresses: &[PodAddress]) {
        let now = self.now;
        let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
        let given = addresses.iter().map(|given| (given.address, given.table));
        let prefix = &self.settings.veth_prefix;
        let mode = ipamd_node::desired::host_end(&self.settings);
        let nets = PodDesired::interfaces(&sandbox.key, &sandbox.name, prefix, &mode, true, given);
        sandbox.nets = (0..)
            .zip(nets)
            .map(|(number, net)| PodNet {
                key: net.key,
                veth: net.veth,
                number,
                address: net.address,
                table: net.table,
                layout: self.settings.rules,
                host_end: routing_plan::pod::HostEnd::Routed,
                mtu: registry::ENI_MTU,
                branch: None,
            })
            .collect();
        sandbox.finish = sandbox.deadline.max(now + FINISH);
        sandbox.stage = Stage::Building;
        if sandbox.dies == Some(Death::Reserved) {
            self.plugin_dies(id);
            return;
        }
        let takes = self.draw("build", 1, 400);
        self.after(Span(takes), DueEvent::Add(id, AddStep::Link));
    }

    fn link(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        let (nets, dies) = (sandbox.nets.clone(), sandbox.dies);
        if nets.iter().any(|net| self.is_of_another(id, net)) {
            self.undo(id);
            return;
        }
        self.watch_others(id, |world| nets.iter().for_each(|net| world.host.make_veth(net)));
        self.kernel_changed();
        if dies == Some(Death::Building) {
            self.plugin_dies(id);
            return;
        }
        let takes = self.draw("build", 0, 200);
        self.after(Span(takes), DueEvent::Add(id, AddStep::Connect));
    }

    /// The plugin asks the daemon for the owner of a link that has the name of the pod's host veth.
    fn is_of_another(&self, id: SandboxId, net: &PodNet) -> bool {
        let Some(link) = self.host.named_as(net) else { return false };
        if self.planted == Some(Planted::VethByName) || link.group == registry::GROUP_REAP {
            return false;
        }
        let Some(key) = link.key() else { return false };
        let Some(own) = self.kubelet.sandboxes.get(&id) else { return false };
        let core = self.daemon.as_ref().and_then(|daemon| daemon.core.as_ref());
        let first = PodKey { ifname: own.key.ifname.clone(), ..key };
        let held = core.and_then(|core| core.inspect(&first));
        first != own.key && held.is_none_or(|held| held.pod != own.name)
    }

    /// Law: the ADD of a pod disconnects no other running pod.
    fn watch_others(&mut self, id: SandboxId, change: impl FnOnce(&mut Self)) {
        let own = self.kubelet.sandboxes.get(&id).map(|sandbox| sandbox.pod);
        let others = self.kubelet.running().filter(|sandbox| Some(sandbox.pod) != own);
        let nets: Vec<PodNet> = others.flat_map(|sandbox| sandbox.nets.clone()).collect();
        let connected: Vec<bool> = nets.iter().map(|net| self.host.connected(net)).collect();
        change(self);
        let now = self.now;
        for (net, connected) in nets.iter().zip(connected) {
            let still = !connected || self.host.connected(net);
            self.judge.demand(still, Law::CutOff, now, || {
                format!("{} of {} is cut off by the ADD of another pod", net.address, net.key)
            });
            let misrouted = self.host.misrouted_by(net).map(|link| link.name.clone());
            self.judge.demand(misrouted.is_none(), Law::LinkOfAnother, now, || {
                format!("{} of {} is routed to {misrouted:?}", net.address, net.key)
            });
        }
    }

    fn connect(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        let (nets, dies, finish) = (sandbox.nets.clone(), sandbox.dies, sandbox.finish);
        let built = self.now <= finish && nets.iter().all(|net| self.host.connect(net));
        self.kernel_changed();
        if !built {
            self.undo(id);
            return;
        }
        if dies == Some(Death::Built) {
            self.plugin_dies(id);
            return;
        }
        self.confirm(id);
    }

    fn confirm(&mut self, id: SandboxId) {
        let now = self.now;
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        let (key, veth, finish) = (sandbox.key.clone(), sandbox.veth.clone(), sandbox.finish);
        let question = Question::Confirm(key, veth.as_str().to_owned());
        if now <= finish && self.ask(question, Sender::Confirm(id)).is_some() {
            self.set_stage(id, Stage::Confirming);
        } else if now + REDIAL < finish {
            self.set_stage(id, Stage::Redialing);
            let takes = self.draw("dial", 50, 250);
            self.after(Span(takes), DueEvent::Add(id, AddStep::Dial));
        } else {
            self.undo(id);
        }
    }

    fn on_confirm_answer(&mut self, id: SandboxId, answer: &Answer) {
        let now = self.now;
        let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
        if sandbox.stage != Stage::Confirming {
            return;
        }
        if *answer != (Answer::Confirmed { confirmed: true }) || now > sandbox.finish {
            self.undo(id);
        } else if sandbox.dies == Some(Death::Confirmed) {
            self.plugin_dies(id);
        } else {
            sandbox.stage = Stage::Running;
            sandbox.result = sandbox.nets.iter().map(|net| net.address).collect();
            let (key, pod) = (sandbox.key.clone(), sandbox.pod);
            if let Some(pod) = self.kubelet.pods.get_mut(&pod) {
                pod.failures = 0;
            }
            self.judge.runs(&key);
            let harmed = self.judge.harmed_of(&key);
            self.replace_pods(&harmed);
            self.note(|| format!("sandbox {id} runs"));
        }
    }

    /// A connection breaks while a request waits.
    pub(crate) fn lost(&mut self, sender: Sender) {
        match sender {
            Sender::Add(id) => {
                let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
                if sandbox.stage == Stage::Waiting {
                    sandbox.stage = Stage::Dialing;
                    self.after(REDIAL, DueEvent::Add(id, AddStep::Dial));
                }
            }
            Sender::Confirm(id) => {
                let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
                if sandbox.stage == Stage::Confirming {
                    sandbox.stage = Stage::Redialing;
                    self.after(REDIAL, DueEvent::Add(id, AddStep::Dial));
                }
            }
            Sender::RollBack(id) => self.roll_back(id),
            Sender::Del(del) => self.del_on(del, DelStep::GivesUp),
            Sender::TombstoneInPass(_) | Sender::TombstoneAtStart(_) => {}
        }
    }

    /// Removes what was built and releases the reservation.
    fn undo(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        for net in sandbox.nets.clone() {
            self.host.undo(&net);
        }
        self.kernel_changed();
        self.roll_back(id);
        self.add_failed(id);
    }

    fn roll_back(&mut self, id: SandboxId) {
        let Some(key) = self.kubelet.sandboxes.get(&id).map(|s| s.key.clone()) else { return };
        let release = Question::Release(key, ReleaseCause::SetupFailed);
        if self.ask(release, Sender::RollBack(id)).is_none() {
            self.leave_tombstone(id);
        }
    }

    fn leave_tombstone(&mut self, id: SandboxId) {
        if let Some(sandbox) = self.kubelet.sandboxes.get(&id) {
            self.tombstones.entry(sandbox.key.clone()).or_insert(self.now);
        }
    }

    /// Kills the plugin: it rolls nothing back, and the runtime notices the exit.
    fn plugin_dies(&mut self, id: SandboxId) {
        self.note(|| format!("plugin of sandbox {id} dies"));
        self.judge.gave_up(id);
        self.add_failed(id);
    }

    /// The runtime sends a DEL, sooner or later, and the kubelet tries again.
    fn add_failed(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
        sandbox.stage = Stage::Ended;
        let pod = sandbox.pod;
        self.note(|| format!("ADD of sandbox {id} fails"));
        let soon = self.draw("cleanup", 5, 3000);
        self.after(Span(soon), DueEvent::Del(id));
        let failures = self.kubelet.pods.get_mut(&pod).map_or(0, |pod| {
            pod.failures += 1;
            pod.failures.min(5)
        });
        let back_off = self.draw("backoff", 1000, 3000) << failures;
        self.after(Span(back_off), DueEvent::Sync(pod));
    }

    /// A DEL ends its sandbox, whatever its state.
    pub(crate) fn del(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
        // The runtime kills an ADD that is under way.
        let waits = sandbox.ticket.take().filter(|_| sandbox.stage == Stage::Waiting);
        sandbox.stage = Stage::Ended;
        let key = sandbox.key.clone();
        self.judge.gave_up(id);
        self.judge.ends(&key);
        waits.into_iter().for_each(|ticket| self.abandon(ticket));
        self.note(|| format!("DEL of sandbox {id}"));
        let del = self.kubelet.new_del(id);
        let named = match self.planted {
            Some(Planted::LateDelFreesNext) => self.kubelet.newest_of(id).map(|s| s.key.clone()),
            _ => None,
        };
        let release = Question::Release(named.unwrap_or(key), ReleaseCause::PodDeleted);
        let ticket = self.ask(release, Sender::Del(del));
        let patience = if ticket.is_some() { DEL_DEADLINE } else { DEL_PATIENCE };
        if let Some(del) = self.kubelet.dels.get_mut(&del) {
            del.ticket = ticket;
        }
        self.after(patience, DueEvent::DelOn(del, DelStep::GivesUp));
    }

    fn on_del_answer(&mut self, del: u32, answer: Answer) {
        let Some(known) = self.kubelet.dels.get_mut(&del).filter(|known| known.asking) else {
            return;
        };
        let addresses = match answer {
            Answer::Released { known: true, addresses } => {
                Some(addresses.iter().map(|given| given.address).collect())
            }
            Answer::Released { .. } => None,
            _ => {
                self.del_on(del, DelStep::GivesUp);
                return;
            }
        };
        known.asking = false;
        let takes = self.draw("unbuild", 0, 3000);
        self.after(Span(takes), DueEvent::DelOn(del, DelStep::Kernel(addresses)));
    }

    pub(crate) fn del_on(&mut self, del: u32, step: DelStep) {
        let Some(known) = self.kubelet.dels.get(&del) else { return };
        let sandbox = known.sandbox;
        match step {
            DelStep::GivesUp if !known.asking => {}
            DelStep::GivesUp => {
                let ticket = known.ticket;
                self.kubelet.dels.remove(&del);
                ticket.into_iter().for_each(|ticket| self.abandon(ticket));
                self.del_alone(sandbox);
            }
            DelStep::Kernel(addresses) => {
                self.kubelet.dels.remove(&del);
                let Some(known) = self.kubelet.sandboxes.get(&sandbox) else { return };
                for (key, veth) in known.interfaces() {
                    match &addresses {
                        Some(addresses) => self.host.delete_known(&key, &veth, addresses),
                        None => self.host.delete_unknown(&key, &veth),
                    }
                }
                self.kernel_changed();
                self.del_succeeds(sandbox);
            }
        }
    }

    fn del_alone(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get(&id) else { return };
        let (ends, result) = (sandbox.interfaces(), sandbox.result.clone());
        self.note(|| format!("DEL of sandbox {id} leaves a tombstone"));
        self.leave_tombstone(id);
        for (key, _) in ends {
            self.host.delete_without_daemon(&key, &result);
        }
        self.kernel_changed();
        self.del_succeeds(id);
    }

    fn del_succeeds(&mut self, id: SandboxId) {
        let takes = self.draw("namespace", 5, 500);
        self.after(Span(takes), DueEvent::NamespaceGoes(id));
    }

    pub(crate) fn namespace_goes(&mut self, id: SandboxId) {
        let Some(sandbox) = self.kubelet.sandboxes.get_mut(&id) else { return };
        if std::mem::replace(&mut sandbox.namespace, false) {
            for (key, _) in sandbox.interfaces() {
                self.host.namespace_gone(&key);
            }
            self.kernel_changed();
        }
    }
}

/// The daemon's answer arrives this long before the plugin's own deadline.
const HEARING: Span = Span::millis(500);
/// The pause after a lost connection.
const REDIAL: Span = Span::millis(100);
/// The time to use an address that arrived at the last moment.
const FINISH: Span = Span::seconds(5);
/// The plugin's time limit for the daemon at a DEL.
const DEL_DEADLINE: Span = Span::seconds(5);
/// The part of it for which the plugin tries to connect.
const DEL_PATIENCE: Span = Span::millis(500);
