//! Features of the kernel.

use super::Check;
use crate::{Feature, Finding, Observation, Observed, Severity};

pub(super) fn features(seen: &Observation) -> Observed<Vec<Finding>> {
    let state = |option: &str| seen.features.get(option).copied().unwrap_or(Feature::Unknown);
    let findings: Vec<Finding> = NEEDED
        .iter()
        .filter(|(option, ..)| state(option) == Feature::Absent)
        .map(|(option, severity, what)| {
            Check::KernelFeatures.found(
                *severity,
                option,
                format!("this kernel lacks CONFIG_{option}"),
                format!("it is needed for {what}"),
                "boot a kernel that has it, or install the modules of this one (on Debian and \
                 Ubuntu: linux-modules-extra of this version)",
            )
        })
        .collect();
    let unknown: Vec<&str> = NEEDED
        .iter()
        .map(|(option, ..)| *option)
        .filter(|option| state(option) == Feature::Unknown)
        .collect();
    if findings.is_empty() && !unknown.is_empty() {
        return Err(format!("cannot read the kernel configuration for {}", unknown.join(", ")));
    }
    Ok(findings)
}

pub(crate) const NEEDED: [(&str, Severity, &str); 6] = [
    ("VETH", Severity::Fault, "the links of pods"),
    ("IP_MULTIPLE_TABLES", Severity::Fault, "a route table for each ENI"),
    ("NF_CONNTRACK", Severity::Fault, "services and address translation"),
    ("NF_NAT", Severity::Fault, "services and address translation"),
    ("NF_TABLES", Severity::Warning, "nft and iptables over it"),
    ("VLAN_8021Q", Severity::Notice, "pods with security groups of their own (branch ENIs)"),
];
