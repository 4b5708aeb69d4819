//! The Services and EndpointSlices of a cluster, as kube-proxy and the agent read them.

use anyhow::{Context as _, Result};
use control_wire::proto::Change;
use serde_json::{Value, json};
use service_objects::{Service, Slice};
use std::net::{Ipv4Addr, SocketAddr};
use tests_bench::world;

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) services: u32,
    /// The endpoints of each Service.
    pub(crate) backends: Backends,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Backends {
    /// This number of ports of the node's first pod, which all Services share.
    Ports(u16),
    /// This number of pods of other nodes for each Service but the first one. No packet reaches them.
    Elsewhere(u32),
}

impl Cluster {
    pub(crate) fn services(&self) -> impl Iterator<Item = Value> + use<> {
        (0..self.services).map(service)
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = Value> + use<> {
        let backends = self.backends;
        (0..self.services).flat_map(move |number| backends.slices(number))
    }

    /// All objects, as a replica sends them.
    pub(crate) fn changes(&self) -> Result<Vec<Change>> {
        self.each_change().collect()
    }

    fn each_change(&self) -> impl Iterator<Item = Result<Change>> + use<> {
        let services = self.services().map(|service| read_service(&service));
        let slices = self.slices().map(|slice| read_slice(&slice));
        services.chain(slices)
    }

    /// All objects in parts, each made when it is received.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Result<Vec<Change>>> + use<> {
        let mut changes = self.each_change();
        std::iter::from_fn(move || {
            let part: Result<Vec<Change>> = changes.by_ref().take(PART).collect();
            Some(part).filter(|part| part.as_ref().map_or(true, |changes| !changes.is_empty()))
        })
    }
}

impl Backends {
    fn slices(self, service: u32) -> Vec<Value> {
        match self {
            Self::Elsewhere(_) if service == 0 => Self::Ports(1).slices(service),
            Self::Ports(ports) => (0..ports)
                .map(|port| slice(service, u32::from(port), &[world::pod_address(0)], port))
                .collect(),
            Self::Elsewhere(pods) => {
                let addresses: Vec<_> =
                    (0..pods).map(|pod| elsewhere(service * pods + pod)).collect();
                let slices = addresses.chunks(SLICE).zip(0..);
                slices.map(|(addresses, number)| slice(service, number, addresses, 0)).collect()
            }
        }
    }
}

/// A Service. The first one has a node port, and a port for datagrams.
fn service(number: u32) -> Value {
    let is_first = number == 0;
    let mut ports = vec![json!({
        "name": "tcp", "protocol": "TCP", "port": PORT, "targetPort": FIRST_BACKEND,
    })];
    if is_first {
        ports[0]["nodePort"] = NODE_PORT.into();
        ports.push(json!({
            "name": "udp", "protocol": "UDP", "port": PORT, "targetPort": FIRST_BACKEND,
            "nodePort": NODE_PORT,
        }));
    }
    let address = address(number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "shop", "name": format!("s{number}"), "uid": format!("s{number}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "type": if is_first { "NodePort" } else { "ClusterIP" },
            "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "ports": ports,
        },
        "status": {"loadBalancer": {}},
    })
}

/// A slice of a Service with these addresses. `port` counts from the first port of backends.
pub(crate) fn slice(service: u32, number: u32, addresses: &[Ipv4Addr], port: u16) -> Value {
    let endpoints = addresses.iter().map(|address| {
        let conditions = json!({"ready": true, "serving": true, "terminating": false});
        json!({"addresses": [address], "conditions": conditions})
    });
    let endpoints: Vec<_> = endpoints.collect();
    let port = FIRST_BACKEND + port;
    let mut ports = vec![json!({"name": "tcp", "protocol": "TCP", "port": port})];
    if service == 0 {
        ports.push(json!({"name": "udp", "protocol": "UDP", "port": port}));
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop", "name": format!("s{service}-{number}"),
            "uid": format!("s{service}-{number}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": format!("s{service}")},
        },
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    })
}

fn read_service(service: &Value) -> Result<Change> {
    Ok((&Service::read(service).context("read a Service")?).into())
}

pub(crate) fn read_slice(slice: &Value) -> Result<Change> {
    Ok((&Slice::read(slice).context("read a slice")?).into())
}

/// The cluster IP of a Service.
pub(crate) fn address(service: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac14_0000 + service + 1)
}

/// The place at which pods and processes of the node reach a Service.
pub(crate) fn frontend(service: u32) -> SocketAddr {
    (address(service), PORT).into()
}

/// The address of a pod of another node.
pub(crate) fn elsewhere(pod: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0ad0_0000 + pod + 1)
}

const PORT: u16 = 80;
pub(crate) const NODE_PORT: u16 = 30_080;
/// Below the ports that clients have.
pub(crate) const FIRST_BACKEND: u16 = 20_000;
/// The objects of a part. A part of a replica has about 32 KiB.
const PART: usize = 100;
/// The endpoints of a slice, as the controller of Kubernetes fills it.
const SLICE: usize = 100;
