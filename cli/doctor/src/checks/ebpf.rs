//! Needs of the policy backend `ebpf`.

use super::Check;
use crate::{Finding, Observed, Severity, observation::Ebpf};
use config_model::KernelVersion;

pub(super) fn backend(seen: &Ebpf) -> Observed<Vec<Finding>> {
    let release = seen.release.clone()?;
    let version = KernelVersion::of_release(&release)
        .ok_or_else(|| format!("cannot read the kernel version in the release {release:?}"))?;
    let found = |object: &str, wrong: String, why: &str, fix: String| {
        Check::EbpfBackend.found(Severity::Fault, object, wrong, why, fix)
    };
    let mut findings = Vec::new();
    let oldest = KernelVersion::OLDEST_FOR_EBPF;
    if version < oldest {
        findings.push(found(
            "kernel",
            format!("the kernel {release} is older than {oldest}"),
            "older kernels lack features that the eBPF programs use",
            format!("boot a kernel of version {oldest} or newer, or set policy.backend=none"),
        ));
    }
    if !seen.has_bpffs.clone()? {
        findings.push(found(
            &seen.pins,
            format!("{} is not on a bpffs", seen.pins),
            "the agent pins its maps there, and cannot start without it",
            "mount -t bpf bpf /sys/fs/bpf, and add the mount to /etc/fstab".to_owned(),
        ));
    }
    for has in seen.agents.clone()? {
        let missing: Vec<&str> = CAPABILITIES
            .iter()
            .filter(|(_, bits)| has & bits == 0)
            .map(|(name, _)| *name)
            .collect();
        if has & NET_RAW == 0 {
            findings.push(Check::EbpfBackend.found(
                Severity::Warning,
                "ferrule-agent",
                "the running ferrule-agent lacks CAP_NET_RAW".to_owned(),
                "DNS names in policies then match no address",
                "add NET_RAW to the container's capabilities, as the chart does".to_owned(),
            ));
        }
        if missing.is_empty() {
            continue;
        }
        findings.push(found(
            "ferrule-agent",
            format!("the running ferrule-agent lacks {}", missing.join(" and ")),
            "the kernel then refuses its maps, its programs or their filters",
            format!(
                "set policy.backend=ebpf in the chart's values, or add {} to the container's \
                 capabilities",
                missing.join(" and ")
            ),
        ));
    }
    Ok(findings)
}

/// For DNS names alone.
const NET_RAW: u64 = 1 << 13;
const SYS_ADMIN: u64 = 1 << 21;
/// Each with the capabilities of which the kernel accepts any.
const CAPABILITIES: [(&str, u64); 3] = [
    ("CAP_BPF", 1 << 39 | SYS_ADMIN),
    ("CAP_NET_ADMIN", 1 << 12),
    ("CAP_PERFMON", 1 << 38 | SYS_ADMIN),
];
