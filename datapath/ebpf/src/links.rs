//! The links of the node, and the hooks that each needs.

use crate::{
    Hook, LoadError, Programs,
    fast::{Fit, fit},
    kernel,
    programs::{first, is_ours},
    tcx::Method,
    wires::{IPVS, LOOPBACK, Wires, wires},
};
use config_model::HostLink;
use datapath_abi::Own;
use datapath_plan::Address;
use routing_netlink::{BpfFilter, Filters, Side, Socket, SocketError, With};
use routing_plan::{IfIndex, Link, LinkKind, Observed};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The node's links and addresses, as they were observed.
pub(crate) struct Links {
    socket: Socket,
    pub(crate) links: BTreeMap<u32, Link>,
    /// The addresses that the host routes to each link.
    pub(crate) routed: BTreeMap<u32, BTreeSet<IpAddr>>,
    pub(crate) own: Own,
    /// The links at which clients outside ask for Services. Empty without Services.
    pub(crate) wires: Wires,
    /// The links that are fit for the fast path. Empty without Services.
    pub(crate) fit: Fit,
    method: Method,
    /// The links to which a queue was added for this pass. They have no filters yet.
    queued: BTreeSet<u32>,
}

impl Links {
    /// Observes the network namespace of the calling thread. `node` are the addresses that policies know as the node's.
    pub(crate) fn observe(
        node: &[IpAddr],
        method: Method,
        serves: bool,
    ) -> Result<Self, SocketError> {
        Self::observe_with(Socket::open()?, node, method, serves)
    }

    /// [`Self::observe`] for the network namespace of the socket.
    pub(crate) fn observe_with(
        mut socket: Socket,
        node: &[IpAddr],
        method: Method,
        serves: bool,
    ) -> Result<Self, SocketError> {
        let observed = socket.observe(With::Nothing)?;
        let own = own(&observed, node);
        let wires = if serves { wires(&observed) } else { Wires::new() };
        let mut routed: BTreeMap<u32, BTreeSet<IpAddr>> =
            observed.links.keys().map(|link| (link.0, BTreeSet::new())).collect();
        for (link, address) in observed.pod_addresses() {
            routed.entry(link.0).or_default().insert(address);
        }
        let fit = if serves {
            fit(&observed.links, &routed, &socket.queued_links()?)
        } else {
            Fit::new()
        };
        let links = observed.links.into_iter().map(|(index, link)| (index.0, link)).collect();
        Ok(Self { socket, links, routed, own, wires, fit, method, queued: BTreeSet::new() })
    }

    /// The links of pods that start, as the plugin reported them, without a list of all links: while many pods start, that
    /// list takes seconds. `known` are the links of the earlier state with their addresses, and `own` the node's addresses.
    /// `None` if one of the links does not exist under its name.
    pub(crate) fn reported<'a>(
        mut socket: Socket,
        new: impl IntoIterator<Item = &'a HostLink>,
        known: BTreeMap<u32, BTreeSet<IpAddr>>,
        own: Own,
        method: Method,
    ) -> Result<Option<Self>, SocketError> {
        let mut links = BTreeMap::new();
        for link in new {
            let index = IfIndex(link.ifindex);
            if socket.index_of(&link.name)? != Some(index) {
                return Ok(None);
            }
            let link = Link {
                index,
                name: link.name.clone(),
                mac: link.mac,
                mtu: 0,
                up: true,
                alias: None,
                group: 0,
                kind: LinkKind::Veth,
                peer: None,
                master: None,
                ipv4: BTreeMap::new(),
                ipv6: BTreeMap::new(),
            };
            links.insert(index.0, link);
        }
        let mut routed = known;
        routed.extend(links.keys().map(|link| (*link, BTreeSet::new())));
        // For a few links the kernel's own selection is cheaper.
        let routes = match links.len() {
            0..=FEW => {
                let mut routes = Observed::default();
                for link in links.keys() {
                    routes.append(socket.routes_to(IfIndex(*link))?);
                }
                routes
            }
            _ => socket.routes()?,
        };
        for (link, address) in routes.pod_addresses() {
            if links.contains_key(&link.0) {
                routed.entry(link.0).or_default().insert(address);
            }
        }
        let (wires, fit, queued) = (Wires::new(), Fit::new(), BTreeSet::new());
        Ok(Some(Self { socket, links, routed, own, wires, fit, method, queued }))
    }

    /// Notes the links to which a queue was added for this pass.
    pub(crate) fn set_queued(&mut self, links: BTreeSet<u32>) {
        self.queued = links;
    }

    /// The socket, for the next pass.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    /// The hooks of each link.
    pub(crate) fn hooks(
        &self,
        is_pod: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (&Link, &'static [Hook])> {
        let hooks =
            self.links.values().map(move |link| (link, self.hooks_of(link, is_pod(link.index.0))));
        hooks.filter(|(_, hooks)| !hooks.is_empty())
    }

    /// The hooks of a link: both of a pod's host link, and `to_wire` of every other one, with `from_wire` where clients outside
    /// ask for Services. Packets of the loopback link come back to the node, and those of an `ifb` link to the link that
    /// they entered by.
    pub(crate) fn hooks_of(&self, link: &Link, is_pod: bool) -> &'static [Hook] {
        if link.name == LOOPBACK || link.kind == LinkKind::Other(IFB.to_owned()) {
            &[]
        } else if is_pod {
            &POD
        } else if self.wires.contains_key(&link.index.0) {
            &WIRE_WITH_SERVICES
        } else {
            &WIRE
        }
    }

    /// The filters of a link on one side.
    pub(crate) fn filters(&mut self, link: u32, side: Side) -> Result<Filters, SocketError> {
        self.socket.filters(IfIndex(link), side)
    }

    /// Attaches the hooks of a link and removes our other filters. A queue `ingress` excludes `clsact`; then TCX is used.
    pub(crate) fn attach(
        &mut self,
        programs: &mut Programs,
        link: &Link,
        hooks: &[Hook],
    ) -> Result<(), LoadError> {
        // A link that has TCX keeps it. Its earlier programs judge until they are replaced. A link of a pod that starts has
        // none.
        let is_new = self.queued.contains(&link.index.0);
        let has_tcx = !is_new && SIDES.iter().any(|side| programs.has_tcx(link.index.0, *side));
        if self.method == Method::Tcx || has_tcx {
            return self.attach_by_tcx(programs, link, hooks);
        }
        match self.attach_by_filters(programs, link, hooks) {
            Err(LoadError::Queue { .. })
                if kernel::require(&kernel::release(), Method::Tcx).is_ok() =>
            {
                self.attach_by_tcx(programs, link, hooks)
            }
            result => result,
        }
    }

    fn attach_by_tcx(
        &mut self,
        programs: &mut Programs,
        link: &Link,
        hooks: &[Hook],
    ) -> Result<(), LoadError> {
        for hook in hooks {
            programs.attach_tcx(*hook, link)?;
        }
        for side in SIDES {
            if !hooks.iter().any(|hook| hook.side() == side) {
                programs.detach_tcx(link.index.0, side)?;
            }
            let filters = self.filters(link.index.0, side)?;
            let ours = filters.bpf.iter().filter(|filter| is_ours(filter) || is_misplaced(filter));
            for filter in ours {
                programs.effect()?;
                self.socket.delete_bpf_filter(filter)?;
            }
        }
        Ok(())
    }

    fn attach_by_filters(
        &mut self,
        programs: &mut Programs,
        link: &Link,
        hooks: &[Hook],
    ) -> Result<(), LoadError> {
        // Each call waits for the kernel's network lock. A new queue has no filters to read.
        if self.queued.remove(&link.index.0) || self.socket.add_clsact(link.index)? {
            programs.effect()?;
            let filters = programs.first_filters(hooks, link.index)?;
            // Otherwise each of them is added in its turn, or its fault is reported there.
            if self.socket.add_bpf_filters(&filters)? {
                return Ok(());
            }
            // The queue may be gone already.
            self.socket.add_clsact(link.index)?;
        }
        let mut is_behind = Ok(());
        for side in SIDES {
            let filters = self.filters(link.index.0, side)?;
            let hook = hooks.iter().find(|hook| hook.side() == side);
            let attached =
                hook.map_or(Ok(None), |hook| programs.attach(*hook, &link.name, &filters));
            // Behind the filters of others the program is attached anyway.
            let kept = match attached {
                Err(error) if error.is_behind() => Err(error),
                attached => Ok(attached?),
            };
            // A queue `ingress` in the place of `clsact` takes the filter of the other side.
            if side == Side::Egress {
                let misplaced = self.misplaced(link.index.0)?;
                if !misplaced.is_empty() {
                    for filter in misplaced {
                        programs.effect()?;
                        self.socket.delete_bpf_filter(&filter)?;
                    }
                    return Err(LoadError::Queue { link: link.name.clone() });
                }
            }
            let kept = match kept {
                Ok(kept) => kept,
                Err(error) => {
                    is_behind = is_behind.and(Err(error));
                    continue;
                }
            };
            let is_kept = |filter: &BpfFilter| kept == Some((filter.priority, filter.handle));
            for filter in filters.bpf.iter().filter(|filter| is_ours(filter) && !is_kept(filter)) {
                programs.effect()?;
                self.socket.delete_bpf_filter(filter)?;
            }
        }
        is_behind
    }

    /// Our filters for packets to the link that process packets from it.
    fn misplaced(&mut self, link: u32) -> Result<Vec<BpfFilter>, SocketError> {
        let filters = self.filters(link, Side::Ingress)?;
        Ok(filters.bpf.into_iter().filter(is_misplaced).collect())
    }

    /// True if the hooks of a link are attached before the programs of others. Such a program can end the kernel's run of
    /// the filters.
    pub(crate) fn is_attached(
        &mut self,
        programs: &Programs,
        link: u32,
        hooks: &[Hook],
    ) -> Result<bool, SocketError> {
        let has_hook = |side| hooks.iter().any(|hook| hook.side() == side);
        // A side without a hook can have a program of earlier settings.
        if SIDES.iter().any(|side| !has_hook(*side) && programs.has_tcx(link, *side)) {
            return Ok(false);
        }
        if hooks.iter().all(|hook| programs.is_current_tcx(*hook, link)) {
            return Ok(true);
        }
        let ingress = self.filters(link, Side::Ingress)?;
        if ingress.bpf.iter().any(is_misplaced) {
            return Ok(false);
        }
        let egress = self.filters(link, Side::Egress)?;
        for (side, filters) in [(Side::Ingress, &ingress), (Side::Egress, &egress)] {
            if !has_hook(side) && filters.bpf.iter().any(is_ours) {
                return Ok(false);
            }
        }
        for hook in hooks {
            let filters = if hook.side() == Side::Ingress { &ingress } else { &egress };
            if !first(filters).is_some_and(|filter| programs.is_current(*hook, filter)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The links of pods among these that no program guards yet. A link that was removed meanwhile is none of them.
    pub(crate) fn unguarded(
        &mut self,
        programs: &Programs,
        pods: impl IntoIterator<Item = u32>,
    ) -> BTreeSet<u32> {
        let mut unguarded = BTreeSet::new();
        for link in pods.into_iter().filter(|link| !programs.has_tcx(*link, Side::Ingress)) {
            // The other side can have `to_wire`, from the time at which the link was not known as a pod's.
            let filters = self.filters(link, Side::Ingress);
            if filters.is_ok_and(|filters| !filters.bpf.iter().any(is_ours)) {
                unguarded.insert(link);
            }
        }
        unguarded
    }

    /// True if the link exists now under this name.
    pub(crate) fn still_exists(&self, link: &Link) -> Result<bool, SocketError> {
        Ok(self.socket.index_of(&link.name)? == Some(link.index))
    }

    /// Removes our filters and TCX links from a link. Returns their number.
    pub(crate) fn detach(&mut self, programs: &Programs, link: u32) -> Result<usize, LoadError> {
        let mut removed = 0;
        for side in SIDES {
            removed += usize::from(programs.detach_tcx(link, side)?);
            for filter in self.filters(link, side)?.bpf.iter().filter(|filter| is_ours(filter)) {
                programs.effect()?;
                removed += usize::from(self.socket.delete_bpf_filter(filter)?);
            }
        }
        Ok(removed)
    }
}

/// True for a filter of ours for packets to a link, on the side of packets from it.
pub(crate) fn is_misplaced(filter: &BpfFilter) -> bool {
    let other = BpfFilter { side: Side::Egress, ..filter.clone() };
    is_ours(&other) && !is_ours(filter)
}

fn own(observed: &Observed, node: &[IpAddr]) -> Own {
    let ipvs = observed.links.values().find(|link| link.name == IPVS).map(|link| link.index);
    // The addresses of this link are virtual: IPVS forwards their packets to other pods.
    let own = observed.addresses.iter().filter(|address| Some(address.dev) != ipvs);
    let addresses = own.map(|address| Address::from(address.address.addr())).collect();
    let first = |is_v6: bool| node.iter().find(|address| address.is_ipv6() == is_v6);
    let node = [false, true].map(|is_v6| first(is_v6).map_or(Address(0), |of| (*of).into()));
    Own { addresses, node }
}

/// The number of links whose routes are read link by link.
const FEW: usize = 4;
const SIDES: [Side; 2] = [Side::Ingress, Side::Egress];
/// The kind of a link that delays received packets, as the plugin `bandwidth` adds it.
const IFB: &str = "ifb";

pub(crate) const POD: [Hook; 2] = [Hook::FromPod, Hook::ToPod];
const WIRE: [Hook; 1] = [Hook::ToWire];
const WIRE_WITH_SERVICES: [Hook; 2] = [Hook::ToWire, Hook::FromWire];
