//! A policy agent is told of a pod when its links are there and before its ADD is confirmed, and of its
//! DEL. One that does not take note of a pod keeps it from starting, but none from going.

use crate::{
    add::VETH,
    daemon::{Agent, Book, Daemon},
    node::on_a_node,
};

#[test]
fn an_agent_is_told_between_wiring_and_confirmation_and_of_the_del() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_policy(node));
        let _agent = Agent::start(node, &daemon, None);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        let links = format!("enforce default/web-0 strict 1 with {VETH}");
        daemon.book(|book| assert_eq!(book.asked, ["reserve c1", &links, "confirm c1"]));
        node.first_del(&sandbox, &result).run().is_silent_success();
        let last =
            |count: usize| daemon.book(|book| book.asked.split_off(book.asked.len() - count));
        assert_eq!(last(2), ["release PodDeleted c1", "delete default/web-0"]);
        assert_eq!(node.pod_rules(), Vec::<String>::new());
        // Who is asked again tells again: the agent may have missed it.
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(last(2), ["release PodDeleted c1", "delete default/web-0"]);
    });
}

#[test]
fn a_pod_that_the_agent_refuses_does_not_start_and_leaves_nothing() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_policy(node));
        let _agent = Agent::start(node, &daemon, Some("no probe"));
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
fn without_its_agent_no_pod_starts_and_one_that_goes_is_missed_once() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::with_policy(node));
        let agent = Agent::start(node, &daemon, None);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        drop(agent);
        let late = node.sandbox("c2", "web-1");
        let (message, _) = node.call("ADD", &late).run().error(103);
        assert!(message.contains("no policy agent takes calls at"), "{message}");
        let (message, _) = node.first_del(&sandbox, &result).run().error(103);
        assert!(message.contains("default/web-0"), "{message}");
        assert_eq!(node.pod_rules(), Vec::<String>::new(), "the network goes all the same");
        daemon.book(|book| assert!(book.held.is_empty()));
        node.first_del(&sandbox, &result).run().is_silent_success();
    });
}
