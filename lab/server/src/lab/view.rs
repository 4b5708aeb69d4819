//! Views of the lab for the control socket.

use super::{ClusterAccess, Lab, LabError, nodes::NodeEntry, pods::PodEntry};
use crate::control::{CountersView, EniView, NodeView, PodView, StatusView};
use ipnet::IpNet;
use lab_cloud::{InstanceState, Truth, TruthEni, TruthInstance};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

impl Lab {
    pub(crate) fn status(&self) -> StatusView {
        StatusView {
            name: self.name.clone(),
            pid: std::process::id(),
            ec2_endpoint: self.ec2_url(),
            api_server: self.cluster.as_ref().map(ClusterAccess::url),
            subnets: self.subnet_views(),
            nodes: self.node_views(),
            pods: self.pods.all().len(),
        }
    }

    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let truth = self.cloud.truth();
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.pods.all().into_values() {
            *pods.entry(pod.node).or_default() += 1;
        }
        let nodes = self.nodes();
        let views = nodes.iter().map(|(name, entry)| {
            let instance = truth.instances.iter().find(|i| i.id == entry.instance);
            let mut view = node_view(name, entry, instance, &truth);
            view.pods = pods.get(name).copied().unwrap_or(0);
            // No record of the node: it has not booted yet.
            view.cgroup = self.fabric.node(name).ok().and_then(|node| node.cgroup());
            view
        });
        views.collect()
    }

    pub(crate) fn node_view(&self, name: &str) -> Result<NodeView, LabError> {
        let found = self.node_views().into_iter().find(|view| view.name == name);
        found.ok_or_else(|| LabError::NoNode(name.to_owned()))
    }

    pub(crate) fn pod_views(&self) -> Vec<PodView> {
        let truth = self.cloud.truth();
        let pods = self.pods.all();
        let made = pods.iter().filter(|(_, pod)| pod.result.is_some());
        made.map(|(key, pod)| pod_view(key, pod, &truth)).collect()
    }

    pub(crate) fn pod(&self, key: &(String, String)) -> Result<PodView, LabError> {
        let pods = self.pods.all();
        let missing = || LabError::NoPod(format!("{}/{}", key.0, key.1));
        let pod = pods.get(key).ok_or_else(missing)?;
        Ok(pod_view(key, pod, &self.cloud.truth()))
    }

    pub(crate) fn counters(&self) -> Result<CountersView, LabError> {
        let mut calls: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for ((action, outcome), count) in self.cloud.calls() {
            calls.entry(action).or_default().insert(outcome, count);
        }
        Ok(CountersView { fabric: self.fabric.counters()?, calls })
    }
}

/// The ENI that holds an address, by itself or in a prefix.
fn holder(truth: &Truth, address: IpAddr) -> Option<&TruthEni> {
    let holds = |eni: &&TruthEni| match address {
        IpAddr::V4(address) => {
            eni.addresses().any(|own| own == address)
                || eni.prefixes.iter().any(|prefix| prefix.contains(&address))
        }
        IpAddr::V6(address) => {
            eni.ipv6_addresses.contains(&address)
                || eni.ipv6_prefixes.iter().any(|prefix| prefix.contains(&address))
        }
    };
    truth.instances.iter().flat_map(|instance| &instance.enis).find(holds)
}

fn node_view(
    name: &str,
    entry: &NodeEntry,
    instance: Option<&TruthInstance>,
    truth: &Truth,
) -> NodeView {
    let enis = instance.map_or(&[][..], |instance| &instance.enis);
    let subnet = enis.first().map(|eni| &eni.subnet_id);
    let zone = truth.subnets.iter().find(|s| Some(&s.id) == subnet);
    NodeView {
        name: name.to_owned(),
        instance: entry.instance.to_string(),
        instance_type: entry.instance_type.clone(),
        state: instance.map_or(InstanceState::Terminated, |i| i.state).as_str().to_owned(),
        zone: zone.map_or_else(String::new, |subnet| subnet.availability_zone.clone()),
        address: enis.first().map(|eni| eni.primary),
        public_address: enis.first().map(public_address),
        cgroup: None,
        enis: enis.iter().map(eni_view).collect(),
        daemon: entry.supervisor.view(),
        pods: 0,
    }
}

/// As the fabric's internet gateway has it.
fn public_address(eni: &TruthEni) -> Ipv4Addr {
    eni.public_ip.unwrap_or_else(|| lab_fabric::public_address_of(eni.primary))
}

fn eni_view(eni: &TruthEni) -> EniView {
    let prefixes = eni.prefixes.iter().map(|prefix| IpNet::V4(*prefix));
    EniView {
        id: eni.id.to_string(),
        kind: eni.kind.as_str().to_owned(),
        card: eni.network_card_index.0,
        device: eni.device_index.0,
        mac: eni.mac.to_string(),
        subnet: eni.subnet_id.to_string(),
        primary: eni.primary,
        secondary: eni.secondary.clone(),
        prefixes: prefixes.chain(eni.ipv6_prefixes.iter().map(|p| IpNet::V6(*p))).collect(),
        ipv6_addresses: eni.ipv6_addresses.clone(),
    }
}

fn pod_view(key: &(String, String), pod: &PodEntry, truth: &Truth) -> PodView {
    let addresses = pod.addresses();
    let eni = addresses.first().and_then(|address| holder(truth, *address));
    PodView {
        namespace: key.0.clone(),
        name: key.1.clone(),
        node: pod.node.clone(),
        address: addresses.first().copied(),
        addresses,
        eni: eni.map(|eni| eni.id.to_string()),
        device: eni.map(|eni| eni.device_index.0),
        container_id: pod.container_id.clone(),
        netns: pod.netns.clone(),
        has_namespace: pod.has_namespace,
        add_us: pod.add_us,
        result: pod.result.clone().unwrap_or_default(),
    }
}
