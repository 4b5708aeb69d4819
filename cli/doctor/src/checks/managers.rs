//! Daemons that configure links, and udev.

use super::Check;
use crate::{Finding, Observation, Severity, Unit};

pub(super) fn foreign_daemons(seen: &Observation) -> Vec<Finding> {
    let known = |unit: &&Unit| POLICY_ROUTERS.iter().any(|prefix| unit.name.starts_with(prefix));
    let units = seen.units.iter().filter(known).filter(|unit| unit.enabled || unit.active);
    let mut findings: Vec<Finding> = units
        .map(|unit| {
            Check::ForeignDaemons.found(
                Severity::Fault,
                &unit.name,
                format!("{} {}", unit.name, state(unit)),
                "it creates rules, routes and addresses for each attached ENI, in conflict with \
                 those of pods",
                format!(
                    "systemctl disable --now '{}', remove its package, and reboot or remove the \
                     rules that it created",
                    unit.name
                ),
            )
        })
        .collect();
    findings.extend(seen.udev_rules.iter().map(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        Check::ForeignDaemons.found(
            Severity::Fault,
            path,
            format!("{path} starts amazon-ec2-net-utils for each attached ENI"),
            "it creates rules, routes and addresses in conflict with those of pods",
            format!(
                "remove the package amazon-ec2-net-utils (or ec2-net-utils), or: \
                 ln -sf /dev/null /etc/udev/rules.d/{name} && udevadm control --reload"
            ),
        )
    }));
    findings
}

pub(super) fn network_managers(seen: &Observation) -> Vec<Finding> {
    let runs = |name: &str| {
        seen.units.iter().find(|unit| unit.name == name && (unit.active || unit.enabled))
    };
    let mut findings = Vec::new();
    if let Some(unit) = runs("systemd-networkd.service") {
        let (rules, routes) = seen.networkd_keeps;
        let missing = [
            (!rules).then_some("ManageForeignRoutingPolicyRules=no"),
            (!routes).then_some("ManageForeignRoutes=no"),
        ];
        let missing: Vec<&str> = missing.into_iter().flatten().collect();
        if !missing.is_empty() {
            findings.push(Check::NetworkManagers.found(
                Severity::Warning,
                &unit.name,
                format!("systemd-networkd {} without {}", state(unit), missing.join(" and ")),
                "at each of its restarts it removes all foreign rules and routes, also those of \
                 every pod",
                format!(
                    "write [Network] with {} to /etc/systemd/networkd.conf.d/ferrule.conf and \
                     restart systemd-networkd",
                    missing.join(" and ")
                ),
            ));
        }
    }
    if let Some(unit) = runs("NetworkManager.service") {
        let veths = format!("interface-name:{}*", seen.veth_prefix);
        if !seen.unmanaged.iter().any(|spec| covers(spec, &veths)) {
            findings.push(Check::NetworkManagers.found(
                Severity::Warning,
                &unit.name,
                format!("NetworkManager {} and manages pods' links ({veths})", state(unit)),
                "it changes addresses and routes of links that it does not own",
                format!(
                    "write [keyfile] with unmanaged-devices={veths} to \
                     /etc/NetworkManager/conf.d/ferrule.conf and restart NetworkManager"
                ),
            ));
        }
    }
    if let Some(unit) = runs("firewalld.service") {
        findings.push(Check::NetworkManagers.found(
            Severity::Warning,
            &unit.name,
            format!("firewalld {}", state(unit)),
            "it rejects forwarded packets between links outside its zones, and removes foreign \
             iptables rules at a reload",
            "systemctl disable --now firewalld",
        ));
    }
    findings
}

pub(super) fn udev_mac(seen: &Observation) -> Vec<Finding> {
    // Only the first matching file counts.
    let Some(file) = seen.link_files.iter().find(|file| file.matches_veth) else {
        return Vec::new();
    };
    match file.mac_policy.as_deref() {
        None | Some("none") => Vec::new(),
        Some(policy) => vec![Check::UdevMac.found(
            Severity::Notice,
            &file.path,
            format!("{} has MACAddressPolicy={policy} for pods' links", file.path),
            "udev then changes the MAC of a link that was created without one, after the pod has \
             learned it; Ferrule and amazon-vpc-cni from 1.20.1 give each link its MAC, other \
             plugins do not",
            format!(
                "if another plugin creates links here: write [Match] OriginalName={}* and [Link] \
                 MACAddressPolicy=none to /etc/systemd/network/10-ferrule.link",
                seen.veth_prefix
            ),
        )],
    }
}

fn state(unit: &Unit) -> &'static str {
    match (unit.active, unit.enabled) {
        (true, true) => "runs, and starts at boot",
        (true, false) => "runs",
        (false, _) => "starts at boot",
    }
}

/// Returns true if an entry of `unmanaged-devices` covers these links.
fn covers(spec: &str, veths: &str) -> bool {
    spec == veths || spec == "*" || spec == "interface-name:*" || spec == "type:veth"
}

/// Units that create policy routing per ENI: nm-cloud-setup, and amazon-ec2-net-utils of AL2023 and of AL2.
const POLICY_ROUTERS: [&str; 5] =
    ["nm-cloud-setup.", "policy-routes@", "refresh-policy-routes@", "ec2net-ifup@", "ec2net-scan."];
