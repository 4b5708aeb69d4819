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
        meaning: "The longest that an ADD waits for an address.",
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
        meaning: "Configurations of plugins that are chained after ours, such as \
                  `[{\"type\":\"tuning\",\"sysctl\":{\"net.core.somaxconn\":\"500\"}}]`. They must be in the \
                  plugins' folder. `portmap`, for host ports, comes before them by itself where it \
                  is there.",
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
        meaning: "The calls of one EC2 action that the node may make at once. EC2 throttles an \
                  account: the nodes share its buckets of 50 to 100 calls (\"Request throttling for \
                  the Amazon EC2 API\" in the EC2 developer guide). Throttling halves what is \
                  allowed here, and it creeps back.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.burst = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_EC2_CHANGES_PER_SECOND",
        kind: Kind::Int("1 to 1000"),
        default: "2",
        unit: "calls per second",
        meaning: "What an action that changes something may use after the burst: EC2 gives an \
                  account 5 per second for ENIs and their addresses.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.changes = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_EC2_READS_PER_SECOND",
        kind: Kind::Int("1 to 1000"),
        default: "4",
        unit: "calls per second",
        meaning: "What an action that describes something may use after the burst: EC2 gives an \
                  account 20 per second.",
        set: |d, v| parse::within(v, 1, 1000, CALLS).map(|calls| d.settings.calls.reads = calls),
        ..OURS
    },
    Setting {
        name: "FERRULE_NAT_BACKEND",
        kind: Kind::Choice("auto, iptables-legacy, iptables-nft or nftables"),
        default: "auto",
        meaning: "Who writes the rules of SNAT and connection marks. `auto` is what the node uses: \
                  iptables-legacy where others have rules there, else nftables with a table of our \
                  own, else iptables-nft. What another one wrote before is taken away.",
        set: |d, v| parse::nat_backend(v).map(|backend| d.settings.nat_backend = backend),
        ..OURS
    },
    Setting {
        name: "FERRULE_RULES",
        kind: Kind::Choice("per-pod or compact"),
        default: "per-pod",
        meaning: "How the host's rules for pods are laid out. `per-pod`: each pod has its own, as \
                  with amazon-vpc-cni, and a packet's lookup goes through all of them. `compact`: \
                  one rule to a table of the routes to all pods, and one from each prefix of an \
                  ENI; packets from single addresses are marked by nftables with the bits 0x3f00. \
                  It may be changed at a restart of the daemon, with pods. Before amazon-vpc-cni \
                  takes the node back it must be `per-pod`.",
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
        meaning: "aws-network-policy-agent runs on the node and enforces its policies. It gets its \
                  settings at `ipamd.sock` beside `AWS_VPC_K8S_CNI_BACKING_STORE`, where \
                  amazon-vpc-cni served it, and is told of each pod at `npa.sock` there; an ADD \
                  that it does not answer fails.",
        set: |d, v| {
            d.settings.policy_agent = parse::boolean(v)?;
            d.modes.policy_agent = d.settings.policy_agent;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_STATE_DIR",
        kind: Kind::Path,
        default: registry::STATE_DIR,
        meaning: "The folder of checkpoint and tombstones. The plugin must have the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.state_dir = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_SOCKET",
        kind: Kind::Path,
        default: registry::IPAMD_SOCKET,
        meaning: "The daemon's socket. The plugin must have the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.socket = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_PROC_SYS_NET",
        kind: Kind::Path,
        default: "/host/proc/sys/net",
        meaning: "Where the host's `/proc/sys/net` is mounted such that it can be written; a \
                  container's own is read-only. The path ends in `/net`.",
        set: |d, v| parse::net_folder(v).map(|path| d.settings.proc_sys_net = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_ANTICIPATE",
        kind: Kind::Choice("off or pods"),
        default: "pods",
        meaning: "Whether pods that are bound to this node and have no address yet count as \
                  demand, so that a burst finds its addresses ready.",
        set: |d, v| {
            parse::choice(v, &[("off", false), ("pods", true)], "off or pods")
                .map(|b| d.settings.anticipate_pods = b)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_NODE_GROUP",
        default: "default",
        meaning: "ENIs that are created carry it as `ferrule.io/node-group`. Leaked ENIs are \
                  collected within a cluster and a node group, by one elected daemon of the group.",
        set: |d, v| parse::label(v).map(|group| d.settings.node_group = group),
        ..OURS
    },
    Setting {
        name: "FERRULE_STARTUP_TAINT",
        default: "ferrule.io/not-ready",
        meaning: "The key of a taint that new nodes may be given; it is taken away, whatever its \
                  value and effect, once the pool can serve.",
        set: |d, v| parse::taint_key(v).map(|key| d.settings.startup_taint = key),
        ..OURS
    },
    Setting {
        name: "FERRULE_KUBERNETES",
        kind: Kind::Choice("auto or off"),
        default: "auto",
        meaning: "`auto`: the API server is spoken to when there are credentials for it and \
                  `MY_NODE_NAME` is set. `off`: never; modes that need it are refused.",
        set: |d, v| {
            let modes = [("auto", Kubernetes::Auto), ("off", Kubernetes::Off)];
            parse::choice(v, &modes, "auto or off").map(|mode| d.settings.kubernetes = mode)
        },
        ..OURS
    },
];

const CALLS: parse::Wanted = "an integer from 1 to 1000";
