//! aws-network-policy-agent, where it is kept: what amazon-vpc-cni did for it is done for it here.

use config_settings::{Family, Settings};
use ipamd_cloud::Cloud;
use ipamd_rpc::{
    policy::{PolicyAgent, Terms, serve as answer},
    server::{Health, listen},
};
use std::{
    future::pending,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::sleep;

/// The agent that the plugin tells of pods, if there is to be one.
pub(crate) fn agent(settings: &Settings) -> Option<PolicyAgent> {
    settings.policy_agent.then(|| PolicyAgent {
        socket: beside_store(settings, AGENTS),
        mode: settings.policy_mode.to_string(),
    })
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
const REST: Duration = Duration::from_secs(1);
