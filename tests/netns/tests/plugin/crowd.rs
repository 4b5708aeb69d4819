//! Many concurrent calls.

use crate::{
    binary::Ended,
    daemon::{Book, Daemon},
    node::on_a_node,
};
use std::collections::BTreeSet;

const PODS: usize = 60;

#[test]
fn sixty_adds_at_once_and_then_sixty_dels_at_once_leave_the_node_as_it_was() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let before = node.host_state();
        let sandboxes: Vec<_> = (0..PODS)
            .map(|number| node.sandbox(&format!("c{number}"), &format!("web-{number}")))
            .collect();
        let adds: Vec<_> =
            sandboxes.iter().map(|sandbox| node.call("ADD", sandbox).start()).collect();
        let results: Vec<_> = adds.into_iter().map(|add| Ended::of(add).result()).collect();
        let addresses: BTreeSet<String> =
            results.iter().map(|result| result["ips"][0]["address"].to_string()).collect();
        assert_eq!(addresses.len(), PODS);
        assert_eq!((node.veths().len(), node.pod_routes().len()), (PODS, PODS));
        assert_eq!(node.pod_rules().len(), 2 * PODS);
        for line in node.log().lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert_eq!(node.log().lines().count(), PODS, "not one whole line for each call");

        let dels: Vec<_> = sandboxes
            .iter()
            .zip(&results)
            .map(|(sandbox, result)| node.first_del(sandbox, result).start())
            .collect();
        dels.into_iter().for_each(|del| Ended::of(del).is_silent_success());
        assert_eq!((node.pod_routes().len(), node.pod_rules().len()), (0, 0));
        node.ip(&format!("link del group {}", config_model::registry::GROUP_REAP));
        assert_eq!(node.host_state(), before);
    });
}
