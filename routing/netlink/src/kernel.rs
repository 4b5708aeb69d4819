//! The daemon's access to the kernel: observe everything, apply a plan.

use crate::{
    encode::{self, Means, Request},
    lists::{DUMP_TRIES, List, With, lists},
    socket::PURGE_ROUNDS,
};
use futures::{Stream, StreamExt as _};
use netlink_packet_core::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use routing_plan::{Applied, Errno, Execution, Observed, Op, SysctlName};
use rtnetlink::Handle;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::task::JoinHandle;

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
    /// The connection to the kernel has ended.
    #[error("the netlink connection ended while it listed {0}")]
    Closed(&'static str),
    /// A list changed each time while it was read.
    #[error("the kernel's list of {0} changed {DUMP_TRIES} times while it was read")]
    Interrupted(&'static str),
    /// The kernel refused to list something.
    #[error("cannot list {what}: {errno}")]
    List { what: &'static str, errno: Errno },
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
    handle: Handle,
    connection: JoinHandle<()>,
    sysctl_root: PathBuf,
    watched: BTreeSet<SysctlName>,
    content: With,
}

/// Wait before a list that changed is read again; the n-th wait is n times as long.
const DUMP_PAUSE: Duration = Duration::from_millis(5);

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
        // Without these, a connection that dies would look like the end of a list.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        let connection = tokio::spawn(connection);
        let (sysctl_root, content) = (sysctl_root.as_ref().to_owned(), With::Nothing);
        Ok(Self { handle, connection, sysctl_root, watched, content })
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

    async fn dump(&mut self, list: List) -> Result<Vec<RouteNetlinkMessage>, KernelError> {
        let (what, request) = (list.name(), list.request());
        for round in 1..=DUMP_TRIES {
            match self.list(&request).await {
                Ok(Some(objects)) => return Ok(objects),
                Ok(None) => {}
                Err(Some(errno)) if list.is_absent(errno) => return Ok(Vec::new()),
                Err(Some(errno)) => return Err(KernelError::List { what, errno }),
                Err(None) => return Err(KernelError::Closed(what)),
            }
            tokio::time::sleep(DUMP_PAUSE.saturating_mul(u32::try_from(round).unwrap_or(1))).await;
        }
        Err(KernelError::Interrupted(what))
    }

    /// Reads a list once; `None` if it changed during the read.
    async fn list(
        &mut self,
        request: &Request,
    ) -> Result<Option<Vec<RouteNetlinkMessage>>, Option<Errno>> {
        let mut answers = self.ask(request, false).ok_or(None)?;
        let (mut objects, mut whole) = (Vec::new(), true);
        while let Some(message) = answers.next().await {
            whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
            match ending(message) {
                Ok(object) => objects.push(object),
                Err(Some(Ok(()))) => return Ok(whole.then_some(objects)),
                Err(Some(Err(errno))) => return Err(Some(errno)),
                Err(None) => {}
            }
        }
        Err(None)
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
        let mut answers = self.ask(request, true).ok_or(Errno::EIO)?;
        while let Some(message) = answers.next().await {
            if let Err(Some(end)) = ending(message) {
                return end;
            }
        }
        Err(Errno::EIO)
    }

    fn ask(
        &mut self,
        request: &Request,
        acknowledge: bool,
    ) -> Option<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + use<>> {
        // The connection numbers its messages itself.
        self.handle.request(request.message(0, acknowledge)).ok()
    }

    fn write(&self, name: &SysctlName, value: &str) -> Result<(), Errno> {
        fs::write(self.file(name), value)
            .map_err(|cause| cause.raw_os_error().map_or(Errno::EIO, Errno))
    }
}

impl Kernel for LinuxKernel {
    async fn observe(&mut self) -> Result<Observed, KernelError> {
        let mut observed = Observed::default();
        for list in lists(self.content) {
            let answers = self.dump(list).await?;
            list.fill(&mut observed, &answers);
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

/// Returns an object, or `Err` with the final status of the request; `Err(None)` for a message without content.
fn ending(
    message: NetlinkMessage<RouteNetlinkMessage>,
) -> Result<RouteNetlinkMessage, Option<Result<(), Errno>>> {
    let code = match message.payload {
        NetlinkPayload::InnerMessage(object) => return Ok(object),
        NetlinkPayload::Error(error) => error.code.map_or(0, i32::from),
        NetlinkPayload::Done(done) => done.code,
        // A part of the answer was lost.
        NetlinkPayload::Overrun(_) => -Errno::EIO.0,
        NetlinkPayload::Noop | _ => return Err(None),
    };
    Err(Some(if code == 0 { Ok(()) } else { Err(Errno(-code)) }))
}
