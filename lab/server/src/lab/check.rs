//! The traffic check: who is probed.

use super::{Lab, LabError, blocking, desired::desired};
use crate::control::{CheckSpec, CheckView};
use lab_fabric::{
    Fabric,
    probe::{self, ProbePlan, ProbePod},
};
use std::time::Duration;

impl Lab {
    /// Probes every pod that is up against every other, and against the hosts.
    pub(crate) async fn check(&self, spec: CheckSpec) -> Result<CheckView, LabError> {
        let desired = desired(&self.cloud.truth(), &self.profiles());
        let without_namespace = self.pods.all().values().filter(|pod| !pod.has_namespace).count();
        let mut plan = ProbePlan::full(self.probe_pods(), desired.enis.into_iter().collect());
        plan.packet_bytes = spec.packet;
        plan.tcp_pairs = spec.tcp;
        plan.patience = Duration::from_millis(spec.timeout_ms);
        let state_dir = self.fabric.state_dir().to_owned();
        let report = blocking(move || probe::run(&Fabric::open(&state_dir)?, &plan)).await?;
        Ok(CheckView {
            passed: report.passed(),
            pod_pairs: report.pods.tried,
            pod_pairs_reached: report.pods.reached,
            without_namespace,
            report,
        })
    }

    fn probe_pods(&self) -> Vec<ProbePod> {
        let pods = self.pods.all().into_iter();
        let up = pods.filter(|(_, pod)| pod.has_namespace);
        let probed = up.filter_map(|((namespace, name), pod)| {
            Some(ProbePod {
                name: format!("{namespace}/{name}"),
                address: pod.addresses().into_iter().next()?,
                node: pod.node,
                netns: pod.netns,
            })
        });
        probed.collect()
    }
}
