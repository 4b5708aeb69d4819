//! The plugin forwards the runtime's trace to the daemon and logs it.

use crate::{
    daemon::Daemon,
    node::{Node, on_a_node},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Returns the `traceparent` of each request to the daemon, with this value in the plugin's environment.
fn received(node: &Node, daemon: &Daemon, traceparent: &str) -> Vec<Option<String>> {
    let sandbox = node.sandbox("c1", "web-0");
    let mut conf = node.conf();
    conf["cniVersion"] = "1.1.0".into();
    conf["addWait"] = "1".into();
    conf["cni.dev/valid-attachments"] = serde_json::json!([]);
    for verb in ["ADD", "DEL", "STATUS", "GC"] {
        node.call_with(verb, &sandbox, &conf).var("TRACEPARENT", traceparent).run();
    }
    daemon.book(|book| std::mem::take(&mut book.traces))
}

#[test]
fn every_request_is_part_of_the_runtimes_trace_and_the_log_names_it() {
    on_a_node(|node| {
        let daemon = Daemon::start_of_another_version(node);
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let traces = received(node, &daemon, &parent);
        assert!(
            traces.len() >= 4 && traces.iter().all(|it| it.as_ref() == Some(&parent)),
            "{traces:?}"
        );
        let log = node.log();
        assert!(log.lines().count() >= 4 && log.lines().all(|line| line.contains(TRACE)), "{log}");
    });
}

#[test]
fn an_invalid_trace_is_neither_forwarded_nor_logged() {
    on_a_node(|node| {
        let daemon = Daemon::start_of_another_version(node);
        let traces = received(node, &daemon, "00-CANARY-b7ad6b7169203331-01");
        assert!(traces.len() >= 4 && traces.iter().all(Option::is_none), "{traces:?}");
        assert!(!node.log().contains("CANARY"), "{}", node.log());
    });
}
