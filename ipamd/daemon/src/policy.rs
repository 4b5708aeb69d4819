//! Who enforces policy on the node: ferrule-agent; or aws-network-policy-agent, where it is kept, for which is done
//! here what amazon-vpc-cni did for it.

use crate::inbox::{Ended, Inbox};
use config_model::{PodKey, PodName};
use config_settings::{Family, PolicyMode, Settings};
use ipamd_cloud::Cloud;
use ipamd_rpc::{
    agent::{AgentAt, AgentPod, Mode},
    policy::{Enforcer, PolicyAgent, Terms, serve as answer},
    server::{Health, listen},
};
use std::{
    future::pending,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Who enforces policy on pods, if anybody does.
pub(crate) fn enforcer(settings: &Settings) -> Option<Enforcer> {
    let amazons = || PolicyAgent {
        socket: beside_store(settings, AGENTS),
        mode: settings.policy_mode.to_string(),
    };
    match agent(settings) {
        Some(own) => Some(Enforcer::Own(own)),
        None => settings.policy_agent.then(|| Enforcer::Amazon(amazons())),
    }
}

/// ferrule-agent, if it enforces policy here.
pub(crate) fn agent(settings: &Settings) -> Option<AgentAt> {
    let mode = match settings.policy_mode {
        PolicyMode::Standard => Mode::Standard,
        PolicyMode::Strict | PolicyMode::None => Mode::Strict,
    };
    settings.policy.then(|| AgentAt { socket: settings.agent.socket.clone(), mode })
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

async fn terms(settings: &Settings, cloud: &dyn Cloud) -> Terms {
    let node = loop {
        match cloud.node().await {
            Ok(node) => break node,
            Err(error) => tracing::warn!(%error, "the instance's metadata cannot be read"),
        }
        sleep(REST).await;
    };
    let v6 = settings.family == Family::V6;
    Terms {
        mode: settings.policy_mode.to_string(),
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
