//! The real amazon-vpc-cni in the cluster: an image of its programs, and a DaemonSet with the settings of its own
//! manifest. The policy agent is left out, because it belongs to another project.

use crate::{
    Installed,
    based::BasedImage,
    installed::{WAIT, retry},
};
use anyhow::{Context as _, Result, ensure};
use lab_programs::{Program, VPC_CNI_VERSION};
use serde_json::{Value, json};
use std::{fs, path::Path};

impl Installed {
    /// Runs amazon-vpc-cni on every node, and waits until the nodes are ready.
    ///
    /// # Errors
    /// If it cannot be built or does not get ready, with the cluster's state.
    pub fn run_amazon_vpc_cni(&self) -> Result<()> {
        let image = BasedImage::new()?;
        lay(&image)?;
        let config = json!({
            "Entrypoint": ["/app/aws-vpc-cni"], "WorkingDir": "/app",
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
        });
        self.load_archive(&image.pack(self.image(), IMAGE, &config)?)?;
        let definitions = [config_crds::eni_config_crd(), config_crds::cni_node_crd()];
        self.cluster().apply(&definitions)?;
        for definition in &definitions {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default();
            let name = format!("crd/{name}");
            self.kubectl(&["wait", "--for=condition=Established", &name, WAIT])?;
        }
        self.cluster().apply(&objects(&self.ec2()?))?;
        retry(|| {
            let pods = self.pods("kube-system", "k8s-app=aws-node")?;
            let nodes = self.cluster().json(&["get", "nodes"])?;
            ensure!(Some(pods.len()) == nodes["items"].as_array().map(Vec::len), "{pods:?}");
            Ok(())
        })?;
        self.kubectl(&[
            "-n",
            "kube-system",
            "wait",
            "--for=condition=Ready",
            "pod",
            "-l",
            "k8s-app=aws-node",
            WAIT,
        ])?;
        self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", WAIT]).map(drop)
    }
}

/// Builds one image from both of its images. The programs are in their folders.
fn lay(image: &BasedImage) -> Result<()> {
    let root = image.root();
    copy(Program::vpc_cni()?.path(), &root.join("app"))?;
    copy(Program::plugins()?.path(), &root.join("init"))?;
    let init = "aws-vpc-cni-init";
    fs::rename(root.join("app").join(init), root.join("init").join(init))
        .context("cannot move the program of the init container")?;
    image.link_iptables(&["iptables", "iptables-save", "iptables-restore"])
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", from.display()))?.path();
        let name = path.file_name().context("a file without a name")?;
        fs::copy(&path, to.join(name))
            .with_context(|| format!("cannot copy {}", path.display()))?;
    }
    Ok(())
}

/// Returns its ServiceAccount, its RBAC objects and its DaemonSet.
fn objects(ec2: &str) -> Vec<Value> {
    let reads = json!(["get", "list", "watch"]);
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": NAME, "namespace": "kube-system" },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": NAME },
            "rules": [
                {
                    "apiGroups": ["crd.k8s.amazonaws.com"], "resources": ["eniconfigs"],
                    "verbs": reads,
                },
                {
                    "apiGroups": [""], "resources": ["namespaces", "pods", "nodes"],
                    "verbs": reads,
                },
                {
                    "apiGroups": ["", "events.k8s.io"], "resources": ["events"],
                    "verbs": ["create", "patch", "list"],
                },
                {
                    "apiGroups": ["vpcresources.k8s.aws"], "resources": ["cninodes"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME,
            },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": "kube-system" }],
        }),
        daemon_set(ec2),
    ]
}

fn daemon_set(ec2: &str) -> Value {
    let labels = json!({ "k8s-app": NAME });
    let probe = |delay: u32| {
        json!({
            "exec": { "command": [
                "/app/grpc-health-probe", "-addr=unix:///var/run/aws-node/ipamd.sock",
                "-connect-timeout=5s", "-rpc-timeout=5s",
            ]},
            "initialDelaySeconds": delay, "timeoutSeconds": 10,
        })
    };
    let mut env: Vec<Value> =
        ENV.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    env.push(json!({ "name": "VPC_CNI_VERSION", "value": VPC_CNI_VERSION }));
    // The lab's EC2 instead of AWS.
    env.push(json!({ "name": "AWS_ENDPOINT_URL_EC2", "value": ec2 }));
    for (name, path) in [("MY_NODE_NAME", "spec.nodeName"), ("MY_POD_NAME", "metadata.name")] {
        env.push(json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    }
    let mounts: Vec<Value> = VOLUMES
        .iter()
        .map(|(name, _, _, inside)| json!({ "name": name, "mountPath": inside }))
        .collect();
    let volumes: Vec<Value> = VOLUMES
        .iter()
        .map(|(name, path, kind, _)| {
            json!({ "name": name, "hostPath": { "path": path, "type": kind } })
        })
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": NAME, "namespace": "kube-system", "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" },
            },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "hostNetwork": true,
                    "serviceAccountName": NAME,
                    "priorityClassName": "system-node-critical",
                    "terminationGracePeriodSeconds": 10,
                    "tolerations": [{ "operator": "Exists" }],
                    "affinity": { "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/os", "operator": "In",
                                    "values": ["linux"],
                                },
                                {
                                    "key": "kubernetes.io/arch", "operator": "In",
                                    "values": ["amd64", "arm64"],
                                },
                                {
                                    "key": "eks.amazonaws.com/compute-type", "operator": "NotIn",
                                    "values": ["fargate", "hybrid", "auto"],
                                },
                            ],
                        }]},
                    }},
                    "initContainers": [{
                        "name": "aws-vpc-cni-init", "image": IMAGE, "imagePullPolicy": "Never",
                        "command": ["/init/aws-vpc-cni-init"], "workingDir": "/init",
                        "env": [
                            { "name": "DISABLE_TCP_EARLY_DEMUX", "value": "false" },
                            { "name": "ENABLE_IPv6", "value": "false" },
                        ],
                        "securityContext": { "privileged": true },
                        "resources": { "requests": { "cpu": "25m" } },
                        "volumeMounts": [
                            { "name": "cni-bin-dir", "mountPath": "/host/opt/cni/bin" },
                        ],
                    }],
                    "containers": [{
                        "name": NAME, "image": IMAGE, "imagePullPolicy": "Never",
                        "ports": [{ "name": "metrics", "containerPort": 61678 }],
                        "securityContext": { "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } },
                        "resources": { "requests": { "cpu": "25m" } },
                        "livenessProbe": probe(60),
                        "readinessProbe": probe(1),
                        "env": env,
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
        },
    })
}

const NAME: &str = "aws-node";
const IMAGE: &str = "localhost/amazon-k8s-cni:v1.23.1";
/// Name, path on the host, type for a missing path, and path in the container.
const VOLUMES: [(&str, &str, &str, &str); 5] = [
    ("cni-bin-dir", "/opt/cni/bin", "", "/host/opt/cni/bin"),
    ("cni-net-dir", "/etc/cni/net.d", "", "/host/etc/cni/net.d"),
    ("log-dir", "/var/log/aws-routed-eni", "DirectoryOrCreate", "/host/var/log/aws-routed-eni"),
    ("run-dir", "/var/run/aws-node", "DirectoryOrCreate", "/var/run/aws-node"),
    ("xtables-lock", "/run/xtables.lock", "FileOrCreate", "/run/xtables.lock"),
];
/// The environment of its manifest. `NETWORK_POLICY_ENFORCING_MODE` is left out, because there is no policy agent.
const ENV: [(&str, &str); 23] = [
    ("ADDITIONAL_ENI_TAGS", "{}"),
    ("AWS_VPC_CNI_NODE_PORT_SUPPORT", "true"),
    ("AWS_VPC_ENI_MTU", "9001"),
    ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "false"),
    ("AWS_VPC_K8S_CNI_EXTERNALSNAT", "false"),
    ("AWS_VPC_K8S_CNI_LOGLEVEL", "DEBUG"),
    ("AWS_VPC_K8S_CNI_LOG_FILE", "/host/var/log/aws-routed-eni/ipamd.log"),
    ("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "prng"),
    ("AWS_VPC_K8S_CNI_VETHPREFIX", "eni"),
    ("AWS_VPC_K8S_PLUGIN_LOG_FILE", "/var/log/aws-routed-eni/plugin.log"),
    ("AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "DEBUG"),
    ("DISABLE_INTROSPECTION", "false"),
    ("DISABLE_METRICS", "false"),
    ("DISABLE_NETWORK_RESOURCE_PROVISIONING", "false"),
    ("ENABLE_IMDS_ONLY_MODE", "false"),
    ("ENABLE_IPv4", "true"),
    ("ENABLE_IPv6", "false"),
    ("ENABLE_MULTI_NIC", "false"),
    ("ENABLE_POD_ENI", "false"),
    ("ENABLE_PREFIX_DELEGATION", "false"),
    ("ENABLE_SUBNET_DISCOVERY", "true"),
    ("WARM_ENI_TARGET", "1"),
    ("WARM_PREFIX_TARGET", "1"),
];
