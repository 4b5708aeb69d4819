//! The result of each call.

use crate::daemon::{Daemon, address, confirm, held, key, release, reserve, soon};
use ipamd_rpc::{
    Collect, Collected, Reason, Released, ReserveOutcome, RpcError, Versions,
    wire::{self, ipam_server},
};
use runtime_socket::{
    probe,
    server::{HealthName, listen},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tonic::{Request, Response, Status};

#[tokio::test(flavor = "current_thread")]
async fn a_pod_lives_from_reserve_to_release_on_one_thread() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;

    let ReserveOutcome::Reserved(first) = client.reserve(reserve("a"), soon()).await.unwrap()
    else {
        panic!("there is an address")
    };
    assert_eq!(first.addresses, [address()]);
    let again = client.reserve(reserve("a"), soon()).await.unwrap();
    assert_eq!(again, ReserveOutcome::Reserved(first));

    assert_eq!(client.inspect(key("a"), soon()).await.unwrap(), Some(held(false)));
    assert!(client.confirm(confirm("a"), soon()).await.unwrap());
    assert_eq!(client.inspect(key("a"), soon()).await.unwrap(), Some(held(true)));

    let released = client.release(release("a"), soon()).await.unwrap();
    assert_eq!(released, Released::Known(vec![address()]));
    assert_eq!(client.release(release("a"), soon()).await.unwrap(), Released::Unknown);
    assert!(!client.confirm(confirm("a"), soon()).await.unwrap());
    assert_eq!(client.inspect(key("a"), soon()).await.unwrap(), None);
}

fn collect(valid: &[&str]) -> Collect {
    let valid = valid.iter().map(|id| key(id)).collect();
    Collect { network: "aws-cni".into(), valid }
}

#[tokio::test]
async fn unlisted_interfaces_are_collected_and_the_others_reported() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    for id in ["valid", "stale", "stuck", "adding"] {
        client.reserve(reserve(id), soon()).await.unwrap();
        if id != "adding" {
            client.confirm(confirm(id), soon()).await.unwrap();
        }
    }
    let collected = client.collect(collect(&["valid"]), soon()).await.unwrap();
    assert_eq!(collected.released, BTreeMap::from([(key("stale"), vec![address()])]));
    assert_eq!(collected.spared, BTreeSet::from([key("adding")]));
    assert_eq!(collected.failed, BTreeMap::from([(key("stuck"), "the disk is full".into())]));

    let other = Collect { network: "other".into(), ..collect(&[]) };
    assert_eq!(client.collect(other, soon()).await.unwrap(), Collected::default());
    let nameless = Collect { network: String::new(), ..collect(&[]) };
    assert!(matches!(client.collect(nameless, soon()).await, Err(RpcError::Failed { .. })));
}

#[tokio::test]
async fn the_list_of_a_full_node_fits_into_a_message() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    // No instance type runs more pods.
    for pod in 0..737 {
        client.reserve(reserve(&format!("{pod:064}")), soon()).await.unwrap();
        client.confirm(confirm(&format!("{pod:064}")), soon()).await.unwrap();
    }
    let all: Vec<String> = (0..737).map(|pod| format!("{pod:064}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(client.collect(collect(&all), soon()).await.unwrap(), Collected::default());
    let collected = client.collect(collect(&[]), soon()).await.unwrap();
    assert_eq!(collected.released.len(), 737);
}

#[tokio::test]
async fn the_status_has_the_faults_of_the_pool_and_of_pods() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let status = daemon.client().await.status(soon()).await.unwrap();
    assert_eq!(
        (status.unavailable, status.impaired),
        (vec!["no address".into()], vec!["eni-1".into()])
    );
}

#[tokio::test]
async fn a_refusal_is_an_answer_and_a_failure_is_an_error_with_the_daemons_message() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;

    let ReserveOutcome::Refused(refusal) = client.reserve(reserve("full"), soon()).await.unwrap()
    else {
        panic!("the subnet is full")
    };
    assert_eq!(refusal.reason, Reason::Exhausted);
    assert_eq!(refusal.next_step, "add a subnet");

    let error = client.reserve(reserve("broken"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Failed { .. }) && !error.daemon_unavailable(), "{error:?}");
    assert!(error.to_string().contains("disk full"), "{error}");
}

#[tokio::test]
async fn a_peer_that_shares_a_version_is_served_and_another_is_not() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    for (oldest, newest, served) in [(1, 1, true), (1, 2, true), (2, 3, false), (0, 0, false)] {
        let client = daemon.client().await.speaking(Versions { oldest, newest });
        let answer = client.release(release("a"), soon()).await;
        match (served, answer) {
            (true, Ok(Released::Unknown)) | (false, Err(RpcError::VersionMismatch { .. })) => {}
            (_, answer) => panic!("{oldest} to {newest}: {answer:?}"),
        }
    }
}

/// A daemon of another release, which answers in a version that was not offered.
struct FromTheFuture;

#[tonic::async_trait]
impl ipam_server::Ipam for FromTheFuture {
    async fn reserve(
        &self,
        _: Request<wire::ReserveRequest>,
    ) -> Result<Response<wire::ReserveReply>, Status> {
        Ok(Response::new(wire::ReserveReply { version: 1, ..Default::default() }))
    }

    async fn confirm(
        &self,
        _: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::ConfirmReply>, Status> {
        Ok(Response::new(wire::ConfirmReply { version: 9, confirmed: true }))
    }

    async fn release(
        &self,
        _: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseReply>, Status> {
        Err(Status::unimplemented("no such method"))
    }

    async fn inspect(
        &self,
        _: Request<wire::InspectRequest>,
    ) -> Result<Response<wire::InspectReply>, Status> {
        Err(Status::resource_exhausted("too much"))
    }

    async fn status(
        &self,
        _: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusReply>, Status> {
        Err(Status::unimplemented("no such method"))
    }

    async fn collect(
        &self,
        _: Request<wire::CollectRequest>,
    ) -> Result<Response<wire::CollectReply>, Status> {
        let released = vec![wire::Collected { attachment: None, addresses: Vec::new() }];
        Ok(Response::new(wire::CollectReply { version: 1, released, ..Default::default() }))
    }
}

#[tokio::test]
async fn each_protocol_violation_is_another_error() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let incoming = listen(&socket).await.unwrap();
    let service = ipam_server::IpamServer::new(FromTheFuture);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
    );
    let client = ipamd_rpc::Client::connect(&socket, soon()).await.unwrap();

    let error = client.confirm(confirm("a"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::VersionMismatch { .. }), "{error:?}");
    let error = client.release(release("a"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::VersionMismatch { .. }), "{error:?}");
    let error = client.reserve(reserve("a"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Malformed { .. }), "{error:?}");
    let error = client.status(soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::VersionMismatch { .. }), "{error:?}");
    let error = client.collect(collect(&[]), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Malformed { .. }), "{error:?}");
    let error = client.inspect(key("a"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Busy { .. }), "{error:?}");
}

#[tokio::test]
async fn live_and_ready_are_different() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let ask = |name| probe(&daemon.socket, name, soon());
    assert!(!ask(HealthName::Live).await.unwrap());
    daemon.health.set(HealthName::Live, true).await;
    assert!(ask(HealthName::Live).await.unwrap());
    assert!(!ask(HealthName::Ready).await.unwrap());
    daemon.health.set(HealthName::Ready, true).await;
    assert!(ask(HealthName::Ready).await.unwrap());
}

#[tokio::test]
async fn a_request_under_way_is_answered_before_the_server_stops() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    let short = std::time::Instant::now() + Duration::from_millis(500);
    let waiting = tokio::spawn(async move { client.reserve(reserve("slow"), short).await });
    daemon.waiting_becomes(1).await;
    let book = std::sync::Arc::clone(&daemon.book);
    daemon.stop().await;
    assert_eq!(*book.waiting.borrow(), 0);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error:?}");
}
