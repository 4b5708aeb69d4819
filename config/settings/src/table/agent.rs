//! Policy on the node: who asks for it, and the agent that enforces it.

use super::{Kind, OURS, Setting};
use crate::{parse, values::PolicyBackend};
use config_model::registry;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "FERRULE_POLICY",
        kind: Kind::Bool,
        default: "false",
        meaning: "Network policies are enforced by ferrule-agent on this node. An ADD waits at its \
                  socket, 2 seconds at most, until policy holds for the pod; then \
                  `NETWORK_POLICY_ENFORCING_MODE` decides, which is `strict` where it is not set: \
                  `strict` fails the ADD, to be tried again; `standard` starts the pod open and \
                  logs it.",
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
        meaning: "The agent's socket, as the plugin finds it on the host.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.socket = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_BACKEND",
        kind: Kind::Choice("none"),
        default: "none",
        meaning: "What the agent puts policies into force with. `none`: nothing; it receives them, \
                  reports that nothing enforces them and lets every pod through that it was told of.",
        set: |d, v| {
            let backends = [("none", PolicyBackend::None)];
            parse::choice(v, &backends, "none").map(|backend| d.settings.agent.backend = backend)
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_STATE_DIR",
        kind: Kind::Path,
        default: registry::AGENT_STATE_DIR,
        meaning: "The folder where the agent keeps what it was told of policy: it begins with it \
                  when no controller answers.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.state_dir = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_METRICS",
        kind: Kind::Address,
        default: "",
        meaning: "Where the agent serves `/metrics`, `/livez` and `/readyz`: address and port, or \
                  `unix:` and a path. Empty: nowhere.",
        empty_is_unset: true,
        set: |d, v| {
            d.settings.agent.metrics = if v.is_empty() { None } else { Some(parse::bind(v)?) };
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_LOG_FILE",
        default: "stderr",
        meaning: "Where the agent's log lines go: `stdout`, `stderr` or an absolute path.",
        empty_is_unset: true,
        set: |d, v| parse::log_to(v).map(|to| d.settings.agent.log_to = to),
        ..OURS
    },
    Setting {
        name: "FERRULE_AGENT_LOGLEVEL",
        kind: Kind::Choice("debug, info, warn, error or fatal, in any case"),
        default: "INFO",
        meaning: "The least severe log line that the agent writes.",
        empty_is_unset: true,
        set: |d, v| parse::log_level(v).map(|level| d.settings.agent.log_level = level),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_SERVICE",
        default: "kube-system/ferrule-controller",
        meaning: "Namespace and name of the controller's Service: the agent dials the ready \
                  addresses of its EndpointSlices, at the port that is named `policy` or is the only \
                  one.",
        set: |d, v| parse::namespaced(v).map(|name| d.settings.agent.service = name),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_NAME",
        default: "ferrule-controller",
        meaning: "The name that the certificates of the controller's replicas are for.",
        set: |d, v| parse::label(v).map(|name| d.settings.agent.server_name = name),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_CA",
        kind: Kind::Path,
        default: "/etc/ferrule/controller/ca.crt",
        meaning: "The certificates of the controller's authority, in PEM; read anew for each \
                  connection.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.authority = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_CONTROLLER_TOKEN",
        kind: Kind::Path,
        default: "/var/run/secrets/ferrule.io/controller/token",
        meaning: "The agent's service-account token, bound to its pod and made for the controller; \
                  read anew for each connection.",
        set: |d, v| parse::path(v).map(|path| d.settings.agent.token = path),
        ..OURS
    },
];
