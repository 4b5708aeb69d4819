//! Takes over a unix socket. No other user can connect at any moment, and a socket that another process serves is not
//! replaced.

use super::MAX_CONNECTIONS;
use nix::sys::stat::{Mode, fchmod};
use std::{
    fs, io,
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixSocket, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

const DIRECTORY_MODE: u32 = 0o755;
const SOCKET_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
/// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: u32 = 1024;
/// A server that hangs still accepts: the time until a socket counts as served.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// A pause after a failed accept (no file descriptors left), so that the loop does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The socket cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process serves here.
    #[error(
        "cannot listen at {}: another process serves it; stop that process or set another path",
        socket.display()
    )]
    Served { socket: PathBuf },
    /// The path is not a socket; it is left as it is.
    #[error(
        "cannot listen at {}: the path exists and is not a socket; remove the file or set another path",
        socket.display()
    )]
    NotASocket { socket: PathBuf },
    /// The system refused a step.
    #[error("cannot {attempt} {}; check the owner and the mode of its folder", path.display())]
    Refused {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Accepted connections, for [`super::serve`].
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<io::Result<Caller>>,
}

/// Listens on the socket, and replaces a stale one that no process answers.
///
/// The directory is created with mode 0755 if it is missing. The socket gets mode 0600 before it gets a
/// name, and its name when it already listens.
///
/// # Errors
/// When another process serves there, or the system refuses.
pub async fn listen(socket: &Path) -> Result<Incoming, ListenError> {
    let refused = |attempt, path: &Path, cause| ListenError::Refused {
        attempt,
        path: path.to_owned(),
        cause,
    };
    let directory = socket.parent().unwrap_or(Path::new("/"));
    make_directory(directory).map_err(|e| refused("make directory", directory, e))?;
    check_vacant(socket).await?;

    let unnamed = UnixSocket::new_stream().map_err(|e| refused("open a socket for", socket, e))?;
    fchmod(&unnamed, SOCKET_MODE).map_err(|e| refused("set the mode of", socket, e.into()))?;
    let name = temporary_name(socket);
    let _ = fs::remove_file(&name);
    unnamed.bind(&name).map_err(|e| refused("bind", &name, e))?;
    let listener = unnamed
        .listen(BACKLOG)
        .and_then(|listener| fs::rename(&name, socket).map(|()| listener))
        .map_err(|e| {
            let _ = fs::remove_file(&name);
            refused("listen at", socket, e)
        })?;
    let (sender, accepted) = mpsc::channel(1);
    tokio::spawn(accept(listener, sender));
    Ok(Incoming { accepted })
}

fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    // The umask may have taken bits away.
    fs::set_permissions(directory, fs::Permissions::from_mode(DIRECTORY_MODE))
}

async fn check_vacant(socket: &Path) -> Result<(), ListenError> {
    let refused =
        |cause| ListenError::Refused { attempt: "examine", path: socket.to_owned(), cause };
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { socket: socket.to_owned() });
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused(e)),
    }
    loop {
        match timeout(ANSWER_TIME, UnixStream::connect(socket)).await {
            Ok(Err(e)) if is_vacant(e.kind()) => return Ok(()),
            // The process that listened closed its socket during the call. The next call finds it closed.
            Ok(Err(e)) if e.kind() == ErrorKind::ConnectionReset => {}
            // WouldBlock: a process listens and is slow to accept.
            Ok(Err(e)) if e.kind() != ErrorKind::WouldBlock => return Err(refused(e)),
            Ok(Ok(_) | Err(_)) | Err(_) => {
                return Err(ListenError::Served { socket: socket.to_owned() });
            }
        }
    }
}

fn is_vacant(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

/// A name beside the socket's own, so that a rename can put it in place.
fn temporary_name(socket: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(socket.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    socket.with_file_name(name)
}

/// Accepts until the receiver is dropped, with at most [`MAX_CONNECTIONS`] open at once.
async fn accept(listener: UnixListener, accepted: mpsc::Sender<io::Result<Caller>>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let serve = async {
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let caller = Caller { stream, _place: place };
                    if accepted.send(Ok(caller)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection on the unix socket; retrying");
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    };
    tokio::select! {
        () = serve => {}
        () = accepted.closed() => {}
    }
}

impl Stream for Incoming {
    type Item = io::Result<Caller>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(cx)
    }
}

/// One open connection, and its place among the permitted ones.
#[derive(Debug)]
pub struct Caller {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

/// The user behind a connection, as the kernel knew it when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// `None` if the kernel did not report it.
    pub(super) uid: Option<u32>,
}

impl Connected for Caller {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer { uid: self.stream.peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
