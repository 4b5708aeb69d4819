//! The plugin reports pods to a policy agent, and the daemon serves it the node's configuration.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use config_model::{EnforcingMode, PodName};
use ipamd_npa::{
    NodeConfig, PolicyAgent, PolicyError, ask, serve,
    wire::{
        DeleteNpReply, DeleteNpRequest, EnforceNpReply, EnforceNpRequest,
        np_backend_server::{NpBackend, NpBackendServer},
    },
};
use runtime_socket::{
    probe,
    server::{Health, HealthName, listen},
};
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// Long enough for anything that is going to happen.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn pod(name: &str) -> PodName {
    PodName { namespace: "shop".into(), name: name.into() }
}

/// Records the calls; it refuses the pods `refused` and `failed`.
#[derive(Clone, Default)]
struct Agent {
    calls: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    fn serve(&self, socket: &Path) -> PolicyAgent {
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let service = NpBackendServer::new(self.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        PolicyAgent { socket: socket.to_owned(), mode: EnforcingMode::Strict }
    }

    fn answer(&self, pod: &str, call: String) -> Result<bool, Status> {
        self.calls.lock().unwrap().push(call);
        match pod {
            "failed" => Err(Status::internal("no probe")),
            pod => Ok(pod != "refused"),
        }
    }
}

#[tonic::async_trait]
impl NpBackend for Agent {
    async fn enforce_np_to_pod(
        &self,
        asked: Request<EnforceNpRequest>,
    ) -> Result<Response<EnforceNpReply>, Status> {
        let EnforceNpRequest {
            k8s_pod_name: name,
            k8s_pod_namespace: namespace,
            network_policy_mode: mode,
            interface_count: count,
        } = asked.into_inner();
        let success = self.answer(&name, format!("{namespace}/{name} {mode} {count}"))?;
        Ok(Response::new(EnforceNpReply { success }))
    }

    async fn delete_pod_np(
        &self,
        asked: Request<DeleteNpRequest>,
    ) -> Result<Response<DeleteNpReply>, Status> {
        let DeleteNpRequest { k8s_pod_name: name, k8s_pod_namespace: namespace } =
            asked.into_inner();
        let success = self.answer(&name, format!("{namespace}/{name} is gone"))?;
        Ok(Response::new(DeleteNpReply { success }))
    }
}

#[tokio::test]
async fn an_agent_receives_pods_and_its_refusals_are_errors() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("npa.sock");
    let absent = PolicyAgent { socket: socket.clone(), mode: EnforcingMode::Strict };
    let error = absent.enforce(&pod("web-0"), 1, soon()).await.unwrap_err();
    assert!(matches!(error, PolicyError::Absent { .. }), "{error:?}");
    assert!(error.to_string().contains("npa.sock: there is no such socket"), "{error}");

    let backend = Agent::default();
    let agent = backend.serve(&socket);
    agent.enforce(&pod("web-0"), 2, soon()).await.unwrap();
    agent.forget(&pod("web-0"), soon()).await.unwrap();
    for (name, why) in [("refused", "success = false"), ("failed", "no probe (Internal)")] {
        let error = agent.enforce(&pod(name), 1, soon()).await.unwrap_err();
        assert!(matches!(error, PolicyError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(agent.forget(&pod(name), soon()).await.unwrap_err().to_string().contains(why));
    }
    let calls = backend.calls.lock().unwrap().clone();
    assert_eq!(calls[..3], ["shop/web-0 strict 2", "shop/web-0 is gone", "shop/refused strict 1"]);
}

#[tokio::test]
async fn the_daemon_serves_the_agent_the_configuration_and_its_own_health() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let config = NodeConfig {
        mode: "standard".into(),
        multi_nic: true,
        node_ipv4: "10.0.0.9".into(),
        node_ipv6: String::new(),
        instance_id: "i-0".into(),
        region: "eu-west-1".into(),
    };
    let (health, incoming) = (Health::starting().await, listen(&socket).await.unwrap());
    health.set(HealthName::Live, true).await;
    let served = config.clone();
    tokio::spawn(async move { serve(incoming, served, &health, std::future::pending()).await });
    assert_eq!(ask(&socket, soon()).await.unwrap(), config);
    assert!(probe(&socket, HealthName::Live, soon()).await.unwrap());
    assert!(!probe(&socket, HealthName::PolicyAgent, soon()).await.unwrap());
    // amazon-vpc-cni's agent knows none of our daemon's names.
    let other = home.path().join("other.sock");
    Agent::default().serve(&other);
    assert!(probe(&other, HealthName::Live, soon()).await.is_err());
}
