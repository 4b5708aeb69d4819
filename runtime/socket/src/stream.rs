//! A connected unix socket: a tokio runtime's, or a blocking one outside of a runtime.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_to, socket as open_socket,
};
use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net},
    path::Path,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    runtime::Handle,
    time::timeout,
};

pub(super) enum Stream {
    Runtime(UnixStream),
    Blocking(net::UnixStream),
}

impl Stream {
    /// Connects. A full queue is an error in both cases, not a wait.
    pub(super) async fn connect(socket: &Path) -> io::Result<Self> {
        match Handle::try_current() {
            Ok(_) => UnixStream::connect(socket).await.map(Self::Runtime),
            Err(_) => connect_blocking(socket).map(Self::Blocking),
        }
    }

    /// Writes all bytes. A runtime's caller applies its deadline itself.
    pub(super) async fn write_all(
        &mut self,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        match self {
            Self::Runtime(stream) => stream.write_all(bytes).await,
            Self::Blocking(stream) => {
                if bytes.len() > AT_ONCE {
                    stream.set_write_timeout(deadline.map(left))?;
                }
                stream.write_all(bytes)
            }
        }
    }

    /// Reads some bytes; 0 at the end, `None` if there are none for as long as `patience`. A runtime's caller applies
    /// its deadline itself.
    pub(super) async fn read(
        &mut self,
        bytes: &mut [u8],
        deadline: Option<Instant>,
        patience: Option<Duration>,
    ) -> io::Result<Option<usize>> {
        match (self, patience) {
            (Self::Runtime(stream), None) => stream.read(bytes).await.map(Some),
            (Self::Runtime(stream), Some(patience)) => {
                timeout(patience, stream.read(bytes)).await.ok().transpose()
            }
            (Self::Blocking(stream), _) => read_blocking(stream, bytes, deadline, patience),
        }
    }
}

/// A socket's buffer holds at least so many bytes: writing them never blocks.
const AT_ONCE: usize = 64 * 1024;
/// The shortest timeout: 0 stands for none.
const SHORTEST: Duration = Duration::from_millis(1);

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(SHORTEST)
}

fn connect_blocking(socket: &Path) -> io::Result<net::UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let opened = open_socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect_to(opened.as_raw_fd(), &UnixAddr::new(socket)?)?;
    let stream = net::UnixStream::from(opened);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn read_blocking(
    stream: &mut net::UnixStream,
    bytes: &mut [u8],
    deadline: Option<Instant>,
    patience: Option<Duration>,
) -> io::Result<Option<usize>> {
    loop {
        let timeout = deadline.map(left).into_iter().chain(patience).min();
        stream.set_read_timeout(timeout)?;
        match stream.read(bytes) {
            Ok(length) => return Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The kernel counts in ticks and may be early by one.
            Err(error)
                if error.kind() == ErrorKind::WouldBlock
                    && deadline.is_none_or(|deadline| Instant::now() < deadline) =>
            {
                if patience.is_some() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}
