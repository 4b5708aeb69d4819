//! A kernel in memory. It executes operations with Linux' error codes, records the requests, and fails on
//! demand.

mod addresses;
mod routes;
mod rules;

use config_model::{Mac, TableId};
use routing_plan::{
    Action, Applied, Errno, Execution, Family, IfIndex, Ipv4Conf, Ipv6Conf, Link, LinkAddr,
    LinkKind, LinkRef, Observed, Op, Peer, Rule, Selector, VlanLink,
};
use std::collections::BTreeMap;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Call {
    pub op: Op,
    pub answer: Result<(), Errno>,
}

#[derive(Clone, Debug)]
pub struct FakeKernel {
    /// The state, which tests may change.
    pub state: Observed,
    /// Every request in order.
    pub calls: Vec<Call>,
    faults: BTreeMap<usize, Errno>,
    next_index: u32,
}

impl Default for FakeKernel {
    fn default() -> Self {
        let rule = |family, pref, table| Rule {
            family,
            pref,
            selector: Selector::default(),
            table: TableId(table),
            protocol: 2,
        };
        let (v4, v6) = (Family::V4, Family::V6);
        let rules = vec![
            rule(v4, 0, 255),
            rule(v4, 32_766, 254),
            rule(v4, 32_767, 253),
            rule(v6, 0, 255),
            rule(v6, 32_766, 254),
        ];
        Self {
            state: Observed { rules, ..Observed::default() },
            calls: Vec::new(),
            faults: BTreeMap::new(),
            next_index: 2,
        }
    }
}

impl FakeKernel {
    pub fn observe(&self) -> Observed {
        self.state.clone()
    }

    /// Executes operations as an executor must.
    pub fn apply(&mut self, ops: &[Op]) -> Applied {
        self.apply_watching(ops, |_, _| ())
    }

    /// As `apply`, and calls `watch` after every single step.
    pub fn apply_watching(&mut self, ops: &[Op], mut watch: impl FnMut(&Op, &Self)) -> Applied {
        let mut execution = Execution::default();
        for op in ops {
            if execution.admits(op) {
                let answer = match self.faults.remove(&self.calls.len()) {
                    Some(errno) => Err(errno),
                    None => self.execute(&op.action),
                };
                self.calls.push(Call { op: op.clone(), answer });
                execution.record(op, answer);
                watch(op, self);
            }
        }
        execution.finish()
    }

    /// Makes the request after `calls` more requests fail, whatever it is.
    pub fn refuse_after(&mut self, calls: usize, errno: Errno) {
        self.faults.insert(self.calls.len() + calls, errno);
    }

    /// Adds a device or a veth, down and without addresses.
    pub fn add_link(&mut self, name: &str, mac: Mac, kind: LinkKind) -> IfIndex {
        let index = IfIndex(self.next_index);
        self.next_index += 1;
        let peer = (kind == LinkKind::Veth).then_some(Peer { index: IfIndex(2), netns: Some(0) });
        let conf = [(Ipv4Conf::RpFilter, 0), (Ipv4Conf::PromoteSecondaries, 0)];
        let link = Link {
            index,
            name: name.to_owned(),
            mac: Some(mac),
            mtu: 1500,
            up: false,
            alias: None,
            group: 0,
            kind,
            peer,
            master: None,
            ipv4: BTreeMap::from(conf),
            ipv6: BTreeMap::from([(Ipv6Conf::AcceptRa, 1), (Ipv6Conf::DisableIpv6, 0)]),
        };
        self.state.links.insert(index, link);
        index
    }

    /// Sets a link down. Its routes are removed, and its IPv4 addresses stay.
    pub fn set_down(&mut self, index: IfIndex) {
        if let Some(link) = self.state.links.get_mut(&index) {
            link.up = false;
            self.flush_routes_of(index);
            let stays = |a: &LinkAddr| a.dev != index || a.address.addr().is_ipv4();
            self.state.addresses.retain(stays);
            for vlan in self.vlans_of(index) {
                self.set_down(vlan);
            }
        }
    }

    /// VLANs of a link, which go down, come up and disappear with it.
    fn vlans_of(&self, parent: IfIndex) -> Vec<IfIndex> {
        let carried = |link: &&Link| {
            matches!(link.kind, LinkKind::Vlan(_))
                && link.peer.is_some_and(|peer| peer.index == parent)
        };
        self.state.links.values().filter(carried).map(|link| link.index).collect()
    }

    fn add_vlan(&mut self, vlan: &VlanLink) -> Result<(), Errno> {
        let VlanLink { link, parent, vlan, mac } = vlan;
        let links = || self.state.links.values();
        let carrier = self.state.links.get(&parent.index).ok_or(Errno::ENODEV)?;
        let same = |other: &Link| {
            other.kind == LinkKind::Vlan(*vlan)
                && other.peer.is_some_and(|peer| peer.index == parent.index)
        };
        if links().any(|other| other.name == link.name || same(other)) {
            return Err(Errno::EEXIST);
        }
        if self.state.links.contains_key(&link.index) {
            return Err(Errno::EBUSY);
        }
        if !carrier.up {
            return Err(Errno::ENETDOWN);
        }
        let mtu = carrier.mtu;
        let next = std::mem::replace(&mut self.next_index, link.index.0);
        let index = self.add_link(&link.name, *mac, LinkKind::Vlan(*vlan));
        self.next_index = next;
        if let Some(made) = self.state.links.get_mut(&index) {
            (made.mtu, made.up) = (mtu, true);
            made.peer = Some(Peer { index: parent.index, netns: None });
        }
        Ok(())
    }

    fn execute(&mut self, action: &Action) -> Result<(), Errno> {
        match action {
            Action::AddVlan(vlan) => self.add_vlan(vlan),
            Action::SetUp(link) => {
                let link = self.link_mut(link)?;
                let (was_up, index) = (link.up, link.index);
                link.up = true;
                if !was_up && self.is_carried_by_one_down(index) {
                    self.state.links.entry(index).and_modify(|link| link.up = false);
                    return Err(Errno::ENETDOWN);
                }
                if !was_up {
                    self.connect_subnets(index);
                    for vlan in self.vlans_of(index) {
                        self.state.links.entry(vlan).and_modify(|link| link.up = true);
                    }
                }
                Ok(())
            }
            Action::SetMtu(link, mtu) => match mtu {
                68..=65_535 => self.link_mut(link).map(|link| link.mtu = *mtu),
                _ => self.link_mut(link).and(Err(Errno::EINVAL)),
            },
            Action::SetAlias(link, alias) => {
                self.link_mut(link).map(|link| link.alias = Some(alias.clone()))
            }
            Action::Claim(link, alias) => {
                let link = self.link_mut(link)?;
                (link.alias, link.group) = (Some(alias.clone()), 0);
                Ok(())
            }
            Action::SetGroup(link, group) => self.link_mut(link).map(|link| link.group = *group),
            Action::SetIpv4(link, conf, value) => {
                self.link_mut(link)?.ipv4.insert(*conf, *value);
                Ok(())
            }
            Action::SetIpv6(link, conf, value) => {
                self.link_mut(link)?.ipv6.insert(*conf, *value);
                Ok(())
            }
            Action::DeleteLink(link) => {
                let kind = self.link_mut(link)?.kind.clone();
                self.deletable(&kind)?;
                self.remove_link(link.index);
                Ok(())
            }
            Action::DeleteGroup(group) => self.delete_group(*group),
            Action::AddAddress(address) => self.add_address(*address),
            Action::DeleteAddress(address) => self.delete_address(address),
            Action::ReplaceRoute(route) => self.put_route(route, true),
            Action::AddRoute(route) => self.put_route(route, false),
            Action::DeleteRoute(route) => self.delete_route(route),
            Action::AddRule(rule) => self.add_rule(rule),
            Action::DeleteRule(rule) => self.delete_rule(rule),
            Action::PurgeRules(pattern) => self.purge_rules(*pattern),
            Action::SetNeighbor(neighbor) => {
                if !self.state.links.contains_key(&neighbor.dev) {
                    return Err(Errno::ENODEV);
                }
                let key = (neighbor.dev, neighbor.address);
                self.state.neighbors.retain(|other| (other.dev, other.address) != key);
                self.state.neighbors.push(*neighbor);
                Ok(())
            }
            Action::DeleteNeighbor(neighbor) => {
                if !self.state.links.contains_key(&neighbor.dev) {
                    return Err(Errno::ENODEV);
                }
                let key = (neighbor.dev, neighbor.address);
                let before = self.state.neighbors.len();
                self.state.neighbors.retain(|other| (other.dev, other.address) != key);
                if self.state.neighbors.len() < before { Ok(()) } else { Err(Errno::ENOENT) }
            }
            Action::WriteSysctl(name, value) => match self.state.sysctls.get_mut(name) {
                Some(there) => {
                    there.clone_from(value);
                    Ok(())
                }
                None => Err(Errno::ENOENT),
            },
        }
    }

    fn link_mut(&mut self, link: &LinkRef) -> Result<&mut Link, Errno> {
        self.state.links.get_mut(&link.index).ok_or(Errno::ENODEV)
    }

    fn deletable(&self, kind: &LinkKind) -> Result<(), Errno> {
        if *kind == LinkKind::Device { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    fn delete_group(&mut self, group: u32) -> Result<(), Errno> {
        let members: Vec<(IfIndex, LinkKind)> = self
            .state
            .links
            .values()
            .filter(|link| link.group == group)
            .map(|link| (link.index, link.kind.clone()))
            .collect();
        if members.is_empty() {
            return Err(Errno::ENODEV);
        }
        members.iter().try_for_each(|(_, kind)| self.deletable(kind))?;
        for (index, _) in members {
            self.remove_link(index);
        }
        Ok(())
    }

    fn is_carried_by_one_down(&self, index: IfIndex) -> bool {
        let link = self.state.links.get(&index);
        let vlan = link.filter(|link| matches!(link.kind, LinkKind::Vlan(_)));
        vlan.and_then(|link| link.peer).is_some_and(|parent| !self.is_up(parent.index))
    }

    fn remove_link(&mut self, index: IfIndex) {
        for vlan in self.vlans_of(index) {
            self.remove_link(vlan);
        }
        self.state.links.remove(&index);
        self.flush_routes_of(index);
        self.state.addresses.retain(|address| address.dev != index);
        self.state.neighbors.retain(|neighbor| neighbor.dev != index);
    }

    fn is_up(&self, index: IfIndex) -> bool {
        self.state.links.get(&index).is_some_and(|link| link.up)
    }
}
