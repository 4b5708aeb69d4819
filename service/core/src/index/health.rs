//! The health checks of load balancers that the node answers.

use super::Index;
use crate::{HealthCheck, HealthChecks, HealthPort};
use service_objects::{Family, ObjectName, Service, ServiceKind, TrafficPolicy};
use std::{
    collections::{BTreeSet, btree_map::Entry},
    net::IpAddr,
};

impl Index {
    /// The health checks of the objects in the index, also before [`take_changes`](Self::take_changes).
    pub fn health_checks(&self) -> HealthChecks {
        let services = self.checked.iter().filter_map(|name| self.world.services.get(name));
        let mut services: Vec<&Service> = services.map(AsRef::as_ref).collect();
        services.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        let mut checks = HealthChecks::default();
        for service in services {
            let Some(port) = port(service) else { continue };
            let families = service.cluster_ips.iter().copied().map(Family::of);
            for family in families.collect::<BTreeSet<Family>>() {
                match checks.by_port.entry(HealthPort { family, port }) {
                    Entry::Vacant(vacant) => {
                        let endpoints = self.ready_here(&service.name, family);
                        vacant.insert(HealthCheck { service: service.name.clone(), endpoints });
                    }
                    Entry::Occupied(_) => {
                        checks.refused.insert(service.name.clone(), port);
                    }
                }
            }
        }
        checks
    }

    /// The number of addresses of ready endpoints on the node. The port of an endpoint does not count.
    fn ready_here(&self, service: &ObjectName, family: Family) -> usize {
        let node = &self.world.node.name;
        let slices = self.slices(service).filter(|slice| {
            slice.family == family
                && !slice.headless
                && slice.other_proxy.is_none()
                && !slice.ports.is_empty()
        });
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        let here = endpoints.filter(|of| of.ready && of.node.as_ref() == Some(node));
        here.map(|of| of.address).collect::<BTreeSet<IpAddr>>().len()
    }
}

/// The port of a Service at which its load balancer asks nodes for endpoints.
pub(super) fn port(service: &Service) -> Option<u16> {
    let is_checked = service.kind == ServiceKind::LoadBalancer
        && service.external_policy == TrafficPolicy::Local
        && !service.ports.is_empty();
    service.health_check_node_port.filter(|_| is_checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeView, World};
    use service_objects::{Endpoint, Protocol, ServicePort, Slice, SlicePort};
    use std::sync::Arc;

    const V4: Family = Family::V4;
    const V6: Family = Family::V6;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn service(name: &str, created: &str, port: u16, cluster_ips: &[&str]) -> Service {
        Service {
            name: ObjectName::new("shop", name),
            created: created.to_owned(),
            kind: ServiceKind::LoadBalancer,
            other_proxy: None,
            headless: false,
            cluster_ips: cluster_ips.iter().copied().map(address).collect(),
            external_ips: Vec::new(),
            ingress: Vec::new(),
            source_ranges: None,
            ports: vec![ServicePort {
                name: String::new(),
                protocol: Protocol::Tcp,
                port: 80,
                node_port: Some(30080),
            }],
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Local,
            health_check_node_port: Some(port),
            affinity: None,
            problems: Vec::new(),
        }
    }

    /// A ready endpoint on a node.
    fn endpoint(at: &str, node: &str) -> Endpoint {
        Endpoint {
            address: address(at),
            ready: true,
            serving: true,
            terminating: false,
            node: Some(node.to_owned()),
            zone: None,
            zone_hints: Vec::new(),
            node_hints: Vec::new(),
        }
    }

    fn slice(name: &str, of: &str, family: Family, endpoints: Vec<Endpoint>) -> Slice {
        let port = |number| SlicePort {
            name: format!("p{number}"),
            protocol: Protocol::Tcp,
            port: number,
        };
        Slice {
            name: ObjectName::new("shop", name),
            service: ObjectName::new("shop", of),
            family,
            other_proxy: None,
            headless: false,
            ports: vec![port(8080), port(8081)],
            endpoints,
            triggered_ms: None,
            problems: Vec::new(),
        }
    }

    fn index(services: Vec<Service>, slices: Vec<Slice>) -> Index {
        let node = NodeView { name: "n1".to_owned(), ..NodeView::default() };
        let services = services.into_iter().map(|of| (of.name.clone(), Arc::new(of)));
        let slices = slices.into_iter().map(|of| (of.name.clone(), Arc::new(of)));
        Index::of(World { node, services: services.collect(), slices: slices.collect() })
    }

    /// Each check as family, port, name of the Service and number of endpoints.
    fn found(index: &Index) -> Vec<(Family, u16, String, usize)> {
        let checks = index.health_checks().by_port.into_iter();
        let row = |(at, of): (HealthPort, HealthCheck)| {
            (at.family, at.port, of.service.name, of.endpoints)
        };
        checks.map(row).collect()
    }

    #[test]
    fn ready_addresses_of_the_node_count_once_in_each_family() {
        let not_ready = Endpoint { ready: false, ..endpoint("10.0.0.3", "n1") };
        let draining = Endpoint { ready: false, terminating: true, ..endpoint("10.0.0.4", "n1") };
        let of_v4 = vec![endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2"), not_ready];
        let again = vec![endpoint("10.0.0.1", "n1"), endpoint("10.0.0.5", "n1"), draining];
        let of_v6 = vec![endpoint("fd00::1", "n1")];
        let headless =
            Slice { headless: true, ..slice("w4", "web", V4, vec![endpoint("10.0.0.6", "n1")]) };
        let other = Slice {
            other_proxy: Some("istio".to_owned()),
            ..slice("w5", "web", V4, vec![endpoint("10.0.0.7", "n1")])
        };
        let without_ports =
            Slice { ports: Vec::new(), ..slice("w6", "web", V4, vec![endpoint("10.0.0.8", "n1")]) };
        let slices = vec![
            slice("w1", "web", V4, of_v4),
            slice("w2", "web", V4, again),
            slice("w3", "web", V6, of_v6),
            slice("x1", "other", V4, vec![endpoint("10.0.0.9", "n1")]),
            headless,
            other,
            without_ports,
        ];
        let both = service("web", "2026", 31007, &["10.100.0.1", "fd00:1::1"]);
        let expected = [(V4, 31007, "web".to_owned(), 2), (V6, 31007, "web".to_owned(), 1)];
        assert_eq!(found(&index(vec![both], slices.clone())), expected);
        let single = service("web", "2026", 31007, &["10.100.0.1"]);
        assert_eq!(found(&index(vec![single], slices)), expected[..1]);
    }

    #[test]
    fn only_load_balancers_with_the_external_policy_local_have_checks() {
        let web = || service("web", "2026", 31007, &["10.100.0.1"]);
        let has_check = |service| !found(&index(vec![service], Vec::new())).is_empty();
        assert!(has_check(web()));
        assert!(!has_check(Service { kind: ServiceKind::NodePort, ..web() }));
        assert!(!has_check(Service { external_policy: TrafficPolicy::Cluster, ..web() }));
        assert!(!has_check(Service { health_check_node_port: None, ..web() }));
        assert!(!has_check(Service { other_proxy: Some("istio".to_owned()), ..web() }));
        assert!(!has_check(Service { headless: true, ..web() }));
        assert!(!has_check(Service { ports: Vec::new(), ..web() }));
    }

    #[test]
    fn checks_follow_each_change_of_an_object() {
        let web = || Arc::new(service("web", "2026", 31007, &["10.100.0.1"]));
        let one = slice("w1", "web", V4, vec![endpoint("10.0.0.1", "n1")]);
        let mut index = index(Vec::new(), vec![one.clone()]);
        assert!(found(&index).is_empty());
        index.set_service(web());
        assert_eq!(found(&index), [(V4, 31007, "web".to_owned(), 1)]);
        index.set_slice(Arc::new(Slice { endpoints: Vec::new(), ..one.clone() }));
        assert_eq!(found(&index), [(V4, 31007, "web".to_owned(), 0)]);
        index.set_service(Arc::new(service("web", "2026", 31008, &["10.100.0.1"])));
        index.set_slice(Arc::new(one.clone()));
        assert_eq!(found(&index), [(V4, 31008, "web".to_owned(), 1)]);
        index.remove_slice(&one.name);
        assert_eq!(found(&index), [(V4, 31008, "web".to_owned(), 0)]);
        index.remove_service(&ObjectName::new("shop", "web"));
        assert!(found(&index).is_empty());
    }

    #[test]
    fn the_oldest_service_has_a_port_that_two_name() {
        let newer = service("a", "2026-02", 31007, &["10.100.0.1"]);
        let older = service("b", "2026-01", 31007, &["10.100.0.2"]);
        let mut index = index(vec![newer, older.clone()], Vec::new());
        assert_eq!(found(&index), [(V4, 31007, "b".to_owned(), 0)]);
        let refused = index.health_checks().refused;
        assert_eq!(
            refused.into_iter().collect::<Vec<_>>(),
            [(ObjectName::new("shop", "a"), 31007)]
        );
        index.remove_service(&older.name);
        assert_eq!(found(&index), [(V4, 31007, "a".to_owned(), 0)]);
        assert!(index.health_checks().refused.is_empty());
    }
}
