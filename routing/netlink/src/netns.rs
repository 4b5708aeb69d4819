//! Network namespaces, and sockets in them.

use crate::{Socket, SocketError};
use nix::sched::{CloneFlags, setns};
use routing_plan::SysctlName;
use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// An open network namespace.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
}

/// Cause of a failed access to a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The path cannot be opened.
    #[error("cannot open network namespace {path}")]
    Open {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The thread cannot enter: the path is no network namespace, or the process lacks the right.
    #[error("cannot enter network namespace {path}")]
    Enter {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The netlink socket cannot be opened.
    #[error("cannot open a netlink socket in network namespace {path}")]
    Socket {
        path: PathBuf,
        #[source]
        cause: SocketError,
    },
}

impl NetnsError {
    /// True if the path does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

impl Netns {
    /// Opens the namespace that `path` names, such as `/run/netns/x` or `/proc/1/ns/net`.
    ///
    /// # Errors
    /// The path cannot be opened. A path that is no namespace fails on entering only.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref().to_owned();
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(cause) => Err(NetnsError::Open { path, cause }),
        }
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// True if both are the same namespace.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let (a, b) = (self.file.metadata()?, other.file.metadata()?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A netlink socket in the namespace. The calling thread enters the namespace and returns; the socket stays there.
    ///
    /// # Errors
    /// The thread cannot enter, or the socket cannot be opened.
    ///
    /// # Panics
    /// The thread cannot return: it must not continue in the wrong namespace.
    pub fn socket(&self) -> Result<Socket, NetnsError> {
        let socket = self.inside(Socket::open)?;
        socket.map_err(|cause| NetnsError::Socket { path: self.path.clone(), cause })
    }

    /// Writes files below `/proc/sys/net` inside the namespace, as [`write_sysctls`] does.
    ///
    /// # Errors
    /// The thread cannot enter, or an existing file cannot be written.
    ///
    /// # Panics
    /// The thread cannot return.
    pub fn write_sysctls(&self, settings: &[(SysctlName, &str)]) -> io::Result<()> {
        self.inside(|| write_sysctls(settings)).map_err(io::Error::other)?
    }

    fn inside<T>(&self, work: impl FnOnce() -> T) -> Result<T, NetnsError> {
        let home = Self::current()?;
        let enter = |to: &Self| setns(to, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        enter(self).map_err(|cause| NetnsError::Enter { path: self.path.clone(), cause })?;
        let done = work();
        enter(&home).expect("a thread may return to the namespace that it came from");
        Ok(done)
    }
}

/// Writes files below `/proc/sys` in the calling thread's network namespace. A missing file is skipped, for example
/// on a kernel without IPv6.
///
/// # Errors
/// The first file that cannot be written. The others are written anyway.
pub fn write_sysctls(settings: &[(SysctlName, &str)]) -> io::Result<()> {
    let write = |(name, value): &(SysctlName, &str)| match fs::write(
        Path::new("/proc/sys").join(name.as_str()),
        value,
    ) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        Ok(()) | Err(_) => Ok(()),
    };
    settings.iter().map(write).fold(Ok(()), Result::and)
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
