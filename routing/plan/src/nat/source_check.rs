//! The check of pods' source addresses. A packet from a host veth passes only if the host's route to its source leads
//! to that veth. The planner gives each pod that route before the pod can send.
//!
//! Strict pods with branch ENIs have veths of another prefix. EC2 checks the sources of their packets, which all leave
//! by the branch.

use super::nftables::{Chain, Hook, Listed, Rule, same, table};

/// The table, of family `inet`. Its whole content is ours.
pub const TABLE: &str = "ferrule-source-check";

/// The input of `nft -f -` that leads to the check of veths with this prefix; `None` if the table is as desired. Without
/// a prefix the table is removed.
pub fn plan(veth_prefix: Option<&str>, there: Option<&Listed>) -> Option<String> {
    let Some(prefix) = veth_prefix else {
        return there.map(|_| format!("delete table inet {TABLE}\n"));
    };
    let chains = [chain(prefix)];
    let is_so = |listed: &Listed| listed.marks.is_none() && same(&chains, listed);
    (!there.is_some_and(is_so)).then(|| table(&format!("inet {TABLE}"), "", &chains))
}

fn chain(veth_prefix: &str) -> Chain {
    Chain {
        name: "from-pods".into(),
        hook: Some(Hook { kind: "filter", at: "prerouting", priority: RAW }),
        rules: vec![Rule {
            text: format!("iifname \"{veth_prefix}*\" fib saddr . iif oif missing counter drop"),
            about: "not the pod's address",
        }],
    }
}

/// Priority of `raw`, before connection tracking.
const RAW: i32 = -300;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::{super::nftables::parse, *};

    fn listed(prefix: &str) -> Listed {
        let comment = chain(prefix).rules[0].comment();
        let text = format!(
            r#"{{"nftables": [{{"chain": {{"name": "from-pods", "type": "filter",
                "hook": "prerouting", "prio": -300, "policy": "accept"}}}},
                {{"rule": {{"chain": "from-pods", "comment": "{comment}", "expr": []}}}}]}}"#
        );
        parse(&text).unwrap()
    }

    #[test]
    fn the_table_is_added_whole_rests_and_is_deleted_whole() {
        let script = plan(Some("eni"), None).unwrap();
        assert!(script.contains("table inet ferrule-source-check {"), "{script}");
        assert!(script.contains("iifname \"eni*\" fib saddr . iif oif missing"), "{script}");
        assert_eq!(plan(Some("eni"), Some(&listed("eni"))), None);
        let removal = plan(None, Some(&listed("eni")));
        assert_eq!(removal.unwrap(), "delete table inet ferrule-source-check\n");
        assert_eq!(plan(None, None), None);
    }

    #[test]
    fn any_difference_replaces_the_whole_table() {
        let whole = plan(Some("eni"), None);
        assert_eq!(plan(Some("eni"), Some(&listed("pod"))), whole);
        let spoils: [fn(&mut Listed); 3] = [
            |there| drop(there.chains.remove("from-pods")),
            |there| there.chains.get_mut("from-pods").unwrap().rules.push(None),
            |there| there.chains.get_mut("from-pods").unwrap().policy = Some("drop".to_owned()),
        ];
        for spoil in spoils {
            let mut there = listed("eni");
            spoil(&mut there);
            assert_eq!(plan(Some("eni"), Some(&there)), whole);
        }
    }
}
