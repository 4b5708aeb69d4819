//! Routes: their requirements, and the order of routes with the same key.

use super::FakeKernel;
use config_model::TableId;
use routing_plan::{Errno, IfIndex, Route};
use std::net::IpAddr;

impl FakeKernel {
    pub(super) fn put_route(&mut self, route: &Route, replace: bool) -> Result<(), Errno> {
        self.admissible(route)?;
        let mut route = route.clone();
        if route.metric == 0 && route.dst.addr().is_ipv6() {
            route.metric = 1024;
        }
        let route = &route;
        let place = self.state.routes.iter().position(|other| same_key(other, route));
        match place {
            None => {
                self.state.routes.push(route.clone());
                Ok(())
            }
            Some(_) if !replace => Err(Errno::EEXIST),
            Some(place) => {
                let twin = self.state.routes.iter().position(|other| other == route);
                if twin.is_some_and(|twin| twin != place) {
                    return Err(Errno::EEXIST);
                }
                self.state.routes[place] = route.clone();
                Ok(())
            }
        }
    }

    /// Appends a route after others of the same key. It has no effect until they are removed.
    pub fn append_route(&mut self, route: Route) {
        self.state.routes.push(route);
    }

    pub(super) fn delete_route(&mut self, route: &Route) -> Result<(), Errno> {
        let fits = |other: &Route| {
            (other.table, other.dst) == (route.table, route.dst)
                && (route.metric == 0 || other.metric == route.metric)
                && (route.dev.is_none() || other.dev == route.dev)
                && (route.gateway.is_none() || other.gateway == route.gateway)
                && (route.src.is_none() || other.src == route.src)
                && (route.protocol == 0 || other.protocol == route.protocol)
        };
        let place = self.state.routes.iter().position(fits).ok_or(Errno::ESRCH)?;
        self.state.routes.remove(place);
        Ok(())
    }

    pub(super) fn flush_routes_of(&mut self, index: IfIndex) {
        self.state.routes.retain(|route| route.dev != Some(index));
    }

    fn admissible(&self, route: &Route) -> Result<(), Errno> {
        let dev = route.dev.ok_or(Errno::EINVAL)?;
        if !self.state.links.contains_key(&dev) {
            return Err(Errno::ENODEV);
        }
        if !self.is_up(dev) {
            return Err(Errno::ENETDOWN);
        }
        match route.gateway {
            // The route names its link, and every link has link-local addresses.
            Some(IpAddr::V6(gateway)) if gateway.is_unicast_link_local() => Ok(()),
            Some(gateway) if !self.on_link(gateway, dev, route.table) => Err(match gateway {
                IpAddr::V4(_) => Errno::ENETUNREACH,
                IpAddr::V6(_) => Errno::EHOSTUNREACH,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A gateway must be reachable on the link by the route's own table or by main.
    fn on_link(&self, gateway: IpAddr, dev: IfIndex, table: TableId) -> bool {
        self.state.routes.iter().any(|route| {
            (route.table == table || route.table == TableId::MAIN)
                && route.dev == Some(dev)
                && route.gateway.is_none()
                && route.dst.contains(&gateway)
        })
    }
}

fn same_key(a: &Route, b: &Route) -> bool {
    (a.table, a.dst, a.metric) == (b.table, b.dst, b.metric)
}
