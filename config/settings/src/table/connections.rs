//! Connections in the backend `ebpf`.

use super::{Kind, OURS, Setting};
use crate::parse::{self, Expected};
use config_model::Span;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "FERRULE_AGENT_CONNECTIONS",
        kind: Kind::Int(LIMIT),
        default: "131072",
        unit: "connections",
        meaning: "The limit of answered connections of the node in the backend `ebpf`. At the \
                  limit a new connection stays among the unanswered ones, which others can \
                  displace.",
        set: |d, v| {
            let limit = parse::within(v, 1024, 16_777_216, LIMIT)?;
            d.settings.agent.connections.limit = limit;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_MAP_MEMORY",
        kind: Kind::Int(MEMORY),
        default: "128",
        unit: "MiB",
        meaning: "The limit of the memory of all eBPF maps. A map that would be full is replaced by a \
                  larger one within this limit. Beyond it a new state is refused, and the earlier \
                  one stays in force. The kernel counts maps as memory of the agent's container, \
                  which needs 48 MiB besides. A lower memory limit of the container lowers this \
                  limit.",
        set: |d, v| {
            let memory = parse::within(v, 16, 65_536, MEMORY)?;
            d.settings.agent.connections.map_memory = u64::from(memory) << 20;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_CONNECTIONS_OF_POD",
        kind: Kind::Int(SHARE),
        default: "25",
        unit: "percent",
        meaning: "The part of `FERRULE_AGENT_CONNECTIONS` that one pod may have.",
        set: |d, v| {
            let share = parse::within(v, 1, 100, SHARE)?;
            d.settings.agent.connections.share = share;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_CONNECTION_SWEEP",
        kind: Kind::Int(SECONDS),
        default: "10",
        unit: "seconds",
        meaning: "The time between two removals of ended connections. A connection counts as \
                  ended from its timeout on, also before its removal.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.sweep = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_UNTRACKED_WINDOW",
        kind: Kind::Int(WINDOW),
        default: "60",
        unit: "seconds",
        meaning: "The time in which a connection may be older than the enforcement of its pods, \
                  where the kernel tracks no connections. A packet without a known connection \
                  then passes if policies allow one of its directions. The counter `window` \
                  counts such packets. Pods that the plugin reports to the agent have no such \
                  time. 0 is off.",
        set: |d, v| {
            let window = parse::within(v, 0, 3600, WINDOW)?;
            d.settings.agent.connections.untracked_window = Span::seconds(window.into());
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_TCP_SYN",
        kind: Kind::Int(SECONDS),
        default: "30",
        unit: "seconds",
        meaning: "The time after which a TCP connection without an answer has ended.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.tcp_syn = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_TCP",
        kind: Kind::Int(SECONDS),
        default: "21600",
        unit: "seconds",
        meaning: "The time after which an answered TCP connection without a packet has ended.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.tcp = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_TCP_FIN",
        kind: Kind::Int(SECONDS),
        default: "120",
        unit: "seconds",
        meaning: "The time after which a TCP connection without a packet has ended, if one end \
                  has closed it.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.tcp_fin = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_TCP_RESET",
        kind: Kind::Int(SECONDS),
        default: "10",
        unit: "seconds",
        meaning: "The time after which a TCP connection without a packet has ended, if one end \
                  has reset it.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.tcp_reset = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_UDP",
        kind: Kind::Int(SECONDS),
        default: "30",
        unit: "seconds",
        meaning: "The time after which UDP without an answer counts as ended. It is also the \
                  time of protocols that have no timeout of their own.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.udp = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_UDP_REPLIED",
        kind: Kind::Int(SECONDS),
        default: "180",
        unit: "seconds",
        meaning: "The time after which answered UDP without a packet counts as ended. It is also \
                  the time of protocols that have no timeout of their own.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.udp_replied = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_ICMP",
        kind: Kind::Int(SECONDS),
        default: "30",
        unit: "seconds",
        meaning: "The time after which ICMP echo without a packet counts as ended.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.icmp = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_SCTP_INIT",
        kind: Kind::Int(SECONDS),
        default: "30",
        unit: "seconds",
        meaning: "The time after which an SCTP association without an answer has ended.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.sctp_init = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_SCTP",
        kind: Kind::Int(SECONDS),
        default: "18000",
        unit: "seconds",
        meaning: "The time after which an answered SCTP association without a packet has ended.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.sctp = time),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_TIMEOUT_FRAGMENT",
        kind: Kind::Int(SECONDS),
        default: "30",
        unit: "seconds",
        meaning: "The time in which further fragments of a packet follow the verdict of its \
                  first one.",
        set: |d, v| seconds(v).map(|time| d.settings.agent.connections.timeouts.fragment = time),
        ..OURS
    },
];

fn seconds(text: &str) -> Result<Span, Expected> {
    parse::within(text, 1, 2_592_000, SECONDS).map(|time| Span::seconds(time.into()))
}

const LIMIT: Expected = "an integer from 1024 to 16777216";
const MEMORY: Expected = "an integer from 16 to 65536";
const SHARE: Expected = "an integer from 1 to 100";
const SECONDS: Expected = "an integer from 1 to 2592000";
const WINDOW: Expected = "an integer from 0 to 3600";
