//! How a node's pool is, and what is wrong with it.

use serde::{Deserialize, Serialize};

/// A node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The node, where the daemon knows its name.
    pub node: Option<String>,
    /// When, in RFC 3339.
    pub at: String,
    /// How far the daemon is: `running`, `starting: …`, `stopping`.
    pub phase: String,
    /// Whether each pod has rules of its own (`per-pod`) or they share them (`compact`).
    pub rules: String,
    /// What the instance type allows, once EC2 has told.
    pub limits: Option<Limits>,
    /// The pool in numbers.
    pub pool: Pool,
    /// The ADDs that have waited longest.
    pub waiting_adds: Vec<WaitingAdd>,
    /// How often EC2 may be called, by action.
    pub budgets: Vec<Budget>,
    /// What is wrong, worst first.
    pub troubles: Vec<Trouble>,
}

/// What the instance type allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// ENIs of all network cards.
    pub enis: u32,
    /// IPv4 addresses of one ENI, its primary one among them; a prefix counts as one.
    pub ipv4_per_eni: u16,
    /// Whether ENIs can have prefixes.
    pub prefixes: bool,
    /// Branch ENIs of a trunk; 0 if the type can have none.
    pub branch_enis: u16,
}

/// The pool in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// ENIs that are there.
    pub enis: u32,
    /// ENIs that may be.
    pub max_enis: u32,
    /// Pods that the node may run, once known.
    pub max_pods: Option<u32>,
    /// Addresses that pods hold or may hold.
    pub total: u64,
    /// Those that pods hold.
    pub assigned: u32,
    /// Those that rest after their pod has gone.
    pub cooling: u32,
    /// The others.
    pub free: u64,
    /// Of these, what an ADD gets at once.
    pub usable: u64,
    /// ADDs that wait.
    pub waiting_adds: u32,
    /// Calls to EC2 under way.
    pub calls: u32,
    /// Addresses that the warm targets lack.
    pub warm_short: u64,
}

/// An ADD that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingAdd {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// For how long.
    pub seconds: u64,
    /// For what.
    pub reason: String,
    /// What a person can do.
    pub next_step: String,
}

/// The token bucket of an EC2 action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// EC2's name of the action.
    pub action: String,
    /// Calls that may be made at once, in thousandths.
    pub milli_tokens: u64,
    /// Calls that come to it, in thousandths a second.
    pub milli_per_second: u64,
    /// What would come to it if EC2 throttled nothing.
    pub ceiling_milli_per_second: u64,
    /// What EC2 answered last, if no call has gone through since.
    pub fault: Option<String>,
}

/// How bad.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods suffer, or will: somebody has to do something.
    Trouble,
    /// Worth knowing.
    #[default]
    #[serde(other)]
    Notice,
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trouble {
    /// A stable word for its kind.
    pub kind: String,
    /// How bad.
    pub severity: Severity,
    /// Since when, in RFC 3339, as far as whoever says so has seen it.
    pub since: Option<String>,
    /// The object: an EC2 action, a subnet, an ENI, a file.
    pub object: String,
    /// What is wrong, with its cause.
    pub cause: String,
    /// What a person can do.
    pub next_step: String,
}

/// An address that a pod holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Held {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The address.
    pub address: Option<String>,
    /// Its ENI.
    pub eni: String,
    /// The ENI's place on its card; branch ENIs have none.
    pub device: Option<u8>,
    /// The ENI's network card.
    pub card: Option<u8>,
    /// The route table of what the pod sends.
    pub table: Option<u32>,
    /// Whether its ADD is done.
    pub confirmed: bool,
    /// The host end of its link, once the ADD is done.
    pub host_interface: Option<String>,
    /// Since when, in RFC 3339.
    pub since: String,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn a_reader_of_another_version_takes_what_it_knows() {
        let text = r#"{"version":"9.0","novel":[1],"pool":{"enis":2},
            "troubles":[{"kind":"k","severity":"catastrophe","cause":"c"}]}"#;
        let read: Status = serde_json::from_str(text).unwrap();
        assert_eq!((read.version.as_str(), read.pool.enis), ("9.0", 2));
        assert_eq!(read.troubles[0].severity, Severity::Notice);
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&written).unwrap(), read);
    }
}
