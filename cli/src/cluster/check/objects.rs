//! The objects of a test: a namespace, DaemonSets of probes and Services. Without a host port and the host's network they
//! meet the *restricted* pod security standard.

use crate::probe::PORT;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use view_cluster::TemplateSpec;

/// The label values of probes that test and of probes that are only tested.
pub(super) const PROBE: &str = "probe";
pub(super) const TARGET: &str = "target";
/// The label value of probes in the host's network.
pub(super) const HOST: &str = "host";
/// The name of the Service with external addresses, and of the one with a load balancer.
pub(super) const EXTERNAL: &str = "external";
pub(super) const BALANCED: &str = "balanced";
pub(super) const SERVICE_PORT: u16 = 80;

/// The annotation with the run that created the namespace.
pub(super) const RUN: &str = "ferrule.io/check-run";

pub(super) fn namespace(name: &str, run: &str, needs_host: bool) -> Value {
    let level = if needs_host { "privileged" } else { "restricted" };
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "labels": {
                "app.kubernetes.io/managed-by": "ferrule-check",
                "pod-security.kubernetes.io/enforce": level,
            },
            "annotations": { RUN: run },
        },
    })
}

/// The ports of a DaemonSet's probes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ports {
    /// The port of the pods, and a port of their nodes that leads to it.
    Pod { host_port: Option<u16> },
    /// A port of the nodes: the pods are in the host's network.
    Host(u16),
}

pub(super) fn daemon_set(name: &str, image: &str, nodes: &TemplateSpec, ports: Ports) -> Value {
    let (port, host_port, is_host) = match ports {
        Ports::Pod { host_port } => (PORT, host_port, false),
        Ports::Host(port) => (port, Some(port), true),
    };
    let mapped = |host: u16| json!({ "containerPort": port, "hostPort": host, "protocol": "TCP" });
    let ports: Vec<Value> = host_port.into_iter().map(mapped).collect();
    // A pod in the host's network has the name servers of its node by default.
    let dns = if is_host { "ClusterFirstWithHostNet" } else { "ClusterFirst" };
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "hostNetwork": is_host, "dnsPolicy": dns,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": nodes.node_selector, "affinity": nodes.affinity,
                "tolerations": [{ "operator": "Exists" }],
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "probe", "image": image, "ports": ports,
                    "command": ["ferrule", "probe", "serve", "--port", port.to_string()],
                    "readinessProbe": {
                        "httpGet": { "path": "/", "port": port }, "periodSeconds": 1,
                    },
                    "resources": { "requests": { "cpu": "5m", "memory": "8Mi" } },
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": { "drop": ["ALL"] },
                    },
                }],
            },
        } },
    })
}

pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": TARGET },
        "spec": {
            "type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "selector": { "app": TARGET },
            "ports": [{ "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP" }],
        },
    })
}

/// A Service with external addresses.
pub(super) fn external(addresses: &[String]) -> Value {
    let mut service = of_type(EXTERNAL, "ClusterIP");
    service["spec"]["externalIPs"] = json!(addresses);
    service
}

/// A Service with a load balancer that no controller creates: its class has none.
pub(super) fn balanced() -> Value {
    let mut service = of_type(BALANCED, "LoadBalancer");
    service["spec"]["loadBalancerClass"] = json!("ferrule.io/check");
    service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    service
}

/// The status that a controller of load balancers would write.
pub(super) fn balanced_status(addresses: &[String]) -> Value {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({ "status": { "loadBalancer": { "ingress": ingress } } })
}

fn of_type(name: &str, kind: &str) -> Value {
    let mut service = service();
    service["metadata"]["name"] = json!(name);
    service["spec"]["type"] = json!(kind);
    service
}

/// Returns addresses for documentation (RFC 5737, RFC 3849), which no network routes: those of the Service with external
/// addresses, and those of the load balancer. They have the families of the cluster's addresses, and depend on the run.
pub(super) fn documentation_addresses(
    cluster_ips: &[String],
    run: u64,
) -> (Vec<String>, Vec<String>) {
    let [.., high, low] = run.to_be_bytes();
    // From 1 to 254.
    let host = low % 254 + 1;
    let of = |v4: [u8; 3], net: u16| {
        let [a, b, c] = v4;
        let address = move |cluster_ip: &String| match cluster_ip.parse() {
            Ok(IpAddr::V6(_)) => {
                let at = u16::from_be_bytes([high, host]);
                Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, at).to_string()
            }
            Ok(IpAddr::V4(_)) | Err(_) => Ipv4Addr::new(a, b, c, host).to_string(),
        };
        cluster_ips.iter().map(address).collect()
    };
    (of([198, 51, 100], 1), of([203, 0, 113], 2))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Service};

    #[test]
    fn addresses_have_the_families_of_the_cluster_and_differ_by_run() {
        let cluster_ips = ["172.20.0.9".to_owned(), "fd00::9".to_owned()];
        let (external, balancer) = documentation_addresses(&cluster_ips, 0x0102);
        assert_eq!(external, ["198.51.100.3", "2001:db8:1::103"]);
        assert_eq!(balancer, ["203.0.113.3", "2001:db8:2::103"]);
        let hosts =
            (0..=255).map(|run| documentation_addresses(&cluster_ips[..1], run).0[0].clone());
        let hosts: std::collections::BTreeSet<String> = hosts.collect();
        assert_eq!(hosts.len(), 254);
        assert!(!hosts.contains("198.51.100.0") && !hosts.contains("198.51.100.255"));
    }

    #[test]
    fn the_objects_have_only_fields_of_kubernetes() {
        for object in [external(&["198.51.100.9".to_owned()]), balanced()] {
            let typed: Service = serde_json::from_value(object.clone()).unwrap();
            // A field that Kubernetes does not have would be missing.
            assert_eq!(serde_json::to_value(typed).unwrap()["spec"], object["spec"]);
        }
        let status = balanced_status(&["203.0.113.9".to_owned()]);
        let typed: Service = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(typed).unwrap()["status"], status["status"]);
        let set =
            daemon_set(HOST, "registry/ferrule:1", &TemplateSpec::default(), Ports::Host(7778));
        let typed: DaemonSet = serde_json::from_value(set).unwrap();
        let pod = typed.spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.host_network, Some(true));
        assert_eq!(pod.dns_policy.as_deref(), Some("ClusterFirstWithHostNet"));
        assert_eq!(pod.containers[0].ports.as_ref().unwrap()[0].host_port, Some(7778));
    }
}
