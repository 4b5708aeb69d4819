//! The daemon's access to the kernel: observe everything, apply a plan.

use crate::{
    Socket, SocketError,
    encode::{self, Means, Request},
    lists::With,
    reply::LeftOut,
    socket::PURGE_ROUNDS,
};
use futures::StreamExt as _;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use routing_plan::{Applied, Errno, Execution, Observed, Op, SysctlName};
use rtnetlink::Handle;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// The host networking of one namespace.
pub trait Kernel {
    /// Returns one full observation.
    ///
    /// # Errors
    /// A list cannot be read in full. A partial observation is never returned.
    fn observe(&mut self) -> impl Future<Output = Result<Observed, KernelError>> + Send;

    /// Applies operations in order. A refusal stops the rest of its own subject only. All refusals are returned.
    fn apply(&mut self, ops: &[Op]) -> impl Future<Output = Applied> + Send;
}

/// Cause of a failed observation.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The socket cannot be opened.
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    /// A list cannot be read in full.
    #[error(transparent)]
    Observe(#[from] SocketError),
    /// The runtime stops, or the observation panicked.
    #[error("the observation did not end")]
    Thread(#[source] JoinError),
    /// A setting cannot be read.
    #[error("cannot read {name} below {root}")]
    Sysctl {
        name: SysctlName,
        /// The folder that stands for `/proc/sys`.
        root: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// The real kernel, in the network namespace where it was opened.
pub struct LinuxKernel {
    /// Reads the lists.
    socket: Arc<Mutex<Socket>>,
    /// Carries out operations.
    handle: Handle,
    connection: JoinHandle<()>,
    sysctl_root: PathBuf,
    watched: BTreeSet<SysctlName>,
    content: With,
    /// The last object that was left out; it is logged once.
    left_out: LeftOut,
}

impl LinuxKernel {
    /// Opens the kernel of the calling thread's network namespace, within a tokio runtime.
    ///
    /// `sysctl_root` is the path at which `/proc/sys` is writable; in a container it differs. `watched` names the
    /// settings below it that an observation contains.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(
        sysctl_root: impl AsRef<Path>,
        watched: BTreeSet<SysctlName>,
    ) -> Result<Self, KernelError> {
        let (mut connection, handle, _unasked) =
            rtnetlink::new_connection_with_strict_check().map_err(KernelError::Open)?;
        // Without this, an acknowledgment would be dropped like a connection that dies.
        connection.set_forward_ack(true);
        Ok(Self {
            socket: Arc::new(Mutex::new(Socket::open_lenient()?)),
            handle,
            connection: tokio::spawn(connection),
            sysctl_root: sysctl_root.as_ref().to_owned(),
            watched,
            content: With::Nothing,
            left_out: None,
        })
    }

    /// Adds neighbor entries to observations. Plans for bridged pods need them.
    #[must_use]
    pub fn with_neighbors(mut self) -> Self {
        self.content = With::Neighbors;
        self
    }

    /// Reads the watched settings alone: they change without an event.
    ///
    /// # Errors
    /// A setting cannot be read.
    pub fn sysctls(&self) -> Result<BTreeMap<SysctlName, String>, KernelError> {
        let read = |name: &SysctlName| match fs::read_to_string(self.file(name)) {
            Ok(value) => Ok((name.clone(), value.trim_end().to_owned())),
            Err(cause) => {
                let root = self.sysctl_root.clone();
                Err(KernelError::Sysctl { name: name.clone(), root, cause })
            }
        };
        self.watched.iter().map(read).collect()
    }

    fn file(&self, name: &SysctlName) -> PathBuf {
        self.sysctl_root.join(name.as_str())
    }

    async fn execute(&mut self, op: &Op) -> Result<(), Errno> {
        match encode::means(&op.action) {
            Means::One(request) => self.request(&request).await,
            Means::UntilGone(request) => {
                self.request(&request).await?;
                for _ in 1..PURGE_ROUNDS {
                    match self.request(&request).await {
                        Err(Errno::ENOENT) => break,
                        answer => answer?,
                    }
                }
                Ok(())
            }
            Means::File { name, value } => self.write(&name, &value),
        }
    }

    async fn request(&mut self, request: &Request) -> Result<(), Errno> {
        // The connection numbers its messages itself.
        let answers = self.handle.request(request.message(0, true));
        let mut answers = answers.map_err(|_| Errno::EIO)?;
        while let Some(message) = answers.next().await {
            if let Some(end) = ending(message) {
                return end;
            }
        }
        Err(Errno::EIO)
    }

    fn write(&self, name: &SysctlName, value: &str) -> Result<(), Errno> {
        fs::write(self.file(name), value)
            .map_err(|cause| cause.raw_os_error().map_or(Errno::EIO, Errno))
    }
}

impl Kernel for LinuxKernel {
    async fn observe(&mut self) -> Result<Observed, KernelError> {
        // The kernel produces a list while the socket receives it. That takes milliseconds with hundreds of pods, in
        // which the tasks of this thread would wait.
        let (socket, content) = (Arc::clone(&self.socket), self.content);
        let observing = spawn_blocking(move || {
            let mut socket = runtime_lock::lock(&socket);
            let observed = socket.observe(content);
            let left_out = socket.left_out();
            let is_usable = |error: &SocketError| {
                matches!(error, SocketError::List { .. } | SocketError::Interrupted(_))
            };
            if observed.as_ref().is_err_and(|error| !is_usable(error))
                && let Ok(fresh) = Socket::open_lenient()
            {
                // The rest of the list is queued in the old socket.
                *socket = fresh;
            }
            observed.map(|observed| (observed, left_out))
        });
        let (mut observed, left_out) = observing.await.map_err(KernelError::Thread)??;
        if left_out != self.left_out {
            if let Some(cause) = &left_out {
                tracing::warn!(%cause, "an object of the host's network was left out");
            }
            self.left_out = left_out;
        }
        observed.sysctls = self.sysctls()?;
        Ok(observed)
    }

    async fn apply(&mut self, ops: &[Op]) -> Applied {
        let mut execution = Execution::default();
        for op in ops {
            if execution.admits(op) {
                let answer = self.execute(op).await;
                execution.record(op, answer);
            }
        }
        execution.finish()
    }
}

impl Drop for LinuxKernel {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The final status of a request; `None` for any other message.
fn ending(message: NetlinkMessage<RouteNetlinkMessage>) -> Option<Result<(), Errno>> {
    let code = match message.payload {
        NetlinkPayload::Error(error) => error.code.map_or(0, i32::from),
        NetlinkPayload::Done(done) => done.code,
        // A part of the answer was lost.
        NetlinkPayload::Overrun(_) => -Errno::EIO.0,
        NetlinkPayload::InnerMessage(_) | NetlinkPayload::Noop | _ => return None,
    };
    Some(if code == 0 { Ok(()) } else { Err(Errno(-code)) })
}
