//! A large cluster: pods of other nodes, policies, and the pods of one node that they are about.

use crate::{policed::sandbox::Started, theirs, world::World};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, net::Ipv4Addr};
use tokio::task::JoinSet;

/// Requests at the same time.
const AT_ONCE: usize = 32;
/// Equal groups of the pods of other nodes.
const GROUPS: usize = 200;
/// Equal parts of a node's pods. Each is a replica set, and the subject of an equal part of the policies.
const PARTS: usize = 50;
/// Pods of a node.
const LOCAL: usize = 250;

/// The size of a cluster.
pub(crate) struct Crowd {
    /// Pods of other nodes.
    pub(crate) peers: usize,
    pub(crate) policies: usize,
}

impl Crowd {
    /// Creates the pods of other nodes, and the policies.
    pub(crate) fn create(&self, world: &World) -> Result<()> {
        let peers = (0..self.peers).map(|number| {
            let labels = json!({"group": format!("g{}", number % GROUPS)});
            (pod("elsewhere", &format!("peer-{number}"), &labels), Some(address(number)))
        });
        create(world, peers.collect())?;
        create(world, (0..self.policies).map(|number| (policy(number), None)).collect())
    }

    /// Creates the pods of a node in the API, in groups of replicas.
    pub(crate) fn pods_of(&self, world: &World, node: &str) -> Result<Vec<Started>> {
        let name = |number: usize| format!("{node}-w{}-{number}", number % PARTS);
        let all = (0..LOCAL).map(|number| {
            let labels = json!({"part": format!("p{}", number % PARTS)});
            (pod(node, &name(number), &labels), None)
        });
        create(world, all.collect())?;
        let api: Api<Pod> = Api::namespaced(world.client.clone(), "default");
        let started = (0..LOCAL).map(|number| {
            let name = name(number);
            let uid = world.runtime.block_on(api.get(&name))?.metadata.uid;
            Ok(Started { name, uid: uid.context("a pod without UID")? })
        });
        started.collect()
    }

    /// Creates the PolicyEndpoints of the policies for these pods of a node, which have these addresses.
    pub(crate) fn endpoints(
        &self,
        world: &World,
        host: &str,
        pods: &[(String, String)],
    ) -> Result<()> {
        let endpoints = (0..self.policies).map(|number| {
            let part = number % PARTS;
            let pods = pods.iter().enumerate().filter(|(at, _)| at % PARTS == part);
            let pods: Vec<_> =
                pods.map(|(_, (name, address))| theirs::selected(name, address, host)).collect();
            let ports = ports(number);
            let peers = (0..self.peers).filter(|peer| groups(number).contains(&(peer % GROUPS)));
            let rules: Vec<_> = peers
                .map(|peer| match &ports {
                    None => json!({"cidr": address(peer)}),
                    Some(ports) => json!({"cidr": address(peer), "ports": ports}),
                })
                .collect();
            (theirs::endpoint(&policy(number), &pods, &rules), None)
        });
        create(world, endpoints.collect())
    }
}

fn address(peer: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0001 + u32::try_from(peer).unwrap_or(u32::MAX >> 8))
}

fn groups(policy: usize) -> BTreeSet<usize> {
    [policy % GROUPS, policy / 7 % GROUPS].into()
}

/// The policies of each part allow all traffic of one of its groups.
fn ports(policy: usize) -> Option<Value> {
    (policy >= PARTS).then(|| json!([{"protocol": "TCP", "port": 80}]))
}

fn policy(number: usize) -> Value {
    let from = groups(number).into_iter().map(|group| {
        let of = format!("g{group}");
        json!({"podSelector": {"matchLabels": {"group": of}}})
    });
    let mut rule = json!({"from": from.collect::<Vec<_>>()});
    if let Some(ports) = ports(number) {
        rule["ports"] = ports;
    }
    let part = format!("p{}", number % PARTS);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("crowd-{number}"), "namespace": "default"},
        "spec": {
            "podSelector": {"matchLabels": {"part": part}}, "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    })
}

fn pod(node: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none.invalid/none"}],
        },
    })
}

/// Creates objects. A pod with an address gets the status of a running pod.
fn create(world: &World, objects: Vec<(Value, Option<Ipv4Addr>)>) -> Result<()> {
    world.runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (object, address) in objects {
            if tasks.len() == AT_ONCE {
                tasks.join_next().await.context("no task")???;
            }
            tasks.spawn(create_one(world.client.clone(), object, address));
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    })
}

async fn create_one(client: Client, object: Value, address: Option<Ipv4Addr>) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("an object without a kind")?;
    let kind = GroupVersionKind::try_from(types)?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind));
    let made = api.create(&PostParams::default(), &object).await?;
    if let Some(address) = address {
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        let patch = Patch::Merge(json!({"status": status}));
        let name = made.metadata.name.context("an object without a name")?;
        api.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
