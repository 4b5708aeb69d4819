//! STATUS: 0 if an ADD would succeed, 50 if not, 51 if running pods are impaired too.

use crate::{
    binary::{Call, Ended},
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use serde_json::json;
use tests_eventually::{PATIENCE, eventually};

/// Returns a STATUS call of a runtime.
fn status(node: &Node) -> Call {
    let mut conf = node.conf();
    conf["cniVersion"] = json!("1.1.0");
    let vars = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", "/opt/cni/bin")];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Call { vars, stdin: conf.to_string() }
}

#[test]
fn status_reports_whether_an_add_would_succeed_and_whether_pods_are_impaired() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        status(node).run().is_silent_success();
        daemon.book(|book| book.status.unavailable = vec!["no_usable_address: subnet-0".into()]);
        let (message, details) = status(node).run().error(50);
        assert!(
            message.contains("no_usable_address: subnet-0") && !details.is_empty(),
            "{message}"
        );
        daemon.book(|book| book.status.impaired = vec!["eni-1 was detached".into()]);
        let (message, _) = status(node).run().error(51);
        assert!(
            message.contains("eni-1 was detached") && message.contains("subnet-0"),
            "{message}"
        );
        daemon.book(|book| book.status.unavailable.clear());
        // An ADD would succeed: an impaired pod does not affect others.
        status(node).run().is_silent_success();
        assert!(node.log().contains("eni-1 was detached"), "{}", node.log());
        daemon.book(|book| book.status.impaired.clear());
        status(node).run().is_silent_success();
    });
}

#[test]
fn status_without_a_daemon_that_answers_is_50() {
    on_a_node(|node| {
        let (message, _) = status(node).run().error(50);
        assert!(message.contains("ipamd.sock"), "{message}");
        let daemon = Daemon::start(node);
        daemon.book(|book| book.behavior = DaemonBehavior::Hanging);
        let (message, _) = status(node).run().error(50);
        assert!(message.contains("no answer"), "{message}");
        daemon.kill();
        status(node).run().error(50);
        let _other = Daemon::start_of_another_version(node);
        let (message, details) = status(node).run().error(50);
        assert!(message.contains("version") && details.contains("upgrade"), "{message}");
    });
}

/// Otherwise each upgrade would make the node not ready.
#[test]
fn status_is_repeated_after_a_restart_of_the_daemon() {
    on_a_node(|node| {
        let behavior = DaemonBehavior::Hanging;
        let first = Daemon::start_with(node, Book { behavior, ..Book::default() });
        let asking = status(node).start();
        eventually("STATUS sends its request", PATIENCE, || {
            first.book(|book| book.asked.contains(&"status".into()))
        });
        first.kill();
        let _second = Daemon::start(node);
        Ended::of(asking).is_silent_success();
    });
}

#[test]
fn status_needs_a_version_that_has_it() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        for version in ["0.3.0", "0.4.0", "1.0.0"] {
            let mut conf = node.conf();
            conf["cniVersion"] = json!(version);
            for verb in ["STATUS", "GC"] {
                let call = status(node).var("CNI_COMMAND", verb).stdin(conf.to_string());
                let (message, details) = call.run().error(1);
                assert!(message.contains(verb) && details.contains("1.1.0"), "{message}");
            }
        }
    });
}
