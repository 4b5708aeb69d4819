//! CRI over the runtime's unix socket, with blocking calls that may run in parallel.

use crate::wire::{
    ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxStatus, PodSandboxStatusRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, RuntimeCondition, StatusRequest,
    StopPodSandboxRequest, VersionRequest, runtime_service_client::RuntimeServiceClient,
};
use anyhow::{Context as _, Result, anyhow};
use http::{Request, Uri};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    future::Future,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::UnixStream, runtime::Runtime, time::timeout};
use tonic::{Response, Status, body::Body};

/// A connection to a runtime. Several threads may use it at once.
pub struct Cri {
    tasks: Runtime,
    client: RuntimeServiceClient<Connection>,
}

impl Cri {
    /// Connects to a runtime.
    ///
    /// # Errors
    /// If no server listens on the socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("start tokio")?;
        let connection = tasks.block_on(open(socket));
        let connection = connection
            .with_context(|| format!("connect to the runtime at {}", socket.display()))?;
        // A unix socket has no host; this name is never resolved.
        let client =
            RuntimeServiceClient::with_origin(connection, Uri::from_static("http://localhost"));
        Ok(Self { tasks, client })
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn version(&self) -> Result<String> {
        let mut client = self.client.clone();
        let reply = self.call("Version", client.version(VersionRequest::default()))?;
        Ok(format!("{} {}", reply.runtime_name, reply.runtime_version))
    }

    /// Creates a sandbox and returns its ID.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn run(&self, config: &PodSandboxConfig) -> Result<String> {
        let mut client = self.client.clone();
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        Ok(self.call("RunPodSandbox", client.run_pod_sandbox(request))?.pod_sandbox_id)
    }

    /// Stops a sandbox. Idempotent.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn stop(&self, id: &str) -> Result<()> {
        let mut client = self.client.clone();
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("StopPodSandbox", client.stop_pod_sandbox(request)).map(drop)
    }

    /// Removes a sandbox. Idempotent.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn remove(&self, id: &str) -> Result<()> {
        let mut client = self.client.clone();
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("RemovePodSandbox", client.remove_pod_sandbox(request)).map(drop)
    }

    /// The status of a sandbox.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn status(&self, id: &str) -> Result<PodSandboxStatus> {
        let mut client = self.client.clone();
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let reply = self.call("PodSandboxStatus", client.pod_sandbox_status(request))?;
        reply.status.with_context(|| format!("the answer about sandbox {id} has no status"))
    }

    /// All sandboxes, ready or not.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn list(&self) -> Result<Vec<PodSandbox>> {
        let mut client = self.client.clone();
        let request = ListPodSandboxRequest::default();
        Ok(self.call("ListPodSandbox", client.list_pod_sandbox(request))?.items)
    }

    /// The conditions of the runtime, which include RuntimeReady and NetworkReady.
    ///
    /// # Errors
    /// The runtime's error.
    pub fn conditions(&self) -> Result<Vec<RuntimeCondition>> {
        let mut client = self.client.clone();
        let reply = self.call("Status", client.status(StatusRequest { verbose: false }))?;
        Ok(reply.status.context("the status has no conditions")?.conditions)
    }

    fn call<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T> {
        match self.tasks.block_on(async { timeout(PATIENCE, call).await }) {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(anyhow!("{name}: {:?}: {}", status.code(), status.message())),
            Err(_) => Err(anyhow!("{name}: no answer in {PATIENCE:?}")),
        }
    }
}

/// An HTTP/2 connection, which a separate task drives.
#[derive(Clone)]
struct Connection(http2::SendRequest<Body>);

async fn open(socket: &Path) -> Result<Connection> {
    let stream = UnixStream::connect(socket).await?;
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // If the connection breaks, the calls on it return the error.
        let _ = driver.await;
    });
    Ok(Connection(sender))
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // If the connection has ended, the call itself returns the error with its cause.
        self.0.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A kubelet's time limit for a sandbox.
const PATIENCE: Duration = Duration::from_secs(240);
