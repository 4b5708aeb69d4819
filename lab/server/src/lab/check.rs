//! The traffic check: who is probed.

use super::{Lab, LabError, blocking, pods::PodEntry, wanted::wanted};
use crate::control::{CheckSpec, CheckView};
use lab_fabric::{
    Fabric,
    probe::{self, ProbePlan, ProbePod, ProbePod6},
};
use std::{net::IpAddr, time::Duration};

impl Lab {
    /// Probes every pod that is up against every other, and against the hosts.
    pub(crate) async fn check(&self, spec: CheckSpec) -> Result<CheckView, LabError> {
        let wanted = wanted(&self.cloud.truth(), &self.profiles());
        let without_namespace = self.pods.all().values().filter(|pod| !pod.has_namespace).count();
        let mut plan = ProbePlan::full(self.probe_pods(), wanted.enis.into_iter().collect());
        plan.ipv6 = self.probe_pods_of_ipv6();
        plan.packet_bytes = spec.packet;
        plan.tcp_pairs = spec.tcp;
        plan.patience = Duration::from_millis(spec.timeout_ms);
        let state_dir = self.fabric.state_dir().to_owned();
        let report = blocking(move || probe::run(&Fabric::open(&state_dir)?, &plan)).await?;
        Ok(CheckView {
            passed: report.passed(),
            pod_pairs: report.pods.tried + report.ipv6.tried,
            pod_pairs_reached: report.pods.reached + report.ipv6.reached,
            without_namespace,
            report,
        })
    }

    fn probe_pods(&self) -> Vec<ProbePod> {
        let probed = self.pods_that_are_up().into_iter().filter_map(|(name, pod)| {
            let ipv4 = |address: IpAddr| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            };
            let address = pod.addresses().into_iter().find_map(ipv4)?;
            Some(ProbePod { name, address, node: pod.node, netns: pod.netns })
        });
        probed.collect()
    }

    fn probe_pods_of_ipv6(&self) -> Vec<ProbePod6> {
        let probed = self.pods_that_are_up().into_iter().filter_map(|(name, pod)| {
            let ipv6 = |address: IpAddr| match address {
                IpAddr::V4(_) => None,
                IpAddr::V6(address) => Some(address),
            };
            let address = pod.addresses().into_iter().find_map(ipv6)?;
            Some(ProbePod6 { name, address, node: pod.node, netns: pod.netns })
        });
        probed.collect()
    }

    /// With their names for people.
    fn pods_that_are_up(&self) -> Vec<(String, PodEntry)> {
        let pods = self.pods.all().into_iter();
        let up = pods.filter(|(_, pod)| pod.has_namespace);
        up.map(|((namespace, name), pod)| (format!("{namespace}/{name}"), pod)).collect()
    }
}
