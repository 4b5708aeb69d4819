//! Services and EndpointSlices that are read for an agent, from a real API server.

use crate::world::{Adapter, PATIENCE, World};
use control_wire::proto::{Change, change::Of};
use ipamd_kube::{Concern, ServicesKind, ServicesRead};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::DeleteParams};
use prost::Message as _;
use serde_json::{Value, json};
use service_objects::ObjectName;
use std::collections::BTreeSet;
use tests_cluster::Identity;
use tokio::{sync::mpsc, time::timeout};

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "ports": [{ "port": 80 }] },
    })
}

fn slice(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": name, "namespace": namespace, "labels": { "kubernetes.io/service-name": "web" },
        },
        "ports": [{ "name": "", "port": 8080 }],
        "endpoints": [{ "addresses": ["10.0.0.7"] }],
    })
}

/// The objects of a message by their names, those of this namespace alone.
fn names(read: &ServicesRead, namespace: &str) -> BTreeSet<String> {
    let name = |bytes: &Vec<u8>| {
        let of = Change::decode(bytes.as_slice()).unwrap().of.unwrap();
        if let Of::Service(of) = of {
            (of.namespace, of.name)
        } else if let Of::Slice(of) = of {
            (of.namespace, of.name)
        } else {
            panic!("{of:?}")
        }
    };
    let names = read.objects.iter().map(name).filter(|(of, _)| of == namespace);
    names.map(|(_, name)| name).collect()
}

/// The next message for which `is` is true.
async fn until(
    reads: &mut mpsc::Receiver<ServicesRead>,
    what: &str,
    is: impl Fn(&ServicesRead) -> bool,
) -> ServicesRead {
    let found = async {
        loop {
            let read = reads.recv().await.unwrap();
            if is(&read) {
                return read;
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

#[tokio::test]
async fn an_agent_gets_all_services_and_then_their_changes_also_after_an_outage() {
    let world = World::new("services").await;
    let of = world.name.clone();
    world.make(service(&of, "web")).await;
    world.make(slice(&of, "web-1")).await;
    let between = world.forwarder(true).await;
    let mut options = world.options();
    options.endpoint = Some(between.url());
    let adapter = Adapter::start(options);
    let mut reads = adapter.handle.read_services();
    let mut lists = BTreeSet::new();
    while lists.len() < 2 {
        let list = until(&mut reads, "both lists", |read| read.is_list).await;
        let expected = match list.kind {
            ServicesKind::Service => "web",
            ServicesKind::Slice => "web-1",
        };
        assert_eq!(names(&list, &of), [expected.to_owned()].into());
        assert!(list.version.is_some());
        lists.insert(expected);
    }
    world.make(service(&of, "shop")).await;
    let shop: BTreeSet<String> = ["shop".to_owned()].into();
    let changed = until(&mut reads, "the new Service", |read| names(read, &of) == shop).await;
    assert!(!changed.is_list && changed.kind == ServicesKind::Service);

    between.shut();
    adapter.is_failing(Concern::Services).await;
    let slices: Api<EndpointSlice> = Api::namespaced(world.client.clone(), &of);
    slices.delete("web-1", &DeleteParams::default()).await.unwrap();
    let services: Api<Service> = Api::namespaced(world.client.clone(), &of);
    services.delete("shop", &DeleteParams::default()).await.unwrap();
    between.open();
    let gone = |name: &str| ObjectName::new(of.clone(), name);
    // The removal is in the changes, or in a list that lacks the object.
    let lacks = |read: &ServicesRead, kind, name: &str| {
        let is_removed = read.removed.contains(&gone(name));
        let is_absent = read.is_list && !names(read, &of).contains(name);
        read.kind == kind && (is_removed || is_absent)
    };
    let mut left = BTreeSet::from(["shop", "web-1"]);
    while !left.is_empty() {
        let read = until(&mut reads, "the removals", |_| true).await;
        left.retain(|name| {
            let kind = if *name == "shop" { ServicesKind::Service } else { ServicesKind::Slice };
            !lacks(&read, kind, name)
        });
    }
    // Without a reader nothing is watched, and nothing fails.
    drop(reads);
    between.shut();
    adapter.is_good(Concern::Services).await;
    adapter.is_good(Concern::EndpointSlices).await;
}

#[tokio::test]
async fn a_missing_right_to_services_is_named() {
    let world = World::new("no-services").await;
    let mut options = world.options();
    let kubeconfig = world.cluster.get().kubeconfig_of("nobody", &Identity::user("nobody"));
    options.kubeconfig = Some(kubeconfig.unwrap());
    let mut adapter = Adapter::start(options);
    let _reads = adapter.handle.read_services();
    let wanted = "allow the daemon's service account to list services";
    let report = adapter.report(wanted, |report| report.next_step == wanted).await;
    assert_eq!(report.concern, Concern::Services);
}
