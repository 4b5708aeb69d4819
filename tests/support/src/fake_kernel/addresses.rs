//! Addresses, and the routes that the kernel adds and removes with them.

use super::FakeKernel;
use config_model::TableId;
use ipnet::IpNet;
use routing_plan::{Errno, IfIndex, Ipv4Conf, LinkAddr, Route, Scope};

impl FakeKernel {
    pub(super) fn add_address(&mut self, address: LinkAddr) -> Result<(), Errno> {
        if !self.state.links.contains_key(&address.dev) {
            return Err(Errno::ENODEV);
        }
        let same = |a: &LinkAddr| {
            (a.dev, a.address, a.peer) == (address.dev, address.address, address.peer)
        };
        if self.state.addresses.iter().any(same) {
            return Err(Errno::EEXIST);
        }
        let behind = |a: &LinkAddr| in_same_subnet(a, &address);
        let v4 = address.address.addr().is_ipv4();
        let secondary = v4 && self.state.addresses.iter().any(behind);
        let address = LinkAddr { secondary, ..address };
        self.state.addresses.push(address);
        self.connect_subnet(&address);
        Ok(())
    }

    pub(super) fn delete_address(&mut self, address: &LinkAddr) -> Result<(), Errno> {
        let same = |a: &LinkAddr| {
            (a.dev, a.address, a.peer) == (address.dev, address.address, address.peer)
        };
        let place = self.state.addresses.iter().position(same).ok_or(Errno::EADDRNOTAVAIL)?;
        let gone = self.state.addresses.remove(place);
        self.remove_routes_from(&gone);
        if gone.address.addr().is_ipv6() {
            self.remove_subnet_route(&gone);
            return Ok(());
        }
        if !gone.secondary {
            self.promote_secondary(&gone);
        }
        if !self.state.addresses.iter().any(|a| a.dev == gone.dev) {
            self.flush_routes_of(gone.dev);
        }
        Ok(())
    }

    /// The subnet's secondary addresses are removed too, or the first of them is promoted.
    fn promote_secondary(&mut self, gone: &LinkAddr) {
        let link = self.state.links.get(&gone.dev);
        let promote = link.and_then(|link| link.ipv4.get(&Ipv4Conf::PromoteSecondaries));
        if promote.is_some_and(|value| *value != 0) {
            let heir = self.state.addresses.iter_mut().find(|a| in_same_subnet(a, gone));
            if let Some(heir) = heir {
                heir.secondary = false;
                let heir = *heir;
                self.connect_subnet(&heir);
            }
            return;
        }
        let (go, stay) = self.state.addresses.iter().partition(|a| in_same_subnet(a, gone));
        self.state.addresses = stay;
        let go: Vec<LinkAddr> = go;
        for address in go {
            self.remove_routes_from(&address);
        }
    }

    /// Routes with this preferred source are removed, including the subnet's route.
    fn remove_routes_from(&mut self, address: &LinkAddr) {
        let ip = address.address.addr();
        self.state.routes.retain(|route| route.src != Some(ip));
    }

    /// An IPv6 subnet's route is removed with its last address.
    fn remove_subnet_route(&mut self, gone: &LinkAddr) {
        let shared = |a: &LinkAddr| in_same_subnet(a, gone) && !a.noprefixroute;
        if !gone.noprefixroute && !self.state.addresses.iter().any(shared) {
            let route = connected(gone.address, gone.dev);
            self.state.routes.retain(|other| *other != route);
        }
    }

    pub(super) fn connect_subnets(&mut self, index: IfIndex) {
        let addresses: Vec<LinkAddr> =
            self.state.addresses.iter().filter(|a| a.dev == index).copied().collect();
        for address in addresses {
            self.connect_subnet(&address);
        }
    }

    fn connect_subnet(&mut self, address: &LinkAddr) {
        let LinkAddr { dev, address, peer, secondary, noprefixroute, global: _ } = *address;
        assert!(peer.is_none() || noprefixroute, "no route to a peer is asked for anywhere");
        let whole = address.prefix_len() == address.max_prefix_len();
        if secondary || noprefixroute || whole || !self.is_up(dev) {
            return;
        }
        let route = connected(address, dev);
        if !self.state.routes.contains(&route) {
            self.state.routes.push(route);
        }
    }
}

/// The kernel's own route to the subnet of an address.
fn connected(address: IpNet, dev: IfIndex) -> Route {
    let v4 = address.addr().is_ipv4();
    Route {
        table: TableId::MAIN,
        dst: address.trunc(),
        gateway: None,
        dev: Some(dev),
        scope: if v4 { Scope::LINK } else { Scope::UNIVERSE },
        src: v4.then(|| address.addr()),
        metric: if v4 { 0 } else { 256 },
        protocol: 2,
        plain: true,
    }
}

fn in_same_subnet(a: &LinkAddr, b: &LinkAddr) -> bool {
    let net = |of: &LinkAddr| {
        let remote = of.peer.unwrap_or(of.address.addr());
        IpNet::new_assert(remote, of.address.prefix_len()).trunc()
    };
    (a.dev, net(a)) == (b.dev, net(b))
}
