//! A client with many calls on one connection, which the plugin's has not.

use config_model::PodKey;
use http::{Request, Response, Uri};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ipamd_rpc::wire::{Key, Pod, ReserveRequest, Versions, ipam_client::IpamClient};
use std::{
    future::Future,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::net::UnixStream;
use tonic::{Status, body::Body};

#[derive(Clone)]
pub(crate) struct Multiplexed(http2::SendRequest<Body>);

impl Multiplexed {
    pub(crate) async fn connect(socket: &Path) -> Self {
        let stream = TokioIo::new(UnixStream::connect(socket).await.unwrap());
        let (sender, driver) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(driver);
        Self(sender)
    }

    /// Reserves for the key, however long that takes.
    pub(crate) async fn reserve(self, key: PodKey) -> Result<(), Status> {
        let mut client = IpamClient::with_origin(self, Uri::from_static("http://ferrule"));
        let pod = Pod { namespace: "default".into(), name: "web-0".into(), ..Pod::default() };
        let request = ReserveRequest {
            versions: Some(Versions {
                oldest: ipamd_rpc::SUPPORTED.oldest,
                newest: ipamd_rpc::SUPPORTED.newest,
            }),
            key: Some(Key {
                network: key.network.clone(),
                container_id: key.container_id.clone(),
                ifname: key.ifname.clone(),
            }),
            pod: Some(pod),
            netns: "/run/netns/x".into(),
            wait_ms: 10_000,
            ..ReserveRequest::default()
        };
        client.reserve(request).await.map(drop)
    }
}

impl tower_service::Service<Request<Body>> for Multiplexed {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
