//! The policy agent of the node: ferrule-agent, or aws-network-policy-agent, to which the daemon then answers in
//! place of amazon-vpc-cni.

use crate::inbox::{Ended, Inbox};
use config_model::{EnforcingMode, PodKey, PodName};
use config_settings::{Family, Settings};
use datapath_rpc::{AgentAt, AgentPod};
use ipamd_cloud::Cloud;
use ipamd_npa::{NodeConfig, serve as answer};
use ipamd_rpc::Enforcer;
use runtime_socket::server::{Health, listen};
use std::{
    future::pending,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The policy agent of the node, if any.
pub(crate) fn enforcer(settings: &Settings) -> Option<Enforcer> {
    // Settings in which an agent is used without a mode are refused.
    let mode = settings.policy_mode.unwrap_or(EnforcingMode::Strict);
    if settings.policy {
        return Some(Enforcer::FerruleAgent { socket: settings.agent.socket.clone(), mode });
    }
    let socket = || beside_store(settings, AGENTS);
    settings.policy_agent.then(|| Enforcer::NetworkPolicyAgent { socket: socket(), mode })
}

/// `None` if ferrule-agent does not enforce policy on this node.
pub(crate) fn agent(settings: &Settings) -> Option<AgentAt> {
    client(enforcer(settings).as_ref())
}

/// The client of ferrule-agent, if it is the enforcer.
pub(crate) fn client(enforcer: Option<&Enforcer>) -> Option<AgentAt> {
    match enforcer {
        Some(Enforcer::FerruleAgent { socket, mode }) => {
            Some(AgentAt { socket: socket.clone(), mode: *mode })
        }
        Some(Enforcer::NetworkPolicyAgent { .. }) | None => None,
    }
}

/// Reports a pod to ferrule-agent that was released without a DEL, unless another sandbox of that pod exists. The
/// agent also learns of the pod's end from the controller, so a lost report matters little.
pub(crate) async fn forget(
    agent: Option<&AgentAt>,
    inbox: &Inbox,
    key: &PodKey,
    pod: Option<&PodName>,
) {
    let (Some(agent), Some(pod)) = (agent, pod) else { return };
    let lives = match inbox.view().await {
        Ok(view) => view.snapshot.pods.iter().any(|held| held.pod == *pod),
        Err(Ended) => return,
    };
    if lives {
        return;
    }
    let gone =
        AgentPod { uid: String::new(), name: pod.clone(), container: key.container_id.clone() };
    if let Err(error) = agent.forget(&gone, Instant::now() + FORGET).await {
        tracing::warn!(%error, %pod, "cannot report the deleted pod to ferrule-agent");
    }
}

/// Answers aws-network-policy-agent, which asks when it starts. Never returns. Pods start without it as well,
/// because a running agent learns of them from the API server.
pub(crate) async fn serve(settings: &Settings, cloud: &dyn Cloud, health: Health) {
    if !settings.policy_agent {
        return pending().await;
    }
    let config = node_config(settings, cloud).await;
    let socket = beside_store(settings, OURS);
    loop {
        let served = match listen(&socket).await {
            Ok(incoming) => {
                let mode = &config.mode;
                tracing::info!(socket = %socket.display(), mode, "serving aws-network-policy-agent");
                answer(incoming, config.clone(), &health, pending()).await.map_err(Into::into)
            }
            Err(error) => Err(anyhow::Error::from(error)),
        };
        if let Err(error) = served {
            let error = format!("{error:#}");
            tracing::warn!(error, "cannot serve aws-network-policy-agent; retrying");
        }
        sleep(REST).await;
    }
}

async fn node_config(settings: &Settings, cloud: &dyn Cloud) -> NodeConfig {
    let node = loop {
        match cloud.node().await {
            Ok(node) => break node,
            Err(error) => tracing::warn!(%error, "cannot read the instance metadata"),
        }
        sleep(REST).await;
    };
    let v6 = settings.family == Family::V6;
    NodeConfig {
        mode: settings.policy_mode.map_or("none", EnforcingMode::as_str).to_owned(),
        multi_nic: settings.multi_nic,
        node_ipv4: node.local_ipv4.map(|ip| ip.to_string()).unwrap_or_default(),
        node_ipv6: node.local_ipv6.filter(|_| v6).map(|ip| ip.to_string()).unwrap_or_default(),
        instance_id: node.instance.to_string(),
        region: node.region,
    }
}

fn beside_store(settings: &Settings, name: &str) -> PathBuf {
    settings.backing_store.parent().unwrap_or_else(|| Path::new("/")).join(name)
}

/// The socket of aws-network-policy-agent.
const AGENTS: &str = "npa.sock";
/// The socket of amazon-vpc-cni, which the daemon serves.
const OURS: &str = "ipamd.sock";
/// The deadline of the report of a pod's end.
const FORGET: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_secs(1);
