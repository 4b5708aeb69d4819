//! The limits that protect the daemon from its callers.

use crate::{
    daemon::{Daemon, key, release, reserve, shortly, soon},
    multiplexed::Multiplexed,
};
use ipamd_rpc::{Client, MAX_MESSAGE_BYTES, Released, Reserve, RpcError};
use runtime_socket::server::MAX_REQUESTS;
use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

/// As many as one connection may have under way.
const PER_CONNECTION: usize = 64;

#[tokio::test]
async fn an_oversized_message_is_refused_and_the_daemon_continues() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let client = daemon.client().await;
    let long = Reserve { netns: "x".repeat(MAX_MESSAGE_BYTES), ..reserve("a") };
    let error = client.reserve(long, soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Failed { .. }), "{error:?}");
    assert_eq!(client.release(release("a"), soon()).await.unwrap(), Released::Unknown);
}

#[tokio::test]
async fn excess_reservations_are_refused_as_busy_and_releases_still_pass() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let mut callers = tokio::task::JoinSet::new();
    for connection in 0..MAX_REQUESTS / PER_CONNECTION {
        let client = Multiplexed::connect(&daemon.socket).await;
        for stream in 0..PER_CONNECTION {
            let id = format!("slow-{connection}-{stream}");
            callers.spawn(client.clone().reserve(key(&id)));
        }
    }
    daemon.waiting_becomes(MAX_REQUESTS).await;

    let late = daemon.client().await;
    let error = late.reserve(reserve("late"), soon()).await.unwrap_err();
    assert!(matches!(error, RpcError::Busy { .. }) && error.daemon_unavailable(), "{error:?}");
    assert_eq!(late.release(release("a"), soon()).await.unwrap(), Released::Unknown);

    callers.shutdown().await;
    daemon.waiting_becomes(0).await;
    assert!(late.reserve(reserve("late"), soon()).await.is_ok());
}

const OTHER_USERS_SOCKET: &str = "FERRULE_TEST_OTHER_USERS_SOCKET";
const NOBODY: u32 = 65_534;

/// The other half of the next test: this very test binary, run by another user.
#[tokio::test]
async fn other_user() {
    let Some(socket) = std::env::var_os(OTHER_USERS_SOCKET) else { return };
    let client = Client::connect(socket.as_ref(), soon()).await.unwrap();
    let error = client.release(release("a"), soon()).await.unwrap_err();
    let RpcError::PermissionDenied { said, .. } = error else { panic!("{error:?}") };
    assert!(said.contains(&NOBODY.to_string()), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_is_refused_by_the_sockets_mode_and_by_the_daemon() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root can run a process as another user");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let daemon = Daemon::start(&home.path().join("ipamd.sock")).await;
    let run_other_user = || {
        let mut other_user = Command::new("/proc/self/exe");
        other_user.args(["--exact", "bounds::other_user", "--nocapture"]);
        other_user.env(OTHER_USERS_SOCKET, &daemon.socket).uid(NOBODY).gid(NOBODY);
        tokio::task::spawn_blocking(move || other_user.output().unwrap())
    };
    let kept_out = run_other_user().await.unwrap();
    let said = String::from_utf8_lossy(&kept_out.stderr).into_owned();
    assert!(!kept_out.status.success() && said.contains("PermissionDenied"), "{said}");
    assert!(said.contains("attempt: \"connect\""), "{said}");

    std::fs::set_permissions(&daemon.socket, PermissionsExt::from_mode(0o666)).unwrap();
    let turned_away = run_other_user().await.unwrap();
    let said = String::from_utf8_lossy(&turned_away.stderr).into_owned();
    assert!(turned_away.status.success(), "{said}");
    assert!(daemon.client().await.release(release("a"), shortly()).await.is_ok());
}
