//! The nodes of a DaemonSet's pods, by the scheduler's rules.

use crate::objects::{
    Affinity, DaemonSet, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement,
    TemplateSpec,
};
use std::fmt;

/// Returns the reason why a node has no daemon; `None` if it should have one. Without a DaemonSet only nodes with a
/// network of their own are excluded.
pub fn excluded(node: &Node, sets: &[DaemonSet]) -> Option<String> {
    let labels = &node.metadata.labels;
    if let Some(compute) = labels.get(COMPUTE).filter(|it| NOT_OURS.contains(&it.as_str())) {
        return Some(format!("a {compute} node has a network of its own"));
    }
    if let Some(os) = labels.get(OS).filter(|os| *os != "linux") {
        return Some(format!("a {os} node uses another network"));
    }
    let mut lacks = sets.iter().map(|set| unselected(node, &set.spec.template.spec));
    // One DaemonSet that selects the node is sufficient.
    let why = lacks.next()??;
    lacks.all(|it| it.is_some()).then(|| format!("the DaemonSet selects nodes with {why}"))
}

/// Returns a pod template that selects the same nodes as the DaemonSets, both before and after a takeover.
pub fn for_probes(sets: &[DaemonSet]) -> TemplateSpec {
    let found = sets.first().map(|set| set.spec.template.spec.clone());
    let TemplateSpec { mut node_selector, affinity, .. } = found.unwrap_or_else(anywhere);
    node_selector.remove(TAKEOVER);
    TemplateSpec { node_selector, affinity, ..TemplateSpec::default() }
}

fn anywhere() -> TemplateSpec {
    let require = |key: &str, operator: &str, values: &[&str]| Requirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(|it| (*it).to_owned()).collect(),
    };
    let match_expressions =
        vec![require(OS, "In", &["linux"]), require(COMPUTE, "NotIn", &NOT_OURS)];
    let term = NodeSelectorTerm { match_expressions, ..NodeSelectorTerm::default() };
    let required = Some(NodeSelector { node_selector_terms: vec![term] });
    let affinity = Affinity { node_affinity: Some(NodeAffinity { required }) };
    TemplateSpec { affinity, ..TemplateSpec::default() }
}

/// Returns the reason why the scheduler never places pods of the template on the node; `None` if it may.
pub fn unselected(node: &Node, template: &TemplateSpec) -> Option<String> {
    let labels = &node.metadata.labels;
    let mut wanted = template.node_selector.iter();
    if let Some((key, value)) = wanted.find(|(key, value)| labels.get(*key) != Some(*value)) {
        return Some(format!("{key}={value}"));
    }
    let required = template.affinity.node_affinity.as_ref()?.required.as_ref()?;
    let terms = &required.node_selector_terms;
    if terms.iter().any(|term| term.admits(node)) {
        return None;
    }
    let lacks = terms.iter().find_map(|term| term.lacks(node));
    Some(lacks.map_or_else(|| "an affinity that no node matches".to_owned(), ToString::to_string))
}

impl NodeSelectorTerm {
    fn admits(&self, node: &Node) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty && self.lacks(node).is_none()
    }

    fn lacks(&self, node: &Node) -> Option<&Requirement> {
        let of_label =
            |it: &&Requirement| !it.holds(node.metadata.labels.get(&it.key).map(String::as_str));
        let of_name = |it: &&Requirement| {
            let known = it.key == "metadata.name";
            !it.holds(known.then_some(node.metadata.name.as_str()))
        };
        let label = self.match_expressions.iter().find(of_label);
        label.or_else(|| self.match_fields.iter().find(of_name))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = || value.is_some_and(|value| self.values.iter().any(|it| it == value));
        let numbers = || -> Option<(i64, i64)> {
            Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
        };
        match self.operator.as_str() {
            "In" => among(),
            "NotIn" => !among(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => numbers().is_some_and(|(has, than)| has > than),
            "Lt" => numbers().is_some_and(|(has, than)| has < than),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        match values.as_slice() {
            [] => write!(f, "{key} {operator}"),
            values => write!(f, "{key} {operator} {}", values.join(", ")),
        }
    }
}

const COMPUTE: &str = "eks.amazonaws.com/compute-type";
const NOT_OURS: [&str; 3] = ["fargate", "auto", "hybrid"];
const OS: &str = "kubernetes.io/os";
/// The label that a staged takeover sets node by node.
const TAKEOVER: &str = "ferrule.io/network";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::{Value, json};

    fn node(labels: Value) -> Node {
        serde_json::from_value(json!({ "metadata": { "name": "n1", "labels": labels } })).unwrap()
    }

    fn template(terms: Value) -> TemplateSpec {
        let required = json!({ "nodeSelectorTerms": terms });
        serde_json::from_value(json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required } } }))
        .unwrap()
    }

    #[test]
    fn a_requirement_is_judged_as_the_scheduler_does_it() {
        let node = node(json!({ "os": "linux", "cores": "8" }));
        for (operator, key, values, holds) in [
            ("In", "os", json!(["linux"]), true),
            ("In", "os", json!(["windows"]), false),
            ("In", "none", json!(["linux"]), false),
            ("NotIn", "os", json!(["linux"]), false),
            ("NotIn", "none", json!(["linux"]), true),
            ("Exists", "os", json!([]), true),
            ("Exists", "none", json!([]), false),
            ("DoesNotExist", "os", json!([]), false),
            ("DoesNotExist", "none", json!([]), true),
            ("Gt", "cores", json!(["7"]), true),
            ("Gt", "cores", json!(["8"]), false),
            ("Lt", "cores", json!(["9"]), true),
            ("Lt", "none", json!(["9"]), false),
        ] {
            let wanted = json!({ "key": key, "operator": operator, "values": values });
            let template = template(json!([{ "matchExpressions": [wanted] }]));
            assert_eq!(unselected(&node, &template).is_none(), holds, "{operator} {key}");
        }
    }

    #[test]
    fn one_matching_term_is_enough_and_an_empty_term_matches_nothing() {
        let node = node(json!({ "os": "linux" }));
        let windows = json!({ "key": "os", "operator": "In", "values": ["windows"] });
        let named = json!({ "key": "metadata.name", "operator": "In", "values": ["n1"] });
        let two = json!([{ "matchExpressions": [windows] }, { "matchFields": [named] }]);
        assert_eq!(unselected(&node, &template(two)), None);
        let both = json!([{ "matchExpressions": [windows], "matchFields": [named] }]);
        assert_eq!(unselected(&node, &template(both)).as_deref(), Some("os In windows"));
        assert!(unselected(&node, &template(json!([{}]))).is_some());
        assert_eq!(unselected(&node, &TemplateSpec::default()), None);
    }

    fn set(template: TemplateSpec) -> DaemonSet {
        let mut set = DaemonSet::default();
        set.spec.template.spec = template;
        set
    }

    #[test]
    fn a_node_that_no_daemon_set_selects_is_excluded() {
        let here = node(json!({ "zone": "a", "kubernetes.io/os": "linux" }));
        let of = |zone: &str| {
            let wanted = json!({ "key": "zone", "operator": "In", "values": [zone] });
            set(template(json!([{ "matchExpressions": [wanted] }])))
        };
        assert_eq!(excluded(&here, &[]), None);
        assert_eq!(excluded(&here, &[of("b"), of("a")]), None);
        assert_eq!(excluded(&here, &[of("a"), of("b")]), None);
        let why = "the DaemonSet selects nodes with zone In b";
        assert_eq!(excluded(&here, &[of("b"), of("c")]).as_deref(), Some(why));
        let windows = node(json!({ "kubernetes.io/os": "windows" }));
        assert_eq!(excluded(&windows, &[]).as_deref(), Some("a windows node uses another network"));
    }

    #[test]
    fn probes_run_on_nodes_with_daemons_and_on_nodes_before_their_takeover() {
        let mut ours = template(json!([{ "matchExpressions": [
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }] }]));
        ours.node_selector.insert(TAKEOVER.to_owned(), "ferrule".to_owned());
        ours.node_selector.insert("pool".to_owned(), "a".to_owned());
        let wanted = for_probes(&[set(ours.clone())]);
        assert_eq!(wanted.affinity, ours.affinity);
        assert_eq!(wanted.node_selector.keys().collect::<Vec<_>>(), ["pool"]);
        let windows = node(json!({ "kubernetes.io/os": "windows" }));
        let linux = node(json!({ "kubernetes.io/os": "linux" }));
        assert!(unselected(&windows, &for_probes(&[])).is_some());
        assert_eq!(unselected(&linux, &for_probes(&[])), None);
    }
}
