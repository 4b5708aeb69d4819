//! The output of a plan.

use cli_migrate::services::{
    Cleaner, Goal, Level, Node, Observation, Plan, Request, Serving, Step,
};
use serde_json::{Value, json};
use view_text::counted;

/// Formats the checks, the nodes and the steps. The last line is the summary.
pub(super) fn text(seen: &Observation, plan: &Plan, request: &Request) -> String {
    let mut lines = Vec::new();
    for finding in &plan.findings {
        lines.push(format!(
            "{:<8} {}: {}",
            finding.level.to_string(),
            finding.object,
            finding.cause
        ));
        if !finding.next.is_empty() {
            lines.push(format!("         next: {}", finding.next));
        }
    }
    for (name, node) in &seen.nodes {
        lines.push(format!("node     {name}: {}, {}", by_ferrule(node), by_kube_proxy(node)));
    }
    lines.extend((1..).zip(&plan.steps).map(|(number, step)| format!("{number:7}. {step}")));
    lines.push(summary(plan, request));
    lines.join("\n") + "\n"
}

/// Returns the plan as a document.
pub(super) fn document(seen: &Observation, plan: &Plan, request: &Request) -> Value {
    let steps: Vec<String> = plan.steps.iter().map(Step::to_string).collect();
    let node = |(name, node): (&String, &Node)| {
        json!({
            "node": name,
            "ferrule": by_ferrule(node),
            "kubeProxy": node.kube_proxy.is_some(),
            "isSwitched": node.is_switched,
            "hasRules": has_rules(node),
        })
    };
    json!({
        "to": match request.goal {
            Goal::Ferrule => "ferrule",
            Goal::KubeProxy => "kube-proxy",
        },
        "isBlocked": plan.is_blocked(),
        "findings": plan.findings,
        "nodes": seen.nodes.iter().map(node).collect::<Vec<_>>(),
        "steps": steps,
    })
}

fn summary(plan: &Plan, request: &Request) -> String {
    let count = |level| plan.findings.iter().filter(|it| it.level == level).count();
    let blockers = count(Level::Blocker);
    if blockers > 0 {
        let blockers = counted(blockers, "blocker", "blockers");
        return format!("{blockers}; fix them first, no step is applied");
    }
    match plan.steps.len() {
        0 if request.remove || request.goal == Goal::KubeProxy => "no steps remain".to_owned(),
        0 => "no steps remain; --remove-kube-proxy deletes kube-proxy's DaemonSet if it exists"
            .to_owned(),
        steps => {
            let warnings = counted(count(Level::Warning), "warning", "warnings");
            format!("{}, {warnings}", counted(steps, "step", "steps"))
        }
    }
}

fn by_ferrule(node: &Node) -> String {
    let Some(agent) = &node.agent else { return "no pod of Ferrule".to_owned() };
    match &agent.serving {
        _ if !agent.serves => "Ferrule serves no Services".to_owned(),
        Serving::Known { services, failing: 0, lag: 0 } => {
            format!("Ferrule serves {}", counted(*services, "Service", "Services"))
        }
        Serving::Known { services, failing, lag } => {
            format!("Ferrule has {services} Services, {failing} not in force, {lag} states behind")
        }
        Serving::NotAsked => "Ferrule serves".to_owned(),
        Serving::Unknown(_) => "the state of Ferrule is unknown".to_owned(),
    }
}

fn by_kube_proxy(node: &Node) -> &'static str {
    match (node.kube_proxy, has_rules(node)) {
        (Some(_), _) => "kube-proxy runs",
        (None, Some(true)) => "rules of kube-proxy exist",
        (None, Some(false)) => "no rules of kube-proxy",
        (None, None) => "no kube-proxy",
    }
}

/// Returns true if the node has rules of kube-proxy; `None` if that is unknown.
fn has_rules(node: &Node) -> Option<bool> {
    match node.cleaner {
        Some(Cleaner::Clean) => Some(false),
        Some(Cleaner::Waiting) => Some(true),
        Some(Cleaner::Starting) | None => None,
    }
}
