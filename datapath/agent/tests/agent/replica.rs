//! Replicas of a controller: the real hub and the real service. Each has a runtime of its own, so that a test can stop it.

use control_hub::Hub;
use control_rpc::{Authenticated, Caller, Certificates, Gatekeeper, SharedHub, listen};
use control_wire::proto::{AnnounceRequest, ReportRequest};
use policy_core::index::Event;
use policy_objects::{Kind, Object};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::{net::TcpListener, runtime::Runtime};
use tonic::{Status, transport::Server};

pub(crate) const NAME: &str = "ferrule-controller";

/// Signs the certificates of replicas.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn certified(&self) -> CertifiedKey {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = any_supported_type(&private).unwrap();
        CertifiedKey::new(vec![certificate.der().clone()], signing)
    }
}

/// The recorded calls of a replica.
#[derive(Clone, Default)]
pub(crate) struct Calls {
    pub(crate) announced: Arc<Mutex<Vec<AnnounceRequest>>>,
    pub(crate) reports: Arc<Mutex<Vec<ReportRequest>>>,
    /// The generations that the node acknowledged, on all its streams.
    pub(crate) held: Arc<Mutex<Vec<u64>>>,
}

/// Admits any caller with a token `node:NAME`.
struct ByName(Calls);

#[tonic::async_trait]
impl Gatekeeper for ByName {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        match token.split_once(':') {
            Some(("node", node)) => Ok(Caller { node: node.to_owned(), ..Caller::default() }),
            _ => Err(Status::unauthenticated("no such token")),
        }
    }

    async fn announce(&self, _: &Caller, announce: AnnounceRequest) -> Result<(), Status> {
        self.0.announced.lock().unwrap().push(announce);
        Ok(())
    }

    async fn report(&self, _: &Caller, report: ReportRequest) -> Result<(), Status> {
        self.0.reports.lock().unwrap().push(report);
        Ok(())
    }

    fn held(&self, _: &str, generation: u64, _: Instant) {
        self.0.held.lock().unwrap().push(generation);
    }
}

pub(crate) struct Replica {
    pub(crate) at: SocketAddr,
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) calls: Calls,
    runtime: Option<Runtime>,
}

impl Replica {
    /// Starts a replica that serves this hub at a free port.
    pub(crate) fn start(authority: &Authority, hub: Hub) -> Self {
        Self::start_at(authority, hub, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts a replica that serves this hub at this address.
    pub(crate) fn start_at(authority: &Authority, hub: Hub, at: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let shown = Arc::new(Certificates::default());
        shown.show(authority.certified());
        let hub = SharedHub::new(hub);
        let calls = Calls::default();
        let service = Authenticated::new(hub.clone(), Arc::new(ByName(calls.clone())));
        let at = runtime.block_on(async {
            let listener = TcpListener::bind(at).await.unwrap();
            let at = listener.local_addr().unwrap();
            let inside = listen(listener, shown).unwrap();
            tokio::spawn(Server::builder().add_service(service).serve_with_incoming(inside));
            at
        });
        Self { at, hub, calls, runtime: Some(runtime) }
    }

    /// Stops the replica with all its connections.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn pod(&self, node: &str, name: &str, uid: &str) {
        self.hub.with(|hub| pod(hub, node, name, uid));
    }

    pub(crate) fn pod_gone(&self, name: &str) {
        let namespace = "shop";
        self.hub.with(|hub| {
            hub.apply(Event::Gone { kind: Kind::Pod, namespace, name, uid: "" });
        });
    }

    pub(crate) fn policy(&self, name: &str) {
        self.hub.with(|hub| policy(hub, name));
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end();
    }
}

/// A hub that has read a cluster so far.
pub(crate) fn hub(epoch: u8, reached: u64) -> Hub {
    let mut hub = Hub::new([epoch; 16], 0);
    hub.reach("Pod", reached);
    hub.loaded();
    hub
}

fn read(object: &serde_json::Value) -> Object {
    Object::read_value(object).unwrap().object
}

/// A pod that is bound, and has no address yet.
pub(crate) fn pod(hub: &mut Hub, node: &str, name: &str, uid: &str) {
    let metadata = serde_json::json!({"namespace": "shop", "name": name, "uid": uid,
        "labels": {"app": "web"}});
    let object = read(&serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": node}, "status": {}}));
    let Object::Pod(pod) = object else { panic!("a pod") };
    hub.apply(Event::Pod(&pod));
}

pub(crate) fn policy(hub: &mut Hub, name: &str) {
    let selector = serde_json::json!({"matchLabels": {"app": "web"}});
    let metadata =
        serde_json::json!({"namespace": "shop", "name": name, "uid": format!("uid-of-{name}")});
    let object = read(&serde_json::json!({"apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": selector,
        "ingress": [{"from": [{"podSelector": selector}]}]}}));
    hub.policy(&policy_core::compile(&object).unwrap(), 3);
}
