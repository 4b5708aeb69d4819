//! Every netfilter backend of SNAT and connmark against the real kernel, each case in a new namespace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use config_model::Mark;
use nix::sched::{CloneFlags, unshare};
use routing_netfilter::{Error, Tools};
use routing_netlink::{TableFamily, delete_nft_table, has_nft_table};
use routing_plan::nat::{Backend, NatDesired, Netfilter, Ports, fitting, plan};
use std::{
    io::Write as _,
    process::{Command, Stdio},
};
use tokio::runtime::Runtime;

struct Node {
    runtime: Runtime,
    tools: Tools,
}

impl Node {
    /// Moves the calling thread into a new namespace.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tools = runtime.block_on(Tools::find());
        Self { runtime, tools }
    }

    fn seen(&self) -> Netfilter {
        self.runtime.block_on(self.tools.observe()).unwrap()
    }

    fn settle(&self, desired: Option<&NatDesired>, backend: Backend) -> usize {
        let changes = plan(desired, backend, &self.seen());
        for change in &changes {
            let applied = self.runtime.block_on(self.tools.apply(change));
            applied.unwrap_or_else(|error| panic!("{error}\n{}", change.script));
        }
        assert_eq!(plan(desired, backend, &self.seen()), [], "{backend:?} does not rest");
        changes.len()
    }
}

fn desired() -> NatDesired {
    let net = |text: &str| text.parse().unwrap();
    NatDesired {
        primary_link: "ens5".to_owned(),
        primary_address: "10.0.0.5".parse().unwrap(),
        vpc: [net("10.0.0.0/16"), net("100.64.0.0/16")].into(),
        excluded: [net("172.16.0.0/12"), net("10.0.3.0/24")].into(),
        snat: Some(Ports::Random),
        node_ports: true,
        mark: Mark { value: 0x80, mask: 0x80 },
        veth_prefix: "eni".to_owned(),
    }
}

/// Runs a command in the namespace of the calling thread and returns its standard output.
fn run(command: &str, input: &str) -> String {
    let (program, args) = command.split_once(' ').unwrap_or((command, ""));
    let mut child = Command::new(program)
        .args(args.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns every iptables rule and every nftables table that iptables does not own, as the tools print them.
fn dump() -> Vec<String> {
    let saved = ["iptables-legacy-save", "iptables-nft-save"].map(|command| run(command, ""));
    let lines = saved.iter().flat_map(|text| text.lines());
    let lines = lines.filter(|line| line.starts_with("-A ") || line.starts_with(":AWS"));
    let mut dump: Vec<String> = lines.map(str::to_owned).collect();
    let iptables = ["table ip nat", "table ip mangle", "table ip filter"];
    for table in run("nft list tables", "").lines().filter(|table| !iptables.contains(table)) {
        dump.push(run(&format!("nft -s list {table}"), ""));
    }
    dump
}

/// Adds rules of other programs with all three backends.
fn add_foreign_rules() {
    let rules = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
                 -A KUBE-SERVICES -d 172.20.0.1/32 -p tcp -m tcp --dport 443 -j DNAT \
                 --to-destination 10.0.9.9:443\n-A POSTROUTING -m mark --mark 0x4000/0x4000 \
                 -j MASQUERADE\nCOMMIT\n*mangle\n-A PREROUTING -i eth9 -j MARK --set-xmark 0x1/0x1\nCOMMIT\n";
    run("iptables-legacy-restore --noflush", rules);
    run("iptables-nft-restore --noflush", rules);
    run(
        "nft -f -",
        "add table inet others\nadd chain inet others c { type filter hook input priority 0; }\n",
    );
}

#[test]
fn every_backend_converges_rests_and_removes_all_its_objects() {
    for backend in Backend::ALL {
        let node = Node::new();
        add_foreign_rules();
        let before = dump();
        for (snat, node_ports) in [
            (Some(Ports::Random), true),
            (Some(Ports::Hashed), false),
            (Some(Ports::Kept), true),
            (None, true),
            (None, false),
        ] {
            node.settle(Some(&NatDesired { snat, node_ports, ..desired() }), backend);
        }
        assert_eq!(dump(), before, "{backend:?} leaves its own objects or removes others");
        node.settle(Some(&desired()), backend);
        assert_ne!(dump(), before, "{backend:?} does nothing");
        node.settle(None, backend);
        assert_eq!(dump(), before, "{backend:?} leaves its own objects or removes others");
    }
}

#[test]
fn a_switch_of_backends_leaves_nothing_of_the_old_one() {
    for to in Backend::ALL {
        let node = Node::new();
        add_foreign_rules();
        node.settle(Some(&desired()), to);
        let alone = dump();
        for from in Backend::ALL {
            node.settle(Some(&desired()), from);
            node.settle(Some(&desired()), to);
            assert_eq!(dump(), alone, "from {from:?} to {to:?}");
        }
    }
}

#[test]
fn removed_netfilter_rules_are_restored() {
    let node = Node::new();
    for (backend, harm) in [
        (Backend::IptablesLegacy, "iptables-legacy -t nat -F AWS-SNAT-CHAIN-0"),
        (Backend::IptablesLegacy, "iptables-legacy -t mangle -F"),
        (Backend::IptablesLegacy, "iptables-legacy -t nat -F"),
        (Backend::IptablesNft, "iptables-nft -t nat -F POSTROUTING"),
        (Backend::IptablesNft, "iptables-nft -t mangle -D PREROUTING 1"),
        (Backend::Nftables, "nft flush chain ip ferrule kept"),
        (Backend::Nftables, "nft delete table ip ferrule"),
        (Backend::Nftables, "nft flush ruleset"),
    ] {
        node.settle(Some(&desired()), backend);
        let right = dump();
        run(harm, "");
        assert_ne!(dump(), right, "{harm} does nothing");
        assert!(node.settle(Some(&desired()), backend) > 0);
        assert_eq!(dump(), right, "after {harm}");
    }
}

#[test]
fn the_nftables_table_of_amazon_vpc_cni_is_removed() {
    let node = Node::new();
    run("nft -f -", "add table ip aws-cni\nadd chain ip aws-cni snat-mark\n");
    assert!(node.seen().nftables.unwrap().predecessor);
    node.settle(Some(&desired()), Backend::Nftables);
    assert!(!run("nft list tables", "").contains("aws-cni"));
}

#[test]
fn the_backend_is_what_the_node_uses() {
    let node = Node::new();
    assert_eq!(fitting(&node.seen()), Some(Backend::Nftables));
    run("iptables-nft -t nat -A POSTROUTING -j ACCEPT", "");
    assert_eq!(fitting(&node.seen()), Some(Backend::Nftables));
    run("iptables-legacy -t nat -A POSTROUTING -j ACCEPT", "");
    assert_eq!(fitting(&node.seen()), Some(Backend::IptablesLegacy));
}

/// A node may lack `nft`, so these functions use netlink.
#[test]
fn a_table_is_deleted_with_its_contents_and_no_other_table_is() {
    Node::new();
    let tables = || run("nft list tables", "");
    for family in [TableFamily::Ip, TableFamily::Ip6, TableFamily::Inet] {
        assert!(!has_nft_table(family, "ferrule-egress").unwrap());
        assert!(!delete_nft_table(family, "ferrule-egress").unwrap());
    }
    let full = |family: &str, name: &str| {
        format!(
            "table {family} {name} {{ set pods {{ type inet_proto; elements = {{ 6, 17 }}; }}; chain out {{ type \
             filter hook output priority 0; meta l4proto @pods counter jump on; }}; chain on {{ }}; }}\n"
        )
    };
    let ours = full("ip6", "ferrule-egress");
    let others =
        [full("ip", "other"), full("ip6", "ferrule-egress-2"), full("inet", "ferrule-egress")];
    run("nft -f -", &(ours + &others.concat()));
    assert!(has_nft_table(TableFamily::Ip6, "ferrule-egress").unwrap());
    assert!(
        !has_nft_table(TableFamily::Ip, "ferrule-egress").unwrap(),
        "the table has another family"
    );
    assert!(!has_nft_table(TableFamily::Ip6, "ferrule").unwrap(), "the name is only a prefix");
    assert!(!delete_nft_table(TableFamily::Ip, "ferrule-egress").unwrap());
    assert!(delete_nft_table(TableFamily::Ip6, "ferrule-egress").unwrap());
    assert!(
        !delete_nft_table(TableFamily::Ip6, "ferrule-egress").unwrap(),
        "the table was deleted before"
    );
    assert!(!has_nft_table(TableFamily::Ip6, "ferrule-egress").unwrap());
    let left: Vec<_> = tables().lines().map(str::to_owned).collect();
    assert_eq!(left, ["table ip other", "table ip6 ferrule-egress-2", "table inet ferrule-egress"]);
    assert!(has_nft_table(TableFamily::Inet, "ferrule-egress").unwrap());
    assert!(delete_nft_table(TableFamily::Inet, "ferrule-egress").unwrap());
    assert_eq!(tables(), "table ip other\ntable ip6 ferrule-egress-2\n");
}

#[test]
fn a_refused_transaction_changes_nothing_and_reports_the_reason() {
    let node = Node::new();
    for (backend, script) in [
        (Backend::IptablesLegacy, "*nat\n-A POSTROUTING -j ACCEPT\n-A NOWHERE -j ACCEPT\nCOMMIT\n"),
        (Backend::IptablesNft, "*nat\n-A POSTROUTING -j ACCEPT\n-A NOWHERE -j ACCEPT\nCOMMIT\n"),
        (Backend::Nftables, "add table ip ferrule\ndelete table ip nowhere\n"),
    ] {
        let change = routing_plan::nat::Change { backend, script: script.to_owned() };
        let error = node.runtime.block_on(node.tools.apply(&change)).unwrap_err();
        assert!(matches!(error, Error::Failed(_)), "{error}");
        assert!(error.to_string().contains("exit status"), "{error}");
    }
    let left: Vec<String> = dump()
        .into_iter()
        .filter(|line| line.contains("-A ") || line.contains("ferrule"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}
