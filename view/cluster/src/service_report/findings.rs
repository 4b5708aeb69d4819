//! The problems of a Service.

use super::{Answer, ClientView, EndpointView, FrontendView, InForce, ServiceReport};
use service_core::{MOST_BACKENDS, OutReason, Use};
use service_objects::ObjectName;
use std::collections::BTreeSet;
use view_node::{Severity, Trouble};

/// Returns the problems, the worst first and each once. `slices` is the number of the Service's slices.
pub(super) fn troubles(report: &ServiceReport, name: &ObjectName, slices: usize) -> Vec<Trouble> {
    let mut found = Found { name, troubles: Vec::new() };
    if report.not_served.is_none() {
        report.frontends.iter().for_each(|frontend| found.of_frontend(report, frontend, slices));
        found.of_counts(report);
        if let (Some(InForce::No(why)), Some(node)) = (&report.in_force, &report.node) {
            let cause = format!("the Service is not in force as it should be on {node}: {why}");
            let next = "fix the cause; see FerruleServicesNotInForce in docs/guide/alerts.md";
            found.add(Severity::Trouble, "not_in_force", cause, next.to_owned());
        }
    }
    for problem in &report.problems {
        let cause = format!("{} is not used: {}", problem.field, problem.cause);
        let next = format!("kubectl -n {} edit service {}", name.namespace, name.name);
        found.add(Severity::Notice, "not_understood", cause, next);
    }
    let mut troubles = found.troubles;
    troubles.sort_by_key(|trouble| trouble.severity);
    troubles
}

struct Found<'a> {
    name: &'a ObjectName,
    troubles: Vec<Trouble>,
}

impl Found<'_> {
    /// Adds a problem, unless another frontend has the same.
    fn add(&mut self, severity: Severity, kind: &str, cause: String, next_step: String) {
        if self.troubles.iter().all(|it| (it.kind.as_str(), &it.cause) != (kind, &cause)) {
            let (kind, object) = (kind.to_owned(), self.name.to_string());
            self.troubles.push(Trouble { kind, severity, since: None, object, cause, next_step });
        }
    }

    fn look(&self) -> String {
        let ObjectName { namespace, name } = self.name;
        format!("kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}")
    }

    fn of_frontend(&mut self, report: &ServiceReport, frontend: &FrontendView, slices: usize) {
        if let Some(owner) = &frontend.taken_by {
            let cause = format!("{} belongs to Service {owner}", frontend.at);
            let next = "use another address or port in one of the Services".to_owned();
            return self.add(Severity::Trouble, "taken", cause, next);
        }
        let Some(port) = &frontend.port else { return };
        let port = if port.is_empty() { String::new() } else { format!("port {port}: ") };
        let clients: Vec<&ClientView> =
            [&frontend.inside, &frontend.outside].into_iter().flatten().collect();
        if clients.iter().any(|client| client.answer == Answer::NoEndpoints) {
            let cause = format!("{port}{}", without_endpoints(&frontend.endpoints, slices));
            let next = format!("{}; check the selector and the pods behind it", self.look());
            return self.add(Severity::Trouble, "no_endpoints", cause, next);
        }
        let is_local = clients.iter().any(|client| client.answer == Answer::NoLocalEndpoints);
        if let Some(node) = report.node.as_ref().filter(|_| is_local) {
            let cause = format!("{port}{node} has no endpoint, and a policy is Local");
            let next = "no step if load balancers check the node's health; otherwise add a pod on \
                        the node";
            self.add(Severity::Notice, "no_local_endpoints", cause, next.to_owned());
        }
        let used = || frontend.endpoints.iter().filter(|of| of.uses.contains(&Use::In));
        if used().next().is_some() && used().all(|of| !of.ready) {
            let cause = format!("{port}all backends terminate; none is ready");
            let next = format!("{}; check the pods behind it", self.look());
            self.add(Severity::Notice, "draining", cause, next);
        }
        self.of_hints(report, frontend, &port);
        let beyond = Use::Out(OutReason::BeyondLimit);
        let beyond = frontend.endpoints.iter().filter(|of| of.uses.contains(&beyond)).count();
        if beyond > 0 {
            let cause = format!(
                "{port}{beyond} endpoints are not used: a table has {MOST_BACKENDS} places"
            );
            self.add(Severity::Trouble, "left_out", cause, "split the Service".to_owned());
        }
    }

    /// Hints count only if each ready endpoint has some, and one of them has the zone.
    fn of_hints(&mut self, report: &ServiceReport, frontend: &FrontendView, port: &str) {
        let Some(node) = &report.node else { return };
        let ready = || frontend.endpoints.iter().filter(|of| of.ready && of.port.is_some());
        let zones: BTreeSet<&str> =
            ready().flat_map(|of| &of.zone_hints).map(String::as_str).collect();
        let has_all = ready().all(|of| !of.zone_hints.is_empty() && of.node_hints.is_empty());
        let zone = report.zone.as_deref();
        if zones.is_empty() || !has_all || zone.is_some_and(|zone| zones.contains(zone)) {
            return;
        }
        let zones = zones.into_iter().collect::<Vec<_>>().join(", ");
        let place = match zone {
            Some(zone) => format!("{node} is in zone {zone}"),
            None => format!("{node} has no zone"),
        };
        let cause =
            format!("{port}hints of endpoints are not used: they are for {zones}, and {place}");
        let next = "compare with kubectl get nodes -L topology.kubernetes.io/zone; fix the label of the \
                    node or the hints";
        self.add(Severity::Notice, "hints_not_used", cause, next.to_owned());
    }

    fn of_counts(&mut self, report: &ServiceReport) {
        let (ready, total) = (report.endpoints.ready, report.endpoints.total);
        if 0 < ready && ready < total {
            let cause = format!("{} of {total} endpoints are not ready", total - ready);
            let next = format!("{}; check the pods behind it", self.look());
            self.add(Severity::Notice, "not_ready", cause, next);
        }
    }
}

/// The reason for which a port has no usable endpoint.
fn without_endpoints(endpoints: &[EndpointView], slices: usize) -> String {
    let reasons: BTreeSet<Use> = endpoints.iter().flat_map(|endpoint| endpoint.uses).collect();
    let has = |reason| reasons.contains(&Use::Out(reason));
    if endpoints.is_empty() {
        match slices {
            0 => "the Service has no EndpointSlice",
            _ => "the EndpointSlices of the Service have no endpoint",
        }
    } else if has(OutReason::NotReady) || has(OutReason::Terminating) {
        "no endpoint is ready"
    } else if has(OutReason::NoSuchPort) {
        "no EndpointSlice has the name and protocol of the port"
    } else if has(OutReason::OtherPort) {
        "no endpoint has the same SCTP port"
    } else {
        "the EndpointSlices are of another family or for another proxy"
    }
    .to_owned()
}
