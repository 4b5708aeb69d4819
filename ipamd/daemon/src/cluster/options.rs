//! The options of the connection to Kubernetes, from the settings.

use config_settings::{Kubernetes, Settings};
use ipamd_kube::{Election, EniConfigKeys, LeasePace, Options, Replicas};
use std::{env, path::PathBuf};

/// The source of credentials for the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The path in `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// The process runs in a pod.
    pub in_pod: bool,
}

impl Access {
    /// By client-go's rules: `KUBECONFIG`, or the environment that Kubernetes sets in each pod.
    pub fn of_environment() -> Self {
        let named = env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let first = named.and_then(|value| env::split_paths(&value).next());
        Self { kubeconfig: first, in_pod: env::var_os("KUBERNETES_SERVICE_HOST").is_some() }
    }
}

/// `None` if the daemon must not connect to the API server.
pub fn options(settings: &Settings, access: Access, identity: &str) -> Option<Options> {
    if settings.kubernetes == Kubernetes::Off {
        return None;
    }
    let node = settings.node_name.as_ref()?;
    // A mode that needs the API server reports that it waits, instead of doing nothing silently.
    let must = settings.needs_kubernetes() || settings.annotate_pod_ip;
    if !must && access.kubeconfig.is_none() && !access.in_pod {
        return None;
    }
    let collects = settings.collect_leaks && settings.cluster_name.is_some();
    Some(Options {
        daemon_pod: settings.pod_name.clone(),
        kubeconfig: access.kubeconfig,
        endpoint: settings.cluster_endpoint.clone(),
        pods: true,
        branches: settings.pod_enis.is_some(),
        eni_config: settings.custom_networking.as_ref().map(|custom| EniConfigKeys {
            annotation: custom.annotation.clone(),
            label: custom.label.clone(),
        }),
        annotate_pod_ip: settings.annotate_pod_ip,
        startup_taint: Some(settings.startup_taint.clone()),
        condition: true,
        election: collects.then(|| Election {
            node_group: settings.node_group.clone(),
            identity: format!("{node}_{identity}"),
            pace: LeasePace::default(),
        }),
        replicas: settings.policy.then(|| Replicas {
            service: settings.agent.service.clone(),
            file: settings.agent.replicas.clone(),
        }),
        ..Options::of_node(node)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn wanted(pairs: &[(&str, &str)], access: Access) -> Option<Options> {
        let (settings, _) = Settings::resolve(pairs.iter().copied()).unwrap();
        options(&settings, access, "x")
    }

    fn in_pod() -> Access {
        Access { in_pod: true, ..Access::default() }
    }

    const NODE: (&str, &str) = ("MY_NODE_NAME", "n1");

    #[test]
    fn the_daemon_connects_to_the_api_server_with_access_and_a_node_name() {
        assert!(wanted(&[NODE], in_pod()).is_some());
        assert!(wanted(&[NODE], Access::default()).is_none());
        assert!(wanted(&[], in_pod()).is_none());
        assert!(wanted(&[NODE, ("FERRULE_KUBERNETES", "off")], in_pod()).is_none());
        let kubeconfig = Some(PathBuf::from("/k"));
        let found = wanted(&[NODE], Access { kubeconfig: kubeconfig.clone(), in_pod: false });
        assert_eq!(found.unwrap().kubeconfig, kubeconfig);
    }

    #[test]
    fn a_mode_that_needs_it_waits_for_access() {
        for mode in ["AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "ENABLE_POD_ENI", "ANNOTATE_POD_IP"] {
            assert!(wanted(&[NODE, (mode, "true")], Access::default()).is_some(), "{mode}");
        }
    }

    #[test]
    fn only_enabled_features_watch_and_write() {
        let plain = wanted(&[NODE], in_pod()).unwrap();
        assert!(plain.pods && plain.condition && !plain.branches && !plain.annotate_pod_ip);
        assert!(plain.eni_config.is_none() && plain.election.is_none());
        assert!(plain.replicas.is_none());
        let service = ("FERRULE_CONTROLLER_SERVICE", "net/controller");
        let replicas = wanted(&[NODE, ("FERRULE_POLICY", "true"), service], in_pod()).unwrap();
        let Replicas { service, file } = replicas.replicas.unwrap();
        assert_eq!((service.0.as_str(), service.1.as_str()), ("net", "controller"));
        assert_eq!(file, PathBuf::from("/run/ferrule/controller/replicas"));
        assert_eq!(plain.startup_taint.as_deref(), Some("ferrule.io/not-ready"));
        let label = ("ENI_CONFIG_LABEL_DEF", "topology.kubernetes.io/zone");
        let custom = ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true");
        let keys = wanted(&[NODE, custom, label], in_pod()).unwrap().eni_config.unwrap();
        assert_eq!(keys.label, "topology.kubernetes.io/zone");
        let pairs = [NODE, ("CLUSTER_NAME", "blue"), ("FERRULE_NODE_GROUP", "gpu")];
        let election = wanted(&pairs, in_pod()).unwrap().election.unwrap();
        assert_eq!((election.node_group.as_str(), election.identity.as_str()), ("gpu", "n1_x"));
    }
}
