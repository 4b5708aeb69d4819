//! The nodes of a connectivity test.

use crate::objects::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement, TemplateSpec,
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Chooses `count` nodes: the named ones, and others of all zones and instance types in turn. Nodes that are not ready
/// come last. The seed decides between equal nodes. More than `count` named nodes are all chosen.
pub fn sample<'a>(nodes: &'a [Node], named: &[String], count: usize, seed: u64) -> Vec<&'a Node> {
    let is_named = |node: &&Node| named.contains(&node.metadata.name);
    let (mut chosen, others): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(is_named);
    let mut kinds: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
    for node in others {
        let kind = kind(node);
        kinds.entry((number(seed, kind), kind)).or_default().push(node);
    }
    for nodes in kinds.values_mut() {
        nodes.sort_by_key(|node| (!is_ready(node), number(seed, &node.metadata.name)));
    }
    let most = kinds.values().map(Vec::len).max().unwrap_or_default();
    let by_turn = (0..most).flat_map(|turn| kinds.values().filter_map(move |of| of.get(turn)));
    let mut by_turn: Vec<&Node> = by_turn.copied().collect();
    by_turn.sort_by_key(|node| !is_ready(node));
    chosen.extend(by_turn.into_iter().take(count.saturating_sub(chosen.len())));
    chosen.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    chosen
}

/// Returns a pod template that selects these nodes.
pub fn for_nodes(names: &[String]) -> TemplateSpec {
    let term = |name: &String| {
        let field = Requirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: vec![name.clone()],
        };
        NodeSelectorTerm { match_fields: vec![field], ..NodeSelectorTerm::default() }
    };
    let required = Some(NodeSelector { node_selector_terms: names.iter().map(term).collect() });
    let affinity = Affinity { node_affinity: Some(NodeAffinity { required }) };
    TemplateSpec { affinity, ..TemplateSpec::default() }
}

fn is_ready(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|it| it.status == "True")
}

fn kind(node: &Node) -> (&str, &str) {
    let label = |name| node.metadata.labels.get(name).map(String::as_str).unwrap_or_default();
    (label("topology.kubernetes.io/zone"), label("node.kubernetes.io/instance-type"))
}

/// Returns a number that depends on the seed.
fn number(seed: u64, of: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, of).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::affinity::unselected;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn node(name: &str, zone: &str, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": zone } },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    }

    fn names(nodes: &[&Node]) -> Vec<String> {
        nodes.iter().map(|node| node.metadata.name.clone()).collect()
    }

    #[test]
    fn a_sample_has_all_zones_and_the_named_nodes() {
        let zone = |number: usize| ["a", "a", "a", "a", "a", "a", "a", "a", "b", "c"][number % 10];
        let nodes: Vec<Node> =
            (0..1000).map(|it| node(&format!("n{it}"), zone(it), "True")).collect();
        let named = ["n10".to_owned(), "n20".to_owned()];
        let mut samples = BTreeSet::new();
        for seed in 0..20 {
            let chosen = sample(&nodes, &named, 8, seed);
            assert_eq!(chosen.len(), 8);
            let zones: BTreeSet<&str> = chosen.iter().map(|node| kind(node).0).collect();
            assert_eq!(zones.len(), 3, "{:?}", names(&chosen));
            assert!(named.iter().all(|name| names(&chosen).contains(name)));
            samples.insert(names(&chosen));
        }
        assert!(samples.len() > 10, "the seed changes the sample");
        assert_eq!(names(&sample(&nodes, &named, 1, 0)), named);
        assert_eq!(sample(&nodes, &[], 5000, 0).len(), 1000);
    }

    #[test]
    fn a_node_that_is_not_ready_is_chosen_last() {
        let nodes = [node("n1", "a", "False"), node("n2", "b", "True"), node("n3", "b", "True")];
        for seed in 0..20 {
            assert_eq!(names(&sample(&nodes, &[], 2, seed)), ["n2", "n3"]);
        }
        assert_eq!(sample(&nodes, &[], 3, 0).len(), 3);
    }

    #[test]
    fn the_template_selects_the_chosen_nodes_alone() {
        let template = for_nodes(&["n1".to_owned(), "n3".to_owned()]);
        let selected = |name| unselected(&node(name, "a", "True"), &template).is_none();
        assert!(selected("n1") && selected("n3") && !selected("n2"));
    }
}
