//! The real kube-proxy in pods: an image of its program, and a DaemonSet with the settings of kubeadm.

use crate::{
    Installed,
    based::BasedImage,
    installed::{SPACE, WAIT},
};
use anyhow::{Context as _, Result};
use lab_kubernetes::Program;
use serde_json::{Value, json};
use std::fs;

impl Installed {
    /// Runs kube-proxy in this mode as a DaemonSet on each node of a cluster without it, and waits until it has started.
    ///
    /// # Errors
    /// If it does not start, with the cluster's state.
    pub fn run_kube_proxy(&self, mode: &str) -> Result<()> {
        let image = BasedImage::new()?;
        let program = image.root().join(PROGRAM);
        let folder = program.parent().context("the program has no folder")?;
        fs::create_dir_all(folder).context("cannot create a folder for kube-proxy")?;
        // It acts as the component by whose name it is started.
        fs::copy(Program::ready()?.path(), &program).context("cannot copy kube-proxy")?;
        image.link_iptables(&[
            "iptables",
            "iptables-save",
            "iptables-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
        ])?;
        let config = json!({ "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] });
        self.load_archive(&image.pack(self.image(), IMAGE, &config)?)?;
        self.cluster().apply(&objects(mode, &self.api_server()?))?;
        self.kubectl(&["-n", SPACE, "rollout", "status", "daemonset/kube-proxy", WAIT])
            .map(drop)
            .with_context(|| self.state())
    }
}

/// Returns its ServiceAccount, the binding of its role, its configuration and its DaemonSet.
fn objects(mode: &str, server: &str) -> [Value; 4] {
    let labels = json!({ "k8s-app": NAME });
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{ "name": "default", "cluster": {
            "certificate-authority": format!("{account}/ca.crt"), "server": server,
        } }],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        "users": [{ "name": "default", "user": { "tokenFile": format!("{account}/token") } }],
    });
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": mode, "clientConnection": { "kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf" },
        // The table of connections is the whole machine's.
        "conntrack": {
            "maxPerCore": 0, "min": 0,
            "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
        },
        "metricsBindAddress": "127.0.0.1:10249", "oomScoreAdj": 0,
    });
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": NAME, "namespace": SPACE },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "kubeadm:node-proxier" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:node-proxier",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": SPACE }],
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": SPACE, "labels": labels },
            "data": {
                "config.conf": config.to_string(), "kubeconfig.conf": kubeconfig.to_string(),
            },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": NAME, "namespace": SPACE, "labels": labels },
            "spec": {
                "selector": { "matchLabels": labels },
                "updateStrategy": { "type": "RollingUpdate" },
                "template": { "metadata": { "labels": labels }, "spec": pod() },
            },
        }),
    ]
}

fn pod() -> Value {
    json!({
        "hostNetwork": true,
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "tolerations": [{ "operator": "Exists" }],
        "containers": [{
            "name": NAME, "image": IMAGE, "imagePullPolicy": "Never",
            "command": [
                format!("/{PROGRAM}"), "--config=/var/lib/kube-proxy/config.conf",
                "--hostname-override=$(NODE_NAME)",
            ],
            "env": [{
                "name": "NODE_NAME",
                "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } },
            }],
            "securityContext": { "privileged": true },
            "volumeMounts": [
                { "name": NAME, "mountPath": "/var/lib/kube-proxy" },
                { "name": "xtables-lock", "mountPath": "/run/xtables.lock" },
                { "name": "lib-modules", "mountPath": "/lib/modules", "readOnly": true },
            ],
        }],
        "volumes": [
            { "name": NAME, "configMap": { "name": NAME } },
            {
                "name": "xtables-lock",
                "hostPath": { "path": "/run/xtables.lock", "type": "FileOrCreate" },
            },
            { "name": "lib-modules", "hostPath": { "path": "/lib/modules" } },
        ],
    })
}

const NAME: &str = "kube-proxy";
const IMAGE: &str = "localhost/kube-proxy:1";
/// The path in the image without the first slash.
const PROGRAM: &str = "usr/local/bin/kube-proxy";
