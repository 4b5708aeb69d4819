//! One replica with its cluster, and what happens to that.

use anyhow::{Context as _, Result, ensure};
use control_hub::Hub;
use control_rpc::{Caller, Certificates, DistributionService, Gatekeeper, SharedHub, listen};
use control_wire::proto::{AnnounceRequest, ReportRequest};
use policy_core::{compile, index::Event};
use policy_objects::{Kind, Object};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use serde_json::json;
use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tokio::{net::TcpListener, runtime::Runtime};
use tonic::{Status, transport::Server};

pub(crate) const NAME: &str = "ferrule-controller";
/// Policies, a namespace each five.
const POLICIES: usize = 500;
const SPACES: usize = 100;
/// The resource version up to which everything is read at first.
const VERSION: u64 = 1_000_000;
/// Time limit for the agents' acks of an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token is the node's name.
struct ByName;

#[tonic::async_trait]
impl Gatekeeper for ByName {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        Ok(Caller { node: token.to_owned(), ..Caller::default() })
    }

    async fn announce(&self, _: &Caller, _: AnnounceRequest) -> Result<(), Status> {
        Ok(())
    }

    async fn report(&self, _: &Caller, _: ReportRequest) -> Result<(), Status> {
        Ok(())
    }
}

pub(crate) struct Replica {
    at: SocketAddr,
    authority: NamedTempFile,
    shown: Arc<Certificates>,
    office: Arc<SharedHub>,
    /// Its tasks and connections end with it, as a process's do.
    serving: Option<Runtime>,
    nodes: usize,
    pods: usize,
    epoch: u8,
    extra: usize,
    churned: usize,
}

impl Replica {
    pub(crate) fn start(nodes: usize, pods: usize) -> Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::new(Vec::new()).context("describe an authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).context("make an authority")?.pem();
        let authority = Issuer::new(params, key);
        let file = NamedTempFile::new().context("make a file")?;
        std::fs::write(file.path(), pem).context("write the authority's certificate")?;
        let shown = Arc::new(Certificates::default());
        shown.show(certified(&authority)?);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("take a port")?;
        let at = listener.local_addr().context("the port")?;
        let office = SharedHub::new(cluster(nodes, pods, 1));
        let serving = Some(serve(listener, &shown, &office)?);
        let (epoch, extra, churned) = (1, 0, 0);
        let authority = file;
        Ok(Self { at, authority, shown, office, serving, nodes, pods, epoch, extra, churned })
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn authority(&self) -> &Path {
        self.authority.path()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.office.with(|hub| hub.measures().generation)
    }

    /// Waits until all agents have acknowledged everything.
    pub(crate) fn hears_of_all(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.office.with(|hub| hub.measures().pending) > 0 {
            ensure!(Instant::now() < until, "agents do not say that they hold everything");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// A pod that every node has to know of comes.
    pub(crate) fn event_for_all(&mut self) -> u64 {
        self.extra += 1;
        let number = self.nodes * self.pods + self.extra;
        let pod = pod(number, self.nodes, "all");
        let version = self.version();
        self.office.with(|hub| {
            feed(hub, &pod);
            hub.reach(Kind::Pod.text(), version);
            hub.generation()
        })
    }

    /// A pod is another, as it is with deployments: those who select its kind are told.
    pub(crate) fn churn(&mut self) {
        self.churned += 1;
        let number = self.churned * 7 % (self.nodes * self.pods);
        let app = format!("app{}", self.churned % 5);
        let pod = pod(number, self.nodes, &app);
        let version = self.version();
        self.office.with(|hub| {
            feed(hub, &pod);
            hub.reach(Kind::Pod.text(), version);
        });
    }

    /// The resource version of the last that happened.
    fn version(&self) -> u64 {
        VERSION + (self.extra + self.churned) as u64
    }

    /// Stops this replica with its streams and starts another at the same address.
    pub(crate) fn replace(&mut self) -> Result<()> {
        if let Some(serving) = self.serving.take() {
            serving.shutdown_background();
        }
        self.epoch += 1;
        let mut hub = cluster(self.nodes, self.pods, self.epoch);
        for extra in 1..=self.extra {
            feed(&mut hub, &pod(self.nodes * self.pods + extra, self.nodes, "all"));
        }
        hub.reach(Kind::Pod.text(), self.version());
        self.office = SharedHub::new(hub);
        let listener = loop {
            // The one before lets go of the port as it ends.
            match std::net::TcpListener::bind(self.at) {
                Ok(listener) => break listener,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.serving = Some(serve(listener, &self.shown, &self.office)?);
        Ok(())
    }
}

fn serve(
    listener: std::net::TcpListener,
    shown: &Arc<Certificates>,
    office: &Arc<SharedHub>,
) -> Result<Runtime> {
    let runtime = Runtime::new().context("start tokio")?;
    let _inside = runtime.enter();
    listener.set_nonblocking(true).context("make it wait for nobody")?;
    let listener = TcpListener::from_std(listener).context("take the port")?;
    let service = DistributionService::new(office.clone(), Arc::new(ByName));
    let inside = listen(listener, shown.clone()).context("make TLS")?;
    tokio::spawn(async move {
        let _ = Server::builder().add_service(service).serve_with_incoming(inside).await;
    });
    drop(_inside);
    Ok(runtime)
}

fn certified(authority: &Issuer<'_, KeyPair>) -> Result<CertifiedKey> {
    let key = KeyPair::generate().context("make a key")?;
    let params = CertificateParams::new(vec![NAME.to_owned()]).context("describe a certificate")?;
    let certificate = params.signed_by(&key, authority).context("make a certificate")?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private).context("a key that signs")?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signing))
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
    // One that concerns all.
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

#[expect(clippy::expect_used, reason = "objects of this file's own making")]
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
