//! The DaemonSets of both networks and their service accounts, from the API server.

use super::settings;
use crate::{args::MigrateCluster, gather::imds};
use cli_migrate::{Cluster, DaemonSet, Observed, Values};
use form_urlencoded::Serializer;
use policy_kube::{Cluster as Client, KubeError};
use serde_json::Value;
use std::{collections::BTreeSet, env};

/// Reads the cluster. Without flags, the kubeconfig is that of kubectl.
pub(super) fn observe(args: &MigrateCluster) -> Observed<Cluster> {
    imds::runtime()?.block_on(read(args))
}

/// Reads the cluster that a flag, KUBECONFIG or this pod names. A kubeconfig in the home folder of a node's user can be
/// that of another cluster.
pub(super) fn observe_named(args: &MigrateCluster) -> Observed<Cluster> {
    let is_named = ["KUBECONFIG", "KUBERNETES_SERVICE_HOST"].map(env::var_os);
    if args.target.is_named() || is_named.iter().any(Option::is_some) {
        observe(args)
    } else {
        Err("no cluster is named; use --kubeconfig, or run `ferrule migrate check` where kubectl works".to_owned())
    }
}

async fn read(args: &MigrateCluster) -> Observed<Cluster> {
    let client = args.target.connect().await.map_err(|error| unconnected(&error))?;
    Ok(Cluster {
        vpc_cni: daemon_set(&client, "kube-system", VPC_CNI, VPC_CNI).await?,
        ferrule: daemon_set(&client, &args.own.name, &args.daemonset, FERRULE).await?,
    })
}

/// Describes why no cluster can be read. The message for all commands also names files, which a migration does not have.
fn unconnected(error: &KubeError) -> String {
    if let KubeError::Config { cause } = error {
        return format!("cannot find a cluster: {cause}; name one with --kubeconfig or KUBECONFIG");
    }
    error.to_string()
}

/// Reads a DaemonSet whose daemon is this container.
async fn daemon_set(
    client: &Client,
    namespace: &str,
    name: &str,
    container: &str,
) -> Observed<Option<DaemonSet>> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}");
    let Some(set) = get(client, &path, &format!("daemonset {namespace}/{name}")).await? else {
        return Ok(None);
    };
    let (settings, unread) = settings_of(&set, container);
    let spec = &set["spec"]["template"]["spec"];
    let account = spec["serviceAccountName"].as_str().unwrap_or("default");
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    let object = get(client, &path, &format!("serviceaccount {namespace}/{account}")).await?;
    let role =
        object.and_then(|it| it["metadata"]["annotations"][ROLE].as_str().map(str::to_owned));
    Ok(Some(DaemonSet {
        settings,
        unread,
        account: format!("{namespace}:{account}"),
        role: role.filter(|role| !role.is_empty()),
        pod_identity: has_pod_identity(client, namespace, &set).await,
    }))
}

/// Returns the settings that both networks have, and the names of those whose values are in other objects. No other
/// variable is kept: its value could be a credential.
fn settings_of(set: &Value, container: &str) -> (Values, BTreeSet<String>) {
    let wanted = settings::defaults();
    let (mut values, mut unread) = (Values::new(), BTreeSet::new());
    let spec = &set["spec"]["template"]["spec"];
    let containers = |kind: &str| spec[kind].as_array().into_iter().flatten();
    // amazon-vpc-cni has some settings in its init container only. The variables of the daemon come last and have priority.
    let daemons = containers("containers").filter(|it| it["name"] == container);
    for variable in containers("initContainers")
        .chain(daemons)
        .filter_map(|container| container["env"].as_array())
        .flatten()
    {
        let Some(name) = variable["name"].as_str().filter(|name| wanted.contains_key(*name)) else {
            continue;
        };
        values.remove(name);
        unread.remove(name);
        if variable["valueFrom"].is_object() {
            unread.insert(name.to_owned());
        } else {
            let value = variable["value"].as_str().unwrap_or_default();
            values.insert(name.to_owned(), value.to_owned());
        }
    }
    (values, unread)
}

/// Returns true if EKS has injected credentials of Pod Identity into a pod of the DaemonSet.
async fn has_pod_identity(client: &Client, namespace: &str, set: &Value) -> Observed<bool> {
    let labels = set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let mut query = Serializer::new(String::new());
    query.append_pair("labelSelector", &labels.join(","));
    let path = format!("/api/v1/namespaces/{namespace}/pods?{}", query.finish());
    let list = client.read(&path, "list", "pods").await.map_err(|error| error.to_string())?;
    let list: Value =
        serde_json::from_str(&list).map_err(|error| format!("cannot parse pods: {error}"))?;
    let pods = list["items"].as_array().into_iter().flatten();
    let containers = pods.filter_map(|pod| pod["spec"]["containers"].as_array()).flatten();
    let mut variables = containers.filter_map(|container| container["env"].as_array()).flatten();
    Ok(variables.any(|variable| variable["name"] == POD_IDENTITY))
}

/// Gets an object; `None` if it does not exist.
async fn get(client: &Client, path: &str, what: &str) -> Observed<Option<Value>> {
    match client.get(path, what).await {
        Ok(text) => {
            serde_json::from_str(&text).map_err(|error| format!("cannot parse {what}: {error}"))
        }
        Err(KubeError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The DaemonSet of amazon-vpc-cni and its container.
const VPC_CNI: &str = "aws-node";
/// The container of Ferrule's daemon.
const FERRULE: &str = "ipamd";
const ROLE: &str = "eks.amazonaws.com/role-arn";
/// The variable that the webhook of Pod Identity adds to containers.
const POD_IDENTITY: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
