//! The node whose clients are meant, and the Services that its agent has in force.

use crate::cluster::{
    api::{Api, Selector},
    args::ServiceArgs,
    forward::{self, PodPort},
    status::{self, AGENT, OURS},
    version::metrics_port,
};
use anyhow::{Result, bail};
use config_model::EnforcingMode;
use datapath_rpc::{AgentAt, LISTED, wire::StatusReply};
use nix::ifaddrs::getifaddrs;
use policy_kube::KubeError;
use service_objects::ObjectName;
use std::{
    net::IpAddr,
    time::{Duration, Instant},
};
use view_cluster::{AgentServices, Node, Pod, Serving};

/// Returns the named node, or the node on which the command runs; `None` elsewhere.
///
/// # Errors
/// The named node does not exist, or nodes cannot be read.
pub(super) async fn node(api: &Api, args: &ServiceArgs) -> Result<Option<Node>> {
    if let Some(name) = &args.node {
        return match api.get(&format!("/api/v1/nodes/{name}"), "node").await {
            Err(KubeError::NotFound { .. }) => {
                bail!("cannot find node {name}: it does not exist; see kubectl get nodes")
            }
            node => Ok(Some(node?)),
        };
    }
    if !args.agent.exists() {
        return Ok(None);
    }
    let own = own_addresses();
    Ok(status::nodes(api).await?.into_iter().find(|node| is_here(node, &own)))
}

/// Returns what the node's agent has in force.
pub(super) async fn serving(api: &Api, args: &ServiceArgs, node: &Node) -> Serving {
    let within = Duration::from_secs(args.target.timeout);
    if args.agent.exists() && is_here(node, &own_addresses()) {
        let agent = AgentAt { socket: args.agent.clone(), mode: EnforcingMode::Standard };
        return match agent.status(Instant::now() + within).await {
            Ok(reply) => Serving::Agent(of_reply(reply)),
            Err(error) => Serving::Unknown(config_model::causes(&error)),
        };
    }
    let read = from_metrics(api, args.target.timeout, &node.metadata.name).await;
    read.unwrap_or_else(Serving::Unknown)
}

/// Reads the metrics of a node's agent through the API server.
async fn from_metrics(api: &Api, seconds: u64, node: &str) -> Result<Serving, String> {
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pods: Result<Vec<Pod>, _> = api.list(&path, Selector::Label(OURS), "pods").await;
    let pods = pods.map_err(|error| error.to_string())?;
    let is_agent = |pod: &&Pod| {
        status::has(pod, AGENT)
            && pod.spec.node_name.as_deref() == Some(node)
            && pod.metadata.deletion_timestamp.is_none()
    };
    let Some(pod) = pods.iter().find(is_agent) else {
        return Ok(Serving::Absent(format!(
            "no ferrule-agent runs on {node}; kube-proxy serves it"
        )));
    };
    let container = pod.spec.containers.iter().find(|it| it.name == AGENT);
    let Some(port) = container.and_then(metrics_port) else {
        return Err(format!(
            "the metrics of {} are off; set nodeAgent.metricsBindAddr, or run the command on the node",
            pod.metadata.name
        ));
    };
    let at = PodPort { namespace: &api.namespace, pod: &pod.metadata.name, port };
    let page = forward::get(&api.client(), &at, "/metrics", Duration::from_secs(seconds)).await;
    let page = page.map_err(|why| {
        format!("cannot read metrics of {}: {why}; run the command on the node", at.pod)
    })?;
    Serving::of_metrics(&String::from_utf8_lossy(&page)).ok_or_else(|| {
        format!("the metrics of {} have no Services; finish the upgrade of the agent", at.pod)
    })
}

fn of_reply(reply: StatusReply) -> AgentServices {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    AgentServices {
        services: reply.services,
        is_cut: reply.failing_services.len() >= LISTED,
        failing: reply
            .failing_services
            .into_iter()
            .map(|of| (ObjectName::new(of.namespace, of.name), of.why))
            .collect(),
        fault: some(reply.fault),
        lag: reply.revision.saturating_sub(reply.applied),
        disconnected: some(reply.disconnected),
    }
}

/// Returns true if the node has one of these addresses as its internal one.
fn is_here(node: &Node, own: &[IpAddr]) -> bool {
    let address = node.internal_address().and_then(|text| text.parse().ok());
    address.is_some_and(|address| own.contains(&address))
}

/// The addresses of this machine; none if they cannot be read.
fn own_addresses() -> Vec<IpAddr> {
    let address = |of: nix::ifaddrs::InterfaceAddress| {
        let address = of.address?;
        let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
    };
    getifaddrs().map(|all| all.filter_map(address).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use datapath_rpc::wire::FailingService;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn a_node_is_here_by_its_internal_address() {
        let node = |kind: &str| -> Node {
            let addresses = json!([{ "type": kind, "address": "10.0.0.7" }]);
            serde_json::from_value(json!({ "status": { "addresses": addresses } })).unwrap()
        };
        let own = ["127.0.0.1", "10.0.0.7"].map(|text| text.parse().unwrap());
        assert!(is_here(&node("InternalIP"), &own));
        assert!(!is_here(&node("InternalIP"), &own[..1]));
        assert!(!is_here(&node("ExternalIP"), &own));
        assert!(own_addresses().contains(&own[0]));
    }

    #[test]
    fn an_agent_that_lists_its_limit_may_have_more_failing_services() {
        let failing = |count: usize| StatusReply {
            services: 9,
            revision: 4,
            applied: 3,
            failing_services: (0..count)
                .map(|number| FailingService {
                    namespace: "a".to_owned(),
                    name: format!("s{number}"),
                    why: "full".to_owned(),
                })
                .collect(),
            ..StatusReply::default()
        };
        let read = of_reply(failing(1));
        let expected = AgentServices {
            services: 9,
            lag: 1,
            failing: BTreeMap::from([(ObjectName::new("a", "s0"), "full".to_owned())]),
            ..AgentServices::default()
        };
        assert_eq!(read, expected);
        assert!(of_reply(failing(LISTED)).is_cut);
    }
}
