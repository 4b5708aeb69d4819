//! Needs of the policy backend `ebpf`.

use super::Check;
use crate::{AgentMemory, Finding, Observed, Severity, observation::Ebpf};
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
    let mut unseen = Vec::new();
    match &seen.bandwidth {
        Ok(files) if version < KernelVersion::OLDEST_WITH_TCX => {
            findings.extend(files.iter().map(|file| without_tcx(file, &release)));
        }
        Ok(_) => {}
        Err(why) => unseen.push(why.clone()),
    }
    let agents = seen.agents.clone().unwrap_or_else(|why| {
        unseen.push(why);
        Vec::new()
    });
    for agent in agents {
        findings.extend(capabilities(agent.capabilities));
        match agent.memory {
            Ok(memory) => findings.extend(too_little(memory)),
            Err(why) => unseen.push(why),
        }
    }
    // A finding counts more than a part of the check that could not run.
    match unseen.into_iter().next() {
        Some(why) if findings.is_empty() => Err(why),
        _ => Ok(findings),
    }
}

fn capabilities(has: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if has & NET_RAW == 0 {
        findings.push(Check::EbpfBackend.found(
            Severity::Warning,
            "ferrule-agent",
            "the running ferrule-agent lacks CAP_NET_RAW".to_owned(),
            "DNS names in policies then match no address",
            "add NET_RAW to the container's capabilities, as the chart does".to_owned(),
        ));
    }
    let missing = CAPABILITIES.iter().filter(|(_, bits)| has & bits == 0);
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        findings.push(Check::EbpfBackend.found(
            Severity::Fault,
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
    findings
}

fn without_tcx(file: &str, release: &str) -> Finding {
    let oldest = KernelVersion::OLDEST_WITH_TCX;
    Check::EbpfBackend.found(
        Severity::Fault,
        file,
        format!("{file} chains the plugin bandwidth, and the kernel {release} has no TCX"),
        "the queue of a pod with limited egress bandwidth excludes the filters: its policies are not enforced",
        format!(
            "boot a kernel of version {oldest} or newer, or set ENABLE_BANDWIDTH_PLUGIN=false and remove the \
             plugin bandwidth from {file}"
        ),
    )
}

/// The finding for a memory limit that leaves less memory to maps than the setting.
fn too_little(memory: AgentMemory) -> Option<Finding> {
    let AgentMemory { limit, maps, others } = memory;
    let needed = maps.saturating_add(others);
    let limit = limit.filter(|limit| *limit < needed)?;
    let mib = |bytes: u64| bytes / MIB;
    Some(Check::EbpfBackend.found(
        Severity::Warning,
        "ferrule-agent",
        format!(
            "the memory limit of ferrule-agent is {} MiB, and FERRULE_AGENT_MAP_MEMORY is {} MiB",
            mib(limit),
            mib(maps)
        ),
        format!(
            "the agent needs {} MiB besides: only {} MiB are left for maps, and a state that needs more is refused",
            mib(others),
            mib(limit.saturating_sub(others))
        ),
        format!(
            "set nodeAgent.resources.limits.memory in the chart's values to {}Mi or more, or set a smaller \
             FERRULE_AGENT_MAP_MEMORY",
            needed.div_ceil(MIB)
        ),
    ))
}

const MIB: u64 = 1 << 20;
/// For DNS names alone.
const NET_RAW: u64 = 1 << 13;
const SYS_ADMIN: u64 = 1 << 21;
/// Each with the capabilities of which the kernel accepts any.
const CAPABILITIES: [(&str, u64); 3] = [
    ("CAP_BPF", 1 << 39 | SYS_ADMIN),
    ("CAP_NET_ADMIN", 1 << 12),
    ("CAP_PERFMON", 1 << 38 | SYS_ADMIN),
];
