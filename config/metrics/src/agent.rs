//! The policy agent's.

use crate::{BUILD_INFO, Metric, counter, gauge, histogram};

/// Bounds of kube-proxy's metric for the same time, in seconds, with more bounds below a second.
const PROGRAMMING: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
const WAIT: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0];

pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    counter(
        "ferrule_agent_admitted_total",
        &["answer"],
        "pods",
        "Admissions of pods, by result: enforced, open, refused",
    ),
    histogram(
        "ferrule_agent_admit_seconds",
        WAIT,
        &[],
        "Time from a pod's admission request to its answer",
    ),
    gauge("ferrule_agent_waiting_pods", &[], "pods", "Pods that wait for admission"),
    gauge("ferrule_agent_following", &[], "", "1 if the agent follows a replica of the controller"),
    gauge(
        "ferrule_agent_behind",
        &[],
        "",
        "1 if that replica had read less than this node holds when the stream started",
    ),
    counter(
        "ferrule_agent_streams_total",
        &["behind"],
        "streams",
        "Started streams, by whether the replica had read less than the node holds",
    ),
    gauge(
        "ferrule_agent_held",
        &["kind"],
        "objects",
        "Objects held, by kind: policy, address_group, applied_group, pod, service, endpoint_slice",
    ),
    gauge("ferrule_agent_backend_lag", &[], "states", "States that are held but not yet in force"),
    gauge("ferrule_agent_failing_policies", &[], "policies", "Policies that are not in force"),
    gauge(
        "ferrule_agent_failing_pods",
        &[],
        "pods",
        "Pods of the node on which policies are not in force although the backend works",
    ),
    gauge(
        "ferrule_agent_failing_services",
        &[],
        "Services",
        "Services that the node does not serve as they should be: without room, without some endpoints, or after a fault",
    ),
    gauge(
        "ferrule_agent_failing_health_ports",
        &[],
        "ports",
        "Ports at which load balancers get no answer of the agent, because another process or Service has them",
    ),
    gauge(
        "ferrule_agent_reserved_ports_failing",
        &[],
        "",
        "1 if the source ports of Services are not among the reserved ports of the node",
    ),
    gauge(
        "ferrule_agent_source_port_listeners",
        &[],
        "sockets",
        "Sockets of other programs that listen at source ports of Services",
    ),
    counter(
        "ferrule_agent_service_repairs_total",
        &["object"],
        "repairs",
        "Repairs for Services after a change by another process, by object: rows, programs, reserved_ports",
    ),
    histogram(
        "ferrule_agent_service_programming_seconds",
        PROGRAMMING,
        &[],
        "Time from the change of an endpoint, as its EndpointSlice has it, until the node's Services have the change",
    ),
    gauge(
        "ferrule_agent_service_rows",
        &["map"],
        "rows",
        "Rows in use of the maps of Services: frontends, backends, tables of backends, words, source ranges",
    ),
    gauge("ferrule_agent_service_row_limit", &["map"], "rows", "All rows of the maps of Services"),
    counter(
        "ferrule_agent_service_choices_total",
        &["client"],
        "choices",
        "Chosen backends of Services, by client: pod, process, outside; an open connection keeps its choice",
    ),
    counter(
        "ferrule_agent_source_port_tries_total",
        &["result"],
        "tries",
        "Source ports that were tried for clients outside with a backend on another node, by result: taken, busy",
    ),
    counter(
        "ferrule_agent_drifts_total",
        &[],
        "observations",
        "Observations in which the state in force was not the one that the agent had applied",
    ),
    counter(
        "ferrule_agent_packets_total",
        &["reason"],
        "packets",
        "Packets that the backend dropped or treated apart, by reason, since its maps were created",
    ),
    gauge(
        "ferrule_agent_map_memory_bytes",
        &[],
        "bytes",
        "Memory of the backend's maps in the kernel, which counts as memory of the container; 0 without maps",
    ),
    counter(
        "ferrule_agent_generations_total",
        &["outcome"],
        "generations",
        "Received generations, by result",
    ),
    counter(
        "ferrule_agent_announcements_total",
        &["outcome"],
        "announcements",
        "Announcements of pods' addresses to a replica, by result",
    ),
    counter(
        "ferrule_agent_reports_total",
        &["outcome"],
        "reports",
        "Reports on policies, by result: arrived, failed",
    ),
    gauge("ferrule_agent_disk_failing", &[], "", "1 if the agent cannot write its state to disk"),
];
