//! nftables and iptables.

use super::Check;
use crate::{Chain, Finding, Looked, Observation, Severity};

pub(super) fn forward_policy(seen: &Observation) -> Looked<Vec<Finding>> {
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
    let mend = match (family.as_str(), legacy, of_iptables(chain)) {
        ("ip6", true, _) => "ip6tables-legacy -P FORWARD ACCEPT".to_owned(),
        (_, true, _) => "iptables-legacy -P FORWARD ACCEPT".to_owned(),
        ("ip6", false, true) => "ip6tables-nft -P FORWARD ACCEPT".to_owned(),
        ("ip", false, true) => "iptables-nft -P FORWARD ACCEPT".to_owned(),
        _ => format!("nft chain {family} {table} {name} '{{ policy accept; }}'"),
    };
    Check::ForwardPolicy.found(
        Severity::Fault,
        format!("{family} {table} {name}"),
        format!("the chain {name} of table {family} {table}{maker} drops what no rule took"),
        "a pod's packets are forwarded; they end here unless each pod has a rule that accepts them",
        format!("{mend}, and keep whoever sets it from doing so (Docker: \"iptables\": false)"),
    )
}

pub(super) fn mixed(seen: &Observation) -> Looked<Vec<Finding>> {
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
        format!("legacy iptables has {old} rules, and iptables over nft has {new}"),
        "a packet goes through both, and who looks at one does not see what the other drops or \
         translates",
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
