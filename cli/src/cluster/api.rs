//! Calls to the API server.

use super::args::Target;
use anyhow::{Result, anyhow};
use form_urlencoded::Serializer;
use http::{Request, request::Builder};
use kube::Client;
use policy_kube::{Cluster, KubeError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[derive(Clone)]
pub(super) struct Api {
    cluster: Cluster,
    pub(super) namespace: String,
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    // Go omits the field if the list is empty.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl Api {
    pub(super) async fn connect(target: &Target) -> Result<Self> {
        let connected = target.cluster.connect().await;
        let cluster = connected.map_err(|error| match error {
            KubeError::Config { cause } => {
                anyhow!("cannot find a cluster: {cause}; name one with --kubeconfig or KUBECONFIG")
            }
            error @ (KubeError::Client { .. }
            | KubeError::Forbidden { .. }
            | KubeError::Unknown { .. }
            | KubeError::NotFound { .. }
            | KubeError::Conflict { .. }
            | KubeError::Failed { .. }) => error.into(),
        })?;
        Ok(Self { cluster, namespace: target.own.name.clone() })
    }

    /// The namespace of the kubeconfig's context.
    pub(super) fn context_namespace(&self) -> &str {
        self.cluster.namespace()
    }

    pub(super) fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Lists all objects page by page. Fields that no caller reads are dropped with their page.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: Selector<'_>,
        what: &str,
    ) -> Result<Vec<T>, KubeError> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut query = Serializer::new(String::new());
            query.append_pair("limit", PAGE);
            match selector {
                Selector::All => {}
                Selector::Label(label) => drop(query.append_pair("labelSelector", label)),
                Selector::Field(field) => drop(query.append_pair("fieldSelector", field)),
            }
            if let Some(next) = &next {
                query.append_pair("continue", next);
            }
            let page: Page<T> =
                self.read(&format!("{path}?{}", query.finish()), "list", what).await?;
            all.extend(page.items.unwrap_or_default());
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(all);
            }
        }
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &str,
    ) -> Result<T, KubeError> {
        self.read(path, "get", what).await
    }

    pub(super) async fn text(&self, path: &str, what: &str) -> Result<String, KubeError> {
        self.cluster.get(path, what).await
    }

    /// Creates an object and returns the API server's answer.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<Value, KubeError> {
        let kind = object["kind"].as_str().unwrap_or_default();
        self.change(Request::post(path), "create", kind, object).await
    }

    /// Deletes an object if its UID is still this one.
    pub(super) async fn delete(&self, path: &str, uid: &str, what: &str) -> Result<(), KubeError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid },
        });
        self.change(Request::delete(path), "delete", what, &options).await.map(drop)
    }

    /// Applies a JSON merge patch.
    pub(super) async fn patch(
        &self,
        path: &str,
        patch: &Value,
        what: &str,
    ) -> Result<Value, KubeError> {
        let request = Request::patch(path).header(CONTENT, "application/merge-patch+json");
        self.send(request, "patch", what, patch).await
    }

    async fn change(
        &self,
        request: Builder,
        verb: &'static str,
        what: &str,
        object: &Value,
    ) -> Result<Value, KubeError> {
        self.send(request.header(CONTENT, "application/json"), verb, what, object).await
    }

    async fn send(
        &self,
        request: Builder,
        verb: &'static str,
        what: &str,
        object: &Value,
    ) -> Result<Value, KubeError> {
        let body = serde_json::to_vec(object).unwrap_or_default();
        let request = request.body(body);
        let request = request.map_err(|error| KubeError::odd(verb, what, &error))?;
        let done = self.client().request::<Value>(request).await;
        done.map_err(|error| KubeError::of(&error, verb, what))
    }

    async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        verb: &'static str,
        what: &str,
    ) -> Result<T, KubeError> {
        let text = self.cluster.read(path, verb, what).await?;
        serde_json::from_str(&text).map_err(|error| KubeError::odd(verb, what, &error))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Selector<'a> {
    All,
    Label(&'a str),
    Field(&'a str),
}

const PAGE: &str = "500";
const CONTENT: &str = "Content-Type";
