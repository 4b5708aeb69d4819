//! Settings that only Ferrule has.

use super::{Kind, OURS, OnBad, Setting};
use crate::{parse, values::Kubernetes};
use config_model::{RuleLayout, Span, registry};

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "FERRULE_ADD_WAIT",
        kind: Kind::Int("1 to 3600"),
        default: "45",
        unit: "seconds",
        meaning: "The limit of the time that an ADD waits for an address.",
        set: |d, v| {
            let seconds = parse::within(v, 1, 3600, "an integer from 1 to 3600")?;
            d.settings.add_wait = Span::seconds(seconds.into());
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_CHAINED_PLUGINS",
        kind: Kind::Plugins,
        default: "[]",
        meaning: "Configurations of plugins that are chained after ferrule-cni, such as \
                  `[{\"type\":\"tuning\",\"sysctl\":{\"net.core.somaxconn\":\"500\"}}]`. They must \
                  be in the plugin folder. `portmap`, for host ports, is added before them if it \
                  is installed.",
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| parse::plugins(v).map(|plugins| d.settings.chained_plugins = plugins),
        ..OURS
    },
    Setting {
        name: "FERRULE_EC2_BURST",
        kind: Kind::Int("1 to 1000"),
        default: "20",
        unit: "calls",
        meaning: "The burst of one EC2 action on this node. EC2 throttles per account: all nodes \
                  share its buckets of 50 to 100 calls. The EC2 developer guide has them under \
                  \"Request throttling for the Amazon EC2 API\". Throttling halves this budget, \
                  and it recovers slowly.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.burst = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_EC2_CHANGES_PER_SECOND",
        kind: Kind::Int("1 to 1000"),
        default: "2",
        unit: "calls per second",
        meaning: "The rate of a changing action after the burst: EC2 allows an account 5 calls per \
                  second for ENIs and their addresses.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.changes = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_EC2_READS_PER_SECOND",
        kind: Kind::Int("1 to 1000"),
        default: "4",
        unit: "calls per second",
        meaning: "The rate of a describing action after the burst: EC2 allows an account 20 calls \
                  per second.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.reads = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_NAT_BACKEND",
        kind: Kind::Choice("auto, iptables-legacy, iptables-nft or nftables"),
        default: "auto",
        meaning: "The backend for the rules of SNAT and connection marks. `auto` follows the node: \
                  iptables-legacy if other programs have rules there, else nftables with a table \
                  of its own, else iptables-nft. Rules of another backend from earlier are \
                  removed.",
        set: |d, v| parse::nat_backend(v).map(|backend| d.settings.nat_backend = backend),
        ..OURS
    },
    Setting {
        name: "FERRULE_RULES",
        kind: Kind::Choice("per-pod or compact"),
        default: "per-pod",
        meaning: "The layout of the host's rules for pods. `per-pod`: each pod has its own, as \
                  with amazon-vpc-cni, and a packet's lookup traverses all of them. `compact`: one \
                  rule to a table with the routes to all pods, and one rule per prefix of an ENI. \
                  In this layout nftables marks packets from single addresses with the bits 0x3f00. It can be \
                  changed at a restart of the daemon while pods run. It must be `per-pod` before \
                  amazon-vpc-cni takes the node back.",
        set: |d, v| {
            let layouts = [("per-pod", RuleLayout::PerPod), ("compact", RuleLayout::Compact)];
            parse::choice(v, &layouts, "per-pod or compact").map(|layout| d.settings.rules = layout)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_POLICY_AGENT",
        kind: Kind::Bool,
        default: "false",
        meaning: "aws-network-policy-agent runs on the node and enforces its policies. It reads \
                  its settings at `ipamd.sock` beside `AWS_VPC_K8S_CNI_BACKING_STORE`, where \
                  amazon-vpc-cni served it. The plugin calls it for each pod at `npa.sock` there, \
                  and an ADD without its answer fails.",
        set: |d, v| {
            d.settings.policy_agent = parse::boolean(v)?;
            d.modes.policy_agent = d.settings.policy_agent;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_SOURCE_CHECK",
        kind: Kind::Bool,
        default: "true",
        meaning: "Packets of a pod are dropped if their source is not an address of the pod. With \
                  the policy backend `ebpf` the agent drops them, whatever this setting is. Otherwise a \
                  rule of nftables drops them, for host veths with the prefix \
                  `AWS_VPC_K8S_CNI_VETHPREFIX`. Strict pods with branch ENIs are left to the \
                  check of EC2.",
        set: |d, v| parse::boolean(v).map(|check| d.settings.source_check = check),
        ..OURS
    },
    Setting {
        name: "FERRULE_STATE_DIR",
        kind: Kind::Path,
        default: registry::STATE_DIR,
        meaning: "The folder of checkpoint and tombstones. The plugin must use the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.state_dir = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_SOCKET",
        kind: Kind::Path,
        default: registry::IPAMD_SOCKET,
        meaning: "The daemon's socket. The plugin must use the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.socket = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_PROC_SYS_NET",
        kind: Kind::Path,
        default: "/host/proc/sys/net",
        meaning: "The writable mount of the host's `/proc/sys/net`, because a container's own is \
                  read-only. The path ends in `/net`.",
        set: |d, v| parse::net_folder(v).map(|path| d.settings.proc_sys_net = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_ANTICIPATE",
        kind: Kind::Choice("off or pods"),
        default: "pods",
        meaning: "The source of early demand. With `pods`, pods that are bound to this node and have \
                  no address yet count as demand, so that a burst finds its addresses ready.",
        set: |d, v| {
            parse::choice(v, &[("off", false), ("pods", true)], "off or pods")
                .map(|b| d.settings.anticipate_pods = b)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_NODE_GROUP",
        default: "default",
        meaning: "Created ENIs carry it as `ferrule.io/node-group`. Leaked ENIs are collected \
                  within a cluster and a node group, by one elected daemon of the group.",
        set: |d, v| parse::label(v).map(|group| d.settings.node_group = group),
        ..OURS
    },
    Setting {
        name: "FERRULE_STARTUP_TAINT",
        default: "ferrule.io/not-ready",
        meaning: "The key of a taint for new nodes. The daemon removes it, whatever its value and \
                  effect, once the pool can serve.",
        set: |d, v| parse::taint_key(v).map(|key| d.settings.startup_taint = key),
        ..OURS
    },
    Setting {
        name: "FERRULE_KUBERNETES",
        kind: Kind::Choice("auto or off"),
        default: "auto",
        meaning: "`auto`: the daemon uses the API server if it has credentials and `MY_NODE_NAME` \
                  is set. `off`: never; modes that need it are refused.",
        set: |d, v| {
            let modes = [("auto", Kubernetes::Auto), ("off", Kubernetes::Off)];
            parse::choice(v, &modes, "auto or off").map(|mode| d.settings.kubernetes = mode)
        },
        ..OURS
    },
];

const CALLS: parse::Expected = "an integer from 1 to 1000";
