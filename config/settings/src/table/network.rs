//! Addresses, routes and links of pods and of the host.

use super::{AMAZON, Effect, Kind, OnBad, Setting};
use crate::parse;
use config_model::EnforcingMode;

const MTU_RANGE: &str = "an integer from 576 to 9001";

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "ENABLE_IPv4",
        kind: Kind::Bool,
        default: "true",
        since: "1.10",
        meaning: "Pods get IPv4 addresses. Exactly one of this and `ENABLE_IPv6` must be true.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.ipv4 = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IPv6",
        kind: Kind::Bool,
        default: "false",
        since: "1.10",
        meaning: "Pods get IPv6 addresses from one prefix per ENI; warm targets are ignored. Needs \
                  `ENABLE_PREFIX_DELEGATION`.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.ipv6 = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_ENI_MTU",
        kind: Kind::Int("576 to 9001"),
        default: "9001",
        unit: "bytes",
        since: "1.6",
        meaning: "The MTU of primary and secondary ENIs; with `ENABLE_IPv6` at least 1280. An \
                  invalid value is refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::within(v, 576, 9001, MTU_RANGE).map(|n| d.settings.eni_mtu = n),
        ..AMAZON
    },
    Setting {
        name: "POD_MTU",
        kind: Kind::Int("576 to 9001"),
        unit: "bytes",
        since: "1.16.4",
        meaning: "The MTU of pods' links; by default the MTU of ENIs; with `ENABLE_IPv6` at least \
                  1280. An invalid value is refused. Running pods keep their MTU.",
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| {
            d.modes.pod_mtu = match v {
                "" => None,
                v => Some(parse::within(v, 576, 9001, MTU_RANGE)?),
            };
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_CNI_NODE_PORT_SUPPORT",
        kind: Kind::Bool,
        default: "true",
        meaning: "Rule 1024 and the connection mark keep replies of node ports on the primary ENI.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.node_port_support = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_CONNMARK",
        kind: Kind::Int("1 to 4294967295, with 0x, 0o or 0b if wanted"),
        default: "0x80",
        meaning: "Mark and mask of traffic that must use the primary ENI. kube-proxy uses 0xc000.",
        empty_is_unset: true,
        set: |d, v| parse::mark(v).map(|mark| d.settings.connmark = mark),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_EXTERNALSNAT",
        kind: Kind::Bool,
        default: "false",
        meaning: "Another device, such as a NAT gateway, translates the pods' addresses toward the \
                  internet. Rule 1024 then exists only with node port support.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.external_snat = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS",
        kind: Kind::Cidrs,
        default: "",
        since: "1.6",
        meaning: "Destinations toward which pods keep their own address. Entries that are not IPv4 \
                  networks are left out with a warning.",
        set: |d, v| {
            d.settings.exclude_snat_cidrs = parse::cidrs(v, &mut d.notes);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_RANDOMIZESNAT",
        kind: Kind::Choice("prng, hashrandom or none"),
        default: "prng",
        meaning: "The choice of source ports during address translation.",
        empty_is_unset: true,
        set: |d, v| parse::randomize(v).map(|choice| d.settings.randomize_snat = choice),
        ..AMAZON
    },
    Setting {
        name: "AWS_EXTERNAL_SERVICE_CIDRS",
        kind: Kind::Cidrs,
        default: "",
        since: "1.12.6",
        meaning: "Destinations that table main always routes. Entries that are not IPv4 networks \
                  are left out with a warning.",
        set: |d, v| {
            d.settings.external_service_cidrs = parse::cidrs(v, &mut d.notes);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_VETHPREFIX",
        kind: Kind::Text,
        default: "eni",
        meaning: "The name prefix of host veths: 1 to 4 characters, not `eth`, `lo` or `vlan`. An \
                  invalid value is refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::veth_prefix(v).map(|prefix| d.settings.veth_prefix = prefix),
        ..AMAZON
    },
    Setting {
        name: "NETWORK_POLICY_ENFORCING_MODE",
        kind: Kind::Choice("none, standard or strict, in any case"),
        default: "standard",
        since: "1.17.1",
        meaning: "With `FERRULE_POLICY`: the result for a pod whose policies are not in force in \
                  time; the default is then `strict`. With `FERRULE_POLICY_AGENT`: the mode that \
                  aws-network-policy-agent uses for pods without a policy. An invalid value is \
                  refused.",
        effect: Effect::Refused {
            asked: |modes| modes.policy_strict && !modes.policy_agent && !modes.policy,
            why: "no agent enforces network policies on this node, so pods would start open \
                  instead of closed; set FERRULE_POLICY or FERRULE_POLICY_AGENT",
        },
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| {
            d.settings.policy_mode = parse::policy_mode(v)?;
            d.modes.policy_strict = d.settings.policy_mode == Some(EnforcingMode::Strict);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "ENABLE_V6_EGRESS",
        kind: Kind::Bool,
        default: "false",
        since: "1.13",
        meaning: "Pods of an IPv4 node reach IPv6 destinations through the node's own address, if \
                  its primary ENI has one.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.v6_egress = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_V4_EGRESS",
        kind: Kind::Bool,
        default: "true",
        since: "1.15.1",
        meaning: "Pods of an IPv6 node reach IPv4 destinations through the node's own address.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.v4_egress = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_TCP_EARLY_DEMUX",
        kind: Kind::Bool,
        default: "false",
        since: "1.7.3",
        meaning: "The node looks up a packet's socket after its route: `net.ipv4.tcp_early_demux` \
                  is 0 instead of 1. The kubelet's TCP probes of strict branch pods need it.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.tcp_early_demux = !b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_BANDWIDTH_PLUGIN",
        kind: Kind::Bool,
        default: "false",
        since: "1.10",
        meaning: "Pods' bandwidth annotations take effect: the plugin `bandwidth` is chained after \
                  ferrule-cni. It must be in the plugin folder. The agent's backend `ebpf` then \
                  needs kernel 6.6.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.bandwidth = b),
        ..AMAZON
    },
];
