//! The manifests as files.

use crate::{
    AGENT_RIGHTS_IN_NAMESPACE, AntreaClusterGroup, AntreaClusterNetworkPolicy, AntreaGroup,
    AntreaNetworkPolicy, AntreaTier, ApplicationNetworkPolicy, AwsClusterNetworkPolicy,
    CLUSTER_RIGHTS, CONTROLLER_CLUSTER_RIGHTS, CONTROLLER_RIGHTS_IN_NAMESPACE,
    ClusterNetworkPolicy, CniNode, EniConfig, NetworkPolicyRealization, RIGHTS_IN_NAMESPACE, Right,
    VIEWER_CLUSTER_RIGHTS, VIEWER_RIGHTS_IN_NAMESPACE, agent_rbac, controller_rbac, rbac,
    viewer_rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Returns the manifests: path below the repository's root, and text.
pub fn manifests() -> Vec<(PathBuf, String)> {
    let file = |name: &str, head: &str, objects: &[Value]| {
        (PathBuf::from("config/manifests").join(name), text(head, objects))
    };
    vec![
        file("eniconfigs.yaml", ENI_CONFIGS, &[eni_config_crd()]),
        file("cninodes.yaml", CNI_NODES, &[cni_node_crd()]),
        file("policy-upstream.yaml", UPSTREAM, &upstream_crds()),
        file("policy-antrea.yaml", ANTREA, &antrea_crds()),
        file("policy-aws.yaml", AWS, &aws_crds()),
        file("policy-realizations.yaml", REALIZATIONS, &[realization_crd()]),
        file("rbac-agent.yaml", &agent_rights(), &agent_rbac()),
        file("rbac-controller.yaml", &controller_rights(), &controller_rbac()),
        file("rbac-viewer.yaml", &viewer_rights(), &viewer_rbac()),
        file("rbac.yaml", &rights(), &rbac()),
    ]
}

/// Returns the same objects as files of the chart. Its templates add names and conditions.
pub fn chart() -> Vec<(PathBuf, String)> {
    let file = |name: &str, head: &str, objects: &[Value]| {
        (PathBuf::from("charts/ferrule").join(name), text(head, objects))
    };
    vec![
        file("crds/eniconfigs.yaml", ENI_CONFIGS, &[eni_config_crd()]),
        file("files/crds/cninodes.yaml", CNI_NODES, &[cni_node_crd()]),
        file("files/crds/policy-upstream.yaml", UPSTREAM, &upstream_crds()),
        file("files/crds/policy-antrea.yaml", ANTREA, &antrea_crds()),
        file("files/crds/policy-aws.yaml", AWS, &aws_crds()),
        file("files/crds/policy-realizations.yaml", REALIZATIONS, &[realization_crd()]),
        file("files/rights.yaml", CHART_RIGHTS, &[chart_rights()]),
    ]
}

/// Rights of each account, by account and scope.
fn chart_rights() -> Value {
    let rows = |rights: &[Right]| -> Vec<Value> { rights.iter().flat_map(chart_rows).collect() };
    json!({
        "daemon": { "cluster": rows(CLUSTER_RIGHTS), "namespace": rows(RIGHTS_IN_NAMESPACE) },
        "agent": { "cluster": [], "namespace": rows(AGENT_RIGHTS_IN_NAMESPACE) },
        "controller": {
            "cluster": rows(CONTROLLER_CLUSTER_RIGHTS),
            "namespace": rows(CONTROLLER_RIGHTS_IN_NAMESPACE),
        },
        "viewer": {
            "cluster": rows(VIEWER_CLUSTER_RIGHTS),
            "namespace": rows(VIEWER_RIGHTS_IN_NAMESPACE),
        },
    })
}

/// Returns a right with the setting that requires it. A right with one conditional verb becomes two rows.
fn chart_rows(right: &Right) -> Vec<Value> {
    let row = |verbs: &[&str], when: Option<&str>| {
        let Right { group, resource, names, purpose, .. } = right;
        let mut row =
            json!({ "group": group, "resource": resource, "verbs": verbs, "purpose": purpose });
        if !names.is_empty() {
            row["names"] = json!(names);
        }
        if let Some(when) = when {
            row["when"] = json!(when);
        }
        row
    };
    // Only the controller and viewers have the verb `get`; they read these kinds with every setting.
    if right.verbs.contains(&"get") {
        return vec![row(right.verbs, None)];
    }
    match right.resource {
        "pods" if right.verbs.contains(&"patch") => {
            let rest: Vec<&str> =
                right.verbs.iter().copied().filter(|verb| *verb != "patch").collect();
            vec![row(&rest, None), row(&["patch"], Some("ANNOTATE_POD_IP"))]
        }
        "eniconfigs" => vec![row(right.verbs, Some("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG"))],
        "cninodes" => vec![row(right.verbs, Some("ENABLE_POD_ENI"))],
        _ => vec![row(right.verbs, None)],
    }
}

/// Returns the CRD of ENIConfig.
pub fn eni_config_crd() -> Value {
    let mut crd = definition(EniConfig::crd());
    // As in amazon-vpc-cni: the object keeps fields that are not in the schema.
    crd["spec"]["preserveUnknownFields"] = json!(false);
    let version = &mut crd["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    // The status is no subresource.
    if let Some(version) = version.as_object_mut() {
        version.remove("subresources");
    }
    crd
}

/// Returns the CRD of CNINode.
pub fn cni_node_crd() -> Value {
    definition(CniNode::crd())
}

/// Returns the CRD of NetworkPolicyRealization. The status is no subresource: one write replaces the object.
pub fn realization_crd() -> Value {
    let mut crd = definition(NetworkPolicyRealization::crd());
    if let Some(version) = crd["spec"]["versions"][0].as_object_mut() {
        version.remove("subresources");
    }
    crd
}

/// Returns the CRDs of all policy kinds except the built-in NetworkPolicy.
pub fn policy_crds() -> Vec<Value> {
    [upstream_crds(), antrea_crds(), aws_crds()].concat()
}

fn upstream_crds() -> Vec<Value> {
    vec![policy(ClusterNetworkPolicy::crd(), &["spec"])]
}

fn antrea_crds() -> Vec<Value> {
    let crds = [
        AntreaTier::crd(),
        AntreaClusterNetworkPolicy::crd(),
        AntreaNetworkPolicy::crd(),
        AntreaClusterGroup::crd(),
        AntreaGroup::crd(),
    ];
    crds.into_iter().map(|crd| policy(crd, &[])).collect()
}

fn aws_crds() -> Vec<Value> {
    let crds = [AwsClusterNetworkPolicy::crd(), ApplicationNetworkPolicy::crd()];
    crds.into_iter().map(|crd| policy(crd, &[])).collect()
}

/// Returns the CRD of a policy kind: no field accepts null, and `required` fields must exist.
fn policy(crd: CustomResourceDefinition, required: &[&str]) -> Value {
    let mut crd = definition(crd);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    tidy_policy(schema);
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    crd
}

/// Removes null from the values of optional fields, which are absent instead. Adds the rule of `alone`.
fn tidy_policy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(any) = map.get("properties").and_then(alone) {
                map.insert("anyOf".to_owned(), any);
            }
            if map.get("nullable") == Some(&json!(true)) {
                map.remove("nullable");
            }
            if let Some(Value::Array(words)) = map.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            map.values_mut().for_each(tidy_policy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_policy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Rule for an item of Antrea's subjects and peers: each of these fields is its only one, except a `group`
/// without a name. In CEL this would cost more than the API server grants, as the lists have no bounds.
fn alone(properties: &Value) -> Option<Value> {
    if properties.get("group").is_none() || properties.get("podSelector").is_none() {
        return None;
    }
    let there = |field: &&str| properties.get(field).is_some();
    let any: Vec<Value> = ["serviceAccount", "service", "nodeSelector"]
        .into_iter()
        .filter(there)
        .map(|field| json!({ "required": [field] }))
        .collect();
    let mut none = json!({ "properties": { "group": { "maxLength": 0 } } });
    if !any.is_empty() {
        none["not"] = json!({ "anyOf": any });
    }
    Some(json!([{ "maxProperties": 1 }, none]))
}

/// Returns a generated CRD without empty fields.
fn definition(crd: CustomResourceDefinition) -> Value {
    let mut crd = json!(crd);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    // amazon-vpc-cni and the VPC resource controller accept an object without a spec.
    for word in ["title", "required"] {
        schema[word].take();
    }
    if let Some(status) = schema["properties"].get_mut("status") {
        status["nullable"].take();
    }
    tidy(&mut crd);
    crd
}

/// Removes null values and empty lists.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(tidy);
            map.retain(|_, value| !value.is_null() && *value != json!([]));
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn controller_rights() -> String {
    let mut head = String::from("Rights of the policy controller:\n");
    list(&mut head, CONTROLLER_CLUSTER_RIGHTS.iter().chain(CONTROLLER_RIGHTS_IN_NAMESPACE));
    head.push_str("Rights for kinds that the cluster does not have are without effect.\n");
    head
}

fn list(head: &mut String, all: impl Iterator<Item = &'static Right>) {
    for Right { group, resource, verbs, names, purpose } in all {
        let of = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
        let dot = if group.is_empty() { "" } else { "." };
        head.push_str(&format!("  {resource}{dot}{group}: {}{of}: {purpose}\n", verbs.join(", ")));
    }
}

fn agent_rights() -> String {
    let mut head = String::from("Rights of the agent, all in its own namespace:\n");
    list(&mut head, AGENT_RIGHTS_IN_NAMESPACE.iter());
    head.push_str("The controller identifies agents by their tokens. Agents with the flag --replica need no rights.\n");
    head
}

fn viewer_rights() -> String {
    let mut head = String::from(
        "Rights for users of `ferrule status`, `ferrule ip`, `ferrule pod`, `ferrule bundle` and `ferrule policy`:\n",
    );
    list(&mut head, VIEWER_CLUSTER_RIGHTS.iter().chain(VIEWER_RIGHTS_IN_NAMESPACE));
    head.push_str(
        "Bind both roles only to users whom you trust with the nodes: port-forward to a pod of the host network\n\
         reaches every listener on the loopback of its node. `ferrule check` creates and removes a namespace and\n\
         needs the rights of an administrator.\n",
    );
    head
}

fn rights() -> String {
    let mut head = String::from("Rights of the daemon:\n");
    list(&mut head, CLUSTER_RIGHTS.iter().chain(RIGHTS_IN_NAMESPACE));
    head.push_str(
        "If one is missing, only its own purpose fails. The verb patch on pods is needed\n\
         with ANNOTATE_POD_IP only.\n",
    );
    head
}

fn text(head: &str, objects: &[Value]) -> String {
    let mut text = String::from("# Generated by `cargo xtask generate`.\n");
    for line in head.lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    for object in objects {
        text.push_str("---\n");
        // Values of maps, lists and scalars always have a text.
        text.push_str(&serde_saphyr::to_string(object).unwrap_or_default());
    }
    text
}

const CHART_RIGHTS: &str = "Rights of the accounts, each with its purpose. `when` names the setting that requires the right.\n";
const ENI_CONFIGS: &str =
    "ENIConfig with the schema of amazon-vpc-cni. Existing objects stay valid.\n";
const CNI_NODES: &str = "CNINode with the schema of the VPC resource controller. EKS installs it: apply this file\n\
    only in clusters without it.\n";
const UPSTREAM: &str =
    "ClusterNetworkPolicy with the schema of upstream's experimental channel, version 0.2.0.\n";
const ANTREA: &str = "Antrea's policy kinds with the schemas of v1beta1, and the checks of its webhook as far\n\
    as CEL can express them. Objects that Antrea accepted stay valid.\n";
const AWS: &str = "AWS's policy kinds with their schemas. Existing objects stay valid. EKS installs them: apply\n\
    this file only in clusters without them.\n";
const REALIZATIONS: &str = "NetworkPolicyRealization: an object for each NetworkPolicy that is not in force on all its nodes.\n";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::{fs, path::Path};

    #[test]
    fn the_committed_manifests_are_the_generated_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, text) in manifests().into_iter().chain(chart()) {
            let committed = fs::read_to_string(root.join(&path)).unwrap_or_default();
            let path = path.display();
            assert!(committed == text, "{path} is stale; run `cargo xtask generate`");
        }
    }

    #[test]
    fn eni_config_has_the_schema_of_amazon_vpc_cni() {
        let crd = eni_config_crd();
        assert_eq!(crd["metadata"]["name"], "eniconfigs.crd.k8s.amazonaws.com");
        let spec = &crd["spec"];
        assert_eq!((&spec["scope"], &spec["group"]), (&json!("Cluster"), &json!(GROUP)));
        assert_eq!(spec["names"]["kind"], "ENIConfig");
        assert_eq!(spec["names"]["plural"], "eniconfigs");
        assert_eq!(spec["names"]["singular"], "eniconfig");
        assert_eq!(spec["preserveUnknownFields"], false);
        let [version] = spec["versions"].as_array().unwrap().as_slice() else {
            panic!("one version");
        };
        assert_eq!(version["name"], "v1alpha1");
        assert_eq!((&version["served"], &version["storage"]), (&json!(true), &json!(true)));
        let schema = without_words(&version["schema"]["openAPIV3Schema"]);
        let text = json!({"type": "string"});
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "spec": {
                        "type": "object",
                        "required": ["subnet"],
                        "properties": {
                            "subnet": text,
                            "securityGroups": {"type": "array", "items": text},
                        },
                    },
                    "status": {"type": "object"},
                },
            })
        );
    }

    #[test]
    fn cni_node_has_the_schema_of_the_resource_controller() {
        let crd = cni_node_crd();
        assert_eq!(crd["metadata"]["name"], "cninodes.vpcresources.k8s.aws");
        assert_eq!(crd["spec"]["names"]["shortNames"], json!(["cnd"]));
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"], json!({"status": {}}));
        assert_eq!(version["selectableFields"], json!([{"jsonPath": ".spec.managedBy"}]));
        let schema = without_words(&version["schema"]["openAPIV3Schema"]);
        let (text, number) =
            (json!({"type": "string"}), json!({"type": "integer", "format": "int32"}));
        let id = json!({"type": "string", "minLength": 1});
        let texts = json!({
            "type": "array", "items": text, "x-kubernetes-list-type": "atomic",
        });
        assert_eq!(
            schema["properties"]["spec"],
            json!({
                "type": "object",
                "properties": {
                    "features": {"type": "array", "items": {
                        "type": "object", "properties": {"name": text, "value": text},
                    }},
                    "managedBy": {
                        "type": "string", "enum": ["vpc-resource-controller", "eks-auto-mode"],
                    },
                    "tags": {"type": "object", "additionalProperties": text},
                },
            })
        );
        assert_eq!(
            schema["properties"]["status"],
            json!({
                "type": "object",
                "properties": {"trunkInterface": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {
                        "id": id, "macAddress": text, "deviceIndex": number,
                        "branches": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["id"],
                            "items": {
                                "type": "object",
                                "required": ["id", "vlanID"],
                                "properties": {
                                    "id": id, "vlanID": number, "associationID": text,
                                    "macAddress": text, "subnetCIDR": text, "subnetV6CIDR": text,
                                    "ipv4CIDRs": texts, "ipv6CIDRs": texts, "securityGroups": texts,
                                },
                            },
                        },
                    },
                }},
            })
        );
    }

    #[test]
    fn a_manifest_names_the_purpose_of_each_right() {
        let (_, text) = manifests().pop().unwrap();
        assert!(text.contains("# Rights of the daemon"), "{text}");
        for right in CLUSTER_RIGHTS.iter().chain(RIGHTS_IN_NAMESPACE) {
            assert!(text.contains(right.purpose), "{}", right.resource);
        }
    }

    fn without_words(schema: &Value) -> Value {
        let mut schema = schema.clone();
        drop_words(&mut schema);
        schema
    }

    /// Removes descriptions: the test compares only the contract.
    fn drop_words(value: &mut Value) {
        match value {
            Value::Object(map) => {
                if map.get("description").is_some_and(Value::is_string) {
                    map.remove("description");
                }
                map.values_mut().for_each(drop_words);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_words),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    const GROUP: &str = "crd.k8s.amazonaws.com";
}
