//! Calls to aws-network-policy-agent: one between the build of a pod's links and the confirm of its ADD, and one at its
//! DEL. Without an acknowledgment the ADD fails.

use crate::{
    add::VETH,
    daemon::{AwsAgent, Book, Daemon},
    node::on_a_node,
};
use std::time::Duration;

#[test]
fn the_aws_agent_gets_enforce_between_build_and_confirm_and_delete_at_the_del() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_aws_agent(node));
        let _agent = AwsAgent::start(node, &daemon, None);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        let links = format!("enforce default/web-0 strict 1 with {VETH}");
        daemon.book(|book| assert_eq!(book.asked, ["reserve c1", &links, "confirm c1"]));
        node.first_del(&sandbox, &result).run().is_silent_success();
        let last =
            |count: usize| daemon.book(|book| book.asked.split_off(book.asked.len() - count));
        assert_eq!(last(2), ["release PodDeleted c1", "delete default/web-0"]);
        assert_eq!(node.pod_rules(), Vec::<String>::new());
        // A repeated DEL calls the agent again, because it may have missed the first call.
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(last(2), ["release PodDeleted c1", "delete default/web-0"]);
    });
}

#[test]
fn a_pod_that_the_agent_refuses_does_not_start_and_leaves_nothing() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_aws_agent(node));
        let _agent = AwsAgent::start(node, &daemon, Some("no probe"));
        let before = node.host_state();
        let sandbox = node.sandbox("c1", "web-0");
        let (message, details) = node.call("ADD", &sandbox).run().error(103);
        assert!(message.contains("default/web-0") && message.contains("no probe"), "{message}");
        assert!(details.contains("FERRULE_POLICY_AGENT"), "{details}");
        assert_eq!(node.host_state(), before);
        daemon.book(|book| {
            assert_eq!(book.asked.last().unwrap(), "release SetupFailed c1", "{:?}", book.asked);
            assert!(book.held.is_empty());
        });
    });
}

#[test]
fn without_the_aws_agent_an_add_fails_and_the_first_del_fails() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_aws_agent(node));
        let agent = AwsAgent::start(node, &daemon, None);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        drop(agent);
        let late = node.sandbox("c2", "web-1");
        let (message, _) = node.call("ADD", &late).run().error(103);
        assert!(message.contains("cannot connect to the policy agent at"), "{message}");
        let (message, _) = node.first_del(&sandbox, &result).run().error(103);
        assert!(message.contains("default/web-0"), "{message}");
        assert_eq!(node.pod_rules(), Vec::<String>::new(), "the pod's rules are left");
        daemon.book(|book| assert!(book.held.is_empty()));
        node.first_del(&sandbox, &result).run().is_silent_success();
    });
}

#[test]
fn a_late_del_of_an_old_sandbox_leaves_a_running_pod_its_policies() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_aws_agent(node));
        let _agent = AwsAgent::start(node, &daemon, None);
        let [old, new] = ["c1", "c2"].map(|container| node.sandbox(container, "web-0"));
        let calls = || daemon.book(|book| std::mem::take(&mut book.asked));
        let before = node.add(&old);
        node.first_del(&old, &before).run().is_silent_success();
        let result = node.add(&new);
        calls();
        node.late_del(&old).run().is_silent_success();
        assert_eq!(calls(), ["release PodDeleted c1"]);
        node.first_del(&new, &result).run().is_silent_success();
        assert_eq!(calls(), ["release PodDeleted c2", "delete default/web-0"]);
        // The agent may have missed the call.
        node.late_del(&old).run().is_silent_success();
        assert_eq!(calls(), ["release PodDeleted c1", "delete default/web-0"]);
    });
}

#[test]
fn the_agents_time_does_not_shorten_the_time_of_the_confirm() {
    on_a_node(|node| {
        // Longer than the ADD's wait plus the extra time for its end.
        let book = Book { agent_delay: Duration::from_secs(6), ..Book::with_aws_agent(node) };
        let daemon = Daemon::start_with(node, book);
        let _agent = AwsAgent::start(node, &daemon, None);
        let mut conf = node.conf();
        conf["addWait"] = serde_json::json!(1);
        node.call_with("ADD", &node.sandbox("c1", "web-0"), &conf).run().result();
        daemon.book(|book| assert_eq!(book.asked.last().unwrap(), "confirm c1"));
    });
}
