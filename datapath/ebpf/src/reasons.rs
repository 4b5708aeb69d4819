//! The reasons for which a packet is dropped or counted.

/// The number of reasons.
pub(crate) const COUNT: u32 = 56;

/// `enum reason` in `tables.h`.
pub(crate) const REASONS: [&str; COUNT as usize] = [
    "egress_rule",
    "egress_reject",
    "egress_isolation",
    "egress_closed",
    "ingress_rule",
    "ingress_reject",
    "ingress_isolation",
    "ingress_closed",
    "answer_of_node",
    "revoked_egress",
    "revoked_ingress",
    "revoked_ended",
    "spoofed_v4",
    "spoofed_v6",
    "spoofed_family",
    "not_ip",
    "tagged",
    "bad_ipv4",
    "bad_ipv6",
    "bad_extension",
    "extensions_limit",
    "bad_ports",
    "bad_icmp",
    "no_origin",
    "origin_ended",
    "no_ticket",
    "fragment_unknown",
    "fragment_late",
    "no_row",
    "no_table",
    "no_work",
    "stray_error",
    "revoked_error",
    "flows_full",
    "no_endpoints",
    "no_local_endpoints",
    "no_such_port",
    "source_range",
    "no_backend",
    "no_stage",
    "no_source_port",
    "rejected",
    "not_answered",
    "share",
    "not_opened",
    "event_limit",
    "event_lost",
    "not_counted",
    "window",
    "not_parsed",
    "chosen_for_pod",
    "chosen_for_process",
    "chosen_for_outside",
    "source_port_taken",
    "source_port_busy",
    "fast_path",
];

/// The choices of backends, by the kind of their clients. They are no reasons about packets.
pub(crate) const CHOICES: [(&str, &str); 3] = [
    ("chosen_for_pod", "pod"),
    ("chosen_for_process", "process"),
    ("chosen_for_outside", "outside"),
];

/// The source ports that were tried for clients outside, by result. They are no reasons about packets.
pub(crate) const SOURCE_PORTS: [(&str, &str); 2] =
    [("source_port_taken", "taken"), ("source_port_busy", "busy")];
