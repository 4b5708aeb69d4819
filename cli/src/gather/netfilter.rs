//! Chains of nftables and of legacy iptables, as their own programs list them.

use super::chain;
use cli_doctor::{Chain, Observed};
use serde::Deserialize;
use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

/// Returns the chains of nftables, including the tables of iptables-nft.
pub(super) fn nft() -> Observed<Vec<Chain>> {
    match output("nft", &["--json", "list", "ruleset"])? {
        Some(text) => of_nft(&text),
        None => Err("cannot list chains: nft is not installed; install nftables".to_owned()),
    }
}

/// Returns the chains of legacy iptables. A query would make the kernel load the module, so tables that are not loaded
/// are not queried.
pub(super) fn legacy(proc: &Path) -> Observed<Vec<Chain>> {
    if !proc.join("net").exists() {
        return Err(format!(
            "cannot check for legacy iptables: {}/net does not exist; mount procfs",
            proc.display()
        ));
    }
    let mut chains = Vec::new();
    for (names, family, program) in [
        ("net/ip_tables_names", "ip", "iptables-legacy-save"),
        ("net/ip6_tables_names", "ip6", "ip6tables-legacy-save"),
    ] {
        let path = proc.join(names);
        let tables = match fs::read_to_string(&path) {
            Ok(tables) => tables,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(chain(&format!("cannot read {}", path.display()), &err)),
        };
        if tables.trim().is_empty() {
            continue;
        }
        let missing = || {
            format!(
                "cannot list legacy tables ({}): {program} is not installed; install iptables",
                tables.split_whitespace().collect::<Vec<_>>().join(", ")
            )
        };
        let text = output(program, &[])?.ok_or_else(missing)?;
        chains.extend(of_save(&text, family));
    }
    Ok(chains)
}

/// Returns the program's output; `None` if the program does not exist.
fn output(program: &str, args: &[&str]) -> Observed<Option<String>> {
    let run = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = match run {
        Ok(output) => output,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(chain(&format!("cannot run {program}"), &err)),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed: {}", said.trim()));
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Parses `nft --json list ruleset`.
fn of_nft(text: &str) -> Observed<Vec<Chain>> {
    let listed: Listed =
        serde_json::from_str(text).map_err(|err| chain("cannot parse the output of nft", &err))?;
    let mut chains: Vec<Chain> = Vec::new();
    for item in &listed.nftables {
        if let Some(found) = &item.chain {
            chains.push(Chain {
                family: found.family.clone(),
                table: found.table.clone(),
                name: found.name.clone(),
                hook: found.hook.clone(),
                policy: found.policy.clone(),
                rules: 0,
            });
        }
    }
    for rule in listed.nftables.iter().filter_map(|item| item.rule.as_ref()) {
        let of_rule = |chain: &&mut Chain| {
            (&chain.family, &chain.table, &chain.name) == (&rule.family, &rule.table, &rule.chain)
        };
        if let Some(chain) = chains.iter_mut().find(of_rule) {
            chain.rules += 1;
        }
    }
    Ok(chains)
}

/// Parses `iptables-legacy-save`.
fn of_save(text: &str, family: &str) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_whitespace();
            let (Some(name), policy) = (words.next(), words.next()) else { continue };
            let policy = policy.filter(|policy| *policy != "-");
            chains.push(Chain {
                family: family.to_owned(),
                table: table.to_owned(),
                name: name.to_owned(),
                hook: policy.map(|_| name.to_lowercase()),
                policy: policy.map(str::to_lowercase),
                rules: 0,
            });
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let name = rule.split_whitespace().next().unwrap_or_default();
            let of_rule = |chain: &&mut Chain| chain.table == table && chain.name == name;
            if let Some(chain) = chains.iter_mut().find(of_rule) {
                chain.rules += 1;
            }
        }
    }
    chains
}

#[derive(Deserialize)]
struct Listed {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    chain: Option<NftChain>,
    rule: Option<NftRule>,
}

#[derive(Deserialize)]
struct NftChain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

#[derive(Deserialize)]
struct NftRule {
    family: String,
    table: String,
    chain: String,
}

#[cfg(test)]
mod tests;
