//! A daemon that is not there, or does not answer.

use crate::daemon::{Daemon, key, release, reserve, shortly, soon};
use ipamd_rpc::{Client, Released, RpcError};
use std::os::unix::net::UnixListener;

#[tokio::test(flavor = "current_thread")]
async fn a_client_waits_for_a_daemon_that_starts_later() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("run/ipamd.sock");
    let connecting = tokio::spawn({
        let socket = socket.clone();
        async move { Client::connect(&socket, soon()).await.unwrap() }
    });
    tokio::task::yield_now().await;
    let _daemon = Daemon::start(&socket).await;
    let client = connecting.await.unwrap();
    assert_eq!(client.release(release("a"), soon()).await.unwrap(), Released::Unknown);
}

#[tokio::test]
async fn the_error_at_the_deadline_names_the_missing_part() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let error = Client::connect(&socket, shortly()).await.unwrap_err();
    assert!(matches!(error, RpcError::Missing { .. }) && error.daemon_unavailable(), "{error:?}");

    drop(UnixListener::bind(&socket).unwrap());
    let error = Client::connect(&socket, shortly()).await.unwrap_err();
    assert!(matches!(error, RpcError::Refused { .. }) && error.daemon_unavailable(), "{error:?}");
}

#[tokio::test]
async fn a_deadline_that_has_passed_still_allows_one_attempt() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    assert!(Client::connect(&daemon.socket, std::time::Instant::now()).await.is_ok());
}

#[tokio::test]
async fn a_path_that_cannot_be_a_socket_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Client::connect(&file.join("ipamd.sock"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Other { .. }), "{error:?}");
}

#[tokio::test]
async fn a_call_to_a_hung_daemon_fails_at_the_deadline() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let _hung = UnixListener::bind(&socket).unwrap();
    let client = Client::connect(&socket, soon()).await.unwrap();
    let error = client.reserve(reserve("a"), shortly()).await.unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }) && error.daemon_unavailable(), "{error:?}");
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_is_a_lost_call() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let client = Client::connect(&socket, soon()).await.unwrap();
    let dies = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut first = [0; 24];
        std::io::Read::read_exact(&mut connection, &mut first).unwrap();
    });
    let error = client.inspect(key("a"), soon()).await.unwrap_err();
    dies.join().unwrap();
    assert!(matches!(error, RpcError::Lost { .. }) && error.daemon_unavailable(), "{error:?}");
}

/// The next call meets a connection that is known to have ended.
#[tokio::test]
async fn a_daemon_that_died_between_two_calls_is_a_lost_call() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let client = Client::connect(&socket, soon()).await.unwrap();
    drop(listener.accept().unwrap());
    for _ in 0..2 {
        let error = client.inspect(key("a"), soon()).await.unwrap_err();
        assert!(matches!(error, RpcError::Lost { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_disconnected_caller_is_no_longer_served() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    let caller = tokio::spawn(async move { client.reserve(reserve("slow"), soon()).await });
    daemon.waiting_becomes(1).await;
    caller.abort();
    daemon.waiting_becomes(0).await;
}
