//! The Kubernetes API server of this machine, as nodes see it.

use super::LabError;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// The port at which nodes find the API server.
pub(crate) const API_SERVER_PORT: u16 = 443;

/// Kubeconfig inside a node.
pub(super) const KUBECONFIG: &str = "/run/lab/kubeconfig";

/// A Kubernetes API server of this machine.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its address on this machine.
    pub api_server: SocketAddr,
    /// A kubeconfig that works on this machine; each node gets it with its own way there.
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig with the rights of the VPC resource controller; with it the lab runs that controller.
    pub controller: Option<PathBuf>,
}

/// Access of nodes to the API server.
#[derive(Clone, Debug)]
pub(crate) struct ClusterAccess {
    pub(super) address: Ipv4Addr,
    pub(super) kubeconfig: Option<String>,
}

impl Cluster {
    /// As nodes see it, at this address of the VPC.
    pub(crate) fn as_nodes_see_it(&self, address: Ipv4Addr) -> Result<ClusterAccess, LabError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(LabError::file("read", path.clone()))
        };
        let text = self.kubeconfig.as_ref().map(read).transpose()?;
        let kubeconfig = text.map(|text| self.translated(&text, address));
        Ok(ClusterAccess { address, kubeconfig })
    }

    /// The kubeconfig with the server's address as nodes see it.
    fn translated(&self, kubeconfig: &str, address: Ipv4Addr) -> String {
        let port = self.api_server.port();
        let here = [
            format!("https://{}", self.api_server),
            format!("https://localhost:{port}"),
            format!("https://127.0.0.1:{port}"),
        ];
        let there = format!("https://{address}:{API_SERVER_PORT}");
        here.iter().fold(kubeconfig.to_owned(), |text, here| text.replace(here, &there))
    }
}

impl ClusterAccess {
    /// URL of the API server, as nodes reach it.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{API_SERVER_PORT}", self.address)
    }

    /// Environment that a DaemonSet's pod gets.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::from([
            ("CLUSTER_ENDPOINT".to_owned(), self.url()),
            ("KUBERNETES_SERVICE_HOST".to_owned(), self.address.to_string()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), API_SERVER_PORT.to_string()),
        ]);
        if self.kubeconfig.is_some() {
            env.insert("KUBECONFIG".to_owned(), KUBECONFIG.to_owned());
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_leads_to_the_same_server_by_the_nodes_way() {
        let cluster = Cluster {
            api_server: ([127, 0, 0, 1], 6443).into(),
            kubeconfig: None,
            controller: None,
        };
        let text = "cluster: {server: \"https://127.0.0.1:6443\", tls-server-name: localhost}\n\
                    other: {server: https://localhost:6443/path}\nelse: https://127.0.0.1:7777\n";
        let seen = cluster.translated(text, Ipv4Addr::new(10, 0, 0, 2));
        let wanted = "cluster: {server: \"https://10.0.0.2:443\", tls-server-name: localhost}\n\
                      other: {server: https://10.0.0.2:443/path}\nelse: https://127.0.0.1:7777\n";
        assert_eq!(seen, wanted);
    }
}
