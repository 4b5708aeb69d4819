//! The settings of a node's programs.

use crate::{CLUSTER_DNS, image};
use serde_json::json;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

/// Settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name in the cluster.
    pub name: String,
    /// Its primary address.
    pub address: Ipv4Addr,
    /// Its IPv6 address; `None` for a node of IPv4 alone.
    pub address_v6: Option<Ipv6Addr>,
    pub instance: String,
    /// The instance's type.
    pub instance_type: String,
    /// Its availability zone.
    pub zone: String,
    pub max_pods: u32,
    /// URL of the API server, as the node reaches it.
    pub server: String,
    pub proxy: ProxyMode,
    /// The cgroup below which its pods are, without a slash: [`lab_fabric::Node::cgroup_name`].
    pub cgroup: String,
    /// The same as programs of the node name it: [`lab_fabric::Node::cgroup_root`].
    pub cgroup_root: String,
    /// The folder of the CNI project's plugins, which nodes' images bring.
    pub plugins: PathBuf,
}

/// Implementation of Services on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyMode {
    /// Chains of iptables.
    #[default]
    Iptables,
    /// A table of nftables.
    Nftables,
    /// No kube-proxy.
    None,
}

impl NodeConfig {
    /// The addresses of the node in the cluster, with commas.
    pub(super) fn addresses(&self) -> String {
        let all = [IpAddr::V4(self.address)].into_iter().chain(self.address_v6.map(IpAddr::V6));
        all.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Labels that the kubelet sets on its node beside the ones that it detects.
    pub(super) fn labels(&self) -> String {
        let region = self.zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        [
            ("node.kubernetes.io/instance-type", self.instance_type.as_str()),
            ("topology.kubernetes.io/region", region),
            ("topology.kubernetes.io/zone", &self.zone),
        ]
        .map(|(key, value)| format!("{key}={value}"))
        .join(",")
    }

    /// JSON is YAML.
    pub(super) fn kubelet(&self) -> String {
        let never = "0%";
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "providerID": format!("aws:///{}/{}", self.zone, self.instance),
            "address": "0.0.0.0",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": "/var/lib/kubelet/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": "/var/lib/kubelet/serving.crt",
            "tlsPrivateKeyFile": "/var/lib/kubelet/serving.key",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup_root,
            // The machine may have the old ones only.
            "failCgroupV1": false,
            "failSwapOn": false,
            // A container in which the lab runs may not lower anybody's score.
            "oomScoreAdj": 0,
            "maxPods": self.max_pods,
            "clusterDNS": [CLUSTER_DNS],
            "clusterDomain": "cluster.local",
            // The lab does not have names outside the cluster.
            "resolvConf": "",
            "kubeAPIQPS": 50,
            "kubeAPIBurst": 100,
            "volumePluginDir": "/var/lib/kubelet/plugins/volume",
            // Other programs of the machine can fill its disk too.
            "evictionHard": {
                "memory.available": never, "nodefs.available": never,
                "nodefs.inodesFree": never, "imagefs.available": never,
                "imagefs.inodesFree": never,
            },
            "imageGCHighThresholdPercent": 100,
        });
        format!("{config:#}\n")
    }

    /// The configuration of kube-proxy; `None` for a node without it.
    pub(super) fn proxy(&self) -> Option<String> {
        if self.proxy == ProxyMode::None {
            return None;
        }
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": self.proxy,
            "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": "/var/lib/kubelet/proxy.kubeconfig"},
            // The table of connections is the whole machine's.
            "conntrack": {
                "maxPerCore": 0, "min": 0,
                "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
            "metricsBindAddress": "127.0.0.1:10249",
            "oomScoreAdj": 0,
        });
        Some(format!("{config:#}\n"))
    }
}

pub(super) fn containerd() -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd/root"
state = "/run/containerd/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # A container in which the lab runs may not lower anybody's score.
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"#,
        pause = image::PAUSE,
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::Value;

    fn node() -> NodeConfig {
        NodeConfig {
            name: "node1".to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 7),
            address_v6: None,
            instance: "i-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "eu-west-1a".to_owned(),
            max_pods: 29,
            server: "https://10.0.0.2:443".to_owned(),
            proxy: ProxyMode::Nftables,
            cgroup: "ferrule-lab.a.node1".to_owned(),
            cgroup_root: "/ferrule-lab.a.node1".to_owned(),
            plugins: PathBuf::new(),
        }
    }

    #[test]
    fn a_node_has_labels_of_its_zone_and_region() {
        let labels = node().labels();
        assert!(labels.contains("topology.kubernetes.io/region=eu-west-1,"), "{labels}");
        assert!(labels.contains("topology.kubernetes.io/zone=eu-west-1a"), "{labels}");
        let kubelet: Value = serde_json::from_str(&node().kubelet()).unwrap();
        assert_eq!(kubelet["providerID"], "aws:///eu-west-1a/i-1");
        assert_eq!(
            (&kubelet["maxPods"], &kubelet["cgroupRoot"]),
            (&json!(29), &json!("/ferrule-lab.a.node1"))
        );
    }

    #[test]
    fn a_node_of_both_families_has_the_address_of_ipv4_first() {
        assert_eq!(node().addresses(), "10.0.0.7");
        let both = NodeConfig { address_v6: Some("fd00::7".parse().unwrap()), ..node() };
        assert_eq!(both.addresses(), "10.0.0.7,fd00::7");
    }

    #[test]
    fn a_kubelet_refuses_anonymous_clients() {
        let kubelet: Value = serde_json::from_str(&node().kubelet()).unwrap();
        assert_eq!(kubelet["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(kubelet["authorization"]["mode"], "Webhook");
    }

    #[test]
    fn a_proxy_has_the_given_mode_and_keeps_the_machines_conntrack_table() {
        let proxy: Value = serde_json::from_str(&node().proxy().unwrap()).unwrap();
        assert_eq!(proxy["mode"], "nftables");
        assert_eq!(proxy["conntrack"]["maxPerCore"], 0);
    }
}
