//! Applies a step at the API server. A patch of a DaemonSet carries its version, and a deletion the UID of the object, so a
//! change of another client is not undone. The label and the saved manifest belong to this command.

use super::{args::ServicesCluster, cleaner};
use crate::cluster::api::Api;
use anyhow::{Context as _, Result, bail};
use cli_migrate::services::{LABEL, SWITCHED, Step, manifest, objects, objects::Objects};
use policy_kube::KubeError;
use serde_json::{Value, json};

/// Applies one step to the objects on which it was planned.
pub(super) async fn take(
    api: &Api,
    cluster: &ServicesCluster,
    seen: &Objects,
    step: &Step,
) -> Result<()> {
    let own = api.namespace.as_str();
    let (theirs, name) = (&cluster.kube_proxy_namespace, &cluster.kube_proxy);
    let sets = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    let kube_proxy = format!("{}/{name}", sets(theirs));
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    let saved = format!("{maps}/{}", cleaner::SAVED);
    match step {
        Step::Await(_) => bail!("cannot apply a waiting step"),
        Step::SaveKubeProxy => {
            let map = cleaner::config_map(&manifest::saved(of_kube_proxy(seen)?));
            match api.patch(&saved, &json!({ "data": map["data"] }), "configmap").await {
                Err(KubeError::NotFound { .. }) => drop(api.create(&maps, &map).await?),
                patched => drop(patched?),
            }
        }
        Step::KeepOff => {
            let set = of_kube_proxy(seen)?;
            let patch = manifest::patch(set, &manifest::keep_off(set));
            api.patch(&kube_proxy, &patch, "daemonset").await?;
        }
        Step::Release => {
            let set = of_kube_proxy(seen)?;
            let patch = manifest::patch(set, &manifest::release(set));
            api.patch(&kube_proxy, &patch, "daemonset").await?;
        }
        Step::CreateCleaner => {
            let ferrule = seen.ferrule.as_ref().context("Ferrule's DaemonSet does not exist")?;
            let image = objects::image(ferrule).context("Ferrule's DaemonSet has no image")?;
            api.create(&sets(own), &cleaner::daemon_set(ferrule, image)).await?;
        }
        Step::RemoveCleaner => {
            let uid = uid(seen.cleaner.as_ref());
            gone(api.delete(&format!("{}/{}", sets(own), cleaner::NAME), uid, "daemonset").await)?;
        }
        Step::ReplacePod { pod, uid, .. } => {
            let path = format!("/api/v1/namespaces/{own}/pods/{pod}");
            gone(api.delete(&path, uid, "pod").await)?;
        }
        Step::Switch { node } => label(api, node, &json!(SWITCHED)).await?,
        Step::Return { node } => label(api, node, &Value::Null).await?,
        Step::DeleteKubeProxy { uid } => {
            gone(api.delete(&kube_proxy, uid, "daemonset").await)?;
        }
        Step::RestoreKubeProxy => {
            let saved = seen.saved.as_ref().context("no manifest is saved")?;
            api.create(&sets(theirs), &manifest::keep_off(saved)).await?;
        }
        Step::Forget => {
            let map: Value = api.get(&saved, "configmap").await?;
            gone(api.delete(&saved, uid(Some(&map)), "configmap").await)?;
        }
    }
    Ok(())
}

async fn label(api: &Api, node: &str, value: &Value) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { LABEL: value } } });
    api.patch(&format!("/api/v1/nodes/{node}"), &patch, "node").await?;
    Ok(())
}

fn of_kube_proxy(seen: &Objects) -> Result<&Value> {
    seen.kube_proxy.as_ref().context("kube-proxy's DaemonSet does not exist")
}

fn uid(object: Option<&Value>) -> &str {
    object.and_then(|object| object["metadata"]["uid"].as_str()).unwrap_or_default()
}

/// An object that does not exist is deleted.
fn gone(deleted: Result<(), KubeError>) -> Result<()> {
    match deleted {
        Ok(()) | Err(KubeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
