//! The policy controller's.

use crate::{BUILD_INFO, Metric, counter, gauge, histogram};

/// From 10 µs, which one event costs, to some seconds.
const COMPUTE: &[f64] = &[1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0];
const PROPAGATION: &[f64] =
    &[1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    gauge("ferrule_controller_leads", &[], "", "1 if this replica writes status"),
    gauge(
        "ferrule_controller_view_unavailable",
        &[],
        "",
        "1 if this replica holds the Lease and the API server cannot reach the aggregated API",
    ),
    gauge("ferrule_controller_loaded", &[], "", "1 if every kind is listed"),
    gauge("ferrule_controller_generation", &[], "", "The newest generation of this run"),
    gauge("ferrule_controller_policies", &[], "policies", "Policies of all kinds"),
    gauge("ferrule_controller_groups", &[], "groups", "Groups of both roles"),
    gauge("ferrule_controller_objects", &["kind"], "objects", "Objects read, by kind"),
    gauge("ferrule_controller_streams", &[], "nodes", "Nodes with a stream"),
    gauge("ferrule_controller_owed_objects", &[], "objects", "Pending objects of all nodes"),
    gauge(
        "ferrule_controller_history_bytes",
        &[],
        "bytes",
        "Size of the history for nodes that are behind",
    ),
    gauge(
        "ferrule_controller_reached_version",
        &["kind"],
        "",
        "The resourceVersion up to which each kind was read",
    ),
    histogram(
        "ferrule_controller_propagation_seconds",
        PROPAGATION,
        &[],
        "Time from an event to the ack of the last node in its span",
    ),
    counter(
        "ferrule_controller_propagation_unfinished_total",
        &[],
        "events",
        "Events without the ack of every node in their span within a minute",
    ),
    histogram(
        "ferrule_controller_queue_seconds",
        PROPAGATION,
        &[],
        "Time from the arrival of a watch event to its processing",
    ),
    histogram(
        "ferrule_controller_compute_seconds",
        COMPUTE,
        &["kind"],
        "Time that the index takes for one event",
    ),
    counter(
        "ferrule_controller_unreadable_total",
        &["kind"],
        "objects",
        "Ignored objects without a name",
    ),
    counter("ferrule_controller_relists_total", &["kind"], "lists", "Lists after the first"),
    counter("ferrule_controller_watch_restarts_total", &["kind"], "watches", "Restarted watches"),
    counter(
        "ferrule_controller_refused_total",
        &["reason"],
        "requests",
        "Refused requests of nodes, by reason",
    ),
    counter(
        "ferrule_controller_refused_announcements_total",
        &["reason"],
        "announcements",
        "Refused announcements of pods' addresses, by reason",
    ),
    counter(
        "ferrule_controller_stuck_streams_total",
        &[],
        "streams",
        "Streams closed because the agent did not read or acknowledge in time",
    ),
    counter(
        "ferrule_controller_token_reviews_total",
        &["result"],
        "tokens",
        "TokenReviews, by result: taken, refused, error",
    ),
    counter(
        "ferrule_controller_statuses_total",
        &["outcome"],
        "statuses",
        "Writes of policy status, by result",
    ),
    counter(
        "ferrule_controller_certificates_total",
        &[],
        "certificates",
        "Rotations of the serving certificate",
    ),
    gauge(
        "ferrule_controller_certificate_expiry_timestamp_seconds",
        &[],
        "seconds since 1970",
        "Expiry of the serving certificate; 0 without one",
    ),
];
