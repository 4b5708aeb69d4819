//! The policy agent's.

use crate::{BUILD_INFO, Metric, counter, gauge, histogram};

const WAIT: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0];

pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    counter(
        "ferrule_agent_admitted_total",
        &["answer"],
        "pods",
        "Pods that started, by the answer that they got: enforced, open, refused",
    ),
    histogram(
        "ferrule_agent_admit_seconds",
        WAIT,
        &[],
        "How long a pod that started waited until policy held for it, or for the answer that it does not",
    ),
    gauge("ferrule_agent_waiting_pods", &[], "pods", "Pods that start and wait"),
    gauge("ferrule_agent_following", &[], "", "1 if a replica of the controller is followed"),
    gauge(
        "ferrule_agent_behind",
        &[],
        "",
        "1 if that replica has read less than this node held when it was taken",
    ),
    counter(
        "ferrule_agent_streams_total",
        &["behind"],
        "streams",
        "Streams that began, by whether the replica had read less than the node held",
    ),
    gauge(
        "ferrule_agent_held",
        &["kind"],
        "objects",
        "Objects that are held, by kind: policy, address_group, applied_group, pod",
    ),
    gauge("ferrule_agent_backend_lag", &[], "states", "States that are held and not yet in force"),
    gauge("ferrule_agent_failing_policies", &[], "policies", "Policies that are not in force"),
    gauge(
        "ferrule_agent_failing_pods",
        &[],
        "pods",
        "Pods of the node on which policies are not in force although the backend works",
    ),
    counter(
        "ferrule_agent_drifts_total",
        &[],
        "observations",
        "Observations in which the state in force was not the one that the agent had applied",
    ),
    counter(
        "ferrule_agent_generations_total",
        &["outcome"],
        "generations",
        "Generations of what the node is told, by what became of them",
    ),
    counter(
        "ferrule_agent_announcements_total",
        &["outcome"],
        "announcements",
        "Announcements of pods' addresses to a replica, by what became of them",
    ),
    counter(
        "ferrule_agent_reports_total",
        &["outcome"],
        "reports",
        "Reports of what became of policies, by what became of them: arrived, failed",
    ),
    gauge("ferrule_agent_disk_failing", &[], "", "1 if what is held is not on the disk"),
];
