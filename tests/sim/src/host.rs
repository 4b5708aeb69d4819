//! The node's kernel: links by ENI, veth pairs, routes and rules of pods.

use config_model::{EniId, PodKey, Time, VethName, registry};
use lab_cloud::{AttachmentStatus, NetworkInterface};
use routing_plan::{
    Applied, Errno, Execution, Family, IfIndex, Link, LinkKind, Observed, Op, Subject,
    addresses_in_use,
    pod::{PodNet, removal, retire},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};
use tests_support::FakeKernel;

/// The kernel of one boot.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) kernel: FakeKernel,
    links: BTreeMap<EniId, IfIndex>,
    /// Host ends that have no alias yet.
    new: BTreeMap<PodKey, IfIndex>,
    /// Changes of pods' routes and rules are refused.
    pub(crate) refuses: bool,
    /// Increases with every change.
    pub(crate) version: u64,
    pub(crate) boot: u32,
    /// The time when its clock started.
    zero: Time,
    devices: u32,
}

/// `CLOCK_BOOTTIME` at the first start of the daemon.
const BOOT_TAKES: u64 = 10_000;

impl Host {
    pub(crate) fn boot(boot: u32, family: Family, now: Time) -> Self {
        let mut kernel = FakeKernel::default();
        for name in family.sysctls().into_keys() {
            kernel.state.sysctls.insert(name, "0".to_owned());
        }
        let zero = Time(now.0.saturating_sub(BOOT_TAKES));
        let (links, new) = (BTreeMap::new(), BTreeMap::new());
        Self { kernel, links, new, refuses: false, version: 0, boot, zero, devices: 0 }
    }

    /// The node's own clock.
    pub(crate) fn clock(&self, now: Time) -> Time {
        Time(now.since(self.zero).0)
    }

    /// Converts the node's time to the world's.
    pub(crate) fn when(&self, at: Time) -> Time {
        Time(self.zero.0 + at.0)
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// Adds and removes links as EC2 attaches and detaches. Returns true if a link changed.
    pub(crate) fn plug(&mut self, enis: &[Arc<NetworkInterface>]) -> bool {
        let there = |eni: &&Arc<NetworkInterface>| {
            eni.attachment.as_ref().is_some_and(|a| a.status != AttachmentStatus::Attaching)
        };
        let seen: BTreeSet<&EniId> = enis.iter().filter(there).map(|eni| &eni.id).collect();
        let gone: Vec<EniId> = self.links.keys().filter(|id| !seen.contains(id)).cloned().collect();
        let mut changed = !gone.is_empty();
        for id in gone {
            if let Some(index) = self.links.remove(&id) {
                self.remove_link(index);
            }
        }
        for eni in enis.iter().filter(there) {
            if !self.links.contains_key(&eni.id) {
                let name = format!("eth{}", self.devices);
                self.devices += 1;
                let index = self.kernel.add_link(&name, eni.mac, LinkKind::Device);
                if self.links.is_empty() {
                    // The image configures the primary ENI.
                    self.set_up(index);
                }
                self.links.insert(eni.id.clone(), index);
                changed = true;
            }
        }
        self.version += u64::from(changed);
        changed
    }

    fn set_up(&mut self, index: IfIndex) {
        if let Some(link) = self.kernel.state.links.get_mut(&index) {
            link.up = true;
        }
    }

    /// A link goes with its namespace or its device.
    fn remove_link(&mut self, index: IfIndex) {
        let state = &mut self.kernel.state;
        state.links.remove(&index);
        state.routes.retain(|route| route.dev != Some(index));
        state.addresses.retain(|address| address.dev != index);
        self.new.retain(|_, of| *of != index);
        self.version += 1;
    }

    pub(crate) fn observe(&self) -> Observed {
        self.kernel.observe()
    }

    /// The addresses in any rule or route of a pod.
    pub(crate) fn in_use(&self) -> BTreeSet<IpAddr> {
        addresses_in_use(&self.kernel.state)
    }

    /// Applies a plan.
    pub(crate) fn apply(&mut self, ops: &[Op]) -> Applied {
        let mut execution = Execution::default();
        for op in ops {
            if !execution.admits(op) {
                continue;
            }
            if self.refuses && matches!(op.subject, Subject::Address(_)) {
                self.kernel.refuse_after(0, Errno::EBUSY);
            }
            self.kernel.apply(std::slice::from_ref(op));
            let answer = self.kernel.calls.pop().map_or(Ok(()), |call| call.answer);
            self.kernel.calls.clear();
            execution.record(op, answer);
        }
        if !ops.is_empty() {
            self.version += 1;
        }
        execution.finish()
    }

    fn host_end(&self, key: &PodKey) -> Option<IfIndex> {
        let marked = self.kernel.state.link_of(key).map(|link| link.index);
        marked.or_else(|| self.new.get(key).copied())
    }

    /// The link that the name of the pod's host veth has.
    pub(crate) fn named_as(&self, net: &PodNet) -> Option<&Link> {
        self.kernel.state.link_named(net.veth.as_str())
    }

    /// The first half of an ADD: removes an old link of that name, creates the pair. The link has no alias yet.
    pub(crate) fn make_veth(&mut self, net: &PodNet) {
        if let Some(old) = self.named_as(net).map(|link| link.index) {
            self.remove_link(old);
        }
        let mac = config_model::Mac([0x0a, 0, 0, 0, 0, 1]);
        let index = self.kernel.add_link(net.veth.as_str(), mac, LinkKind::Veth);
        if let Some(link) = self.kernel.state.links.get_mut(&index) {
            link.up = true;
            link.group = registry::GROUP_NEW;
        }
        self.new.insert(net.key.clone(), index);
        self.version += 1;
    }

    /// The second half: route and rules. Returns false if the link is gone.
    pub(crate) fn connect(&mut self, net: &PodNet) -> bool {
        let Some(link) = self.host_end(&net.key) else { return false };
        self.new.remove(&net.key);
        self.apply(&net.host_batch(link)).refused.is_empty()
    }

    /// Rolls an ADD back.
    pub(crate) fn undo(&mut self, net: &PodNet) {
        let link = self.host_end(&net.key);
        self.apply(&net.undo_batch(link));
    }

    /// DEL with the addresses that the daemon returned.
    pub(crate) fn delete_known(&mut self, key: &PodKey, veth: &VethName, addresses: &[IpAddr]) {
        let own = self.own_link(key, veth);
        let index = own.as_ref().map(|link| link.index);
        let mut ops: Vec<Op> =
            addresses.iter().flat_map(|address| removal(*address, index)).collect();
        ops.extend(own.as_ref().map(retire));
        self.apply(&ops);
    }

    /// DEL for a key that the daemon does not know.
    pub(crate) fn delete_unknown(&mut self, key: &PodKey, veth: &VethName) {
        let Some(own) = self.own_link(key, veth) else { return };
        let mut ops: Vec<Op> = self
            .routed_to(own.index)
            .into_iter()
            .flat_map(|address| removal(address, Some(own.index)))
            .collect();
        ops.push(retire(&own));
        self.apply(&ops);
    }

    /// DEL without a daemon: removes what is provably the pod's and returns its addresses.
    pub(crate) fn delete_without_daemon(
        &mut self,
        key: &PodKey,
        remembered: &[IpAddr],
    ) -> Vec<IpAddr> {
        let own = self.kernel.state.link_of(key).cloned();
        let index = own.as_ref().map(|link| link.index);
        let mut addresses: BTreeSet<IpAddr> = remembered.iter().copied().collect();
        addresses.extend(index.map(|index| self.routed_to(index)).unwrap_or_default());
        addresses.retain(|address| !self.is_of_another(*address, index));
        let mut ops: Vec<Op> =
            addresses.iter().flat_map(|address| removal(*address, index)).collect();
        ops.extend(own.as_ref().map(|link| {
            let action = routing_plan::Action::DeleteLink(routing_plan::LinkRef::from(link));
            Op::new(Subject::Link(link.index), action)
        }));
        self.apply(&ops);
        addresses.into_iter().collect()
    }

    fn is_of_another(&self, address: IpAddr, own: Option<IfIndex>) -> bool {
        self.kernel
            .state
            .routes
            .iter()
            .filter(|route| route.host_address() == Some(address))
            .any(|route| route.dev.is_some() && route.dev != own)
    }

    fn routed_to(&self, link: IfIndex) -> Vec<IpAddr> {
        let routes = self.kernel.state.routes.iter().filter(|route| route.dev == Some(link));
        routes.filter_map(routing_plan::Route::host_address).collect()
    }

    fn own_link(&self, key: &PodKey, veth: &VethName) -> Option<routing_plan::Link> {
        let named = self.kernel.state.link_named(veth.as_str())?;
        let own = named.group != registry::GROUP_REAP
            && named.alias.as_deref() == Some(key.alias().as_str());
        own.then(|| named.clone())
    }

    /// Removes the pod's namespace with its veth.
    pub(crate) fn namespace_gone(&mut self, key: &PodKey) {
        if let Some(link) = self.host_end(key) {
            self.remove_link(link);
        }
    }

    /// Returns whether packets reach the pod, and its own packets use its ENI's table.
    pub(crate) fn connected(&self, net: &PodNet) -> bool {
        let state = &self.kernel.state;
        let Some(link) = state.link_of(&net.key) else { return false };
        let route = net.host_route(link.index);
        let routed = state.routes.iter().any(|other| other.leads_as(&route));
        let ruled =
            net.rules().iter().all(|rule| state.rules.iter().any(|other| other.is_twin_of(rule)));
        link.up && link.group != registry::GROUP_REAP && routed && ruled
    }

    /// The link of another pod to which the host's route to this pod's address leads.
    pub(crate) fn misrouted_by(&self, net: &PodNet) -> Option<&Link> {
        let state = &self.kernel.state;
        let routes = state.routes.iter().filter(|it| it.host_address() == Some(net.address));
        let links = routes.filter_map(|route| state.links.get(&route.dev?));
        links.into_iter().find(|link| link.key().as_ref() != Some(&net.key))
    }

    /// Removes a rule or route of a pod, as another program would.
    pub(crate) fn drift(&mut self, nth: usize) {
        let state = &mut self.kernel.state;
        let rules: Vec<usize> = (0..state.rules.len())
            .filter(|at| state.rules[*at].protocol == registry::ROUTE_PROTOCOL)
            .collect();
        if let Some(at) = rules.get(nth % rules.len().max(1)) {
            state.rules.remove(*at);
            self.version += 1;
        }
    }
}
