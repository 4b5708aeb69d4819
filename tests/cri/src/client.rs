//! CRI over the runtime's unix socket, one blocking call at a time and any number side by side.

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

/// A connection to a runtime. It may be used from many threads at once.
pub struct Cri {
    tasks: Runtime,
    client: RuntimeServiceClient<Connection>,
}

impl Cri {
    /// Connects to a runtime that serves already.
    ///
    /// # Errors
    /// When nobody serves there.
    pub fn connect(socket: &Path) -> Result<Self> {
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("start tasks for CRI")?;
        let connection = tasks.block_on(open(socket));
        let connection = connection
            .with_context(|| format!("connect to the runtime at {}", socket.display()))?;
        // A unix socket has no host; this one is never resolved.
        let client =
            RuntimeServiceClient::with_origin(connection, Uri::from_static("http://localhost"));
        Ok(Self { tasks, client })
    }

    /// The runtime's name and version.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn version(&self) -> Result<String> {
        let mut client = self.client.clone();
        let reply = self.call("Version", client.version(VersionRequest::default()))?;
        Ok(format!("{} {}", reply.runtime_name, reply.runtime_version))
    }

    /// Makes a sandbox; its id.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn run(&self, config: &PodSandboxConfig) -> Result<String> {
        let mut client = self.client.clone();
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        Ok(self.call("RunPodSandbox", client.run_pod_sandbox(request))?.pod_sandbox_id)
    }

    /// Ends a sandbox; may be repeated.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn stop(&self, id: &str) -> Result<()> {
        let mut client = self.client.clone();
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("StopPodSandbox", client.stop_pod_sandbox(request)).map(drop)
    }

    /// Removes a sandbox; may be repeated.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn remove(&self, id: &str) -> Result<()> {
        let mut client = self.client.clone();
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("RemovePodSandbox", client.remove_pod_sandbox(request)).map(drop)
    }

    /// What the runtime says of a sandbox.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn status(&self, id: &str) -> Result<PodSandboxStatus> {
        let mut client = self.client.clone();
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let reply = self.call("PodSandboxStatus", client.pod_sandbox_status(request))?;
        reply.status.with_context(|| format!("an answer about sandbox {id} that says nothing"))
    }

    /// All sandboxes, ready or not.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn list(&self) -> Result<Vec<PodSandbox>> {
        let mut client = self.client.clone();
        let request = ListPodSandboxRequest::default();
        Ok(self.call("ListPodSandbox", client.list_pod_sandbox(request))?.items)
    }

    /// Whether runtime and network are ready, as a kubelet asks.
    ///
    /// # Errors
    /// As every call: what the runtime answered.
    pub fn conditions(&self) -> Result<Vec<RuntimeCondition>> {
        let mut client = self.client.clone();
        let reply = self.call("Status", client.status(StatusRequest { verbose: false }))?;
        Ok(reply.status.context("a status without conditions")?.conditions)
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

/// One HTTP/2 connection, which a task of its own drives.
#[derive(Clone)]
struct Connection(http2::SendRequest<Body>);

async fn open(socket: &Path) -> Result<Connection> {
    let stream = UnixStream::connect(socket).await?;
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // A connection that breaks ends the calls on it, and they say so.
        let _ = driver.await;
    });
    Ok(Connection(sender))
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A connection that has ended meanwhile: the call itself says so, with its cause.
        self.0.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// What a kubelet gives a sandbox.
const PATIENCE: Duration = Duration::from_secs(240);
