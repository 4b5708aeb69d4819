//! nftables and iptables.

use super::Check;
use crate::{Chain, Finding, Observation, Observed, Severity};

pub(super) fn forward_policy(seen: &Observation) -> Observed<Vec<Finding>> {
    let nft = seen.nft.as_ref().map_err(String::clone)?;
    let legacy = seen.legacy.as_ref().map_err(String::clone)?;
    let mut findings = Vec::new();
    for (chains, is_legacy) in [(nft, false), (legacy, true)] {
        let dropping = chains.iter().filter(|chain| {
            let policy = chain.policy.as_deref().unwrap_or_default();
            chain.hook.as_deref() == Some("forward") && policy.eq_ignore_ascii_case("drop")
        });
        findings.extend(dropping.map(|chain| drops(chain, is_legacy)));
    }
    Ok(findings)
}

fn drops(chain: &Chain, legacy: bool) -> Finding {
    let Chain { family, table, name, .. } = chain;
    let maker = if legacy { " of legacy iptables" } else { "" };
    let fix = match (family.as_str(), legacy, of_iptables(chain)) {
        ("ip6", true, _) => "ip6tables-legacy -P FORWARD ACCEPT".to_owned(),
        (_, true, _) => "iptables-legacy -P FORWARD ACCEPT".to_owned(),
        ("ip6", false, true) => "ip6tables-nft -P FORWARD ACCEPT".to_owned(),
        ("ip", false, true) => "iptables-nft -P FORWARD ACCEPT".to_owned(),
        _ => format!("nft chain {family} {table} {name} '{{ policy accept; }}'"),
    };
    Check::ForwardPolicy.found(
        Severity::Fault,
        format!("{family} {table} {name}"),
        format!("the chain {name} of table {family} {table}{maker} drops all packets without a matching rule"),
        "a pod's packets are forwarded; this chain drops them unless a rule accepts each pod's",
        format!("{fix}, and configure its creator not to set it again (Docker: \"iptables\": false)"),
    )
}

pub(super) fn mixed(seen: &Observation) -> Observed<Vec<Finding>> {
    let legacy = seen.legacy.as_ref().map_err(String::clone)?;
    let nft = seen.nft.as_ref().map_err(String::clone)?;
    let old = rules(legacy.iter());
    let new = rules(nft.iter().filter(|chain| of_iptables(chain)));
    if old == 0 || new == 0 {
        return Ok(Vec::new());
    }
    let finding = Check::IptablesMixed.found(
        Severity::Warning,
        "iptables",
        format!(
            "legacy iptables has {old} rule{}, and iptables over nft has {new}",
            if old == 1 { "" } else { "s" }
        ),
        "a packet passes both, and the listing of one does not show the drops and translations \
         of the other",
        "find who uses which (iptables-legacy-save, iptables-nft-save), let all use the same \
         (update-alternatives --config iptables; images with their own iptables too), and reboot",
    );
    Ok(vec![finding])
}

fn rules<'a>(chains: impl Iterator<Item = &'a Chain>) -> usize {
    chains.map(|chain| chain.rules).sum()
}

/// Returns true if the chain is in a table of `iptables-nft`.
fn of_iptables(chain: &Chain) -> bool {
    let tables = ["filter", "nat", "mangle", "raw", "security"];
    matches!(chain.family.as_str(), "ip" | "ip6") && tables.contains(&chain.table.as_str())
}
