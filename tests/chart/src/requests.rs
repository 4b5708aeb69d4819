//! Requests with the token of a service account.

use anyhow::{Context as _, Result};
use http::Request;
use kube::{Client, Config, config::KubeConfigOptions};
use lab_kubernetes::Cluster;
use serde_json::{Value, json};

/// The patch type of custom resources. The strategic merge patch of built-in objects merges lists by keys.
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Sends a request.
///
/// # Errors
/// If the API server refuses it, with the server's message.
pub async fn ask(client: &Client, verb: &str, path: &str, body: &Value) -> Result<Value> {
    let content = match verb {
        "PATCH" if path.starts_with("/api/") => STRATEGIC,
        "PATCH" => MERGE,
        _ => "application/json",
    };
    let request = Request::builder().method(verb).uri(path).header("content-type", content);
    let request = request.body(body.to_string().into_bytes())?;
    Ok(client.request::<Value>(request).await?)
}

/// Returns a client with a token of an account in kube-system, bound to this pod; `None` is a token without a pod.
///
/// # Errors
/// If the API server issues no token.
pub async fn as_account(
    cluster: &Cluster,
    admin: &Client,
    account: &str,
    pod: Option<&str>,
) -> Result<Client> {
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
    });
    if let Some(pod) = pod {
        request["spec"]["boundObjectRef"] =
            json!({ "kind": "Pod", "apiVersion": "v1", "name": pod });
    }
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
    let answer = ask(admin, "POST", &path, &request).await?;
    let token = answer["status"]["token"].as_str().context("an answer without a token")?;
    let mut read = kube::config::Kubeconfig::read_from(cluster.kubeconfig())?;
    for named in &mut read.auth_infos {
        named.auth_info = Some(kube::config::AuthInfo {
            token: Some(token.to_owned().into()),
            ..kube::config::AuthInfo::default()
        });
    }
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
