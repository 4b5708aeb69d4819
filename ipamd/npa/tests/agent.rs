//! A policy agent is told of pods by the plugin, and how the node is set by the daemon.

use crate::daemon::{Daemon, release, reserve, soon};
use config_model::PodName;
use ipamd_rpc::{
    Pod, Release, Released,
    agent::{AgentAt, Mode},
    policy::{
        Enforcer, PolicyAgent, PolicyError, Terms, ask, serve,
        wire::{
            DeleteNpReply, DeleteNpRequest, EnforceNpReply, EnforceNpRequest,
            np_backend_server::{NpBackend, NpBackendServer},
        },
    },
    probe,
    server::{Health, HealthName, listen},
};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

fn pod(name: &str) -> PodName {
    PodName { namespace: "shop".into(), name: name.into() }
}

/// Notes what it is told; of the pods `refused` and `failed` it takes no note.
#[derive(Clone, Default)]
struct Agent {
    told: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    fn serve(&self, socket: &Path) -> PolicyAgent {
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let service = NpBackendServer::new(self.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        PolicyAgent { socket: socket.to_owned(), mode: "strict".to_owned() }
    }

    fn answer(&self, pod: &str, told: String) -> Result<bool, Status> {
        self.told.lock().unwrap().push(told);
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
async fn an_agent_is_told_of_pods_and_its_refusals_are_told() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("npa.sock");
    let absent = PolicyAgent { socket: socket.clone(), mode: "strict".to_owned() };
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
    let told = backend.told.lock().unwrap().clone();
    assert_eq!(told[..3], ["shop/web-0 strict 2", "shop/web-0 is gone", "shop/refused strict 1"]);
}

#[tokio::test]
async fn the_daemon_tells_the_agent_how_the_node_is_set_and_is_known_by_its_health() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let terms = Terms {
        mode: "standard".into(),
        multi_nic: true,
        node_ipv4: "10.0.0.9".into(),
        node_ipv6: String::new(),
        instance_id: "i-0".into(),
        region: "eu-west-1".into(),
    };
    let (health, incoming) = (Health::starting().await, listen(&socket).await.unwrap());
    health.set(HealthName::Live, true).await;
    let served = terms.clone();
    tokio::spawn(async move { serve(incoming, served, &health, std::future::pending()).await });
    assert_eq!(ask(&socket, soon()).await.unwrap(), terms);
    assert!(probe(&socket, HealthName::Live, soon()).await.unwrap());
    assert!(!probe(&socket, HealthName::PolicyAgent, soon()).await.unwrap());
    // amazon-vpc-cni's agent knows none of our daemon's names.
    let other = home.path().join("other.sock");
    Agent::default().serve(&other);
    assert!(probe(&other, HealthName::Live, soon()).await.is_err());
}

#[tokio::test]
async fn the_plugin_is_told_of_the_agent_with_a_reservation_and_a_release() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    let (_, agent) = client.reserve_with_policy(reserve("a"), soon()).await.unwrap();
    assert_eq!(agent, None);
    let policy = PolicyAgent { socket: "/run/npa.sock".into(), mode: "strict".into() };
    let policy = Enforcer::Amazon(policy);
    *daemon.book.policy.lock().unwrap() = Some(policy.clone());
    let (_, agent) = client.reserve_with_policy(reserve("a"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy.clone()));
    let (_, agent) = client.release_with_policy(release("a"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy));
    for mode in [Mode::Strict, Mode::Standard] {
        let own = Enforcer::Own(AgentAt { socket: "/run/agent.sock".into(), mode });
        *daemon.book.policy.lock().unwrap() = Some(own.clone());
        let (_, told) = client.reserve_with_policy(reserve("b"), soon()).await.unwrap();
        assert_eq!(told.as_ref(), Some(&own));
        let (_, told) = client.release_with_policy(release("b"), soon()).await.unwrap();
        assert_eq!(told, Some(own));
    }
}

#[tokio::test]
async fn the_agent_does_not_hear_of_a_sandbox_while_another_of_its_pod_lives() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let policy = PolicyAgent { socket: "/run/npa.sock".into(), mode: "strict".into() };
    let policy = Enforcer::Amazon(policy);
    *daemon.book.policy.lock().unwrap() = Some(policy.clone());
    let client = daemon.client().await;
    let named = |id: &str, pod: &str| {
        let pod = Pod { name: pod_named(pod), ..reserve(id).pod };
        Release { pod: Some(pod), ..release(id) }
    };
    for id in ["old", "new"] {
        client.reserve_with_policy(reserve(id), soon()).await.unwrap();
    }
    // Known, and told again, when it is not known any more.
    for known in [true, false] {
        let asked = named("old", "web-0");
        let (released, agent) = client.release_with_policy(asked, soon()).await.unwrap();
        assert_eq!((released != Released::Unknown, agent), (known, None));
    }
    let (_, agent) = client.release_with_policy(named("old", "web-1"), soon()).await.unwrap();
    assert_eq!(agent, Some(policy.clone()), "nothing is held for this one");
    for _ in 0..2 {
        let (_, agent) = client.release_with_policy(named("new", "web-0"), soon()).await.unwrap();
        assert_eq!(agent, Some(policy.clone()), "it was the last, and may have been missed");
    }
}

fn pod_named(name: &str) -> PodName {
    PodName { namespace: "default".into(), name: name.into() }
}
