//! The command line's end of the control socket.

use super::Refusal;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// A request that brought no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server listens on the socket.
    #[error("no lab is running here: {path} does not answer")]
    Down {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The server went away in the middle.
    #[error("the lab's server broke the connection off")]
    Broken(#[from] hyper::Error),
    /// The server refused.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// The server is of another version.
    #[error("the lab's server answered something else than {wanted}")]
    Unexpected {
        /// The type that was expected.
        wanted: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

/// Speaks to one lab's server; each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// For the server that listens on `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Sends a POST request to the server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("our own types have a JSON form");
        self.call(Method::POST, path, body.into()).await
    }

    /// Sends a DELETE request to the server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::DELETE, path, Bytes::new()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Down { path: self.socket.clone(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "lab")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .expect("paths are made of names that were checked");
        let response = sender.send_request(request).await?;
        let success = response.status().is_success();
        let body = response.into_body().collect().await?.to_bytes();
        drop(sender);
        let _ = driver.await;
        if success { decode(&body) } else { Err(ClientError::Refused(refusal(&body))) }
    }
}

fn refusal(body: &[u8]) -> Refusal {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body).into_owned();
        Refusal { error: format!("the lab's server refused: {text}"), cni: None }
    })
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    let wanted = std::any::type_name::<T>();
    serde_json::from_slice(body).map_err(|source| ClientError::Unexpected { wanted, source })
}
