//! Objects of the chart at an API server.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, Patch, PatchParams, ValidationDirective},
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource, Scope},
};
use serde_json::Value;
use tests_eventually::{PATIENCE, within_async};

/// An API server with its served kinds.
pub struct Server {
    client: Client,
    served: Discovery,
}

impl Server {
    /// Discovers the served kinds. Retries, because a group may appear or disappear during the discovery.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn look(client: Client) -> Result<Self> {
        let discover = async || Discovery::new(client.clone()).run().await;
        let served = within_async("the discovery of served kinds", PATIENCE, discover).await?;
        Ok(Self { client, served })
    }

    /// Waits until the server serves these definitions.
    ///
    /// # Errors
    /// After a timeout.
    pub async fn serving(client: Client, definitions: &[&Value]) -> Result<Self> {
        let observe = async || {
            let server = Self::look(client.clone()).await.map_err(|error| format!("{error:#}"))?;
            match definitions.iter().find(|definition| !server.has_all_versions(definition)) {
                None => Ok(server),
                Some(missing) => Err(format!("{} is not served", missing["metadata"]["name"])),
            }
        };
        Ok(within_async("the definitions to be served", PATIENCE, observe).await?)
    }

    fn has_all_versions(&self, definition: &Value) -> bool {
        let spec = &definition["spec"];
        let mut versions = spec["versions"].as_array().into_iter().flatten();
        versions.all(|version| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = GroupVersionKind {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                kind: text(&spec["names"]["kind"]),
            };
            self.served.resolve_gvk(&kind).is_some()
        })
    }

    /// Applies an object, with strict validation of its fields.
    ///
    /// # Errors
    /// If its kind is not served, or the server refuses it, with the server's message.
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
            .with_context(|| format!("cannot apply {what}"))?;
        Ok(())
    }

    fn resource(&self, object: &Value) -> Result<(ApiResource, ApiCapabilities)> {
        let text =
            |name: &str| object[name].as_str().with_context(|| format!("the object has no {name}"));
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        self.served.resolve_gvk(&kind).with_context(|| format!("{kind:?} is not served"))
    }
}
