//! The state of a node's pool, and its problems.

use crate::Subnet;
use serde::{Deserialize, Serialize};

/// The state of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The version of the daemon.
    pub version: String,
    /// The node's name; `None` if the daemon does not know it.
    pub node: Option<String>,
    /// RFC 3339.
    pub at: String,
    /// `running`, `starting: …` or `stopping`.
    pub phase: String,
    /// `per-pod` or `compact`: the value of `FERRULE_RULES`.
    pub rules: String,
    /// `None` until EC2 has answered.
    pub limits: Option<Limits>,
    pub pool: Pool,
    /// `None` before the start completes.
    pub settings: Option<PoolSettings>,
    /// The subnets of the node's zone with IPv4 addresses. Empty until EC2 has described them.
    pub subnets: Vec<Subnet>,
    /// The ADDs that have waited longest.
    pub waiting_adds: Vec<WaitingAdd>,
    /// The token buckets of EC2 actions.
    pub budgets: Vec<Budget>,
    /// By severity, then by age.
    pub troubles: Vec<Trouble>,
}

/// The limits of the instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// ENIs of all network cards.
    pub enis: u32,
    /// IPv4 addresses per ENI, including its primary address; a prefix counts as one.
    pub ipv4_per_eni: u16,
    /// True if ENIs can have prefixes.
    pub prefixes: bool,
    /// Branch ENIs of a trunk; 0 if the type can have none.
    pub branch_enis: u16,
}

/// The counts of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Attached ENIs.
    pub enis: u32,
    /// The most ENIs.
    pub max_enis: u32,
    /// The node's pod limit; `None` while it is unknown.
    pub max_pods: Option<u32>,
    /// All addresses for pods.
    pub total: u64,
    /// Addresses in use by pods.
    pub assigned: u32,
    /// Addresses in cooldown.
    pub cooling: u32,
    /// The other addresses.
    pub free: u64,
    /// Free addresses that an ADD gets at once.
    pub usable: u64,
    /// ADDs that wait for an address.
    pub waiting_adds: u32,
    /// EC2 calls in progress.
    pub calls: u32,
    /// Addresses below the warm targets.
    pub warm_short: u64,
}

/// Settings that decide about the free addresses of the node, and these addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSettings {
    /// `ENABLE_PREFIX_DELEGATION`, if the instance type has prefixes.
    pub prefixes: bool,
    /// `WARM_IP_TARGET`
    pub ips: Option<u32>,
    /// `WARM_ENI_TARGET`
    pub enis: u32,
    /// `AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG`: an ENIConfig names the subnet of new ENIs.
    pub custom_networking: bool,
    /// Free addresses of the pool by subnet.
    pub free_by_subnet: std::collections::BTreeMap<String, u64>,
}

/// An ADD that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingAdd {
    pub namespace: String,
    pub name: String,
    /// The time since its start.
    pub seconds: u64,
    /// The awaited event.
    pub reason: String,
    /// The next step for a person.
    pub next_step: String,
}

/// The token bucket of an EC2 action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// EC2's name of the action.
    pub action: String,
    /// Available calls, in thousandths.
    pub milli_tokens: u64,
    /// The present rate in thousandths of a call per second.
    pub milli_per_second: u64,
    /// The rate without throttling.
    pub ceiling_milli_per_second: u64,
    /// EC2's last error; `None` if a call has succeeded since.
    pub fault: Option<String>,
}

/// The severity of a problem.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods are or will be affected: a person must act.
    Trouble,
    /// For information.
    #[default]
    #[serde(other)]
    Notice,
}

/// A problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trouble {
    /// Stable.
    pub kind: String,
    pub severity: Severity,
    /// The first observation in RFC 3339; `None` if it is unknown.
    pub since: Option<String>,
    /// An EC2 action, a subnet, an ENI, a file.
    pub object: String,
    /// The problem with its cause.
    pub cause: String,
    /// The next step for a person.
    pub next_step: String,
}

/// A reservation of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAssignment {
    pub namespace: String,
    pub name: String,
    pub address: Option<String>,
    pub eni: String,
    /// The ENI's number on its card; `None` for a branch ENI.
    pub device: Option<u8>,
    /// The ENI's network card.
    pub card: Option<u8>,
    /// The route table for packets from the pod.
    pub table: Option<u32>,
    /// True if its ADD is complete.
    pub confirmed: bool,
    /// The host end; `None` until the ADD is complete.
    pub host_interface: Option<String>,
    /// RFC 3339.
    pub since: String,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn a_reader_of_another_version_ignores_unknown_fields() {
        let text = r#"{"version":"9.0","novel":[1],"pool":{"enis":2},
            "troubles":[{"kind":"k","severity":"catastrophe","cause":"c"}]}"#;
        let read: Status = serde_json::from_str(text).unwrap();
        assert_eq!((read.version.as_str(), read.pool.enis), ("9.0", 2));
        assert_eq!(read.troubles[0].severity, Severity::Notice);
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&written).unwrap(), read);
    }
}
