//! Settings of the daemon itself: its connections and its output.

use super::{AMAZON, Kind, OnBad, Setting};
use crate::parse;
use config_model::{Span, registry};

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "MY_NODE_NAME",
        meaning: "The node's name in Kubernetes; the manifest sets it. Without it the daemon does \
                  not use the API server.",
        set: |d, v| {
            d.settings.node_name = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "MY_POD_NAME",
        meaning: "The name of the daemon's pod; the manifest sets it.",
        set: |d, v| {
            d.settings.pod_name = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "ANNOTATE_POD_IP",
        kind: Kind::Bool,
        default: "false",
        since: "1.9.3",
        meaning: "A pod's address is written to its annotation `vpc.amazonaws.com/pod-ips`.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.annotate_pod_ip = b),
        ..AMAZON
    },
    Setting {
        name: "CLUSTER_ENDPOINT",
        since: "1.12.1",
        meaning: "The API server's URL instead of the Service's address.",
        set: |d, v| {
            d.settings.cluster_endpoint = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_BACKING_STORE",
        kind: Kind::Path,
        default: "/var/run/aws-node/ipam.json",
        meaning: "amazon-vpc-cni's checkpoint of network card 0. The daemon reads it at a start \
                  without a checkpoint of its own, and never writes it. The files of other cards are \
                  `ipam-nic-N.json` in the same folder.",
        empty_is_unset: true,
        set: |d, v| parse::path(v).map(|path| d.settings.backing_store = path),
        ..AMAZON
    },
    Setting {
        name: "HTTP_TIMEOUT",
        kind: Kind::Int("10 or more"),
        default: "10",
        unit: "seconds",
        meaning: "The timeout of one call to EC2.",
        empty_is_unset: true,
        set: |d, v| {
            let seconds = parse::within(v, 10, u32::MAX.into(), "an integer, 10 or more")?;
            d.settings.http_timeout = Span::seconds(seconds.into());
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_LOGLEVEL",
        kind: Kind::Choice("debug, info, warn, error or fatal, in any case"),
        default: "INFO",
        meaning: "The lowest severity in the log. amazon-vpc-cni's default is `DEBUG`.",
        empty_is_unset: true,
        set: |d, v| parse::log_level(v).map(|level| d.settings.log_level = level),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_LOG_FILE",
        kind: Kind::Text,
        default: "stdout",
        meaning: "The target of the log: `stdout`, `stderr` or an absolute path. A file is rotated at 20 MiB, and \
                  three rotated files are kept. amazon-vpc-cni's default is \
                  `/host/var/log/aws-routed-eni/ipamd.log`.",
        empty_is_unset: true,
        set: |d, v| parse::log_to(v).map(|to| d.settings.log_to = to),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_PLUGIN_LOG_FILE",
        kind: Kind::Text,
        default: "/var/log/aws-routed-eni/plugin.log",
        meaning: "The target of the plugin's log: `stderr` or an absolute path of the host. \
                  `stdout` is refused, because it carries the plugin's result.",
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| parse::plugin_log(v).map(|to| d.settings.plugin_log_file = to),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_PLUGIN_LOG_LEVEL",
        kind: Kind::Choice("debug, info, warn, error or fatal, in any case"),
        default: "INFO",
        meaning: "The lowest severity in the plugin's log. amazon-vpc-cni's default is `DEBUG`.",
        empty_is_unset: true,
        set: |d, v| {
            parse::log_level(v)?;
            d.settings.plugin_log_level = v.to_ascii_uppercase();
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "HOST_CNI_BIN_PATH",
        kind: Kind::Path,
        default: "/host/opt/cni/bin",
        meaning: "The host's plugin folder, as for `ferrule-ipamd install`.",
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| parse::path(v).map(|path| d.settings.host_bin_dir = path),
        ..AMAZON
    },
    Setting {
        name: "HOST_CNI_CONFDIR_PATH",
        kind: Kind::Path,
        default: "/host/etc/cni/net.d",
        meaning: "The host's folder of network configurations, as for `ferrule-ipamd install`.",
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| parse::path(v).map(|path| d.settings.host_conf_dir = path),
        ..AMAZON
    },
    Setting {
        name: "INTROSPECTION_BIND_ADDRESS",
        kind: Kind::Address,
        default: registry::INTROSPECTION_ADDRESS,
        meaning: "The address and port of introspection, or `unix:` and a path.",
        empty_is_unset: true,
        set: |d, v| parse::bind(v).map(|bind| d.settings.introspection = Some(bind)),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_INTROSPECTION",
        kind: Kind::Bool,
        default: "false",
        meaning: "Introspection is off.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.introspection_off = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_METRICS",
        kind: Kind::Bool,
        default: "false",
        meaning: "`/metrics` on port 61678 is off.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.metrics = !b),
        ..AMAZON
    },
];
