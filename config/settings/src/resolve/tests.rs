#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::{
    Bind, CallBudget, Kubernetes, LogLevel, LogTo, NatBackend, Origin, PolicyBackend, RandomizeSnat,
};
use config_model::{EnforcingMode, Mark, RuleLayout, Span};
use std::path::{Path, PathBuf};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn resolve(pairs: Pairs<'_>) -> (Settings, Vec<String>) {
    let (settings, warnings) = Settings::resolve(pairs.iter().copied()).unwrap();
    (settings, warnings.iter().map(ToString::to_string).collect())
}

fn refusal(pairs: Pairs<'_>) -> Refusal {
    Settings::resolve(pairs.iter().copied()).unwrap_err()
}

#[test]
fn settings_default_to_those_of_the_manifest() {
    let (settings, warnings) = resolve(&[]);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(settings, Settings::defaults());
    assert_eq!((settings.warm.enis, settings.warm.ips, settings.warm.minimum), (1, 0, 0));
    assert_eq!(settings.max_enis, None);
    assert_eq!(settings.cooldown, Span::seconds(30));
    assert_eq!(settings.eni_mtu, 9001);
    assert!(settings.node_port_support && !settings.external_snat);
    assert_eq!(settings.connmark, Mark { value: 0x80, mask: 0x80 });
    assert_eq!(settings.veth_prefix, "eni");
    assert_eq!(settings.randomize_snat, RandomizeSnat::Prng);
    // `kubectl logs` shows them, unlike a file on the node.
    assert_eq!((settings.log_level, settings.log_to), (LogLevel::Info, LogTo::Stdout));
    assert_eq!((settings.agent.log_level, settings.agent.log_to), (LogLevel::Info, LogTo::Stdout));
    assert_eq!(settings.plugin_log_file, "/var/log/aws-routed-eni/plugin.log");
    assert_eq!(settings.plugin_log_level, "INFO");
    assert_eq!(settings.host_bin_dir, PathBuf::from("/host/opt/cni/bin"));
    assert_eq!(settings.host_conf_dir, PathBuf::from("/host/etc/cni/net.d"));
    assert_eq!(settings.introspection, Some(Bind::Tcp("127.0.0.1:61679".parse().unwrap())));
    assert!(settings.metrics);
    assert_eq!(settings.http_timeout, Span::seconds(10));
    assert_eq!(settings.add_wait, Span::seconds(45));
    assert_eq!(settings.calls, CallBudget { burst: 20, changes: 2, reads: 4 });
    assert_eq!(settings.state_dir, PathBuf::from("/var/lib/ferrule"));
    assert_eq!(settings.socket, PathBuf::from("/run/ferrule/ipamd.sock"));
    assert_eq!(settings.proc_sys_net, PathBuf::from("/host/proc/sys/net"));
    assert_eq!((settings.family, settings.prefixes), (Family::V4, false));
    assert_eq!((settings.custom_networking, settings.pod_enis), (None, None));
    assert!(settings.subnet_discovery && settings.manage_untagged && settings.provisioning);
    assert!(settings.collect_leaks && settings.anticipate_pods);
    assert!(!settings.multi_nic && !settings.imds_only && !settings.annotate_pod_ip);
    assert_eq!((settings.kubernetes, settings.cluster_endpoint), (Kubernetes::Auto, None));
    assert_eq!(settings.node_group, "default");
    assert_eq!(settings.startup_taint, "ferrule.io/not-ready");
    assert_eq!(settings.backing_store, PathBuf::from("/var/run/aws-node/ipam.json"));
}

#[test]
fn the_manifest_of_amazon_vpc_cni_causes_no_warning() {
    let (_, warnings) = resolve(&[
        ("ADDITIONAL_ENI_TAGS", "{}"),
        ("AWS_VPC_CNI_NODE_PORT_SUPPORT", "true"),
        ("AWS_VPC_ENI_MTU", "9001"),
        ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "false"),
        ("AWS_VPC_K8S_CNI_EXTERNALSNAT", "false"),
        ("AWS_VPC_K8S_CNI_LOGLEVEL", "DEBUG"),
        ("AWS_VPC_K8S_CNI_LOG_FILE", "/host/var/log/aws-routed-eni/ipamd.log"),
        ("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "prng"),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "eni"),
        ("AWS_VPC_K8S_PLUGIN_LOG_FILE", "/var/log/aws-routed-eni/plugin.log"),
        ("DISABLE_INTROSPECTION", "false"),
        ("DISABLE_METRICS", "false"),
        ("DISABLE_NETWORK_RESOURCE_PROVISIONING", "false"),
        ("ENABLE_IMDS_ONLY_MODE", "false"),
        ("ENABLE_IPv4", "true"),
        ("ENABLE_IPv6", "false"),
        ("ENABLE_MULTI_NIC", "false"),
        ("ENABLE_POD_ENI", "false"),
        ("ENABLE_PREFIX_DELEGATION", "false"),
        ("ENABLE_SUBNET_DISCOVERY", "true"),
        ("NETWORK_POLICY_ENFORCING_MODE", "standard"),
        ("VPC_CNI_VERSION", "v1.23.1"),
        ("WARM_ENI_TARGET", "1"),
        ("WARM_PREFIX_TARGET", "1"),
        ("MY_NODE_NAME", "ip-10-0-0-1"),
        ("MY_POD_NAME", "aws-node-x"),
    ]);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn booleans_are_parsed_as_in_go() {
    for (text, value) in
        [("1", true), ("t", true), ("TRUE", true), ("True", true), ("0", false), ("F", false)]
    {
        let (settings, warnings) = resolve(&[("AWS_VPC_K8S_CNI_EXTERNALSNAT", text)]);
        assert_eq!((settings.external_snat, warnings.len()), (value, 0), "{text}");
    }
    for text in ["yes", "tRUE", " true", "on"] {
        let (settings, warnings) = resolve(&[("AWS_VPC_CNI_NODE_PORT_SUPPORT", text)]);
        assert!(settings.node_port_support, "{text}: the default holds");
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(warning.starts_with("AWS_VPC_CNI_NODE_PORT_SUPPORT: "), "{warning}");
        assert!(warning.ends_with("the default true is used"), "{warning}");
    }
}

#[test]
fn an_empty_boolean_is_unset_or_invalid_as_in_amazon_vpc_cni() {
    assert_eq!(resolve(&[("AWS_VPC_K8S_CNI_EXTERNALSNAT", "")]).1.len(), 0);
    let (settings, warnings) = resolve(&[("DISABLE_METRICS", "")]);
    assert!(settings.metrics);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn warm_targets_with_bad_or_negative_values_are_the_default() {
    for text in ["-1", "", "1.5", "0x10", "1_000", " 3", "many", "99999999999999999999"] {
        let (settings, warnings) = resolve(&[("WARM_ENI_TARGET", text), ("WARM_IP_TARGET", text)]);
        assert_eq!((settings.warm.enis, settings.warm.ips), (1, 0), "{text:?}");
        assert_eq!(warnings.len(), 2, "{text:?}: {warnings:?}");
    }
    let (settings, warnings) = resolve(&[("WARM_IP_TARGET", "+5"), ("MINIMUM_IP_TARGET", "010")]);
    assert_eq!((settings.warm.ips, settings.warm.minimum, warnings.len()), (5, 10, 0));
}

#[test]
fn max_eni_below_one_is_the_limit_of_the_instance() {
    for (text, expected) in [("-1", None), ("0", None), ("3", Some(3))] {
        let (settings, warnings) = resolve(&[("MAX_ENI", text)]);
        assert_eq!((settings.max_enis, warnings.len()), (expected, 0), "{text}");
    }
    assert_eq!(resolve(&[("MAX_ENI", "x")]).1.len(), 1);
}

#[test]
fn values_that_the_entrypoint_of_amazon_vpc_cni_refuses_are_refused() {
    for (setting, value) in [
        ("IP_COOLDOWN_PERIOD", "-1"),
        ("IP_COOLDOWN_PERIOD", "30s"),
        ("IP_COOLDOWN_PERIOD", ""),
        ("AWS_VPC_ENI_MTU", "575"),
        ("AWS_VPC_ENI_MTU", "9002"),
        ("AWS_VPC_ENI_MTU", "jumbo"),
        ("POD_MTU", "575"),
        ("POD_MTU", "9002"),
        ("FERRULE_CHAINED_PLUGINS", "tuning"),
        ("FERRULE_CHAINED_PLUGINS", r#"{"type":"tuning"}"#),
        ("FERRULE_CHAINED_PLUGINS", r#"[{"sysctl":{}}]"#),
        ("FERRULE_CHAINED_PLUGINS", r#"[{"type":"../tuning"}]"#),
        ("FERRULE_CHAINED_PLUGINS", r#"[{"type":"tuning"},{"type":"ferrule-cni"}]"#),
        ("FERRULE_CHAINED_PLUGINS", r#"[{"type":"aws-cni"}]"#),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "ferrule"),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "eth"),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "lo"),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "vlan"),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", ""),
        ("AWS_VPC_K8S_CNI_VETHPREFIX", "a/b"),
        ("NETWORK_POLICY_ENFORCING_MODE", "maybe"),
        ("FERRULE_ADD_WAIT", "0"),
        ("FERRULE_EC2_BURST", "0"),
        ("FERRULE_EC2_CHANGES_PER_SECOND", "0.5"),
        ("FERRULE_EC2_READS_PER_SECOND", "1001"),
        ("FERRULE_STATE_DIR", "state"),
        ("FERRULE_PROC_SYS_NET", "/host/proc/sys"),
    ] {
        let refusal = refusal(&[(setting, value)]);
        assert!(
            matches!(refusal, Refusal::Invalid { setting: named, .. } if named == setting),
            "{setting}={value}: {refusal:?}"
        );
        assert!(refusal.to_string().starts_with(&format!("cannot use {setting}=")), "{refusal}");
    }
    for (setting, value) in [("AWS_VPC_ENI_MTU", "576"), ("AWS_VPC_K8S_CNI_VETHPREFIX", "cali")] {
        assert_eq!(resolve(&[(setting, value)]).1.len(), 0);
    }
}

#[test]
fn the_connmark_may_be_written_in_any_base() {
    for (text, value) in [
        ("0x80", 0x80),
        ("128", 128),
        ("0200", 128),
        ("0o200", 128),
        ("0b1000_0000", 128),
        ("0X_80", 128),
        ("4294967295", u32::MAX),
    ] {
        let (settings, warnings) = resolve(&[("AWS_VPC_K8S_CNI_CONNMARK", text)]);
        assert_eq!(settings.connmark, Mark { value, mask: value }, "{text}");
        assert_eq!(warnings.len(), 0, "{text}");
    }
    for text in ["0", "-1", "4294967296", "0x", "1__0", "_1", "1_", "0x+8", "mark", "08"] {
        let (settings, warnings) = resolve(&[("AWS_VPC_K8S_CNI_CONNMARK", text)]);
        assert_eq!((settings.connmark.value, warnings.len()), (0x80, 1), "{text}");
    }
}

#[test]
fn the_http_timeout_has_a_floor() {
    assert_eq!(resolve(&[("HTTP_TIMEOUT", "60")]).0.http_timeout, Span::seconds(60));
    let (settings, warnings) = resolve(&[("HTTP_TIMEOUT", "9")]);
    assert_eq!((settings.http_timeout, warnings.len()), (Span::seconds(10), 1));
}

#[test]
fn tags_are_a_json_object_without_reserved_keys() {
    let tags = r#"{"team":"blue","node.k8s.amazonaws.com/x":"y","aws:z":"1"}"#;
    let (settings, warnings) = resolve(&[("ADDITIONAL_ENI_TAGS", tags)]);
    assert_eq!(settings.eni_tags, BTreeMap::from([("team".to_owned(), "blue".to_owned())]));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(resolve(&[("ADDITIONAL_ENI_TAGS", "null")]).1.len(), 0);
    for bad in ["{", "[]", r#"{"a":1}"#] {
        let (settings, warnings) = resolve(&[("ADDITIONAL_ENI_TAGS", bad)]);
        assert_eq!((settings.eni_tags.len(), warnings.len()), (0, 1), "{bad}");
    }
}

#[test]
fn networks_are_normalized_and_invalid_ones_are_ignored() {
    let (settings, warnings) =
        resolve(&[("AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS", " 10.1.2.3/8 ,fd00::/8,,192.168.0.0/16")]);
    let expected: Vec<ipnet::Ipv4Net> =
        vec!["10.0.0.0/8".parse().unwrap(), "192.168.0.0/16".parse().unwrap()];
    assert_eq!(settings.exclude_snat_cidrs, expected);
    assert!(warnings[0].contains("entry 2"), "{warnings:?}");
}

#[test]
fn logs_go_to_the_destination_of_the_setting() {
    let log = |text| resolve(&[("AWS_VPC_K8S_CNI_LOG_FILE", text)]).0.log_to;
    assert_eq!(log("stdout"), LogTo::Stdout);
    assert_eq!(log("stderr"), LogTo::Stderr);
    assert_eq!(log("/var/log/x"), LogTo::File(PathBuf::from("/var/log/x")));
    let level = |text| resolve(&[("AWS_VPC_K8S_CNI_LOGLEVEL", text)]).0.log_level;
    assert_eq!([level("Info"), level("fatal")], [LogLevel::Info, LogLevel::Error]);
    let (settings, warnings) = resolve(&[("AWS_VPC_K8S_CNI_LOGLEVEL", "loud")]);
    assert_eq!((settings.log_level, warnings.len()), (LogLevel::Info, 1));
}

#[test]
fn the_plugins_log_never_goes_to_standard_output() {
    let (settings, _) = resolve(&[
        ("AWS_VPC_K8S_PLUGIN_LOG_FILE", "stderr"),
        ("AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "Debug"),
    ]);
    assert_eq!((&*settings.plugin_log_file, &*settings.plugin_log_level), ("stderr", "DEBUG"));
    let said = refusal(&[("AWS_VPC_K8S_PLUGIN_LOG_FILE", "stdout")]).to_string();
    assert!(said.contains("AWS_VPC_K8S_PLUGIN_LOG_FILE") && said.contains("stderr"), "{said}");
    assert!(refusal(&[("HOST_CNI_BIN_PATH", "opt/cni")]).to_string().contains("absolute"));
}

#[test]
fn introspection_listens_on_tcp_on_a_socket_or_not_at_all() {
    let bind = |text| resolve(&[("INTROSPECTION_BIND_ADDRESS", text)]).0.introspection;
    assert_eq!(bind("unix:/run/x.sock"), Some(Bind::Unix(PathBuf::from("/run/x.sock"))));
    assert_eq!(bind("localhost:1"), Some(Bind::Tcp("127.0.0.1:1".parse().unwrap())));
    assert_eq!(bind(":1"), Some(Bind::Tcp("[::]:1".parse().unwrap())));
    assert_eq!(bind("[::1]:1"), Some(Bind::Tcp("[::1]:1".parse().unwrap())));
    assert_eq!(resolve(&[("INTROSPECTION_BIND_ADDRESS", "here")]).1.len(), 1);
    assert_eq!(resolve(&[("DISABLE_INTROSPECTION", "true")]).0.introspection, None);
}

#[test]
fn contradictions_name_both_settings() {
    let cases: [(Pairs<'_>, &str, &str); 16] = [
        (&[("ENABLE_IPv4", "false")], "ENABLE_IPv4=false", "ENABLE_IPv6=false (default)"),
        (&[("ENABLE_IPv6", "true")], "ENABLE_IPv4=true (default)", "ENABLE_IPv6=true"),
        (
            &[("ENABLE_IPv4", "false"), ("ENABLE_IPv6", "true")],
            "ENABLE_IPv6=true",
            "ENABLE_PREFIX_DELEGATION=false (default)",
        ),
        (
            &[
                ("ENABLE_IPv4", "false"),
                ("ENABLE_IPv6", "true"),
                ("ENABLE_PREFIX_DELEGATION", "true"),
                ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true"),
            ],
            "ENABLE_IPv6=true",
            "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true",
        ),
        (
            &[("ENABLE_PREFIX_DELEGATION", "true"), ("WARM_PREFIX_TARGET", "0")],
            "ENABLE_PREFIX_DELEGATION=true",
            "WARM_PREFIX_TARGET=0",
        ),
        (
            &[
                ("ENABLE_IPv4", "false"),
                ("ENABLE_IPv6", "true"),
                ("ENABLE_PREFIX_DELEGATION", "true"),
                ("AWS_VPC_ENI_MTU", "1279"),
            ],
            "ENABLE_IPv6=true",
            "AWS_VPC_ENI_MTU=1279",
        ),
        (
            &[
                ("ENABLE_IPv4", "false"),
                ("ENABLE_IPv6", "true"),
                ("ENABLE_PREFIX_DELEGATION", "true"),
                ("POD_MTU", "1279"),
            ],
            "ENABLE_IPv6=true",
            "POD_MTU=1279",
        ),
        (
            &[("ENABLE_IMDS_ONLY_MODE", "true"), ("ENABLE_POD_ENI", "true")],
            "ENABLE_IMDS_ONLY_MODE=true",
            "ENABLE_POD_ENI=true",
        ),
        (
            &[("ENABLE_IMDS_ONLY_MODE", "true"), ("MANAGE_UNTAGGED_ENI", "false")],
            "ENABLE_IMDS_ONLY_MODE=true",
            "MANAGE_UNTAGGED_ENI=false",
        ),
        (
            &[("ENABLE_POD_ENI", "true"), ("MY_NODE_NAME", "n"), ("FERRULE_KUBERNETES", "off")],
            "ENABLE_POD_ENI=true",
            "FERRULE_KUBERNETES=off",
        ),
        (
            &[("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true")],
            "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true",
            "MY_NODE_NAME",
        ),
        (&[("ANNOTATE_POD_IP", "true")], "ANNOTATE_POD_IP=true", "MY_NODE_NAME"),
        (
            &[
                ("ENABLE_POD_ENI", "true"),
                ("MY_NODE_NAME", "n"),
                ("POD_SECURITY_GROUP_ENFORCING_MODE", "lax"),
            ],
            "ENABLE_POD_ENI=true",
            "POD_SECURITY_GROUP_ENFORCING_MODE",
        ),
        (
            &[("FERRULE_POLICY_AGENT", "true"), ("NETWORK_POLICY_ENFORCING_MODE", "none")],
            "FERRULE_POLICY_AGENT=true",
            "NETWORK_POLICY_ENFORCING_MODE=none",
        ),
        (
            &[("FERRULE_POLICY_AGENT", "true"), ("AWS_VPC_K8S_CNI_VETHPREFIX", "pod")],
            "FERRULE_POLICY_AGENT=true",
            "AWS_VPC_K8S_CNI_VETHPREFIX=pod",
        ),
        (
            &[("FERRULE_SOCKET", "/run/a"), ("INTROSPECTION_BIND_ADDRESS", "unix:/run/a")],
            "INTROSPECTION_BIND_ADDRESS",
            "FERRULE_SOCKET",
        ),
    ];
    for (pairs, first, second) in cases {
        let refusal = refusal(pairs);
        assert!(matches!(refusal, Refusal::Contradiction { .. }), "{refusal:?}");
        let text = refusal.to_string();
        assert!(text.contains(first) && text.contains(second), "{text}");
    }
}

#[test]
fn unsupported_modes_are_refused_with_the_reason() {
    assert!(matches!(
        refusal(&[("NETWORK_POLICY_ENFORCING_MODE", "Strict")]),
        Refusal::Unsupported { .. }
    ));
    let strict = [("NETWORK_POLICY_ENFORCING_MODE", "Strict"), ("FERRULE_POLICY_AGENT", "true")];
    let (settings, warnings) = resolve(&strict);
    assert_eq!((settings.policy_mode, settings.policy_agent), (Some(EnforcingMode::Strict), true));
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn policy_on_the_node_is_strict_by_default_and_has_one_agent() {
    let (settings, warnings) = resolve(&[("FERRULE_POLICY", "true")]);
    assert_eq!((settings.policy, settings.policy_mode), (true, Some(EnforcingMode::Strict)));
    assert_eq!(warnings, Vec::<String>::new());
    let mode = |mode| [("FERRULE_POLICY", "true"), ("NETWORK_POLICY_ENFORCING_MODE", mode)];
    assert_eq!(resolve(&mode("Standard")).0.policy_mode, Some(EnforcingMode::Standard));
    let none = refusal(&mode("none")).to_string();
    assert!(none.contains("FERRULE_POLICY=true") && none.contains("strict"), "{none}");
    let both = [("FERRULE_POLICY", "true"), ("FERRULE_POLICY_AGENT", "true")];
    let both = refusal(&both).to_string();
    assert!(both.contains("FERRULE_POLICY_AGENT=true") && both.contains("ferrule-agent"), "{both}");
    assert!(!resolve(&[]).0.policy);
}

#[test]
fn the_backend_ebpf_has_an_object_file_and_a_folder_of_pins() {
    let agent = |given: &[(&str, &str)]| resolve(given).0.agent;
    let default = agent(&[]);
    assert_eq!(default.backend, PolicyBackend::None);
    assert_eq!(default.bpf_object, Path::new("/usr/local/lib/ferrule/policy.bpf.o"));
    assert_eq!(default.bpf_pins, Path::new("/sys/fs/bpf/ferrule/maps"));
    let given = agent(&[
        ("FERRULE_AGENT_BACKEND", "ebpf"),
        ("FERRULE_AGENT_BPF_OBJECT", "/tmp/policy.bpf.o"),
        ("FERRULE_AGENT_BPF_PINS", "/sys/fs/bpf/other"),
    ]);
    assert_eq!(given.backend, PolicyBackend::Ebpf);
    assert_eq!(given.backend.to_string(), "ebpf");
    assert_eq!(given.bpf_object, Path::new("/tmp/policy.bpf.o"));
    assert_eq!(given.bpf_pins, Path::new("/sys/fs/bpf/other"));
    let refused = refusal(&[("FERRULE_AGENT_BACKEND", "magic")]).to_string();
    assert!(refused.contains("none or ebpf"), "{refused}");
    let relative = refusal(&[("FERRULE_AGENT_BPF_PINS", "maps")]);
    assert!(matches!(relative, Refusal::Invalid { .. }), "{relative}");
}

#[test]
fn the_fast_path_is_on_unless_it_is_switched_off() {
    let fast_path = |given: &[(&str, &str)]| resolve(given).0.agent.connections.fast_path;
    assert!(fast_path(&[]));
    assert!(fast_path(&[("FERRULE_FAST_PATH", "on")]));
    assert!(!fast_path(&[("FERRULE_FAST_PATH", "off")]));
    let refused = refusal(&[("FERRULE_FAST_PATH", "false")]).to_string();
    assert!(refused.contains("on or off"), "{refused}");
}

#[test]
fn services_are_served_if_the_setting_names_a_component() {
    let services = |given: &[(&str, &str)]| resolve(given).0.agent.connections.services;
    assert!(!services(&[]));
    assert!(!services(&[("FERRULE_SERVICES", "none")]));
    assert!(services(&[("FERRULE_SERVICES", "ebpf")]));
    let refused = refusal(&[("FERRULE_SERVICES", "true")]).to_string();
    assert!(refused.contains("none or ebpf"), "{refused}");
}

#[test]
fn the_nodes_health_is_served_at_the_port_of_kube_proxy_at_another_or_not_at_all() {
    let at = |given: &[(&str, &str)]| resolve(given).0.agent.healthz.map(|at| at.to_string());
    assert_eq!(at(&[]).as_deref(), Some("[::]:10256"));
    let set = |text| at(&[("FERRULE_AGENT_HEALTHZ", text)]);
    assert_eq!(set("127.0.0.1:10257").as_deref(), Some("127.0.0.1:10257"));
    assert_eq!(set(""), None);
    let refused = refusal(&[("FERRULE_AGENT_HEALTHZ", "unix:/run/healthz.sock")]).to_string();
    assert!(refused.contains("FERRULE_AGENT_HEALTHZ"), "{refused}");
}

#[test]
fn the_controllers_service_is_a_namespace_and_a_name() {
    let service = |text| resolve(&[("FERRULE_CONTROLLER_SERVICE", text)]).0.agent.service;
    assert_eq!(service("net/control"), ("net".to_owned(), "control".to_owned()));
    for bad in ["control", "net/", "/control", "Net/control", "a/b/c"] {
        let refused = refusal(&[("FERRULE_CONTROLLER_SERVICE", bad)]);
        assert!(matches!(refused, Refusal::Invalid { .. }), "{bad}");
    }
}

#[test]
fn the_check_of_sources_is_on_unless_it_is_switched_off() {
    assert!(resolve(&[]).0.source_check);
    assert!(!resolve(&[("FERRULE_SOURCE_CHECK", "false")]).0.source_check);
}

#[test]
fn the_netfilter_backend_can_be_set() {
    let backend = |text| resolve(&[("FERRULE_NAT_BACKEND", text)]).0.nat_backend;
    assert_eq!(backend("auto"), None);
    assert_eq!(backend("nftables"), Some(NatBackend::Nftables));
    let refusal = refusal(&[("FERRULE_NAT_BACKEND", "ipchains")]).to_string();
    assert!(refusal.contains("iptables-legacy"), "{refusal}");
}

#[test]
fn the_default_layout_of_rules_is_per_pod() {
    assert_eq!(resolve(&[]).0.rules, RuleLayout::PerPod);
    assert_eq!(resolve(&[("FERRULE_RULES", "compact")]).0.rules, RuleLayout::Compact);
    let refusal = refusal(&[("FERRULE_RULES", "few")]).to_string();
    assert!(refusal.contains("per-pod or compact"), "{refusal}");
}

#[test]
fn ipv4_addresses_come_in_prefixes_if_the_setting_is_on() {
    let (settings, warnings) = resolve(&[("ENABLE_PREFIX_DELEGATION", "true")]);
    assert_eq!((settings.family, settings.prefixes), (Family::V4, true));
    assert_eq!((settings.warm.prefixes, warnings.len()), (1, 0));
    let (settings, _) = resolve(&[
        ("ENABLE_PREFIX_DELEGATION", "true"),
        ("WARM_PREFIX_TARGET", "0"),
        ("WARM_IP_TARGET", "5"),
    ]);
    assert_eq!((settings.warm.prefixes, settings.warm.ips), (0, 5));
}

#[test]
fn ipv6_has_no_warm_targets_and_collects_no_leaks() {
    let (settings, warnings) = resolve(&[
        ("ENABLE_IPv4", "false"),
        ("ENABLE_IPv6", "true"),
        ("ENABLE_PREFIX_DELEGATION", "true"),
        ("WARM_PREFIX_TARGET", "0"),
    ]);
    assert_eq!((settings.family, settings.prefixes), (Family::V6, true));
    assert!(!settings.collect_leaks);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn dual_egress_follows_the_setting_of_its_family() {
    const V6: [(&str, &str); 3] =
        [("ENABLE_IPv4", "false"), ("ENABLE_IPv6", "true"), ("ENABLE_PREFIX_DELEGATION", "true")];
    let egress = |pairs: Pairs<'_>| resolve(pairs).0.egress;
    let with = |pair| [V6.as_slice(), &[pair]].concat();
    assert!(!egress(&[]));
    assert!(egress(&[("ENABLE_V6_EGRESS", "true"), ("ENABLE_V4_EGRESS", "false")]));
    assert!(egress(&V6));
    assert!(!egress(&with(("ENABLE_V4_EGRESS", "false"))));
    assert!(egress(&with(("ENABLE_V6_EGRESS", "false"))));
}

#[test]
fn early_demux_is_on_by_default() {
    assert!(resolve(&[]).0.tcp_early_demux);
    assert!(!resolve(&[("DISABLE_TCP_EARLY_DEMUX", "true")]).0.tcp_early_demux);
}

#[test]
fn custom_networking_reads_the_annotation_and_label_of_the_node() {
    let node = ("MY_NODE_NAME", "n1");
    let on = ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true");
    let custom = |pairs: Pairs<'_>| resolve(pairs).0.custom_networking;
    let found = custom(&[node, on]).unwrap();
    assert_eq!(found.annotation, "k8s.amazonaws.com/eniConfig");
    assert_eq!(found.label, "k8s.amazonaws.com/eniConfig");
    let zone = ("ENI_CONFIG_LABEL_DEF", "topology.kubernetes.io/zone");
    let found = custom(&[node, on, zone, ("ENI_CONFIG_ANNOTATION_DEF", "")]).unwrap();
    assert_eq!(found.annotation, "k8s.amazonaws.com/eniConfig", "empty is unset");
    assert_eq!(found.label, "topology.kubernetes.io/zone");
    assert_eq!(custom(&[zone]), None);
}

#[test]
fn pods_with_branch_enis_are_routed_by_the_enforcing_mode() {
    let node = ("MY_NODE_NAME", "n1");
    let on = ("ENABLE_POD_ENI", "true");
    assert_eq!(resolve(&[node]).0.pod_enis, None);
    assert_eq!(resolve(&[node, on]).0.pod_enis, Some(PodEniMode::Strict));
    let standard = ("POD_SECURITY_GROUP_ENFORCING_MODE", "standard");
    assert_eq!(resolve(&[node, on, standard]).0.pod_enis, Some(PodEniMode::Standard));
    // Without pod ENIs amazon-vpc-cni does not look at the mode either.
    assert_eq!(resolve(&[("POD_SECURITY_GROUP_ENFORCING_MODE", "lax")]).0.pod_enis, None);
}

#[test]
fn only_modes_that_cannot_work_without_the_api_server_wait_for_it() {
    let node = ("MY_NODE_NAME", "n1");
    for (mode, waits) in [
        ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", true),
        ("ENABLE_POD_ENI", true),
        ("ANNOTATE_POD_IP", false),
        ("ENABLE_MULTI_NIC", false),
    ] {
        assert_eq!(resolve(&[node, (mode, "true")]).0.needs_kubernetes(), waits, "{mode}");
    }
}

#[test]
fn read_only_modes_collect_no_leaked_enis() {
    let of = |setting| {
        let (settings, warnings) = resolve(&[(setting, "true")]);
        assert_eq!(warnings.len(), 0, "{warnings:?}");
        (settings.provisioning, settings.imds_only, settings.collect_leaks)
    };
    assert_eq!(of("DISABLE_NETWORK_RESOURCE_PROVISIONING"), (false, false, false));
    assert_eq!(of("ENABLE_IMDS_ONLY_MODE"), (false, true, false));
    assert_eq!(of("DISABLE_LEAKED_ENI_CLEANUP"), (true, false, false));
    assert_eq!(of("ENABLE_MULTI_NIC"), (true, false, true));
}

#[test]
fn choices_names_and_keys_are_checked() {
    let (settings, _) = resolve(&[
        ("FERRULE_ANTICIPATE", "off"),
        ("FERRULE_NODE_GROUP", "blue-2"),
        ("FERRULE_STARTUP_TAINT", "example.com/starting.up"),
        ("FERRULE_KUBERNETES", "off"),
    ]);
    assert!(!settings.anticipate_pods);
    assert_eq!(settings.node_group, "blue-2");
    assert_eq!(settings.startup_taint, "example.com/starting.up");
    assert_eq!(settings.kubernetes, Kubernetes::Off);
    for (setting, value) in [
        ("FERRULE_ANTICIPATE", "Pods"),
        ("FERRULE_ANTICIPATE", ""),
        ("FERRULE_NODE_GROUP", "Blue"),
        ("FERRULE_NODE_GROUP", "blue-"),
        ("FERRULE_NODE_GROUP", ""),
        ("FERRULE_STARTUP_TAINT", ""),
        ("FERRULE_STARTUP_TAINT", "/key"),
        ("FERRULE_STARTUP_TAINT", "a/b/c"),
        ("FERRULE_STARTUP_TAINT", "key=value"),
        ("FERRULE_KUBERNETES", "on"),
    ] {
        let refusal = refusal(&[(setting, value)]);
        assert!(
            matches!(refusal, Refusal::Invalid { setting: named, .. } if named == setting),
            "{setting}={value}: {refusal:?}"
        );
    }
}

#[test]
fn an_unknown_ferrule_setting_is_named() {
    let (_, warnings) = resolve(&[("FERRULE_ADDWAIT", "3"), ("PATH", "/bin")]);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("FERRULE_ADDWAIT: "), "{warnings:?}");
}

#[test]
fn a_wait_shorter_than_the_cooldown_causes_a_warning() {
    let (_, warnings) = resolve(&[("FERRULE_ADD_WAIT", "30")]);
    assert!(warnings[0].contains("IP_COOLDOWN_PERIOD"), "{warnings:?}");
}

#[test]
fn a_secret_in_any_setting_is_never_shown() {
    let canary = "canary-5ecret-value";
    for setting in table() {
        for value in [canary.to_owned(), format!("{{\"{canary}\":1}}"), format!("/x {canary},")] {
            let shown = match Settings::resolve([(setting.name, value.as_str())]) {
                Ok((_, warnings)) => format!("{warnings:?}"),
                Err(refusal) => format!("{refusal} {refusal:?}"),
            };
            assert!(!shown.contains(canary), "{}: {shown}", setting.name);
        }
    }
}

#[test]
fn a_short_wrong_value_is_shown() {
    let (_, warnings) = resolve(&[("WARM_IP_TARGET", "five")]);
    assert_eq!(
        warnings,
        ["WARM_IP_TARGET: \"five\" is not an integer; the default 0 is used".to_owned()]
    );
}

#[test]
fn every_default_of_the_table_fits_its_type_and_names_are_unique() {
    let mut names: Vec<&str> = table().map(|setting| setting.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table().count());
    for setting in table() {
        let ours = setting.name.starts_with("FERRULE_");
        assert_eq!(ours, setting.origin == Origin::Ferrule, "{}", setting.name);
        let (_, warnings) = resolve(&[(setting.name, setting.default)]);
        // An empty default is written by leaving the setting out.
        assert!(warnings.is_empty() || setting.default.is_empty(), "{}", setting.name);
    }
}

#[test]
fn pod_links_have_the_mtu_of_enis_by_default() {
    let mtu = |pairs: &[(&str, &str)]| {
        let settings = resolve(pairs).0;
        (settings.eni_mtu, settings.pod_mtu)
    };
    assert_eq!(mtu(&[]), (9001, 9001));
    assert_eq!(mtu(&[("AWS_VPC_ENI_MTU", "1500")]), (1500, 1500));
    assert_eq!(mtu(&[("POD_MTU", "1400")]), (9001, 1400));
    assert_eq!(mtu(&[("AWS_VPC_ENI_MTU", "1500"), ("POD_MTU", "")]), (1500, 1500));
}

#[test]
fn chained_plugins_are_copied_unchanged() {
    let given = r#"[{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}},{"type":"sbr"}]"#;
    let (settings, warnings) = resolve(&[("FERRULE_CHAINED_PLUGINS", given)]);
    assert_eq!(serde_json::Value::from(settings.chained_plugins).to_string(), given_sorted(given));
    assert_eq!(warnings.len(), 0);
}

/// The same list as its values print it.
fn given_sorted(text: &str) -> String {
    text.parse::<serde_json::Value>().expect("JSON").to_string()
}
