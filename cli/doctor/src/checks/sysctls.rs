//! Settings below `/proc/sys`.

use super::{
    Check,
    enis::{enis, primary},
};
use crate::{Finding, Observation, Observed, Severity};

pub(super) fn rp_filter(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let all = number(seen, "net/ipv4/conf/all/rp_filter")?;
    let primary = primary(seen, routing).map(|link| link.index);
    let enis = enis(seen, routing);
    if enis.is_empty() {
        return Err("cannot find the node's ENIs: no link is known to be one".to_owned());
    }
    let mut findings = Vec::new();
    for eni in enis {
        let name = format!("net/ipv4/conf/{}/rp_filter", eni.name);
        // The kernel uses the greater of the two.
        if number(seen, &name)?.max(all) != STRICT {
            continue;
        }
        let is_primary = primary == Some(eni.index);
        findings.push(Check::RpFilter.found(
            if is_primary { Severity::Fault } else { Severity::Warning },
            &eni.name,
            format!("{} filters by strict reverse path (rp_filter is 1)", eni.name),
            "packets that arrive at this ENI for a pod of another one, such as node port traffic, \
             are dropped silently",
            format!(
                "sysctl -w net.ipv4.conf.{}.rp_filter=2{}",
                eni.name.replace('.', "/"),
                at_boot(seen, &[name.as_str(), "net/ipv4/conf/all/rp_filter", DEFAULT_RP_FILTER])
            ),
        ));
    }
    Ok(findings)
}

pub(super) fn forwarding(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let v6_pods = routing
        .rules
        .iter()
        .any(|rule| rule.v6 && rule.pref == config_model::registry::PREF_TO_POD);
    let mut settings = vec!["net/ipv4/ip_forward".to_owned()];
    if v6_pods {
        settings.push("net/ipv6/conf/all/forwarding".to_owned());
    }
    let mut findings = Vec::new();
    for name in settings {
        if number(seen, &name)? != 0 {
            continue;
        }
        let dotted = name.replace('/', ".");
        findings.push(Check::Forwarding.found(
            Severity::Fault,
            &dotted,
            format!("{dotted} is 0: the node does not forward packets"),
            "a pod's packets are forwarded between its link and an ENI; without that a pod reaches only \
             its own node",
            format!("sysctl -w {dotted}=1{}", at_boot(seen, &[name.as_str()])),
        ));
    }
    Ok(findings)
}

pub(super) fn conntrack(seen: &Observation) -> Observed<Vec<Finding>> {
    let count = number(seen, CONNTRACK_COUNT)?;
    let max = number(seen, CONNTRACK_MAX)?;
    // Zero means no limit.
    if max == 0 || count * 100 < max * CONNTRACK_WARN_PERCENT {
        return Ok(Vec::new());
    }
    let full = count * 100 >= max * CONNTRACK_FAULT_PERCENT;
    let finding = Check::Conntrack.found(
        if full { Severity::Fault } else { Severity::Warning },
        "nf_conntrack",
        format!("{count} of {max} connections are in use"),
        "new connections of every pod are dropped when the table is full, name lookups first",
        format!(
            "sysctl -w net.netfilter.nf_conntrack_max={}, and find the source of the connections \
             (conntrack -L); kube-proxy sets it by --conntrack-max-per-core",
            max * 2
        ),
    );
    Ok(vec![finding])
}

/// Returns a setting as a number.
fn number(seen: &Observation, name: &str) -> Observed<u64> {
    let value = seen.sysctls.get(name).ok_or_else(|| format!("this kernel has no {name}"))?;
    let value = value.as_ref().map_err(String::clone)?;
    value.trim().parse().map_err(|_| format!("{name} is {:?}, which is not a number", value.trim()))
}

/// Describes the change that makes the setting permanent.
fn at_boot(seen: &Observation, names: &[&str]) -> String {
    let set = |name: &&str| seen.sysctl_files.iter().rfind(|(setting, _, _)| setting == name);
    match names.iter().find_map(set) {
        Some((name, value, file)) => {
            format!(", and change {file}, which sets {} to {value} at boot", name.replace('/', "."))
        }
        None => ", and write it to a file in /etc/sysctl.d to keep it after a reboot".to_owned(),
    }
}

const STRICT: u64 = 1;
const DEFAULT_RP_FILTER: &str = "net/ipv4/conf/default/rp_filter";
const CONNTRACK_COUNT: &str = "net/netfilter/nf_conntrack_count";
const CONNTRACK_MAX: &str = "net/netfilter/nf_conntrack_max";
const CONNTRACK_WARN_PERCENT: u64 = 75;
const CONNTRACK_FAULT_PERCENT: u64 = 95;
