//! A replica with its cluster, and the changes of that cluster.

use anyhow::{Context as _, Result, ensure};
use control_hub::Hub;
use control_rpc::SharedHub;
use policy_core::{compile, index::Event};
use policy_objects::{Kind, Object};
use serde_json::json;
use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tests_bench::authority::Authority;
use tokio::runtime::Runtime;

/// Number of policies, five per namespace.
const POLICIES: usize = 500;
const SPACES: usize = 100;
/// Resource version of the initial lists.
const VERSION: u64 = 1_000_000;
/// Time limit for the agents' acks of an event.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Replica {
    at: SocketAddr,
    authority: Authority,
    hub: Arc<SharedHub>,
    /// Runtime of the server. Its shutdown ends all tasks and connections, as the exit of a process would.
    server: Option<Runtime>,
    nodes: usize,
    pods: usize,
    epoch: u8,
    extra: usize,
    churned: usize,
}

impl Replica {
    pub(crate) fn start(nodes: usize, pods: usize) -> Result<Self> {
        let authority = Authority::new()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a port")?;
        let at = listener.local_addr().context("the port")?;
        let hub = SharedHub::new(cluster(nodes, pods, 1));
        let server = Some(authority.serve(listener, &hub)?);
        let (epoch, extra, churned) = (1, 0, 0);
        Ok(Self { at, authority, hub, server, nodes, pods, epoch, extra, churned })
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn authority(&self) -> &Path {
        self.authority.file.path()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.hub.with(|hub| hub.measures().generation)
    }

    /// Waits until all agents have acknowledged everything.
    pub(crate) fn wait_for_acks(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.hub.with(|hub| hub.measures().pending) > 0 {
            ensure!(
                Instant::now() < until,
                "agents have not acknowledged everything within {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Adds a pod that every node needs. Returns the generation.
    pub(crate) fn event_for_all(&mut self) -> u64 {
        self.extra += 1;
        let number = self.nodes * self.pods + self.extra;
        let pod = pod(number, self.nodes, "all");
        let version = self.version();
        self.hub.with(|hub| {
            feed(hub, &pod);
            hub.reach(Kind::Pod.text(), version);
            hub.generation()
        })
    }

    /// Relabels a pod, as a rollout does. The nodes whose policies select its label receive the change.
    pub(crate) fn churn(&mut self) {
        self.churned += 1;
        let number = self.churned * 7 % (self.nodes * self.pods);
        let app = format!("app{}", self.churned % 5);
        let pod = pod(number, self.nodes, &app);
        let version = self.version();
        self.hub.with(|hub| {
            feed(hub, &pod);
            hub.reach(Kind::Pod.text(), version);
        });
    }

    /// Resource version of the latest change.
    fn version(&self) -> u64 {
        VERSION + (self.extra + self.churned) as u64
    }

    /// Stops this replica with its streams and starts another one at the same address.
    pub(crate) fn replace(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
        self.epoch += 1;
        let mut hub = cluster(self.nodes, self.pods, self.epoch);
        for extra in 1..=self.extra {
            feed(&mut hub, &pod(self.nodes * self.pods + extra, self.nodes, "all"));
        }
        hub.reach(Kind::Pod.text(), self.version());
        self.hub = SharedHub::new(hub);
        let listener = loop {
            // The previous replica releases the port only when its runtime has stopped.
            match std::net::TcpListener::bind(self.at) {
                Ok(listener) => break listener,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.server = Some(self.authority.serve(listener, &self.hub)?);
        Ok(())
    }
}

fn cluster(nodes: usize, pods: usize, epoch: u8) -> Hub {
    let mut hub = Hub::new([epoch; 16], 0);
    for space in 0..SPACES {
        feed(
            &mut hub,
            &read(&json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("ns{space}")}})),
        );
    }
    for number in 0..nodes * pods {
        feed(&mut hub, &pod(number, nodes, &format!("app{}", number % 5)));
    }
    for number in 0..POLICIES {
        let (space, app) = (format!("ns{}", number % SPACES), format!("app{}", number / SPACES));
        let other = format!("app{}", (number / SPACES + 1) % 5);
        feed(
            &mut hub,
            &read(&json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": space, "name": format!("p{number}"), "uid": format!("p{number}")},
            "spec": {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": other}}}],
                    "ports": [{"port": 8080}]}]}})),
        );
    }
    // A policy that applies to all pods.
    feed(
        &mut hub,
        &read(&json!({"apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy", "metadata": {"name": "all", "uid": "all"},
        "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": [{"pods": {"namespaceSelector": {},
                "podSelector": {"matchLabels": {"app": "all"}}}}]}]}})),
    );
    for kind in Kind::ALL {
        hub.reach(kind.text(), VERSION);
    }
    hub.loaded();
    hub
}

fn pod(number: usize, nodes: usize, app: &str) -> Object {
    let [b, c, d] = [number >> 16, number >> 8 & 255, number & 255];
    let metadata = json!({"namespace": format!("ns{}", number / 5 % SPACES), "name": format!("web-{number}"),
        "uid": format!("00000000-0000-4000-8000-{number:012x}"), "labels": {"app": app}});
    read(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": format!("n{}", number % nodes)},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.{b}.{c}.{d}")}]}}))
}

#[expect(clippy::expect_used, reason = "only objects of this file")]
fn read(object: &serde_json::Value) -> Object {
    Object::read_value(object).expect("an object").object
}

fn feed(hub: &mut Hub, object: &Object) {
    if let Object::Pod(pod) = object {
        hub.apply(Event::Pod(pod));
    } else if let Object::Namespace(namespace) = object {
        hub.apply(Event::Namespace(namespace));
    } else if let Some(policy) = compile(object) {
        hub.policy(&policy, 1);
    }
}
