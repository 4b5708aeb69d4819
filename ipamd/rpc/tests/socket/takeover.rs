//! The ownership of the socket, and its mode.

use crate::daemon::{Daemon, release, soon};
use runtime_socket::server::{ListenError, listen};
use std::{
    fs,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_socket_is_private_and_the_directory_is_readable() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("run");
    let daemon = Daemon::start(&directory.join("ipamd.sock")).await;
    assert_eq!(mode(&daemon.socket), 0o600);
    assert_eq!(mode(&directory), 0o755);
    let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["ipamd.sock"], "the temporary name is gone");
}

#[tokio::test]
async fn the_socket_is_private_before_it_has_its_name() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    let watched = home.path().to_owned();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let noticed = Arc::new(AtomicBool::new(false));
    let notice = Arc::clone(&noticed);
    let watcher = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while stopped.try_recv().is_err() {
            for entry in fs::read_dir(&watched).unwrap().flatten() {
                if let Ok(found) = entry.metadata() {
                    seen.push(found.permissions().mode() & 0o777);
                    notice.store(true, Ordering::Relaxed);
                }
            }
        }
        seen
    });
    // On a busy machine the watcher may not come to look at any of the first.
    let mut rounds = 0;
    while rounds < 50 || !noticed.load(Ordering::Relaxed) {
        rounds += 1;
        drop(listen(&socket).await.unwrap());
        // The last listener's task closes its socket when it notices.
        while answers(&socket) {
            tokio::task::yield_now().await;
        }
    }
    stop.send(()).unwrap();
    let seen = watcher.join().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|mode| *mode == 0o600), "{seen:?}");
}

fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let daemon = Daemon::start(&socket).await;
    assert!(daemon.client().await.release(release("a"), soon()).await.is_ok());
}

#[tokio::test]
async fn a_serving_daemon_keeps_its_socket_even_if_it_hangs() {
    let home = tempfile::tempdir().unwrap();
    let served = Daemon::start(&home.path().join("ipamd.sock")).await;
    let error = listen(&served.socket).await.unwrap_err();
    assert!(matches!(error, ListenError::Served { .. }), "{error:?}");
    assert!(served.client().await.release(release("a"), soon()).await.is_ok());

    let hung = home.path().join("hung.sock");
    let _hung = UnixListener::bind(&hung).unwrap();
    let error = listen(&hung).await.unwrap_err();
    assert!(matches!(error, ListenError::Served { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen at {}: another process serves it; stop that process or set another path",
            hung.display()
        )
    );
}

/// A connect during the close of the listening socket fails with ECONNRESET.
#[tokio::test]
async fn a_listener_that_is_closed_meanwhile_does_not_prevent_the_takeover() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..2_000 {
        let socket = home.path().join(format!("{round}.sock"));
        let old = UnixListener::bind(&socket).unwrap();
        let closer = std::thread::spawn(move || drop(old));
        let taken = listen(&socket).await;
        closer.join().unwrap();
        let error = taken.err();
        assert!(matches!(error, None | Some(ListenError::Served { .. })), "{round}: {error:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ipamd.sock");
    fs::write(&file, "somebody's").unwrap();
    let error = listen(&file).await.unwrap_err();
    assert!(matches!(error, ListenError::NotASocket { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen at {}: the path exists and is not a socket; remove the file or set another path",
            file.display()
        )
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "somebody's");
}

#[tokio::test]
async fn after_a_stop_the_next_daemon_takes_over() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("ipamd.sock");
    Daemon::start(&socket).await.stop().await;
    let next = Daemon::start(&socket).await;
    assert!(next.client().await.release(release("a"), soon()).await.is_ok());
}
