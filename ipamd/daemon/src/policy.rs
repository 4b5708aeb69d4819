//! Who enforces policy on the node: ferrule-agent; or aws-network-policy-agent, where it is kept, for which is done
//! here what amazon-vpc-cni did for it.

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

/// Who enforces policy on pods, if anybody does.
pub(crate) fn enforcer(settings: &Settings) -> Option<Enforcer> {
    // Settings in which an agent is used without a mode are refused.
    let mode = settings.policy_mode.unwrap_or(EnforcingMode::Strict);
    if settings.policy {
        return Some(Enforcer::FerruleAgent { socket: settings.agent.socket.clone(), mode });
    }
    let socket = || beside_store(settings, AGENTS);
    settings.policy_agent.then(|| Enforcer::NetworkPolicyAgent { socket: socket(), mode })
}

/// ferrule-agent, if it enforces policy here.
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

/// Tells ferrule-agent of a pod that was released without a DEL, unless another of its name lives. Its entry's end
/// tells the agent the same, so one that is not there misses little.
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
        tracing::warn!(%error, %pod, "ferrule-agent was not told that the pod is gone");
    }
}

/// Answers the agent, which asks when it starts. Comes back never: a daemon without it serves pods that
/// an agent which runs already is told of.
pub(crate) async fn serve(settings: &Settings, cloud: &dyn Cloud, health: Health) {
    if !settings.policy_agent {
        return pending().await;
    }
    let terms = terms(settings, cloud).await;
    let socket = beside_store(settings, OURS);
    loop {
        let served = match listen(&socket).await {
            Ok(incoming) => {
                let mode = &terms.mode;
                tracing::info!(socket = %socket.display(), mode, "the policy agent is served");
                answer(incoming, terms.clone(), &health, pending()).await.map_err(Into::into)
            }
            Err(error) => Err(anyhow::Error::from(error)),
        };
        if let Err(error) = served {
            let error = format!("{error:#}");
            tracing::warn!(error, "the policy agent is not served; trying again");
        }
        sleep(REST).await;
    }
}

async fn terms(settings: &Settings, cloud: &dyn Cloud) -> NodeConfig {
    let node = loop {
        match cloud.node().await {
            Ok(node) => break node,
            Err(error) => tracing::warn!(%error, "the instance's metadata cannot be read"),
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

/// Where the agent takes calls.
const AGENTS: &str = "npa.sock";
/// Where amazon-vpc-cni takes them.
const OURS: &str = "ipamd.sock";
/// How long ferrule-agent gets to take note of a pod's end.
const FORGET: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_secs(1);
