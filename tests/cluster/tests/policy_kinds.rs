//! The kinds of network policy in a real API server: it accepts their definitions, and treats objects as
//! their owners' validation rules require.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test at its line")]

mod policy_kinds {
    pub(crate) mod antrea;
    pub(crate) mod aws;
    pub(crate) mod upstream;
}

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};
use tests_cluster::{Cluster, ClusterSpec};
use tests_eventually::{PATIENCE, eventually_async};

/// An object's kind and spec, and the expected answer of the API server. `None`: accepted; a text: a refusal
/// that contains it.
pub(crate) struct Row {
    what: &'static str,
    kind: Kind,
    spec: Value,
    refused: Option<&'static str>,
}

/// Group, version, kind, plural, and true if it is namespaced.
pub(crate) type Kind = (&'static str, &'static str, &'static str, &'static str, bool);

pub(crate) fn accepted(what: &'static str, kind: Kind, spec: Value) -> Row {
    Row { what, kind, spec, refused: None }
}

pub(crate) fn refused(what: &'static str, kind: Kind, spec: Value, why: &'static str) -> Row {
    Row { what, kind, spec, refused: Some(why) }
}

#[tokio::test]
async fn an_api_server_validates_policies_as_their_owners_do() {
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in config_crds::policy_crds() {
        let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    let mut wrong = Vec::new();
    for row in [upstream::rows(), antrea::rows(), aws::rows()].concat() {
        wait_until_served(&client, row.kind).await;
        let refusal = create(&client, &row).await;
        let good = match (&refusal, row.refused) {
            (None, None) => true,
            (Some(refusal), Some(why)) => refusal.contains(why),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !good {
            wrong.push(format!("{}: expected {:?}, got {refusal:?}", row.what, row.refused));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

use policy_kinds::{antrea, aws, upstream};

impl Clone for Row {
    fn clone(&self) -> Self {
        Self { spec: self.spec.clone(), ..*self }
    }
}

/// The API server's refusal of a dry run. `None` if it accepts the object.
async fn create(client: &Client, row: &Row) -> Option<String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let (group, version, kind, _, namespaced) = row.kind;
    let mut object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind,
        "metadata": { "name": "row" }, "spec": row.spec,
    });
    if namespaced {
        object["metadata"]["namespace"] = json!("default");
    }
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    match api(client, row.kind).create(&dry, &object).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{}: {error}", row.what),
    }
}

async fn wait_until_served(client: &Client, kind: Kind) {
    eventually_async(&format!("{kind:?} to be served"), PATIENCE, async || {
        api(client, kind).list(&kube::api::ListParams::default()).await
    })
    .await;
}

fn api(client: &Client, (group, version, kind, plural, namespaced): Kind) -> Api<DynamicObject> {
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    if namespaced {
        Api::namespaced_with(client.clone(), "default", &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}
