//! A node of the real amazon-vpc-cni with the real aws-network-policy-agent.

use crate::{
    policed::{
        API_SERVER,
        sandbox::{Answer, Sandbox, Started},
    },
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use lab_programs::Program;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::Child,
};
use tempfile::TempDir;
use tests_cluster::Identity;
use tests_lab::{Lab, vpc_cni, wait_for};

/// The account and the namespace of its DaemonSet.
const ACCOUNT: [&str; 2] = ["kube-system", "aws-node"];
/// Free addresses of a node whose pool is warm.
const FREE: u32 = 64;
const GROUP: &str = "networking.k8s.aws";

/// The programs and credentials of such nodes.
pub(crate) struct Theirs {
    agent: Program,
    vpc_cni: Program,
    kubeconfig: PathBuf,
    folder: TempDir,
}

/// A running aws-network-policy-agent. A drop kills it.
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Theirs {
    /// Builds the programs if the cache lacks them. Applies the CRDs and the RBAC objects.
    pub(crate) fn new(world: &World) -> Result<Self> {
        for kind in ["PolicyEndpoint", "ClusterPolicyEndpoint"] {
            world.apply(&crd(kind))?;
        }
        for object in rbac() {
            world.apply(&object)?;
        }
        let [namespace, name] = ACCOUNT;
        let identity = Identity::service_account(namespace, name);
        let server = format!("https://{API_SERVER}:443");
        Ok(Self {
            agent: Program::network_policy_agent()?,
            vpc_cni: Program::vpc_cni()?,
            kubeconfig: world.cluster.kubeconfig_at(name, &identity, &server)?,
            folder: tempfile::tempdir()?,
        })
    }

    /// Adds a node of amazon-vpc-cni to the lab. Its pods cannot start without the agent.
    pub(crate) fn add_node(&self, lab: &Lab, node: &str, more: &[&str]) -> Result<()> {
        let programs = self.vpc_cni.path().to_str().context("the path is not UTF-8")?;
        let kubeconfig = format!("KUBECONFIG={}", self.kubeconfig.display());
        let cni = ["node", "add", node, "--cni", "amazon-vpc-cni", "--cni-dir", programs];
        lab.run(&[&cni[..], &["--env", &kubeconfig], more].concat())?;
        let ready = vpc_cni::wait_until_ready(lab, node);
        let ready = ready.and_then(|()| vpc_cni::wait_for_free(lab, node, FREE));
        ready.with_context(|| lab.logs(node).unwrap_or_default())
    }

    /// Starts the agent with the arguments of its DaemonSet's manifest, and waits until it is ready. The log level is
    /// `info`, which is that of the other agents.
    pub(crate) fn start(&self, lab: &Lab, node: &str) -> Result<Agent> {
        let log = self.folder.path().join("agent.log");
        // An agent continues the log of the one before it.
        let _ = fs::remove_file(&log);
        let script = format!(
            "mkdir -p /host/opt/cni/bin && cd {} && exec ./controller \
             --kubeconfig={} --log-file={} --log-level=info --enable-ipv6=false \
             --enable-network-policy=true --enable-cloudwatch-logs=false \
             --enable-policy-event-logs=false --metrics-bind-addr=:8162 \
             --health-probe-bind-addr=:8163 --conntrack-cache-cleanup-period=300 \
             --conntrack-cache-table-size=524288",
            self.agent.path().display(),
            self.kubeconfig.display(),
            log.display(),
        );
        let printed = File::create(self.folder.path().join("printed"))?;
        let mut command = lab.command(&["node", "exec", node, "--", "sh", "-c", &script]);
        command.stdout(printed.try_clone()?).stderr(printed);
        let agent = Agent { child: command.spawn().context("cannot start their agent")?, log };
        wait_for("their agent to be ready", PATIENCE, || {
            let ready = lab.get(node, 8163, "/readyz").map(|_| true);
            let printed = self.folder.path().join("printed");
            ready.with_context(|| fs::read_to_string(printed).unwrap_or_default())
        })?;
        Ok(agent)
    }
}

impl Agent {
    /// Waits until the log has this text so many times.
    pub(crate) fn wait_for_lines(&self, text: &str, count: usize) -> Result<()> {
        wait_for(&format!("{count} lines {text:?}"), PATIENCE, || {
            let log = fs::read_to_string(&self.log)?;
            let found = log.lines().filter(|line| line.contains(text)).count();
            ensure!(found >= count, "{found} lines");
            Ok(true)
        })
    }
}

impl Drop for Agent {
    /// Kills the process with SIGKILL.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the network configuration of amazon-vpc-cni's plugin on a node.
pub(crate) fn config(lab: &Lab, node: &str) -> Result<Value> {
    let text = lab.on_node(node, &["cat", "/etc/cni/net.d/10-aws.conflist"])?;
    let list: Value = serde_json::from_str(&text).context("read the conflist")?;
    let mut config = list["plugins"][0].clone();
    config["name"] = list["name"].clone();
    config["cniVersion"] = list["cniVersion"].clone();
    Ok(config)
}

/// Creates a sandbox for amazon-vpc-cni's plugin with this network configuration.
pub(crate) fn sandbox<'a>(
    lab: &'a Lab,
    node: &'a str,
    pod: &'a Started,
    config: &Value,
) -> Result<Sandbox<'a>> {
    Sandbox::with(lab, node, pod, "/opt/cni/bin/aws-cni", config.clone())
}

/// Starts a pod that exists in the API. Returns its sandbox's namespace and the result of the ADD.
pub(crate) fn start(lab: &Lab, node: &str, pod: &Started) -> Result<(String, Value)> {
    let config = config(lab, node)?;
    let sandbox = sandbox(lab, node, pod, &config)?;
    let mut result = Value::Null;
    wait_for(&format!("the pod {}", pod.name), PATIENCE, || match sandbox.add()? {
        Answer::Starts(added) => {
            result = added;
            Ok(true)
        }
        Answer::Fails(code, message) => anyhow::bail!("the ADD fails with code {code}: {message}"),
    })?;
    Ok((sandbox.netns(), result))
}

/// A pod that a PolicyEndpoint selects.
pub(crate) fn selected(name: &str, address: &str, host: &str) -> Value {
    json!({"name": name, "namespace": "default", "podIP": address, "hostIP": host})
}

/// The PolicyEndpoint of a NetworkPolicy, as aws-network-policy-controller would create it.
pub(crate) fn endpoint(policy: &Value, pods: &[Value], ingress: &[Value]) -> Value {
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "PolicyEndpoint",
        "metadata": {"name": format!("{name}-x7k2p"), "namespace": "default"},
        "spec": {
            "podSelector": policy["spec"]["podSelector"],
            "policyRef": {"name": name, "namespace": "default"},
            "podIsolation": policy["spec"]["policyTypes"],
            "podSelectorEndpoints": pods, "ingress": ingress,
        },
    })
}

fn crd(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let scope = if kind.starts_with("Cluster") { "Cluster" } else { "Namespaced" };
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "singular": singular, "plural": plural,
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": any, "status": any},
                }},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// The rights of amazon-vpc-cni's manifest.
fn rbac() -> [Value; 2] {
    let read = json!(["get", "list", "watch"]);
    let [namespace, name] = ACCOUNT;
    let rule = |group: &str, resources: &[&str], verbs: &Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            rule("crd.k8s.amazonaws.com", &["eniconfigs"], &read),
            rule("", &["namespaces", "pods", "nodes"], &read),
            rule("", &["events"], &json!(["create", "patch", "list"])),
            rule("events.k8s.io", &["events"], &json!(["create", "patch", "list"])),
            rule(GROUP, &["policyendpoints", "clusterpolicyendpoints"], &read),
            rule("vpcresources.k8s.aws", &["cninodes"], &json!(["get", "list", "watch", "patch"])),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    });
    [role, binding]
}
