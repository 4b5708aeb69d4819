//! Writes of the objects that a cluster lacks.

use super::{ClusterError, HAS_TRUNK, POD_ENI, ask};
use config_crds::CniNode;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lab_cloud::ClusterWrite;
use serde_json::{from_value, json};

pub(crate) async fn write(client: &Client, write: &ClusterWrite) -> Result<(), ClusterError> {
    let how = PatchParams::default();
    match write {
        ClusterWrite::CreateCniNode { node, uid } => {
            let attempt = format!("create CNINode {node}");
            let object = json!({
                "apiVersion": "vpcresources.k8s.aws/v1alpha1", "kind": "CNINode",
                "metadata": {"name": node, "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid,
                }]},
                "spec": {},
            });
            let object = from_value(object).map_err(kube::Error::SerdeError);
            let made = async {
                let api = Api::<CniNode>::all(client.clone());
                api.create(&PostParams::default(), &object?).await
            };
            ask(attempt, made).await.map(drop)
        }
        ClusterWrite::AnnounceTrunk { node, branches } => {
            let nodes = Api::<Node>::all(client.clone());
            let label = Patch::Merge(json!({"metadata": {"labels": {HAS_TRUNK: "true"}}}));
            ask(format!("label node {node}"), nodes.patch(node, &how, &label)).await?;
            let count = json!({POD_ENI: branches.to_string()});
            let status = Patch::Merge(json!({"status": {"capacity": count, "allocatable": count}}));
            let attempt = format!("patch the status of node {node}");
            ask(attempt, nodes.patch_status(node, &how, &status)).await.map(drop)
        }
        ClusterWrite::Annotate { pod, uid, annotation } => {
            let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
            // With the uid the next pod of the name is spared.
            let metadata = json!({"uid": uid, "annotations": {POD_ENI: annotation}});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            ask(format!("annotate pod {pod}"), pods.patch(&pod.name, &how, &patch)).await.map(drop)
        }
    }
}
