//! What an API server says of objects.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, Patch, PatchParams, ValidationDirective},
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource, Scope},
};
use serde_json::Value;
use std::time::{Duration, Instant};

/// An API server, with what it serves.
pub struct Server {
    client: Client,
    served: Discovery,
}

impl Server {
    /// Looks at what it serves; a group may be gone again, or not be there yet, while it is asked about.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn look(client: Client) -> Result<Self> {
        let until = Instant::now() + SERVED_WITHIN;
        loop {
            match Discovery::new(client.clone()).run().await {
                Ok(served) => return Ok(Self { client, served }),
                Err(error) if Instant::now() >= until => {
                    return Err(error).context("ask what is served");
                }
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Waits until it serves these definitions of kinds, which it was given.
    ///
    /// # Errors
    /// When one is not served in time.
    pub async fn serving(client: Client, definitions: &[&Value]) -> Result<Self> {
        let until = Instant::now() + SERVED_WITHIN;
        loop {
            let server = Self::look(client.clone()).await?;
            let lacks = definitions.iter().find(|definition| {
                let spec = &definition["spec"];
                let versions = spec["versions"].as_array().into_iter().flatten();
                versions.into_iter().any(|version| {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let kind = GroupVersionKind {
                        group: text(&spec["group"]),
                        version: text(&version["name"]),
                        kind: text(&spec["names"]["kind"]),
                    };
                    server.served.resolve_gvk(&kind).is_none()
                })
            });
            match lacks {
                None => return Ok(server),
                Some(lacks) if Instant::now() >= until => {
                    anyhow::bail!("{} is not served", lacks["metadata"]["name"]);
                }
                Some(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Applies an object, with strict validation of its fields.
    ///
    /// # Errors
    /// When its kind is not served, or it is refused, with the server's words.
    pub async fn apply(&self, object: &Value, dry_run: bool) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        let what = format!("{} {name}", object["kind"]);
        let (resource, capabilities) = self.resource(object).with_context(|| what.clone())?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object["metadata"]["namespace"].as_str();
                let namespace = namespace.with_context(|| format!("{what} has no namespace"))?;
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        };
        let params = PatchParams {
            dry_run,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("tests-chart").force()
        };
        api.patch(name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {what}"))?;
        Ok(())
    }

    fn resource(&self, object: &Value) -> Result<(ApiResource, ApiCapabilities)> {
        let text = |name: &str| object[name].as_str().with_context(|| format!("it has no {name}"));
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        self.served.resolve_gvk(&kind).with_context(|| format!("{kind:?} is not served"))
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const SERVED_WITHIN: Duration = Duration::from_secs(60);
