//! The checks, and the order in which they are made.

mod enis;
mod kernel;
mod managers;
mod metadata;
mod netfilter;
mod rules;
mod sysctls;

#[cfg(test)]
mod tests;

use crate::{Finding, Looked, Observation, Report, Severity, Unseen};
use serde::Serialize;
use std::fmt;

/// One question that is asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// A strict reverse path filter.
    RpFilter,
    /// Forwarding off.
    Forwarding,
    /// Daemons that make policy routing of their own.
    ForeignDaemons,
    /// Their tables.
    ForeignTables,
    /// Rules of others that take pods' packets first.
    ForeignRules,
    /// Network managers that touch what is not theirs.
    NetworkManagers,
    /// Routes over secondary ENIs in table main.
    MainRoutes,
    /// MAC addresses that udev sets.
    UdevMac,
    /// A FORWARD policy that drops.
    ForwardPolicy,
    /// Legacy iptables beside nft.
    IptablesMixed,
    /// The metadata service and its hop limit.
    Imds,
    /// Sizes of packets.
    Mtu,
    /// What the kernel cannot do.
    KernelFeatures,
    /// Room for connections.
    Conntrack,
    /// Rules that are there twice.
    TwinRules,
    /// Rules that lead nowhere.
    LeftoverRules,
}

impl Check {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 16] = [
        Self::RpFilter,
        Self::Forwarding,
        Self::ForeignDaemons,
        Self::ForeignTables,
        Self::ForeignRules,
        Self::NetworkManagers,
        Self::MainRoutes,
        Self::UdevMac,
        Self::ForwardPolicy,
        Self::IptablesMixed,
        Self::Imds,
        Self::Mtu,
        Self::KernelFeatures,
        Self::Conntrack,
        Self::TwinRules,
        Self::LeftoverRules,
    ];

    /// What a good node has here.
    pub fn good(self) -> &'static str {
        match self {
            Self::RpFilter => "no ENI filters by strict reverse path",
            Self::Forwarding => "the node forwards",
            Self::ForeignDaemons => "no other daemon makes policy routing",
            Self::ForeignTables => "no tables of nm-cloud-setup",
            Self::ForeignRules => "no rule of others takes pods' packets",
            Self::NetworkManagers => "network managers leave pods' links, rules and routes alone",
            Self::MainRoutes => "table main has no route over a secondary ENI",
            Self::UdevMac => "udev leaves MAC addresses as they are made",
            Self::ForwardPolicy => "no chain drops what is forwarded",
            Self::IptablesMixed => "one iptables is in use",
            Self::Imds => "the metadata service answers",
            Self::Mtu => "ENIs and pods' links have the right MTU",
            Self::KernelFeatures => "the kernel has what it takes",
            Self::Conntrack => "there is room for connections",
            Self::TwinRules => "no rule is there twice",
            Self::LeftoverRules => "every rule leads somewhere",
        }
    }

    /// Whether an ADD or DEL under way can look like a finding of this check.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, Self::TwinRules | Self::LeftoverRules | Self::MainRoutes | Self::Mtu)
    }

    fn make(self, seen: &Observation) -> Looked<Vec<Finding>> {
        match self {
            Self::RpFilter => sysctls::rp_filter(seen),
            Self::Forwarding => sysctls::forwarding(seen),
            Self::ForeignDaemons => Ok(managers::foreign_daemons(seen)),
            Self::ForeignTables => rules::foreign_tables(seen),
            Self::ForeignRules => rules::foreign_rules(seen),
            Self::NetworkManagers => Ok(managers::network_managers(seen)),
            Self::MainRoutes => enis::main_routes(seen),
            Self::UdevMac => Ok(managers::udev_mac(seen)),
            Self::ForwardPolicy => netfilter::forward_policy(seen),
            Self::IptablesMixed => netfilter::mixed(seen),
            Self::Imds => metadata::imds(seen),
            Self::Mtu => enis::mtu(seen),
            Self::KernelFeatures => kernel::features(seen),
            Self::Conntrack => sysctls::conntrack(seen),
            Self::TwinRules => rules::twins(seen),
            Self::LeftoverRules => rules::leftovers(seen),
        }
    }

    fn found(
        self,
        severity: Severity,
        object: impl fmt::Display,
        wrong: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding {
            check: self,
            severity,
            object: object.to_string(),
            wrong: wrong.into(),
            why: why.into(),
            mend: mend.into(),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RpFilter => "rp-filter",
            Self::Forwarding => "forwarding",
            Self::ForeignDaemons => "foreign-daemons",
            Self::ForeignTables => "foreign-tables",
            Self::ForeignRules => "foreign-rules",
            Self::NetworkManagers => "network-managers",
            Self::MainRoutes => "main-routes",
            Self::UdevMac => "udev-mac",
            Self::ForwardPolicy => "forward-policy",
            Self::IptablesMixed => "iptables-mixed",
            Self::Imds => "imds",
            Self::Mtu => "mtu",
            Self::KernelFeatures => "kernel-features",
            Self::Conntrack => "conntrack",
            Self::TwinRules => "twin-rules",
            Self::LeftoverRules => "leftover-rules",
        })
    }
}

/// Makes every check.
pub fn examine(seen: &Observation) -> Report {
    let mut report = Report::default();
    for check in Check::ALL {
        match check.make(seen) {
            Ok(findings) if findings.is_empty() => report.good.push(check),
            Ok(findings) => report.findings.extend(findings),
            Err(why) => report.unseen.push(Unseen { check, why }),
        }
    }
    report
}
