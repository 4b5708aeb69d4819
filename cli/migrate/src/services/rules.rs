//! The rules of kube-proxy on a node, and the changes that remove them.
//!
//! Connections that netfilter translates keep their translation in the kernel's table of connections. But it works only
//! while a chain of the kind `nat` exists, and a chain of kube-proxy accepts their packets where the node drops others. So
//! the rules stay until no connection uses them.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// The rules and connections of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// True if a process of kube-proxy runs on the node. It would write the rules again.
    pub is_proxy_running: bool,
    pub saved: Vec<Saved>,
    pub tables: Vec<ProxyTable>,
    /// Needed only if the node has rules of kube-proxy.
    pub flows: Vec<Flow>,
}

/// The output of a program such as `iptables-nft-save`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Such as `iptables-nft`.
    pub variant: String,
    /// The rules by table and chain, without `-A` and the name of the chain.
    pub tables: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The table `kube-proxy` of nftables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyTable {
    /// `ip` or `ip6`.
    pub family: String,
    pub frontends: BTreeSet<Frontend>,
}

/// An address and port that kube-proxy translates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// `None` for a node port.
    pub address: Option<IpAddr>,
    /// Number of the protocol over IP.
    pub protocol: u8,
    pub port: u16,
}

/// The destination of a connection whose packets the kernel sends to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub protocol: u8,
    pub address: IpAddr,
    pub port: u16,
}

/// A transaction of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The input of `VARIANT-restore --noflush`.
    Restore { variant: String, script: String },
    /// Deletes a table of nftables.
    DeleteTable { family: String },
}

/// The reason for which rules stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    KubeProxyRuns,
    /// A rule of another program uses a chain of kube-proxy.
    Foreign {
        rule: String,
    },
    /// The number of connections that use the rules, and one of them.
    Flows {
        count: usize,
        first: Flow,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// `None` if no rule stays after the actions.
    pub kept: Option<Kept>,
}

impl Plan {
    /// Returns true if the node has no rule of kube-proxy.
    pub fn is_clean(&self) -> bool {
        self.actions.is_empty() && self.kept.is_none()
    }
}

impl NodeRules {
    /// Returns true if the node has a rule of kube-proxy.
    pub fn has_rules(&self) -> bool {
        !removal(self).is_empty()
    }
}

/// Plans the removal of all rules of kube-proxy, or names the reason why they stay.
pub fn plan(seen: &NodeRules) -> Plan {
    let actions = removal(seen);
    if actions.is_empty() {
        return Plan::default();
    }
    match kept(seen) {
        Some(kept) => Plan { actions: Vec::new(), kept: Some(kept) },
        None => Plan { actions, kept: None },
    }
}

/// Returns the transactions that remove all rules of kube-proxy.
fn removal(seen: &NodeRules) -> Vec<Action> {
    let restores = seen.saved.iter().filter_map(|saved| {
        let script = script(saved);
        let variant = saved.variant.clone();
        (!script.is_empty()).then_some(Action::Restore { variant, script })
    });
    let deletes =
        seen.tables.iter().map(|table| Action::DeleteTable { family: table.family.clone() });
    restores.chain(deletes).collect()
}

fn kept(seen: &NodeRules) -> Option<Kept> {
    if seen.is_proxy_running {
        return Some(Kept::KubeProxyRuns);
    }
    if let Some(rule) = seen.saved.iter().find_map(foreign) {
        return Some(Kept::Foreign { rule });
    }
    let mut frontends: BTreeSet<Frontend> = seen.saved.iter().flat_map(frontends).collect();
    frontends.extend(seen.tables.iter().flat_map(|table| table.frontends.iter().cloned()));
    let uses = |flow: &&Flow| {
        let Flow { protocol, address, port } = **flow;
        let of = |address| frontends.contains(&Frontend { address, protocol, port });
        of(Some(address)) || of(None)
    };
    let mut flows = seen.flows.iter().filter(uses);
    let first = *flows.next()?;
    Some(Kept::Flows { count: flows.count() + 1, first })
}

/// Returns a rule outside the kernel's own chains that uses a chain of kube-proxy.
fn foreign(saved: &Saved) -> Option<String> {
    let chains = saved
        .tables
        .iter()
        .flat_map(|(table, chains)| chains.iter().map(move |(chain, rules)| (table, chain, rules)));
    let mut others = chains.filter(|(_, chain, _)| !is_of_proxy(chain) && !is_of_kernel(chain));
    others.find_map(|(table, chain, rules)| {
        let rule = rules.iter().find(|rule| jumps_to_proxy(rule))?;
        Some(format!("{} -t {table} -A {chain} {rule}", saved.variant))
    })
}

/// Returns the input of `iptables-restore --noflush` that removes the chains; empty without such chains.
fn script(saved: &Saved) -> String {
    let mut script = String::new();
    for (table, chains) in &saved.tables {
        let names: Vec<&String> = chains.keys().filter(|name| is_of_proxy(name)).collect();
        if names.is_empty() {
            continue;
        }
        let mut lines = vec![format!("*{table}")];
        // The declaration of an existing chain removes its rules.
        lines.extend(names.iter().map(|name| format!(":{name} - [0:0]")));
        for (chain, rules) in chains.iter().filter(|(chain, _)| is_of_kernel(chain)) {
            let jumps = rules.iter().filter(|rule| jumps_to_proxy(rule));
            lines.extend(jumps.map(|rule| format!("-D {chain} {rule}")));
        }
        lines.extend(names.iter().map(|name| format!("-X {name}")));
        lines.push("COMMIT\n".to_owned());
        script += &lines.join("\n");
    }
    script
}

/// Returns the addresses and ports that the rules translate.
fn frontends(saved: &Saved) -> BTreeSet<Frontend> {
    let mut found = BTreeSet::new();
    let Some(nat) = saved.tables.get("nat") else { return found };
    for chain in ["KUBE-SERVICES", NODE_PORTS] {
        for rule in nat.get(chain).into_iter().flatten() {
            found.extend(frontend(chain, &words(rule)));
        }
    }
    found
}

fn frontend(chain: &str, words: &[String]) -> Option<Frontend> {
    let after = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(String::as_str)
    };
    let target = after("-j")?;
    let prefixes = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-"];
    if !prefixes.iter().any(|prefix| target.starts_with(prefix)) {
        return None;
    }
    let address = match chain {
        NODE_PORTS => None,
        _ => Some(after("-d")?.split('/').next()?.parse().ok()?),
    };
    let (protocol, port) = (protocol(after("-p")?)?, after("--dport")?.parse().ok()?);
    Some(Frontend { address, protocol, port })
}

/// Returns the addresses and ports in the output of `nft -j list map` of a map from them to chains.
///
/// # Errors
/// An element that cannot be read.
pub fn elements(document: &Value) -> Result<BTreeSet<Frontend>, String> {
    let mut found = BTreeSet::new();
    for item in document["nftables"].as_array().into_iter().flatten() {
        for element in item["map"]["elem"].as_array().into_iter().flatten() {
            // With a comment or a counter the key is one level deeper.
            let plain = &element[0];
            let key = if plain["elem"].is_object() { &plain["elem"]["val"] } else { plain };
            let odd = || format!("cannot read the element {element} of nft");
            found.insert(of_key(&key["concat"]).ok_or_else(odd)?);
        }
    }
    Ok(found)
}

fn of_key(parts: &Value) -> Option<Frontend> {
    let (address, rest) = match parts.as_array()?.as_slice() {
        [address, rest @ ..] if rest.len() == 2 => (Some(address.as_str()?.parse().ok()?), rest),
        rest => (None, rest),
    };
    let [name, port] = rest else { return None };
    let protocol = protocol(name.as_str()?)?;
    Some(Frontend { address, protocol, port: u16::try_from(port.as_u64()?).ok()? })
}

/// Returns the number of a protocol by its name in rules.
fn protocol(name: &str) -> Option<u8> {
    match name {
        "tcp" => Some(6),
        "udp" => Some(17),
        "sctp" => Some(132),
        _ => None,
    }
}

fn jumps_to_proxy(rule: &str) -> bool {
    let words = words(rule);
    let mut pairs = words.iter().zip(words.iter().skip(1));
    pairs.any(|(flag, target)| ["-j", "-g"].contains(&flag.as_str()) && is_of_proxy(target))
}

/// Returns true for a chain that kube-proxy creates and removes. The chains `KUBE-FIREWALL` and `KUBE-KUBELET-CANARY`
/// belong to the kubelet.
fn is_of_proxy(chain: &str) -> bool {
    let prefixes = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];
    PROXY_CHAINS.contains(&chain) || prefixes.iter().any(|prefix| chain.starts_with(prefix))
}

fn is_of_kernel(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// Splits a rule as `iptables-save` prints it. A comment with spaces is in quotation marks.
fn words(rule: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for letter in rule.chars() {
        match letter {
            _ if is_escaped => {
                word.get_or_insert_default().push(letter);
                is_escaped = false;
            }
            '\\' if is_quoted => is_escaped = true,
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, address, port } = self;
        match protocol {
            6 => write!(f, "TCP to {address} port {port}"),
            17 => write!(f, "UDP to {address} port {port}"),
            132 => write!(f, "SCTP to {address} port {port}"),
            _ => write!(f, "protocol {protocol} to {address} port {port}"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeProxyRuns => f.write_str("kube-proxy runs on this node"),
            Self::Foreign { rule } => {
                write!(f, "the rule `{rule}` of another program uses a chain of kube-proxy")
            }
            Self::Flows { count: 1, first } => write!(f, "1 connection uses them: {first}"),
            Self::Flows { count, first } => {
                write!(f, "{count} connections use them, such as {first}")
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restore { variant, script } => {
                let chains = script.lines().filter(|line| line.starts_with("-X ")).count();
                write!(f, "remove {chains} chains of kube-proxy from {variant}")
            }
            Self::DeleteTable { family } => write!(f, "delete the nftables table {family} {TABLE}"),
        }
    }
}

/// The table of kube-proxy in the mode nftables.
pub const TABLE: &str = "kube-proxy";
/// The maps of [`TABLE`] whose keys are frontends.
pub const MAPS: [&str; 2] = ["service-ips", "service-nodeports"];
const NODE_PORTS: &str = "KUBE-NODEPORTS";
const PROXY_CHAINS: [&str; 8] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    NODE_PORTS,
    "KUBE-POSTROUTING",
    "KUBE-MARK-MASQ",
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
    "KUBE-PROXY-CANARY",
];
