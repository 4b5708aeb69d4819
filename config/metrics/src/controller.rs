//! The policy controller's.

use crate::{BUILD_INFO, Metric, counter, gauge, histogram};

/// From 10 µs, which one event costs, to some seconds.
const COMPUTE: &[f64] = &[1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0];
const PROPAGATION: &[f64] =
    &[1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    gauge("ferrule_controller_leads", &[], "", "1 if this replica writes status"),
    gauge("ferrule_controller_loaded", &[], "", "1 if every kind is read"),
    gauge("ferrule_controller_generation", &[], "", "The newest generation of this run"),
    gauge("ferrule_controller_policies", &[], "policies", "Policies of all kinds"),
    gauge("ferrule_controller_groups", &[], "groups", "Groups of both roles"),
    gauge("ferrule_controller_objects", &["kind"], "objects", "Objects read, by kind"),
    gauge("ferrule_controller_streams", &[], "nodes", "Nodes with a stream"),
    gauge(
        "ferrule_controller_owed_objects",
        &[],
        "objects",
        "What nodes have yet to be told, all together",
    ),
    gauge("ferrule_controller_history_bytes", &[], "bytes", "Kept for nodes that are behind"),
    gauge(
        "ferrule_controller_reached_version",
        &["kind"],
        "",
        "How far each kind was read, as resourceVersion",
    ),
    histogram(
        "ferrule_controller_propagation_seconds",
        PROPAGATION,
        &[],
        "From an event's coming in until the last node that it concerns holds it",
    ),
    counter(
        "ferrule_controller_propagation_unfinished_total",
        &[],
        "events",
        "Events that some node did not hold within a minute",
    ),
    histogram(
        "ferrule_controller_queue_seconds",
        PROPAGATION,
        &[],
        "How long what a watch said waits until it is taken in",
    ),
    histogram(
        "ferrule_controller_compute_seconds",
        COMPUTE,
        &["kind"],
        "What one event costs the index",
    ),
    counter(
        "ferrule_controller_unreadable_total",
        &["kind"],
        "objects",
        "Objects without a name, passed over",
    ),
    counter("ferrule_controller_relists_total", &["kind"], "lists", "Lists after the first"),
    counter("ferrule_controller_watch_restarts_total", &["kind"], "watches", "Watches begun again"),
    counter(
        "ferrule_controller_refused_total",
        &["reason"],
        "requests",
        "What nodes asked for in vain, by reason",
    ),
    counter(
        "ferrule_controller_refused_announcements_total",
        &["reason"],
        "announcements",
        "Addresses of pods that agents told in vain, by reason",
    ),
    counter(
        "ferrule_controller_stuck_streams_total",
        &[],
        "streams",
        "Streams ended as their nodes took nothing, or held nothing, for long",
    ),
    counter(
        "ferrule_controller_token_reviews_total",
        &["result"],
        "tokens",
        "Tokens shown to the API server, by result: taken, refused, error",
    ),
    counter(
        "ferrule_controller_statuses_total",
        &["outcome"],
        "statuses",
        "Statuses of policies, by what became of them",
    ),
    counter(
        "ferrule_controller_certificates_total",
        &[],
        "certificates",
        "Certificates shown, one after another",
    ),
    gauge(
        "ferrule_controller_certificate_expiry_timestamp_seconds",
        &[],
        "seconds since 1970",
        "When the certificate that is shown to nodes ends; 0 before there is one",
    ),
];
