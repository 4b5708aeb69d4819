//! SNAT for dual egress: pods' second addresses are translated to the node's. Each family has one table of nftables,
//! besides the chosen backend, since no chain of iptables handles these addresses.
//!
//! Pods reach each other by the addresses of their own family. Only the node reaches their second addresses, so rules
//! for a pod's own address suffice.

use super::{
    Ports,
    nftables::{Chain, Hook, Listed, Rule, same, table},
};
use crate::{Family, egress::range};
use ipnet::IpNet;
use std::fmt::Write as _;

/// The table, of family `ip` or `ip6`. Its whole content is ours.
pub const TABLE: &str = "ferrule-egress";

/// The observed tables; `None` for a table that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Family `ip`.
    pub v4: Option<Listed>,
    /// Family `ip6`.
    pub v6: Option<Listed>,
}

/// The desired translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The family of the destinations.
    pub family: Family,
    /// The choice of source ports.
    pub ports: Ports,
}

/// The input of `nft -f -` that leads to exactly this translation; `None` if nothing differs.
pub fn plan(desired: Option<Egress>, there: &Tables) -> Option<String> {
    let mut script = String::new();
    for (family, listed) in [(Family::V4, &there.v4), (Family::V6, &there.v6)] {
        let named = format!("{} {TABLE}", word(family));
        match (desired.filter(|desired| desired.family == family), listed) {
            (Some(wanted), listed) => {
                let chains = chains(wanted);
                let is_so = |listed: &Listed| listed.marks.is_none() && same(&chains, listed);
                if !listed.as_ref().is_some_and(is_so) {
                    script += &table(&named, "", &chains);
                }
            }
            (None, Some(_)) => {
                let _ = writeln!(script, "delete table {named}");
            }
            (None, None) => {}
        }
    }
    (!script.is_empty()).then_some(script)
}

/// The family's keyword in `nft`.
pub fn word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn chains(Egress { family, ports }: Egress) -> Vec<Chain> {
    let (ip, range): (&str, IpNet) = (word(family), range(family));
    let multicast = match family {
        Family::V4 => "224.0.0.0/4",
        Family::V6 => "ff00::/8",
    };
    let rule = |text: String, about| Rule { text, about };
    vec![
        Chain {
            name: "to-pods".into(),
            hook: Some(Hook { kind: "filter", at: "forward", priority: FILTER }),
            rules: vec![rule(
                format!("{ip} daddr {range} ct state new reject"),
                "nobody but the node begins",
            )],
        },
        Chain {
            name: "to-outside".into(),
            hook: Some(Hook { kind: "nat", at: "postrouting", priority: SNAT }),
            rules: vec![
                rule(format!("{ip} saddr {range} {ip} daddr {multicast} accept"), "to many"),
                rule(format!("{ip} saddr {range} masquerade{}", ports.flags()), "to outside"),
            ],
        },
    ]
}

/// Priority of `filter` in hook forward.
const FILTER: i32 = 0;
/// Priority of `srcnat` in hook postrouting.
const SNAT: i32 = 100;

#[cfg(test)]
mod tests;
