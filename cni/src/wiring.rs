//! Building a pod's links, routes and rules, and taking a failed build back.

use crate::{
    attachment::Call,
    fault::{Code, Fault},
    sandbox::Sandbox,
    session::{Session, unavailable},
};
use config_model::{HostEndMode, Mac, PodKey, VethName, causes, registry};
use routing_netlink::{Socket, SocketError, With, write_sysctls};
use routing_plan::{
    Action, Applied, Branch, Errno, Family, IfIndex, Ipv6Conf, Link, LinkKind, LinkRef, Observed,
    Op, Route, Subject, disconnect,
    egress::{self, Egress},
    pod::{GatewayPort, HostEnd, PodNet, mac_addresses},
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    thread::sleep,
    time::{Duration, Instant},
};

/// The two namespaces that a pod's interfaces are built in.
pub(crate) struct Wiring<'a> {
    call: &'a Call,
    sandbox: &'a Sandbox,
    host: Socket,
    pod: Socket,
    /// Interfaces whose links must be removed if the build fails.
    linked: BTreeSet<PodKey>,
    /// Interfaces whose rules and routes must be removed if the build fails.
    addressed: BTreeSet<PodKey>,
    /// The trunk that carries branches.
    trunk: Option<Mac>,
    /// True if the first interface gets an address of the other family.
    egress: bool,
}

/// The two ends that were built.
pub(crate) struct Pair {
    pub(crate) host: End,
    pub(crate) pod: End,
}

pub(crate) struct End {
    pub(crate) index: IfIndex,
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    up: bool,
}

impl From<&Link> for End {
    fn from(link: &Link) -> Self {
        Self { index: link.index, mac: link.mac, mtu: link.mtu, up: link.up }
    }
}

/// The owner of a host veth whose name a pod needs.
enum Owner {
    /// The same pod, in this or in an earlier sandbox, or no pod.
    SamePod,
    /// The daemon does not know it. It deletes a link whose alias is of no pod.
    Unknown(Fault),
    OtherPod(Fault),
}

/// Pause between two looks at a link of an unknown owner.
const OWNER_RETRY: Duration = Duration::from_millis(100);
/// Pause between two attempts while an old link of the same name is being deleted.
const RETRY: Duration = Duration::from_millis(10);

impl<'a> Wiring<'a> {
    /// Opens both namespaces and checks that the name of the pod's first interface is free or ours.
    pub(crate) fn open(
        call: &'a Call,
        veths: &[VethName],
        sandbox: &'a Sandbox,
    ) -> Result<Self, Fault> {
        let pod = sandbox.socket()?;
        let host = Socket::open().map_err(|error| failed(&call.key, &error))?;
        let (linked, addressed) = (BTreeSet::new(), BTreeSet::new());
        let (trunk, egress) = (None, false);
        let mut wiring = Self { call, sandbox, host, pod, linked, addressed, trunk, egress };
        wiring.own_pair(&call.key, veths)?;
        Ok(wiring)
    }

    /// Sets the trunk that carries branches.
    pub(crate) fn carried_by(&mut self, trunk: Mac) {
        self.trunk = Some(trunk);
    }

    /// Gives the pod a second address of the other family.
    pub(crate) fn reach_both_families(&mut self) {
        self.egress = true;
    }

    /// Looks up the gateway port of mode bridged. It must exist before the pod: the host's route leads to it.
    pub(crate) fn host_end(&mut self, key: &PodKey, mode: &HostEndMode) -> Result<HostEnd, Fault> {
        let HostEndMode::Bridged { gateway_port } = mode else { return Ok(HostEnd::Routed) };
        let link = self.host.link_named(gateway_port).map_err(|error| failed(key, &error))?;
        link.as_ref().and_then(GatewayPort::of).map(HostEnd::Bridged).ok_or_else(|| {
            Fault::new(
                Code::TryAgainLater,
                format!(
                    "{key}: the gateway port {gateway_port} of the node's bridge is missing or down"
                ),
                "look at the log of ferrule-agent, which creates it; the runtime will try again",
            )
        })
    }

    /// Builds an interface, or repairs an existing one. Old links of the same name are deleted, until the deadline.
    pub(crate) fn build(&mut self, net: &PodNet, deadline: Instant) -> Result<Pair, Fault> {
        let built = self.try_build(net, deadline);
        // If the pod is gone, that is the better explanation.
        built.map_err(|fault| self.sandbox.ensure_current().err().unwrap_or(fault))
    }

    fn try_build(&mut self, net: &PodNet, deadline: Instant) -> Result<Pair, Fault> {
        let pair = match self.own_pair(&net.key, std::slice::from_ref(&net.veth))? {
            Some(pair) => self.unless_readdressed(pair, net, deadline)?,
            None => None,
        };
        let pair = match pair {
            Some(pair) => pair,
            None => self.create(net, deadline)?,
        };
        self.linked.insert(net.key.clone());
        self.set_files(net);
        let host_mac = pair.host.mac.unwrap_or_else(|| mac_addresses(&net.key)[0]);
        let batch = net.pod_batch(pair.pod.index, host_mac);
        let applied = self.pod.run(&batch).map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "in the pod's namespace")?;
        if let Some(branch) = &net.branch {
            self.carry(net, branch)?;
        }
        self.address_host(net, &pair.host)?;
        if self.egress && net.number == 0 && net.branch.is_none() {
            let egress = self.egress_of(net, &pair.host)?;
            self.reach_other_family(net, egress, &pair, host_mac)?;
        }
        Ok(pair)
    }

    /// The pod's address of the other family. An IPv4 address is leased from here on.
    fn egress_of(&mut self, net: &PodNet, host_end: &End) -> Result<Egress, Fault> {
        let address = match net.address {
            IpAddr::V4(own) => egress::v6_of(own).into(),
            IpAddr::V6(_) => self.lease(net, host_end)?.into(),
        };
        Ok(Egress { address })
    }

    /// The lease of an earlier ADD, or the first free address. The kernel refuses a second route to an address.
    fn lease(&mut self, net: &PodNet, host_end: &End) -> Result<Ipv4Addr, Fault> {
        let addresses = self.host.addresses(Family::V4);
        let addresses = addresses.map_err(|error| failed(&net.key, &error))?;
        if let Some(own) = egress::lease(host_end.index, &addresses) {
            return Ok(own);
        }
        let held: BTreeSet<IpAddr> = addresses.iter().filter_map(|address| address.peer).collect();
        let free = |address: &Ipv4Addr| !held.contains(&IpAddr::V4(*address));
        for address in egress::candidates(&net.key).filter(free) {
            let taken = Egress { address: address.into() }.take(host_end.index);
            let applied = self.host.run(&[taken]).map_err(|error| failed(&net.key, &error))?;
            if conflicting_route(&applied).is_none() {
                demand(&net.key, &applied, "on the host")?;
                return Ok(address);
            }
        }
        Err(Fault::new(
            Code::Exhausted,
            format!(
                "{}: all {} addresses for IPv4 destinations in {} are in use on this node",
                net.key,
                egress::V4_COUNT,
                egress::range(Family::V4),
            ),
            "see `ip -4 route` for their pods; delete pods of this node, or set \
             ENABLE_V4_EGRESS=false for pods with IPv6 only",
        ))
    }

    /// The host's side first, as with the pod's own address.
    fn reach_other_family(
        &mut self,
        net: &PodNet,
        egress: Egress,
        pair: &Pair,
        host_mac: Mac,
    ) -> Result<(), Fault> {
        if egress.address.is_ipv6() {
            let on = |link: &str| (Ipv6Conf::DisableIpv6.sysctl(link), "0");
            let _ = write_sysctls(&[on(net.veth.as_str())]);
            let _ = self.sandbox.write_sysctls(&[on("lo"), on(&net.key.ifname)]);
        }
        let applied = self.host.run(&egress.host_batch(pair.host.index));
        let applied = applied.map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "on the host")?;
        let applied = self.pod.run(&egress.pod_batch(pair.pod.index, host_mac));
        let applied = applied.map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "in the pod's namespace")
    }

    /// Removes every completed step of a build. Returns the error of the first step that could not be removed.
    pub(crate) fn undo(&mut self, net: &PodNet) -> Result<(), Fault> {
        // A link with only the same name may belong to the next sandbox.
        let ours = |link: &Link| {
            link.mac == Some(mac_addresses(&net.key)[0]) || link.alias == Some(net.key.alias())
        };
        let linked = self.linked.contains(&net.key);
        let host_end = if linked { self.host_link(net)?.filter(ours) } else { None };
        if net.branch.is_some() && self.addressed.contains(&net.key) {
            let seen = self.host.observe(With::Nothing);
            let seen = seen.map_err(|error| failed(&net.key, &error))?;
            // The host end gets its alias last.
            let end = host_end.map(|link| link.index);
            let ours =
                |link: &&Link| link.key().as_ref() == Some(&net.key) || Some(link.index) == end;
            let own: Vec<&Link> = seen.links.values().filter(ours).collect();
            let mut ops: Vec<Op> = disconnect(&seen, own.iter().copied()).collect();
            ops.extend(own.into_iter().map(deletion));
            ops.extend(net.undo_batch(None));
            let applied = self.host.run(&ops).map_err(|error| failed(&net.key, &error))?;
            return demand(&net.key, &applied, "while taking back");
        }
        let ops = match (self.addressed.contains(&net.key), host_end) {
            (true, host_end) => net.undo_batch(host_end.map(|link| link.index)),
            (false, Some(link)) => vec![deletion(&link)],
            (false, None) => return Ok(()),
        };
        let applied = self.host.run(&ops).map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "while taking back")
    }

    /// Writes the settings that exist only as files. The host ignores router advertisements of the pod. IPv6 is
    /// enabled if the pod has an IPv6 address, because a runtime may have disabled it. Errors are ignored: the kernel
    /// then refuses the address, or the daemon repairs the setting.
    fn set_files(&self, net: &PodNet) {
        let no_advertisements = (Ipv6Conf::AcceptRa.sysctl(net.veth.as_str()), "0");
        let _ = write_sysctls(&[no_advertisements]);
        if net.address.is_ipv6() {
            let on = |link: &str| (Ipv6Conf::DisableIpv6.sysctl(link), "0");
            let _ = self.sandbox.write_sysctls(&[on("lo"), on(&net.key.ifname)]);
        }
    }

    /// The links that an earlier ADD of the same key has created, if any.
    ///
    /// A host end without alias, but with the pod's end as its peer, is of an ADD that was killed
    /// between two messages.
    fn own_pair(&mut self, key: &PodKey, veths: &[VethName]) -> Result<Option<Pair>, Fault> {
        let ifname = &key.ifname;
        let pod = self.pod.link_named(ifname).map_err(|error| failed(key, &error))?;
        let Some(pod) = pod else { return Ok(None) };
        let mut host = None;
        for veth in veths {
            let link = self.host.link_named(veth.as_str()).map_err(|error| failed(key, &error))?;
            host = host.or(link.filter(|link| match &link.alias {
                Some(alias) => *alias == key.alias(),
                None => link.kind == LinkKind::Veth && are_peers(link, &pod),
            }));
        }
        match host {
            // A DEL has given the link up, and the daemon is about to delete it.
            Some(host) if are_peers(&host, &pod) && host.group == registry::GROUP_REAP => {
                self.delete(key, &host).map(|()| None)
            }
            Some(host) if are_peers(&host, &pod) => {
                Ok(Some(Pair { host: End::from(&host), pod: End::from(&pod) }))
            }
            // The daemon has deleted the link between the two reads.
            _ if self.pod_end(key)?.is_none() => Ok(None),
            _ => Err(Fault::new(
                Code::KernelRefused,
                format!(
                    "interface {ifname} already exists in network namespace {} and is not of {key}",
                    self.sandbox.path(),
                ),
                "another plugin or a second runtime has made it; give this network another \
                 interface name or remove that one",
            )),
        }
    }

    /// The pair, if it has the right address. A pair with another address is deleted: the pod may have learned its
    /// old address.
    fn unless_readdressed(
        &mut self,
        pair: Pair,
        net: &PodNet,
        deadline: Instant,
    ) -> Result<Option<Pair>, Fault> {
        let seen = self.pod.observe(With::Nothing).map_err(|error| failed(&net.key, &error))?;
        let foreign = seen
            .addresses
            .iter()
            .filter(|address| address.dev == pair.pod.index && address.global)
            .map(|address| address.address.addr())
            .any(|address| address != net.address && !is_second(net, address));
        if foreign {
            self.clear_name(net, deadline)?;
            return Ok(None);
        }
        Ok(Some(pair))
    }

    fn create(&mut self, net: &PodNet, deadline: Instant) -> Result<Pair, Fault> {
        let [host_mac, pod_mac] = mac_addresses(&net.key);
        let mut pair = net.veth_pair(host_mac, pod_mac);
        loop {
            self.clear_name(net, deadline)?;
            let netns = std::os::fd::AsFd::as_fd(self.sandbox);
            match self.host.create_veth(&pair, netns) {
                Ok(()) => drop(self.linked.insert(net.key.clone())),
                Err(SocketError::CreateVeth { errno: Errno::EEXIST, .. })
                    if Instant::now() < deadline =>
                {
                    // Either an old host end still exists, or the pod's name was taken just now, or the chosen index
                    // is in use.
                    self.own_pair(&net.key, std::slice::from_ref(&net.veth))?;
                    match &mut pair.host_index {
                        Some(IfIndex(number)) => *number += 1,
                        None => sleep(RETRY),
                    }
                    continue;
                }
                Err(error) => return Err(failed(&net.key, &error)),
            }
            // The pod's end first: no other process creates a link with this name there. If it is gone, the host end
            // may already belong to the next sandbox.
            let pod = self.pod_end(&net.key)?.ok_or_else(|| vanished(&net.key))?;
            let host = self.host.index_of(net.veth.as_str());
            let host = host.map_err(|error| failed(&net.key, &error))?;
            let host = host.ok_or_else(|| vanished(&net.key))?;
            if host == pod && Instant::now() < deadline {
                // If both ends have the same index, the kernel treats a link as one without a peer. Its carrier then
                // comes up to a second late. Both namespaces count upwards by one, so only an explicit index is
                // certain to differ.
                pair.host_index = Some(IfIndex(host.0 + 2));
                continue;
            }
            let end = |index, mac, up| End { index, mac: Some(mac), mtu: net.mtu, up };
            return Ok(Pair { host: end(host, host_mac, true), pod: end(pod, pod_mac, false) });
        }
    }

    /// Makes the link of the pod's branch ENI, or takes over that of an older sandbox of the same pod.
    fn carry(&mut self, net: &PodNet, branch: &Branch) -> Result<(), Fault> {
        let seen = self.host.observe(With::Nothing).map_err(|error| failed(&net.key, &error))?;
        let trunk = self.trunk.expect("a branch comes with its trunk");
        // A link of another pod with this branch belongs to an older sandbox. Another branch belongs to a running
        // pod, unless a DEL has moved it to the reap group.
        let holds = |_: &PodKey, link: &Link| {
            link.mac != Some(branch.mac) && link.group != registry::GROUP_REAP
        };
        let carrier = routing_plan::carry(branch, &net.key, trunk, &seen, holds);
        let carrier = carrier.map_err(|obstacle| {
            Fault::new(
                Code::TryAgainLater,
                format!("{}: {obstacle}", net.key),
                "see `ip -d link` and what ferrule-ipamd logs of the trunk; the runtime will try again",
            )
        })?;
        self.addressed.insert(net.key.clone());
        let no_advertisements = |name: &str| (Ipv6Conf::AcceptRa.sysctl(name), "0");
        let applied = self.host.run(&net.branch_batch(&carrier));
        let applied = applied.map_err(|error| failed(&net.key, &error))?;
        if let Some(refused) = applied.refused.first()
            && matches!(refused.op.action, Action::AddVlan(_))
            && refused.errno == Errno::EOPNOTSUPP
        {
            return Err(Fault::new(
                Code::KernelRefused,
                format!("{}: the kernel has no VLANs: {refused}", net.key),
                "load the module 8021q on this node, or run the pod without a SecurityGroupPolicy",
            ));
        }
        demand(&net.key, &applied, "on the host")?;
        // As for the host's veth, the daemon repairs a setting that cannot be written.
        let _ = write_sysctls(&[no_advertisements(&carrier.link.name)]);
        Ok(())
    }

    /// Deletes the host link of an earlier sandbox of the same pod. Two pods can have one name of a host veth, so a link
    /// of another pod stays. If the owner is not known, the ADD waits until the deadline.
    fn clear_name(&mut self, net: &PodNet, deadline: Instant) -> Result<(), Fault> {
        loop {
            let Some(link) = self.host_link(net)? else { return Ok(()) };
            if link.kind != LinkKind::Veth {
                return Err(Fault::new(
                    Code::KernelRefused,
                    format!(
                        "host interface {} is needed for {} but is not a veth",
                        link.name, net.key
                    ),
                    "rename it, or set vethPrefix in the network configuration",
                ));
            }
            let fault = match self.owner(net, &link, deadline)? {
                Owner::SamePod => return self.delete(&net.key, &link),
                Owner::Unknown(_) if Instant::now() + OWNER_RETRY < deadline => {
                    sleep(OWNER_RETRY);
                    continue;
                }
                Owner::Unknown(fault) | Owner::OtherPod(fault) => fault,
            };
            return Err(fault);
        }
    }

    /// The owner of an existing host veth with the name that the pod needs.
    fn owner(&mut self, net: &PodNet, link: &Link, deadline: Instant) -> Result<Owner, Fault> {
        if link.group == registry::GROUP_REAP {
            return Ok(Owner::SamePod);
        }
        let pod_text = self.call.pod_text();
        let in_use = |by: &str| {
            Fault::new(
                Code::TryAgainLater,
                format!("host interface {} for {pod_text} is in use by {by}", link.name),
                "delete that pod, or create this one under another name; the runtime will try again",
            )
        };
        let Some(key) = link.key() else {
            let seen =
                self.host.observe(With::Nothing).map_err(|error| failed(&net.key, &error))?;
            let leads = link.group != registry::GROUP_NEW && !seen.routed_to(link.index).is_empty();
            // A killed ADD leaves a link without alias that leads to no pod.
            return Ok(match (&link.alias, leads) {
                (None, false) => Owner::SamePod,
                (None, true) => Owner::Unknown(in_use("a pod that amazon-vpc-cni built")),
                (Some(alias), _) => {
                    Owner::OtherPod(in_use(&format!("a link with alias {alias:?}")))
                }
            });
        };
        // A further interface is part of the assignment of its pod's first one.
        let first = match key.number() {
            0 => key.clone(),
            _ => PodKey { ifname: self.call.key.ifname.clone(), ..key.clone() },
        };
        if first == self.call.key {
            return Ok(Owner::SamePod);
        }
        let held = Session::inspect(&self.call.daemon, &first, deadline);
        let held = held.map_err(|error| unavailable(&pod_text, &error))?;
        Ok(match held {
            None => Owner::Unknown(in_use(&key.to_string())),
            Some(held) => match held.pod {
                Some(pod) if Some(&pod) == self.call.attachment.pod.pod.as_ref() => Owner::SamePod,
                Some(pod) => Owner::OtherPod(in_use(&format!("pod {pod} ({key})"))),
                None => Owner::OtherPod(in_use(&format!("{key}, whose pod is not known"))),
            },
        })
    }

    /// The host route comes first and alone: if another pod has it, no object of that pod is changed.
    fn address_host(&mut self, net: &PodNet, host_end: &End) -> Result<(), Fault> {
        let (rules, rest): (Vec<Op>, Vec<Op>) = net
            .host_batch(host_end.index)
            .into_iter()
            .partition(|op| matches!(op.action, Action::AddRule(_) | Action::SetNeighbor(_)));
        // A new link is up. A link under repair may be down, and would refuse the route.
        let name = net.veth.as_str().to_owned();
        let up = Action::SetUp(LinkRef { index: host_end.index, name });
        let up = (!host_end.up).then(|| Op::new(Subject::Link(host_end.index), up));
        let first: Vec<Op> = up
            .into_iter()
            .chain(rest)
            .map(|op| {
                let Action::ReplaceRoute(route) = op.action else { return op };
                Op::new(op.subject, Action::AddRoute(route))
            })
            .collect();
        let applied = self.host.run(&first).map_err(|error| failed(&net.key, &error))?;
        match conflicting_route(&applied) {
            None => demand(&net.key, &applied, "on the host")?,
            Some(route) => self.take_over_route(net, &route, host_end)?,
        }
        self.addressed.insert(net.key.clone());
        let applied = self.host.run(&rules).map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "on the host")
    }

    /// Replaces a conflicting route, unless it belongs to a live pod.
    fn take_over_route(&mut self, net: &PodNet, ours: &Route, host_end: &End) -> Result<(), Fault> {
        let seen = self.host.observe(With::Neighbors).map_err(|error| failed(&net.key, &error))?;
        // A strict branch pod's route is in a table of its own.
        let same = |route: &&Route| (route.table, route.dst) == (ours.table, ours.dst);
        let same: BTreeSet<IfIndex> =
            seen.routes.iter().filter(same).filter_map(|route| route.dev).collect();
        let holder = seen
            .links
            .values()
            .filter(|link| link.index != host_end.index && link.group != registry::GROUP_REAP)
            .filter(|link| {
                same.contains(&link.index)
                    || seen.routed_to(link.index).contains(&net.address)
                    || is_bridged_to(&seen, net, link)
            })
            .find_map(Link::key);
        if let Some(holder) = holder {
            return Err(Fault::new(
                Code::TryAgainLater,
                format!("address {} for {} is in use by {holder}", ours.dst.addr(), net.key),
                "ferrule-ipamd assigned it twice: report this defect; the next try may get another address",
            ));
        }
        let subject = Subject::Link(host_end.index);
        let op = Op::new(subject, Action::ReplaceRoute(ours.clone()));
        let applied = self.host.run(&[op]).map_err(|error| failed(&net.key, &error))?;
        demand(&net.key, &applied, "on the host")
    }

    fn host_link(&mut self, net: &PodNet) -> Result<Option<Link>, Fault> {
        self.host.link_named(net.veth.as_str()).map_err(|error| failed(&net.key, &error))
    }

    fn pod_end(&self, key: &PodKey) -> Result<Option<IfIndex>, Fault> {
        self.pod.index_of(&key.ifname).map_err(|error| failed(key, &error))
    }

    fn delete(&mut self, key: &PodKey, link: &Link) -> Result<(), Fault> {
        let applied = self.host.run(&[deletion(link)]).map_err(|error| failed(key, &error))?;
        demand(key, &applied, "on the host")
    }
}

/// True if this is the pod's second address.
fn is_second(net: &PodNet, address: IpAddr) -> bool {
    Family::of(address) != Family::of(net.address) && egress::is_within(address)
}

/// True if the host's neighbor entry leads the address of `net` to the bridged pod behind this link.
fn is_bridged_to(seen: &Observed, net: &PodNet, link: &Link) -> bool {
    let HostEnd::Bridged(port) = &net.host_end else { return false };
    let addresses = link.key().map(|key| seen.bridged_addresses(&key, port.index));
    addresses.is_some_and(|addresses| addresses.contains(&net.address))
}

fn demand(key: &PodKey, applied: &Applied, place: &str) -> Result<(), Fault> {
    let Some(refused) = applied.refused.first() else { return Ok(()) };
    let more = applied.refused.len() - 1;
    let more = if more > 0 { format!(" (and {more} more steps)") } else { String::new() };
    Err(refusal(format!("{key}: {place}: {refused}{more}")))
}

fn vanished(key: &PodKey) -> Fault {
    refusal(format!("{key}: the links vanished as soon as they were made"))
}

fn deletion(link: &Link) -> Op {
    Op::new(Subject::Link(link.index), Action::DeleteLink(LinkRef::from(link)))
}

fn conflicting_route(applied: &Applied) -> Option<Route> {
    let [refused] = applied.refused.as_slice() else { return None };
    let Action::AddRoute(route) = &refused.op.action else { return None };
    (refused.errno == Errno::EEXIST).then(|| route.clone())
}

fn are_peers(host: &Link, pod: &Link) -> bool {
    host.peer.is_some_and(|peer| peer.index == pod.index)
        && pod.peer.is_some_and(|peer| peer.index == host.index)
}

/// A failure of the netlink socket.
pub(crate) fn failed(key: &PodKey, error: &SocketError) -> Fault {
    refusal(format!("{key}: {}", causes(error)))
}

fn refusal(message: String) -> Fault {
    Fault::new(
        Code::KernelRefused,
        message,
        "nothing was left behind; the runtime will try again, and the kernel's log may say more",
    )
}
