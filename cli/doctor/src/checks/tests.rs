//! Each check on a good node, and on a node with exactly one problem.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Check, examine};
use crate::{
    AgentMemory, Chain, Ebpf, EbpfAgent, Feature, Finding, LinkFile, LinkView, Metadata,
    Observation, RouteView, Routing, RuleView, Severity, Unit,
};
use config_model::{Mac, TableId};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Returns a good node with two ENIs and a pod on the second.
fn good() -> Observation {
    let routing = Routing {
        links: vec![
            link(1, "lo", 0),
            link(2, "eth0", 2),
            link(3, "eth1", 3),
            veth(4, "eni0a", 9001),
        ],
        rules: vec![
            rule(0, None, None, 255),
            rule(512, None, Some("10.0.0.57/32"), 254),
            rule(1536, Some("10.0.0.57/32"), None, 2),
            rule(32_765, Some("10.0.0.11/32"), None, 2),
            rule(32_766, None, None, 254),
        ],
        routes: vec![
            route(254, "0.0.0.0/0", Some("10.0.0.1"), 2),
            route(254, "10.0.0.0/24", None, 2),
            route(254, "10.0.0.57/32", None, 4),
            route(2, "10.0.0.1/32", None, 3),
            route(2, "0.0.0.0/0", Some("10.0.0.1"), 3),
        ],
    };
    let sysctls = [
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/eth0/rp_filter", "2"),
        ("net/ipv4/conf/eth1/rp_filter", "0"),
        ("net/ipv6/conf/all/forwarding", "0"),
        ("net/netfilter/nf_conntrack_count", "100"),
        ("net/netfilter/nf_conntrack_max", "262144"),
    ];
    let features = super::kernel::NEEDED.map(|(name, ..)| (name.to_owned(), Feature::Present));
    Observation {
        routing: Ok(routing),
        sysctls: sysctls.map(|(name, value)| (name.to_owned(), Ok(value.to_owned()))).into(),
        sysctl_files: Vec::new(),
        units: vec![unit("sshd.service")],
        udev_rules: Vec::new(),
        link_files: Vec::new(),
        networkd_keeps: (false, false),
        unmanaged: Vec::new(),
        nft: Ok(vec![chain("ip", "filter", "FORWARD", "accept", 1)]),
        legacy: Ok(Vec::new()),
        imds: Ok(Metadata {
            primary: Some(mac(2)),
            enis: vec![mac(2), mac(3)],
            reaches_pods: Some(true),
        }),
        eni_mtu: 9001,
        features: BTreeMap::from(features),
        veth_prefix: "eni".to_owned(),
        ebpf: Some(Ebpf {
            release: Ok("6.1.0-18-amd64".to_owned()),
            pins: "/sys/fs/bpf/ferrule/maps".to_owned(),
            has_bpffs: Ok(true),
            agents: Ok(vec![agent(0xc0_0000_3000)]),
            bandwidth: Ok(Vec::new()),
        }),
    }
}

#[test]
fn a_good_node_passes_every_check() {
    let report = examine(&good());
    assert_eq!(report.findings, []);
    assert_eq!(report.unseen, []);
    assert_eq!(report.good, Check::ALL);
    assert!(!report.needs_fix());
}

#[test]
fn a_strict_filter_is_a_fault_on_the_primary_eni_and_all_makes_others_strict() {
    let found = only(|node| set(node, "net/ipv4/conf/eth0/rp_filter", "1"));
    assert_eq!((found.check, found.severity), (Check::RpFilter, Severity::Fault));
    assert!(found.fix.starts_with("sysctl -w net.ipv4.conf.eth0.rp_filter=2, and write"));
    // The greater value counts: eth0 has 2 and stays loose, eth1 has 0 and becomes strict.
    let found = only(|node| set(node, "net/ipv4/conf/all/rp_filter", "1"));
    assert_eq!((found.object.as_str(), found.severity), ("eth1", Severity::Warning));
}

#[test]
fn the_file_that_sets_a_filter_at_boot_is_named() {
    let found = only(|node| {
        set(node, "net/ipv4/conf/eth0/rp_filter", "1");
        node.sysctl_files = vec![(
            "net/ipv4/conf/default/rp_filter".to_owned(),
            "1".to_owned(),
            "/usr/lib/sysctl.d/50-default.conf".to_owned(),
        )];
    });
    assert!(found.fix.contains("change /usr/lib/sysctl.d/50-default.conf"), "{}", found.fix);
}

#[test]
fn a_node_that_does_not_forward_is_found_and_ipv6_counts_where_pods_have_it() {
    let found = only(|node| set(node, "net/ipv4/ip_forward", "0"));
    assert_eq!((found.check, found.severity), (Check::Forwarding, Severity::Fault));
    let found = only(|node| {
        let mut pod = rule(512, None, Some("2600::57/128"), 254);
        pod.v6 = true;
        routing(node).rules.push(pod);
        routing(node).routes.push(route(254, "2600::57/128", None, 4));
    });
    assert_eq!(found.object, "net.ipv6.conf.all.forwarding");
}

#[test]
fn other_policy_routers_are_found_when_they_run_start_or_are_started_by_udev() {
    for name in ["nm-cloud-setup.timer", "policy-routes@eth1.service", "ec2net-ifup@eth1.service"] {
        let found = only(|node| node.units.push(unit(name)));
        assert_eq!((found.check, found.object.as_str()), (Check::ForeignDaemons, name));
    }
    let asleep = Unit { enabled: false, active: false, ..unit("nm-cloud-setup.service") };
    assert!(!found_with(|node| node.units.push(asleep)));
    let path = "/usr/lib/udev/rules.d/99-vpc-policy-routes.rules";
    let found = only(|node| node.udev_rules.push(path.to_owned()));
    assert!(found.fix.contains("/etc/udev/rules.d/99-vpc-policy-routes.rules"));
}

#[test]
fn the_tables_of_nm_cloud_setup_are_found_by_rule_and_by_route() {
    let found =
        only(|node| routing(node).rules.push(rule(30_400, Some("10.0.0.57/32"), None, 30_400)));
    assert_eq!((found.check, found.object.as_str()), (Check::ForeignTables, "table 30400"));
    let found =
        only(|node| routing(node).routes.push(route(30_200, "0.0.0.0/0", Some("10.0.0.1"), 3)));
    assert_eq!(found.object, "table 30200");
}

#[test]
fn a_rule_that_takes_pods_packets_first_is_found_and_one_that_does_not_is_left() {
    let found = only(|node| routing(node).rules.push(rule(100, Some("10.0.0.0/16"), None, 77)));
    assert_eq!((found.check, found.severity), (Check::ForeignRules, Severity::Warning));
    let found = only(|node| routing(node).rules.push(rule(100, None, None, 77)));
    assert_eq!(found.check, Check::ForeignRules);
    let elsewhere = rule(100, Some("192.168.0.0/16"), None, 77);
    assert!(!found_with(|node| routing(node).rules.push(elsewhere)));
    let behind = rule(5210, None, None, 77);
    assert!(!found_with(|node| routing(node).rules.push(behind)));
    let local = rule(100, None, None, 255);
    assert!(!found_with(|node| routing(node).rules.push(local)));
    let narrow = RuleView { narrow: true, ..rule(100, None, None, 77) };
    assert!(!found_with(|node| routing(node).rules.push(narrow)));
}

#[test]
fn network_managers_are_found_unless_their_configuration_excludes_pods_links() {
    let networkd = || unit("systemd-networkd.service");
    let found = only(|node| node.units.push(networkd()));
    assert_eq!(found.check, Check::NetworkManagers);
    assert!(found.wrong.contains("ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no"));
    assert!(!found_with(|node| {
        node.units.push(networkd());
        node.networkd_keeps = (true, true);
    }));
    let manager = || unit("NetworkManager.service");
    let found = only(|node| node.units.push(manager()));
    assert!(found.fix.contains("unmanaged-devices=interface-name:eni*"));
    assert!(!found_with(|node| {
        node.units.push(manager());
        node.unmanaged = vec!["interface-name:eni*".to_owned()];
    }));
    assert_eq!(only(|node| node.units.push(unit("firewalld.service"))).object, "firewalld.service");
}

#[test]
fn routes_over_a_secondary_eni_in_table_main_are_found_with_their_creator() {
    let found = only(|node| {
        let dhcp =
            RouteView { protocol: 16, metric: 512, ..route(254, "0.0.0.0/0", Some("10.0.0.1"), 3) };
        routing(node).routes.push(dhcp);
    });
    assert_eq!((found.check, found.severity), (Check::MainRoutes, Severity::Fault));
    assert!(found.wrong.contains("created by a DHCP client"), "{}", found.wrong);
    let found = only(|node| routing(node).routes.push(route(254, "10.0.0.0/24", None, 3)));
    assert_eq!((found.object.as_str(), found.severity), ("eth1", Severity::Warning));
    assert!(!found_with(|node| routing(node).routes.push(route(254, "fe80::/64", None, 3))));
}

#[test]
fn without_metadata_enis_are_hardware_and_what_a_default_leads_over() {
    let mut node = good();
    node.imds = Err("no route".to_owned());
    routing(&mut node).routes.push(route(254, "0.0.0.0/0", Some("10.0.0.1"), 3));
    let report = examine(&node);
    let checks: Vec<Check> = report.findings.iter().map(|found| found.check).collect();
    assert_eq!(checks, [Check::MainRoutes, Check::Imds]);
}

#[test]
fn the_mac_policy_is_that_of_the_first_file_that_matches() {
    let file = |path: &str, matches_veth, policy: &str| LinkFile {
        path: path.to_owned(),
        matches_veth,
        mac_policy: Some(policy.to_owned()),
    };
    let default = || file("/usr/lib/systemd/network/99-default.link", true, "persistent");
    let found = only(|node| node.link_files = vec![file("a", false, "none"), default()]);
    assert_eq!((found.check, found.severity), (Check::UdevMac, Severity::Notice));
    assert!(!found_with(|node| node.link_files = vec![file("a", true, "none"), default()]));
    // A notice needs no fix.
    let mut node = good();
    node.link_files = vec![default()];
    assert!(!examine(&node).needs_fix());
}

#[test]
fn a_forward_chain_that_drops_is_found_wherever_it_is_made() {
    let found = only(|node| node.nft = Ok(vec![chain("inet", "fw", "fwd", "drop", 3)]));
    assert_eq!((found.check, found.severity), (Check::ForwardPolicy, Severity::Fault));
    assert!(found.fix.starts_with("nft chain inet fw fwd '{ policy accept; }'"));
    let found = only(|node| node.nft = Ok(vec![chain("ip", "filter", "FORWARD", "drop", 0)]));
    assert!(found.fix.starts_with("iptables-nft -P FORWARD ACCEPT"));
    let found = only(|node| {
        node.nft = Ok(Vec::new());
        node.legacy = Ok(vec![chain("ip6", "filter", "FORWARD", "drop", 1)]);
    });
    assert!(found.fix.starts_with("ip6tables-legacy -P FORWARD ACCEPT"));
    let input =
        Chain { hook: Some("input".to_owned()), ..chain("ip", "filter", "INPUT", "drop", 1) };
    assert!(!found_with(|node| node.nft = Ok(vec![input])));
}

#[test]
fn legacy_and_nft_are_mixed_only_where_both_have_rules() {
    let found = only(|node| node.legacy = Ok(vec![chain("ip", "nat", "FORWARD", "accept", 2)]));
    assert_eq!(found.check, Check::IptablesMixed);
    assert!(!found_with(|node| node.legacy = Ok(vec![chain("ip", "nat", "FORWARD", "accept", 0)])));
    assert!(!found_with(|node| {
        node.legacy = Ok(vec![chain("ip", "nat", "FORWARD", "accept", 2)]);
        node.nft = Ok(vec![chain("ip", "kube-proxy", "FORWARD", "accept", 9)]);
    }));
}

#[test]
fn a_silent_metadata_service_is_a_fault_and_a_near_one_a_notice() {
    let mut node = good();
    node.imds = Err("PUT http://169.254.169.254: no answer within 2 s".to_owned());
    let report = examine(&node);
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert_eq!(report.findings[0].severity, Severity::Fault);
    let reach = |node: &mut Observation, far| node.imds.as_mut().unwrap().reaches_pods = far;
    let found = only(|node| reach(node, Some(false)));
    assert_eq!((found.check, found.severity), (Check::Imds, Severity::Notice));
    let mut node = good();
    reach(&mut node, None);
    assert_eq!(examine(&node).unseen[0].check, Check::Imds);
}

#[test]
fn enis_and_pods_links_of_another_mtu_are_found() {
    let found = only(|node| {
        routing(node).links[2].mtu = 1500;
        routing(node).links[3].mtu = 1500;
    });
    assert_eq!((found.check, found.object.as_str()), (Check::Mtu, "eth1"));
    let found = only(|node| {
        node.eni_mtu = 1500;
        routing(node).links[1].mtu = 1500;
        routing(node).links[2].mtu = 1500;
    });
    assert_eq!((found.check, found.object.as_str()), (Check::Mtu, "eni0a"));
}

#[test]
fn missing_kernel_features_are_found_and_unknown_ones_are_not_good() {
    let feature = |node: &mut Observation, name: &str, state| {
        node.features.insert(name.to_owned(), state);
    };
    let found = only(|node| feature(node, "NF_NAT", Feature::Absent));
    assert_eq!((found.check, found.severity), (Check::KernelFeatures, Severity::Fault));
    assert_eq!(
        only(|node| feature(node, "VLAN_8021Q", Feature::Absent)).severity,
        Severity::Notice
    );
    let mut node = good();
    feature(&mut node, "VETH", Feature::Unknown);
    let report = examine(&node);
    assert_eq!(report.unseen[0].check, Check::KernelFeatures);
    assert!(report.unseen[0].why.contains("VETH"));
}

#[test]
fn a_full_connection_table_is_found_before_it_is_full() {
    let count = |text: &'static str| {
        move |node: &mut Observation| set(node, "net/netfilter/nf_conntrack_count", text)
    };
    assert_eq!(only(count("200000")).severity, Severity::Warning);
    assert_eq!(only(count("260000")).severity, Severity::Fault);
    assert!(!found_with(count("190000")));
}

#[test]
fn twins_are_found_by_their_effect_for_any_protocol() {
    let found = only(|node| {
        let twin = RuleView { protocol: 70, ..routing(node).rules[2].clone() };
        routing(node).rules.push(twin);
    });
    assert_eq!((found.check, found.severity), (Check::TwinRules, Severity::Warning));
    assert!(found.wrong.contains("2 times, by the protocols 0 and 70"), "{}", found.wrong);
    assert!(found.fix.ends_with("ip rule del pref 1536 from 10.0.0.57/32 lookup 2"));
    // A partly known rule may differ in the rest.
    assert!(!found_with(|node| {
        let partial = RuleView { partial: true, narrow: true, ..rule(1024, None, None, 254) };
        routing(node).rules.extend([partial.clone(), partial]);
    }));
}

#[test]
fn rules_of_removed_pods_and_enis_are_found() {
    let found = only(|node| routing(node).rules.push(rule(512, None, Some("10.0.0.99/32"), 254)));
    assert_eq!((found.check, found.severity), (Check::LeftoverRules, Severity::Warning));
    let found = only(|node| routing(node).rules.push(rule(32_765, Some("10.0.0.12/32"), None, 3)));
    assert!(found.wrong.contains("table 3, which has no default"), "{}", found.wrong);
}

#[test]
fn a_failed_observation_is_never_good() {
    let mut node = good();
    node.routing = Err("no socket".to_owned());
    node.nft = Err("nft is not here".to_owned());
    node.sysctls.remove("net/netfilter/nf_conntrack_max");
    let report = examine(&node);
    let unseen: Vec<Check> = report.unseen.iter().map(|unseen| unseen.check).collect();
    assert_eq!(
        unseen,
        [
            Check::RpFilter,
            Check::Forwarding,
            Check::ForeignTables,
            Check::ForeignRules,
            Check::MainRoutes,
            Check::ForwardPolicy,
            Check::IptablesMixed,
            Check::Mtu,
            Check::Conntrack,
            Check::TwinRules,
            Check::LeftoverRules,
        ]
    );
    assert_eq!(report.good.len() + unseen.len(), Check::ALL.len());
}

#[test]
fn the_backend_ebpf_needs_a_kernel_a_bpffs_and_capabilities() {
    let found = only(|node| ebpf(node).release = Ok("5.15.0-1051-aws".to_owned()));
    assert_eq!((found.check, found.severity), (Check::EbpfBackend, Severity::Fault));
    assert!(found.wrong.contains("5.15.0-1051-aws is older than 6.1"), "{}", found.wrong);
    let found = only(|node| ebpf(node).has_bpffs = Ok(false));
    assert_eq!(found.object, "/sys/fs/bpf/ferrule/maps");
    assert!(found.fix.starts_with("mount -t bpf bpf /sys/fs/bpf"), "{}", found.fix);
    let found = only(|node| ebpf(node).agents = Ok([0xc0_0000_3000, 3 << 12].map(agent).into()));
    assert_eq!(found.object, "ferrule-agent");
    assert!(found.wrong.ends_with("lacks CAP_BPF and CAP_PERFMON"), "{}", found.wrong);
    let found = only(|node| ebpf(node).agents = Ok(vec![agent(1 << 13)]));
    assert!(found.fix.contains("policy.backend=ebpf"), "{}", found.fix);
    let found = only(|node| ebpf(node).agents = Ok(vec![agent(0xc0_0000_1000)]));
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.wrong.ends_with("lacks CAP_NET_RAW"), "{}", found.wrong);
    // CAP_SYS_ADMIN includes two of them, and a node whose agent does not run yet has no finding.
    for agents in [vec![agent(1 << 21 | 3 << 12)], Vec::new()] {
        assert!(!found_with(|node| ebpf(node).agents = Ok(agents)));
    }
    assert!(!found_with(|node| ebpf(node).release = Ok("10.0.0".to_owned())));
}

#[test]
fn the_plugin_bandwidth_needs_a_kernel_with_tcx() {
    let chained = |release: &'static str| {
        move |node: &mut Observation| {
            ebpf(node).release = Ok(release.to_owned());
            ebpf(node).bandwidth = Ok(vec!["05-ferrule.conflist".to_owned()]);
        }
    };
    let found = only(chained("6.1.0-18-amd64"));
    assert_eq!((&*found.object, found.severity), ("05-ferrule.conflist", Severity::Fault));
    assert!(found.wrong.contains("6.1.0-18-amd64 has no TCX"), "{}", found.wrong);
    assert!(
        found.fix.contains("6.6 or newer") && found.fix.contains("ENABLE_BANDWIDTH_PLUGIN=false")
    );
    assert!(!found_with(chained("6.6.0")) && !found_with(chained("6.12.1-cloud")));
}

#[test]
fn the_memory_limit_of_the_agent_has_room_for_its_maps() {
    let limited = |limit: Option<u64>| {
        move |node: &mut Observation| {
            let memory = AgentMemory { limit, maps: 128 << 20, others: 48 << 20 };
            ebpf(node).agents = Ok(vec![EbpfAgent { memory: Ok(memory), ..agent(0xc0_0000_3000) }]);
        }
    };
    let found = only(limited(Some((176 << 20) - 1)));
    assert_eq!((&*found.object, found.severity), ("ferrule-agent", Severity::Warning));
    assert!(found.wrong.contains("175 MiB") && found.wrong.contains("128 MiB"), "{}", found.wrong);
    assert!(found.why.contains("only 127 MiB are left"), "{}", found.why);
    assert!(found.fix.contains("limits.memory") && found.fix.contains("176Mi"), "{}", found.fix);
    // Less than the agent needs without maps.
    assert!(only(limited(Some(1 << 20))).why.contains("only 0 MiB are left"));
    assert!(!found_with(limited(Some(176 << 20))) && !found_with(limited(None)));
}

#[test]
fn a_part_of_the_ebpf_check_that_could_not_run_is_reported_without_findings_only() {
    let mut node = good();
    let hidden = EbpfAgent { memory: Err("no environ".to_owned()), ..agent(0xc0_0000_3000) };
    ebpf(&mut node).agents = Ok(vec![hidden]);
    let report = examine(&node);
    assert_eq!((report.findings.len(), report.unseen[0].why.as_str()), (0, "no environ"));
    ebpf(&mut node).has_bpffs = Ok(false);
    assert_eq!((examine(&node).findings.len(), examine(&node).unseen.len()), (1, 0));
    let mut node = good();
    ebpf(&mut node).bandwidth = Err("no folder".to_owned());
    assert_eq!(examine(&node).unseen[0].why, "no folder");
}

#[test]
fn a_node_with_another_backend_skips_the_needs_of_the_backend_ebpf() {
    let mut node = good();
    node.ebpf = None;
    let report = examine(&node);
    assert_eq!(report.good, Check::ALL[..16]);
    assert_eq!(report.confirmed_by(&node), report);
    let mut node = good();
    ebpf(&mut node).release = Ok("unknown".to_owned());
    assert_eq!(examine(&node).unseen[0].check, Check::EbpfBackend);
}

#[test]
fn a_transient_finding_is_reported_only_if_two_observations_show_it() {
    let mut first = good();
    routing(&mut first).rules.push(rule(512, None, Some("10.0.0.98/32"), 254));
    let mut second = good();
    routing(&mut second).rules.push(rule(512, None, Some("10.0.0.99/32"), 254));
    let report = examine(&first);
    assert!(report.needs_second_observation());
    assert_eq!(report.confirmed_by(&second).findings, []);
    assert_eq!(report.confirmed_by(&second).good, Check::ALL);
    assert_eq!(report.confirmed_by(&first), report);
}

#[test]
fn the_guide_and_the_report_use_the_same_names_of_checks() {
    let guide = include_str!("../../../../docs/guide/doctor.md");
    let rows: Vec<&str> =
        guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(rows, Check::ALL.map(|check| check.to_string()));
    for check in Check::ALL {
        let json = serde_json::to_string(&check).unwrap();
        assert_eq!(json, format!("\"{check}\""));
    }
}

/// Returns the only finding on a good node after one change.
#[track_caller]
fn only(spoil: impl FnOnce(&mut Observation)) -> Finding {
    let mut node = good();
    spoil(&mut node);
    let report = examine(&node);
    assert_eq!(report.findings.len(), 1, "{report:#?}");
    assert_eq!(report.unseen, []);
    report.findings.into_iter().next().unwrap()
}

/// Returns true if a good node has a finding after one change.
fn found_with(change: impl FnOnce(&mut Observation)) -> bool {
    let mut node = good();
    change(&mut node);
    !examine(&node).findings.is_empty()
}

fn set(node: &mut Observation, name: &str, value: &str) {
    node.sysctls.insert(name.to_owned(), Ok(value.to_owned()));
}

/// An agent with these capabilities and without a memory limit.
fn agent(capabilities: u64) -> EbpfAgent {
    let memory = AgentMemory { limit: None, maps: 128 << 20, others: 48 << 20 };
    EbpfAgent { capabilities, memory: Ok(memory) }
}

fn ebpf(node: &mut Observation) -> &mut Ebpf {
    node.ebpf.as_mut().unwrap()
}

fn routing(node: &mut Observation) -> &mut Routing {
    node.routing.as_mut().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn link(index: u32, name: &str, last: u8) -> LinkView {
    LinkView {
        index,
        name: name.to_owned(),
        mac: (last != 0).then(|| mac(last)),
        mtu: 9001,
        hardware: last != 0,
        of_pod: false,
    }
}

fn veth(index: u32, name: &str, mtu: u32) -> LinkView {
    let last = u8::try_from(index).unwrap();
    LinkView { mtu, hardware: false, of_pod: true, ..link(index, name, last) }
}

fn rule(pref: u32, src: Option<&str>, dst: Option<&str>, table: u32) -> RuleView {
    let words =
        |word: &str, net: Option<&str>| net.map(|n| format!(" {word} {n}")).unwrap_or_default();
    RuleView {
        v6: false,
        pref,
        src: src.map(net),
        dst: dst.map(net),
        narrow: false,
        partial: false,
        table: TableId(table),
        protocol: 0,
        text: format!(
            "pref {pref}{}{} lookup {}",
            words("from", src),
            words("to", dst),
            TableId(table)
        ),
    }
}

fn route(table: u32, dst: &str, gateway: Option<&str>, dev: u32) -> RouteView {
    RouteView {
        table: TableId(table),
        dst: net(dst),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        dev: Some(dev),
        metric: 0,
        protocol: 70,
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn unit(name: &str) -> Unit {
    Unit { name: name.to_owned(), enabled: true, active: false }
}

fn chain(family: &str, table: &str, name: &str, policy: &str, rules: usize) -> Chain {
    Chain {
        family: family.to_owned(),
        table: table.to_owned(),
        name: name.to_owned(),
        hook: Some("forward".to_owned()),
        policy: Some(policy.to_owned()),
        rules,
    }
}
