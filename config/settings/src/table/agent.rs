//! Policy on the node: who asks for it, and the agent that enforces it.

use super::{Kind, OURS, Setting};
use crate::{
    parse,
    values::{Bind, PolicyBackend},
};
use config_model::registry;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "FERRULE_POLICY",
        kind: Kind::Bool,
        default: "false",
        meaning: "ferrule-agent enforces network policies on this node. An ADD waits at its socket \
                  until policy is in force for the pod, 2 seconds at most. Then \
                  `NETWORK_POLICY_ENFORCING_MODE` decides, whose default is then `strict`: \
                  `strict` fails the ADD, and the kubelet retries; `standard` starts the pod open \
                  and logs it.",
        set: |d, v| {
            d.settings.policy = parse::boolean(v)?;
            d.modes.policy = d.settings.policy;
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_SOCKET",
        kind: Kind::Path,
        default: registry::AGENT_SOCKET,
        meaning: "The agent's socket, as a path on the host.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.socket = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_BACKEND",
        kind: Kind::Choice("none or ebpf"),
        default: "none",
        meaning: "The component that enforces policies. `none` enforces no policy: the agent \
                  receives policies, reports that they are not in force, and admits every pod \
                  that it knows. `ebpf` enforces policies by eBPF programs at each pod's host \
                  veth. It needs kernel 6.1, a bpffs, and the capabilities CAP_BPF, \
                  CAP_NET_ADMIN and CAP_PERFMON; CAP_NET_RAW for DNS names.",
        set: |d, v| {
            let backends = [("none", PolicyBackend::None), ("ebpf", PolicyBackend::Ebpf)];
            parse::choice(v, &backends, "none or ebpf")
                .map(|backend| d.settings.agent.backend = backend)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_SERVICES",
        kind: Kind::Choice("none or ebpf"),
        default: "none",
        meaning: "The component that serves Services to pods and processes of this node, and to \
                  clients outside. `ebpf` needs the backend `ebpf`, \
                  `CLUSTER_ENDPOINT` with the API server's own URL, and 56 MiB of \
                  `FERRULE_AGENT_MAP_MEMORY`. A kube-proxy on the node serves the rest.",
        set: |d, v| {
            let components = [("none", false), ("ebpf", true)];
            parse::choice(v, &components, "none or ebpf")
                .map(|services| d.settings.agent.connections.services = services)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_FAST_PATH",
        kind: Kind::Choice("on or off"),
        default: "on",
        meaning: "With `FERRULE_SERVICES=ebpf`, packets between two pods of this node, and between \
                  a pod and other nodes, pass neither the host's netfilter nor its routing rules. \
                  `off` is for operators who need each packet there or in `tcpdump` of the host. A \
                  connection keeps its path until it ends.",
        set: |d, v| {
            let paths = [("on", true), ("off", false)];
            parse::choice(v, &paths, "on or off")
                .map(|fast_path| d.settings.agent.connections.fast_path = fast_path)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_HEALTHZ",
        kind: Kind::Address,
        default: registry::SERVICE_HEALTH_ADDRESS,
        meaning: "The address and port of `/healthz` and `/livez` for load balancers, with \
                  `FERRULE_SERVICES=ebpf`. The default is kube-proxy's address. If it is empty, they are not served.",
        set: |d, v| {
            d.settings.agent.healthz = match v {
                "" => None,
                _ => match parse::bind(v)? {
                    Bind::Tcp(address) => Some(address),
                    Bind::Unix(_) => return Err("an address with a port"),
                },
            };
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_BPF_OBJECT",
        kind: Kind::Path,
        default: registry::BPF_OBJECT,
        meaning: "The object file of the compiled eBPF programs, which the backend `ebpf` loads.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.bpf_object = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_BPF_PINS",
        kind: Kind::Path,
        default: registry::BPF_MAPS,
        meaning: "The folder in which the backend `ebpf` pins its maps. It is on a bpffs. Pinned \
                  maps keep policies in force while the agent restarts.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.bpf_pins = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_CGROUP",
        kind: Kind::Path,
        default: registry::CGROUP,
        meaning: "The root of the node's cgroup v2, or the folder with all its cgroup trees. With \
                  `FERRULE_SERVICES=ebpf` the agent attaches programs there, which serve \
                  processes of the node.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.cgroup = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_POLICY_EVENT_LOGS",
        kind: Kind::Bool,
        default: "false",
        meaning: "Logs each packet that policies drop and each connection that they allow, at most \
                  200 a second for each pod. Without it only the connections of rules that ask \
                  for a log are logged.",
        set: |d, v| parse::boolean(v).map(|logs| d.settings.agent.policy_event_logs = logs),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_STATE_DIR",
        kind: Kind::Path,
        default: registry::AGENT_STATE_DIR,
        meaning: "The folder of the agent's state. With it the agent can start while no controller \
                  answers.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.state_dir = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_METRICS",
        kind: Kind::Address,
        default: "",
        meaning: "The address and port of `/metrics`, `/livez` and `/readyz`, or `unix:` and a \
                  path. If it is empty, they are not served.",
        empty_is_unset: true,
        set: |d, v| {
            d.settings.agent.metrics = if v.is_empty() { None } else { Some(parse::bind(v)?) };
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_LOG_FILE",
        default: "stdout",
        meaning: "The target of the agent's log: `stdout`, `stderr` or an absolute path. A file is rotated as the \
                  daemon's.",
        empty_is_unset: true,
        set: |d, v| parse::log_to(v).map(|to| d.settings.agent.log_to = to),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_LOGLEVEL",
        kind: Kind::Choice("debug, info, warn, error or fatal, in any case"),
        default: "INFO",
        meaning: "The lowest severity in the agent's log.",
        empty_is_unset: true,
        set: |d, v| parse::log_level(v).map(|level| d.settings.agent.log_level = level),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_SERVICE",
        default: "kube-system/ferrule-controller",
        meaning: "Namespace and name of the controller's Service. The agent connects to the ready \
                  addresses of its EndpointSlices, at the port named `policy` or at the only port. \
                  The daemon reads them.",
        set: |d, v| parse::namespaced(v).map(|name| d.settings.agent.service = name),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_REPLICAS",
        kind: Kind::Path,
        default: registry::CONTROLLER_REPLICAS,
        meaning: "The file with these addresses. The daemon writes it, and the agent reads it.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.replicas = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_NAME",
        default: "ferrule-controller",
        meaning: "The name in the certificates of the controller's replicas.",
        set: |d, v| parse::label(v).map(|name| d.settings.agent.server_name = name),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_CA",
        kind: Kind::Path,
        default: "/etc/ferrule/controller/ca.crt",
        meaning: "The certificates of the controller's authority, in PEM; read again for each \
                  connection.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.authority = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_TOKEN",
        kind: Kind::Path,
        default: "/var/run/secrets/ferrule.io/controller/token",
        meaning: "The agent's service account token, bound to its pod and issued for the \
                  controller; read again for each connection.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.token = path),
        ..OURS
    },
];
