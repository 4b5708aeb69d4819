//! How pods leave the node by their addresses of the other family: with the node's own. One table of
//! nftables for each family, beside whatever backend says the rest, since none of iptables' chains is
//! about these addresses.
//!
//! Pods know each other by the addresses of their own family. By these nobody but the node reaches
//! them, so that what holds for a pod's address, holds for the pod.

use super::{
    Ports,
    nftables::{Chain, Hook, Listed, Rule, same, table},
};
use crate::{Family, egress::range};
use ipnet::IpNet;
use std::fmt::Write as _;

/// The table of family `ip` or `ip6`. All of it is ours.
pub const TABLE: &str = "ferrule-egress";

/// The tables as they are, if they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Of family `ip`.
    pub v4: Option<Listed>,
    /// Of family `ip6`.
    pub v6: Option<Listed>,
}

/// What is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The family of the destinations.
    pub family: Family,
    /// How a connection gets its source port.
    pub ports: Ports,
}

/// What has to be fed to `nft -f -` so that this is translated and nothing else; `None` if it is so.
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

/// As `nft` calls the family.
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

/// Where packets are filtered that pass through.
const FILTER: i32 = 0;
/// Where sources are translated.
const SNAT: i32 = 100;

#[cfg(test)]
mod tests;
