//! Client and agent over a real unix socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use config_model::{EnforcingMode, EniId, HostEnd, HostLink, Mac, Mark, PodName, TableId};
use datapath_rpc::{
    Admission, Admitted, Agent, AgentAt, AgentError, AgentPod, Flows, serve,
    wire::{self, Flow, StatusReply, agent_client::AgentClient},
};
use runtime_socket::{
    dial, origin,
    server::{Health, listen},
};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tonic::{Code, Status};

/// Long enough for anything that is going to happen.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn pod(uid: &str) -> AgentPod {
    let name = PodName { namespace: "shop".into(), name: "web-0".into() };
    AgentPod { uid: uid.into(), name, container: "c-0".into() }
}

fn link() -> HostLink {
    HostLink {
        name: "eni0d7763386da".into(),
        ifindex: 7,
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        addresses: ["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()].into(),
        number: 1,
        table: Some(TableId(2)),
        mark: Some(Mark { value: 0x10, mask: 0xf0 }),
        eni: Some(EniId::new("eni-1")),
        host_end: HostEnd::Bridged { port: "p7".into() },
    }
}

/// Records admissions; its first answer can be an exit.
#[derive(Default)]
struct Recorder {
    admissions: Mutex<Vec<Admission>>,
    exits: AtomicBool,
}

impl Agent for Recorder {
    async fn admit(&self, admission: Admission) -> Result<Admitted, Status> {
        let refused = admission.mode == EnforcingMode::Strict;
        self.admissions.lock().unwrap().push(admission);
        match (self.exits.swap(false, Ordering::SeqCst), refused) {
            (true, _) => Err(Status::unavailable("the agent exits")),
            (false, true) => Ok(Admitted::Refused("no entry".into())),
            (false, false) => Ok(Admitted::Open("no entry".into())),
        }
    }

    async fn forget(&self, _: AgentPod) -> Result<(), Status> {
        Ok(())
    }

    async fn status(&self) -> Result<StatusReply, Status> {
        Ok(StatusReply { generation: 3, ..StatusReply::default() })
    }

    async fn paths(&self, uid: String) -> Result<wire::PathsReply, Status> {
        let known = wire::PathsReply { stack: 1, pods: 2, nodes: 3, version: 0 };
        (uid == "u-0").then_some(known).ok_or_else(|| Status::not_found("no such pod"))
    }

    fn flows(&self, _: wire::FlowsRequest) -> Result<Flows, Status> {
        let flow = |length| Flow { length, reason: "r".repeat(100), ..Flow::default() };
        let flows = futures::stream::iter((0..FLOWS).map(flow));
        // As that of an agent that runs, the stream does not end.
        Ok(Box::pin(futures::StreamExt::chain(flows, futures::stream::pending())))
    }
}

/// Together they are longer than the longest response that the plugin reads.
const FLOWS: u32 = 20_000;

async fn start(socket: &Path) -> Arc<Recorder> {
    let incoming = listen(socket).await.unwrap();
    let recorder = Arc::new(Recorder::default());
    let (agent, health) = (Arc::clone(&recorder), Health::starting().await);
    tokio::spawn(async move { serve(incoming, agent, &health, std::future::pending()).await });
    recorder
}

#[tokio::test]
async fn an_admission_arrives_with_its_links_and_the_answer_returns() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("agent.sock");
    let recorder = start(&socket).await;
    let addresses = link().addresses;
    for (mode, answer) in [
        (EnforcingMode::Strict, Admitted::Refused("no entry".into())),
        (EnforcingMode::Standard, Admitted::Open("no entry".into())),
    ] {
        let agent = AgentAt { socket: socket.clone(), mode };
        let list: Vec<_> = addresses.iter().copied().collect();
        let links = [link(), HostLink { mac: None, table: None, mark: None, eni: None, ..link() }];
        let answered = agent.admit(&pod("u-0"), &list, &links, soon()).await.unwrap();
        assert_eq!(answered, answer);
        let admission = recorder.admissions.lock().unwrap().pop().unwrap();
        let sent =
            Admission { pod: pod("u-0"), addresses: addresses.clone(), links: links.into(), mode };
        assert_eq!(admission, sent);
        assert_eq!(agent.status(soon()).await.unwrap().generation, 3);
        agent.forget(&pod(""), soon()).await.unwrap();
        let paths = agent.paths("u-0".into(), soon()).await.unwrap();
        assert_eq!(paths, wire::PathsReply { version: 1, stack: 1, pods: 2, nodes: 3 });
        assert!(agent.paths("u-1".into(), soon()).await.is_err());
    }
}

#[tokio::test]
async fn an_agent_that_exits_during_the_call_is_asked_again_and_a_missing_one_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("agent.sock");
    let agent = AgentAt { socket: socket.clone(), mode: EnforcingMode::Standard };
    let shortly = Instant::now() + Duration::from_millis(50);
    let error = agent.admit(&pod("u-0"), &[], &[], shortly).await.unwrap_err();
    assert!(matches!(error, AgentError::Absent { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.ends_with("agent.sock: there is no such socket"), "{said}");
    let recorder = start(&socket).await;
    recorder.exits.store(true, Ordering::SeqCst);
    let answered = agent.admit(&pod("u-0"), &[], &[], soon()).await.unwrap();
    assert_eq!(answered, Admitted::Open("no entry".into()));
    assert_eq!(recorder.admissions.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_request_that_could_not_be_enforced_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("agent.sock");
    let recorder = start(&socket).await;
    let connection = dial(&socket, soon()).await.unwrap();
    let mut raw = AgentClient::with_origin(connection, origin());
    let interface = wire::Interface {
        name: "eni0".into(),
        ifindex: 7,
        host_end: wire::HostEnd::Routed.into(),
        ..wire::Interface::default()
    };
    let sent = |interface, versions| wire::AdmitRequest {
        versions: Some(versions),
        pod: Some(pod("u-0").into()),
        interfaces: vec![interface],
        ..wire::AdmitRequest::default()
    };
    let ours = wire::Versions { oldest: 1, newest: 1 };
    raw.admit(sent(interface.clone(), ours)).await.unwrap();
    assert_eq!(
        recorder.admissions.lock().unwrap().pop().unwrap().mode,
        EnforcingMode::Strict,
        "an unknown mode is strict"
    );
    for bad in [
        wire::Interface { host_end: 9, ..interface.clone() },
        wire::Interface { host_end: wire::HostEnd::Bridged.into(), ..interface.clone() },
        wire::Interface { ifindex: 0, ..interface.clone() },
        wire::Interface { mac: vec![1], ..interface.clone() },
        wire::Interface { addresses: vec!["web".into()], ..interface.clone() },
    ] {
        let status = raw.admit(sent(bad, ours)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    let newer = wire::Versions { oldest: 8, newest: 9 };
    let status = raw.admit(sent(interface, newer)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(recorder.admissions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn flows_are_read_while_the_stream_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    start(&socket).await;
    let agent = AgentAt { socket, mode: EnforcingMode::Standard };
    let mut flows = agent.flows(false, true, soon()).await.unwrap();
    for number in 0..FLOWS {
        assert_eq!(flows.message().await.unwrap().unwrap().length, number);
    }
    let socket = folder.path().join("absent.sock");
    let absent = AgentAt { socket, mode: EnforcingMode::Standard };
    let error = absent.flows(false, true, soon()).await.unwrap_err().to_string();
    assert!(error.contains("absent.sock") && error.contains("No such file"), "{error}");
}
