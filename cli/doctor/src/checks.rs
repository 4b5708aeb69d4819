//! The order of the checks.

mod ebpf;
mod enis;
mod kernel;
mod managers;
mod metadata;
mod netfilter;
mod rules;
mod sysctls;

#[cfg(test)]
mod tests;

use crate::{Check, Finding, Observation, Observed, Report, Severity, Unchecked};
use std::{collections::BTreeSet, fmt};

impl Check {
    fn make(self, seen: &Observation) -> Observed<Vec<Finding>> {
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
            Self::EbpfBackend => seen.ebpf.as_ref().map_or_else(|| Ok(Vec::new()), ebpf::backend),
        }
    }

    fn is_applicable(self, seen: &Observation) -> bool {
        self != Self::EbpfBackend || seen.ebpf.is_some()
    }

    fn found(
        self,
        severity: Severity,
        object: impl fmt::Display,
        wrong: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding {
            check: self,
            severity,
            object: object.to_string(),
            wrong: wrong.into(),
            why: why.into(),
            fix: fix.into(),
        }
    }
}

/// Runs every check that the node's settings need.
pub fn examine(seen: &Observation) -> Report {
    let mut report = Report::default();
    for check in Check::ALL.into_iter().filter(|check| check.is_applicable(seen)) {
        match check.make(seen) {
            Ok(findings) if findings.is_empty() => report.good.push(check),
            Ok(findings) => report.findings.extend(findings),
            Err(why) => report.unseen.push(Unchecked { check, why }),
        }
    }
    report
}

impl Report {
    /// Examines a second observation and drops transient findings that the first one lacks.
    pub fn confirmed_by(&self, later: &Observation) -> Self {
        let mut report = examine(later);
        report
            .findings
            .retain(|found| !found.check.is_transient() || self.findings.contains(found));
        let held: BTreeSet<Check> = report.findings.iter().map(|found| found.check).collect();
        let unseen: BTreeSet<Check> = report.unseen.iter().map(|unseen| unseen.check).collect();
        report.good = Check::ALL
            .into_iter()
            .filter(|check| check.is_applicable(later))
            .filter(|check| !held.contains(check) && !unseen.contains(check))
            .collect();
        report
    }
}
