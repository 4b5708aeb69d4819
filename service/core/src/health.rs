//! Health checks of load balancers: the ports at which a node answers them, and its answers. Both are those of
//! kube-proxy 1.36.

mod proxy;

pub use proxy::ProxyHealth;

use service_objects::{Family, ObjectName};
use std::collections::BTreeMap;

/// A port at all addresses of the node of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthPort {
    pub family: Family,
    pub port: u16,
}

/// The health check of a Service in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub service: ObjectName,
    /// The number of addresses of ready endpoints on the node. An endpoint that terminates does not count, though it
    /// may still get connections.
    pub endpoints: usize,
}

/// The health checks that a node answers: those of load balancers with the external policy Local.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthChecks {
    pub by_port: BTreeMap<HealthPort, HealthCheck>,
    /// Services without an answer, because an older Service has their port.
    pub refused: BTreeMap<ObjectName, u16>,
}

/// The answer to an HTTP request for health, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthAnswer {
    /// Status 200; otherwise 503.
    pub is_good: bool,
    /// The header `X-Load-Balancing-Endpoint-Weight`.
    pub weight: Option<usize>,
    pub body: String,
}

impl HealthCheck {
    /// The answer of a node whose service proxy is healthy or not ([`ProxyHealth::is_healthy`]).
    pub fn answer(&self, is_healthy: bool) -> HealthAnswer {
        let Self { service, endpoints } = self;
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {:?},\n\t\t\"name\": {:?}\n\t}},\n\t\"localEndpoints\": \
             {endpoints},\n\t\"serviceProxyHealthy\": {is_healthy}\n}}",
            service.namespace, service.name
        );
        HealthAnswer { is_good: *endpoints > 0 && is_healthy, weight: Some(*endpoints), body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_status_the_weight_and_the_body_of_kube_proxy() {
        let check = |endpoints| HealthCheck { service: ObjectName::new("shop", "web"), endpoints };
        // Written by the code of kube-proxy 1.36.3.
        let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": \
                    2,\n\t\"serviceProxyHealthy\": true\n}";
        let good = HealthAnswer { is_good: true, weight: Some(2), body: body.to_owned() };
        assert_eq!(check(2).answer(true), good);
        let unhealthy =
            HealthAnswer { is_good: false, body: body.replace("true", "false"), ..good.clone() };
        assert_eq!(check(2).answer(false), unhealthy);
        let empty = HealthAnswer { is_good: false, weight: Some(0), body: body.replace('2', "0") };
        assert_eq!(check(0).answer(true), empty);
    }
}
