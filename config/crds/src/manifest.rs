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

/// Each file under the repository's root, with its text.
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

/// The same for the chart, which names them and has the conditions under which they are needed.
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

/// A right, and the setting without which it is not needed; in two where that is so for one verb.
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
    // Others than the daemon look at these kinds whatever its settings are.
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

/// The definition of ENIConfig.
pub fn eni_config_crd() -> Value {
    let mut crd = definition(EniConfig::crd());
    // As amazon-vpc-cni has it: fields that are not in the schema stay in the object.
    crd["spec"]["preserveUnknownFields"] = json!(false);
    let version = &mut crd["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    // Its status is no subresource.
    if let Some(version) = version.as_object_mut() {
        version.remove("subresources");
    }
    crd
}

/// The definition of CNINode.
pub fn cni_node_crd() -> Value {
    definition(CniNode::crd())
}

/// The definition of NetworkPolicyRealization. Its status is no subresource: all of it is written at once.
pub fn realization_crd() -> Value {
    let mut crd = definition(NetworkPolicyRealization::crd());
    if let Some(version) = crd["spec"]["versions"][0].as_object_mut() {
        version.remove("subresources");
    }
    crd
}

/// The definitions of all kinds of network policy that are not Kubernetes' own.
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

/// A definition of a kind of policy: no field takes null, and an object has at least these.
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

/// A generated definition, without fields that have no content.
fn definition(crd: CustomResourceDefinition) -> Value {
    let mut crd = json!(crd);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    // The peers take an object without a spec.
    for word in ["title", "required"] {
        schema[word].take();
    }
    if let Some(status) = schema["properties"].get_mut("status") {
        status["nullable"].take();
    }
    tidy(&mut crd);
    crd
}

/// Takes out what is null or empty.
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
    let mut head = String::from("What the policy controller may do, and nothing else:\n");
    told(&mut head, CONTROLLER_CLUSTER_RIGHTS.iter().chain(CONTROLLER_RIGHTS_IN_NAMESPACE));
    head.push_str("Those about kinds that the cluster does not have do no harm.\n");
    head
}

fn told(head: &mut String, all: impl Iterator<Item = &'static Right>) {
    for Right { group, resource, verbs, names, purpose } in all {
        let of = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
        let dot = if group.is_empty() { "" } else { "." };
        head.push_str(&format!("  {resource}{dot}{group}: {}{of}: {purpose}\n", verbs.join(", ")));
    }
}

fn agent_rights() -> String {
    let mut head = String::from("What the agent may do in its own namespace, and nothing else:\n");
    told(&mut head, AGENT_RIGHTS_IN_NAMESPACE.iter());
    head.push_str("The controller knows it by its tokens; agents that are given replicas need none of this.\n");
    head
}

fn viewer_rights() -> String {
    let mut head = String::from(
        "What people need who ask with `ferrule status` and its like, and nothing else:\n",
    );
    told(&mut head, VIEWER_CLUSTER_RIGHTS.iter().chain(VIEWER_RIGHTS_IN_NAMESPACE));
    head.push_str(
        "Bind both roles to whom you trust with the nodes: who may forward to a pod with its node's network\n\
         reaches what listens on that node's loopback. `ferrule check` makes and removes a namespace and needs\n\
         the rights of an administrator.\n",
    );
    head
}

fn rights() -> String {
    let mut head = String::from("What the daemon may do, and nothing else:\n");
    told(&mut head, CLUSTER_RIGHTS.iter().chain(RIGHTS_IN_NAMESPACE));
    head.push_str(
        "Each that is missing takes away its own purpose and nothing more. pods/patch is needed\n\
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

const CHART_RIGHTS: &str =
    "What the accounts may do, and what for; with `when`, only where that setting is on.\n";
const ENI_CONFIGS: &str =
    "The schema that amazon-vpc-cni gives ENIConfig; existing objects hold.\n";
const CNI_NODES: &str = "The schema that the VPC resource controller gives CNINode. On EKS the controller brings it:\n\
    apply this one only where there is none.\n";
const UPSTREAM: &str =
    "The schema that upstream gives ClusterNetworkPolicy in the experimental channel of v0.2.0.\n";
const ANTREA: &str = "The schemas that Antrea gives its kinds of policy in v1beta1, and what its webhook asks\n\
    as far as CEL can ask it; objects that Antrea took hold.\n";
const AWS: &str = "The schemas that AWS gives its kinds of policy; objects that were taken hold. On EKS they are\n\
    there already: apply these only where there are none.\n";
const REALIZATIONS: &str = "How far NetworkPolicies are enforced: an object for each that is not in force on all its nodes.\n";

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
            assert!(committed == text, "{path} is old; write it anew: cargo xtask generate");
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
    fn a_manifest_says_what_each_right_is_for() {
        let (_, text) = manifests().pop().unwrap();
        assert!(text.contains("# What the daemon may do"), "{text}");
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
