//! Network namespaces, and sockets within them.

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

/// What can go wrong with a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The path cannot be opened.
    #[error("open network namespace {path}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The thread cannot enter it: not a network namespace, or no right to.
    #[error("enter network namespace {path}")]
    Enter {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The socket within it cannot be opened.
    #[error("open a netlink socket in network namespace {path}")]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: SocketError,
    },
}

impl NetnsError {
    /// Whether the namespace is not there at all.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

impl Netns {
    /// Opens the namespace that `path` names, such as `/run/netns/x` or `/proc/1/ns/net`.
    ///
    /// # Errors
    /// The path cannot be opened. Whether it is a namespace shows only on entering.
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

    /// Whether both are the same namespace.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let (a, b) = (self.file.metadata()?, other.file.metadata()?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A netlink socket within the namespace. The calling thread goes there and back: a socket
    /// stays where it was opened.
    ///
    /// # Errors
    /// The thread may not enter, or the socket cannot be opened.
    ///
    /// # Panics
    /// If the thread cannot go back: it must not go on in the wrong namespace.
    pub fn socket(&self) -> Result<Socket, NetnsError> {
        let socket = self.inside(Socket::open)?;
        socket.map_err(|cause| NetnsError::Socket { path: self.path.clone(), cause })
    }

    /// Sets files below `/proc/sys/net` as they are within the namespace, as [`write_sysctls`] does.
    ///
    /// # Errors
    /// The thread may not enter, or a file that is there cannot be written.
    ///
    /// # Panics
    /// If the thread cannot go back.
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

/// Sets files below `/proc/sys` in the calling thread's network namespace. What is not there (a
/// kernel without IPv6) is passed over.
///
/// # Errors
/// The first that cannot be written; the others are tried all the same.
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
