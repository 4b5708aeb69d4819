//! HTTP listeners on one address, on all addresses of the host, or on a unix socket. All of them limit their connections.

use axum::Router;
use config_settings::Bind;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use runtime_limiter::{Bounds, Leave, Place, PreauthLimiter};
use std::{
    convert::Infallible,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, UnixListener},
    time::{sleep, timeout},
};

/// Serves HTTP and never returns. A port in use may become free, so the program does not exit: it logs that it
/// cannot serve `what`, and retries.
pub async fn serve(router: Router, at: &Bind, what: &str) {
    let mut pause = PAUSE_FIRST;
    loop {
        let error = match at {
            Bind::Tcp(address) => match bind(*address).await {
                Ok(listener) => match serve_on(listener, router, BOUNDS).await {},
                Err(error) => error,
            },
            Bind::Unix(path) => match bind_unix(path) {
                Ok(listener) => match serve_unix(listener, router).await {},
                Err(error) => error,
            },
        };
        tracing::error!(
            %error,
            ?at,
            retry_seconds = pause.as_secs(),
            "cannot serve {what}: the address is not usable; stop the program that uses it, or set another address"
        );
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

/// Serves HTTP on a listener and never returns. An address with many connections does not block other addresses. A
/// connection carries one request.
pub async fn serve_on(listener: TcpListener, router: Router, bounds: Bounds) -> Infallible {
    let limiter = PreauthLimiter::new(bounds);
    loop {
        match listener.accept().await {
            // If the address has too many connections, this one is closed.
            Ok((stream, from)) => {
                if let Some(entered) = limiter.enter(from.ip()).await {
                    tokio::spawn(answer(stream, router.clone(), entered));
                }
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

/// Serves HTTP on a unix socket. All of its clients count as one address.
async fn serve_unix(listener: UnixListener, router: Router) -> Infallible {
    let limiter = PreauthLimiter::new(BOUNDS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(entered) = limiter.enter(Ipv4Addr::UNSPECIFIED.into()).await {
                    tokio::spawn(answer(stream, router.clone(), entered));
                }
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

/// For example, no file descriptor is free. Other connections may end during the pause.
async fn pause_after(error: &io::Error) {
    tracing::debug!(%error, "cannot accept connection; retrying");
    sleep(ACCEPT_AGAIN).await;
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    (_place, leave): (Place, Leave),
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    let talk = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        talk = timeout(TALK, talk) => {
            if let Ok(Err(error)) = talk {
                tracing::debug!(%error, "cannot answer request; the client can send it again");
            }
        }
        // The limiter evicts this connection.
        _ = leave => {}
    }
}

/// Listens on a socket that only the program's user can reach. It replaces the socket of an earlier process.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens on an address. `[::]` means all addresses of both families; on a host without IPv6, those of IPv4.
///
/// # Errors
/// If the port is in use, or the host does not have the address.
pub async fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(at).await;
    let everywhere = at.is_ipv6() && at.ip().is_unspecified();
    match bound {
        Err(err) if everywhere && without_ipv6(&err) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port())).await
        }
        bound => bound,
    }
}

/// Listens on an address of one family: `[::]` means all addresses of IPv6 only.
///
/// # Errors
/// If the port is in use, or the host does not have the address or the family.
pub fn bind_family(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    if at.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Returns true if the kernel lacks the family or has it disabled.
fn without_ipv6(err: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    err.raw_os_error() == Some(EAFNOSUPPORT) || err.kind() == io::ErrorKind::AddrNotAvailable
}

/// Timeout of a request's header.
const HEAD: Duration = Duration::from_secs(5);
/// Maximum duration of a connection.
const TALK: Duration = Duration::from_secs(10);
/// Limits on connections. The kubelet and Prometheus have one or two each. Pods of one IPv6 subnet are different
/// clients: a connection needs the way back to its pod.
pub const BOUNDS: Bounds =
    Bounds { preauth: 64, share: 8, v6_prefix: 128, within: TALK, fair: Duration::from_secs(1) };
/// As in the standard library.
const BACKLOG: u32 = 128;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use axum::routing::get;
    use std::net::{IpAddr, Ipv6Addr};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpSocket, TcpStream, UnixStream},
        task::JoinSet,
        time::Instant,
    };

    const PATIENCE: Duration = Duration::from_secs(60);

    fn router() -> Router {
        Router::new().route("/metrics", get(async || "up 1\n"))
    }

    async fn page(mut at: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
        at.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut page = String::new();
        at.read_to_string(&mut page).await?;
        Ok(page)
    }

    #[tokio::test]
    async fn a_port_in_use_is_served_when_it_becomes_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = taken.local_addr().unwrap();
        let at = Bind::Tcp(address);
        let ask = async {
            // The owner of the port does not answer.
            let (other, _) = tokio::join!(TcpStream::connect(address), taken.accept());
            drop((other, taken));
            loop {
                if let Ok(stream) = TcpStream::connect(address).await {
                    return page(stream).await.unwrap();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = serve(router(), &at, "metrics") => unreachable!("it serves forever"),
            page = ask => assert!(page.ends_with("up 1\n"), "{page}"),
        }
    }

    #[tokio::test]
    async fn a_socket_of_an_earlier_process_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let at = Bind::Unix(path.clone());
        let ask = async {
            loop {
                if let Ok(stream) = UnixStream::connect(&path).await {
                    return page(stream).await.unwrap();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = serve(router(), &at, "metrics") => unreachable!("it serves forever"),
            page = ask => assert!(page.ends_with("up 1\n"), "{page}"),
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let file = folder.path().join("notes.txt");
        fs::write(&file, "kept").unwrap();
        assert_eq!(bind_unix(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // A machine may lack IPv6; the listener has logged that.
        if listener.local_addr().unwrap().is_ipv6() {
            let to: IpAddr = Ipv6Addr::LOCALHOST.into();
            TcpStream::connect((to, port)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_reported() {
        let first = bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = bind((Ipv6Addr::UNSPECIFIED, port).into()).await.unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn each_family_of_a_port_has_a_listener_of_its_own() {
        let v4 = bind_family((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = v4.local_addr().unwrap().port();
        let taken = bind_family((Ipv4Addr::UNSPECIFIED, port).into()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        match bind_family((Ipv6Addr::UNSPECIFIED, port).into()) {
            Ok(_) => {}
            Err(error) => assert!(without_ipv6(&error), "{error}"),
        }
    }

    #[tokio::test]
    async fn one_address_is_that_address() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn a_missing_ipv6_and_a_port_in_use_are_distinguished() {
        assert!(without_ipv6(&io::Error::from_raw_os_error(97)));
        assert!(without_ipv6(&io::Error::from(io::ErrorKind::AddrNotAvailable)));
        assert!(!without_ipv6(&io::Error::from(io::ErrorKind::AddrInUse)));
    }

    async fn connect(from: &str, to: SocketAddr) -> Option<TcpStream> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("one of ours");
        socket.connect(to).await.ok()
    }

    /// An answer, head and all.
    async fn fetch(at: SocketAddr, path: &str) -> Option<String> {
        let mut stream = connect("127.0.0.1", at).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    async fn served() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve_on(listener, router(), BOUNDS));
        at
    }

    #[tokio::test]
    async fn idle_connections_block_no_request() {
        let at = served().await;
        let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let flooding = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                if let Some(mut idle) = connect("127.0.0.2", at).await {
                    let ends = ends.clone();
                    open.spawn(async move {
                        // The connection ends, with or without an error.
                        let _ = idle.read_to_end(&mut Vec::new()).await;
                        let _ = ends.send(());
                    });
                }
                while open.try_join_next().is_some() {}
                sleep(Duration::from_millis(2)).await;
            }
        });
        for _ in 0..20 {
            // The limiter evicts connections while the flood continues.
            timeout(PATIENCE, ended.recv()).await.expect("nothing floods").expect("nothing floods");
            let answer = timeout(PATIENCE, fetch(at, "/metrics")).await.expect("an answer");
            let answer = answer.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("up 1"), "{answer}");
        }
        assert!(!flooding.is_finished());
        flooding.abort();
    }

    #[tokio::test]
    async fn a_connection_without_a_request_ends() {
        let at = served().await;
        let mut idle = connect("127.0.0.1", at).await.expect("a connection");
        idle.write_all(b"GET /metrics HTT").await.expect("it is taken");
        let last = Instant::now() + PATIENCE;
        let ended = tokio::time::timeout_at(last, idle.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it does not end");
    }
}
