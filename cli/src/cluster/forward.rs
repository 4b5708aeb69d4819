//! HTTP to a port of a pod through the API server's port-forward. No port of the pod is exposed.
//!
//! For a pod in its node's network namespace this reaches the node's loopback.

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::timeout;

#[derive(Clone, Debug)]
pub(super) struct PodPort<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) port: u16,
}

/// Returns the body of a path. The error text is for the operator.
pub(super) async fn get(
    client: &Client,
    at: &PodPort<'_>,
    path: &str,
    within: Duration,
) -> Result<Vec<u8>, String> {
    match timeout(within, ask(client, at, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", within.as_secs())),
    }
}

/// Returns true if the server answered with an HTTP error, as opposed to a failed connection.
pub(super) fn answered(why: &str) -> bool {
    why.starts_with(ANSWERS)
}

async fn ask(client: &Client, at: &PodPort<'_>, path: &str) -> Result<Vec<u8>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), at.namespace);
    let mut forwarded = match pods.portforward(at.pod, &[at.port]).await {
        Ok(forwarded) => forwarded,
        Err(error) => return Err(why_not(at, &error)),
    };
    let (Some(stream), Some(refused)) =
        (forwarded.take_stream(at.port), forwarded.take_error(at.port))
    else {
        return Err("the port-forward has no stream".to_owned());
    };
    let answer = async {
        let odd =
            |what: &str, error: hyper::Error| format!("{what}: {}", config_model::causes(&error));
        let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|error| odd("cannot send to it", error))?;
        let connection = tokio::spawn(connection);
        let request = Request::get(path).header("Host", "localhost").body(Empty::new());
        let request = request.map_err(|error| format!("cannot request {path}: {error}"))?;
        let response = sender.send_request(request).await.map_err(|error| odd("ask it", error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        let body =
            body.map_err(|error| format!("cannot read its answer: {error}"))?.to_bytes().to_vec();
        connection.abort();
        if status.is_success() {
            return Ok(body);
        }
        let said = String::from_utf8_lossy(&body);
        Err(format!("{ANSWERS} {status} to {path}: {}", said.trim()))
    };
    tokio::select! {
        biased;
        // An empty error stream means that the port was forwarded.
        Some(said) = refused => Err(format!("the kubelet cannot forward port {}: {}", at.port, said.trim())),
        answer = answer => answer,
    }
}

fn why_not(at: &PodPort<'_>, error: &kube::Error) -> String {
    let PodPort { namespace, port, .. } = at;
    let kube::Error::Api(status) = error else {
        return format!("cannot forward port {port}: {}", config_model::causes(error));
    };
    match status.code {
        403 => format!("cannot create pods/portforward in {namespace}: {}", status.message),
        _ => format!("cannot forward port {port}: {}", status.message),
    }
}

const ANSWERS: &str = "it answers";
const BODY_MAX: usize = 16 << 20;
