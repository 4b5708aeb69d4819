//! Calls to ferrule-agent: Admit between the build of a pod's links and the confirm of its ADD, and Forget at its DEL.

use crate::{
    daemon::{Book, Daemon, DaemonBehavior, FerruleAgent},
    node::{Node, on_a_node},
};
use config_model::{EnforcingMode, HostEnd, TableId};
use datapath_rpc::Admitted;

fn asked(daemon: &Daemon) -> Vec<String> {
    daemon.book(|book| std::mem::take(&mut book.asked))
}

/// Runs an ADD that fails with this code and leaves nothing. Returns its message.
fn fails(node: &Node, daemon: &Daemon, code: u32) -> String {
    let before = node.host_state();
    let sandbox = node.sandbox("c1", "web-0");
    let (message, _) = node.call("ADD", &sandbox).run().error(code);
    assert_eq!(node.host_state(), before);
    daemon.book(|book| {
        assert_eq!(book.asked.last().unwrap(), "release SetupFailed c1", "{:?}", book.asked);
        assert!(book.held.is_empty());
    });
    message
}

#[test]
fn the_agent_gets_admit_between_build_and_confirm_and_forget_at_the_del() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book::with_ferrule_agent(node, EnforcingMode::Strict));
        let agent = FerruleAgent::start(node, &daemon, Admitted::Enforced);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        let address = result["ips"][0]["address"].as_str().unwrap().trim_end_matches("/32");
        let admit = format!("admit default/web-0 uid-c1 in c1 {{{address}}} Strict");
        assert_eq!(asked(&daemon), ["reserve c1", &admit, "confirm c1"]);
        let links = daemon.book(|book| book.links.concat());
        let [link] = links.as_slice() else { panic!("{links:?}") };
        let seen = node.link(&link.name).unwrap();
        assert_eq!(seen["ifindex"], link.ifindex);
        assert_eq!(seen["address"], link.mac.unwrap().to_string());
        assert_eq!(link.addresses, [address.parse().unwrap()].into());
        assert_eq!((link.number, link.table), (0, Some(TableId(2))));
        assert_eq!(link.host_end, HostEnd::Routed);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(asked(&daemon), ["release PodDeleted c1", "forget default/web-0 uid-c1 in c1"]);
        // A DEL without the agent succeeds.
        let sandbox = node.sandbox("c2", "web-1");
        let result = node.add(&sandbox);
        drop(agent);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert!(node.log().contains("cannot connect to ferrule-agent at"), "{}", node.log());
        daemon.book(|book| assert!(book.held.is_empty()));
    });
}

#[test]
fn a_refusal_of_the_agent_has_code_11_and_leaves_nothing() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book::with_ferrule_agent(node, EnforcingMode::Strict));
        let refused = Admitted::Refused("no entry of the pod".to_owned());
        let _agent = FerruleAgent::start(node, &daemon, refused);
        let message = fails(node, &daemon, 11);
        assert!(message.contains("default/web-0") && message.contains("no entry of the pod"));
        let asked = asked(&daemon);
        let [_, admit, forget, _] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(admit.starts_with("admit default/web-0 uid-c1 in c1"), "{admit}");
        assert_eq!(forget, "forget default/web-0 uid-c1 in c1");
    });
}

#[test]
fn the_agent_gets_forget_for_an_admitted_pod_whose_add_fails() {
    on_a_node(|node| {
        let mut book = Book::with_ferrule_agent(node, EnforcingMode::Strict);
        book.behavior = DaemonBehavior::Forgetful;
        let daemon = Daemon::start_with(node, book);
        let _agent = FerruleAgent::start(node, &daemon, Admitted::Enforced);
        let message = fails(node, &daemon, 11);
        assert!(message.contains("the reservation lapsed"), "{message}");
        let asked = asked(&daemon);
        let forget = "forget default/web-0 uid-c1 in c1";
        assert_eq!(asked[2..], ["confirm c1", forget, "release SetupFailed c1"]);
    });
}

#[test]
fn admit_is_repeated_after_a_restart_of_the_agent() {
    for mode in [EnforcingMode::Strict, EnforcingMode::Standard] {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, Book::with_ferrule_agent(node, mode));
            let _agent = FerruleAgent::restarted(node, &daemon, Admitted::Enforced);
            node.add(&node.sandbox("c1", "web-0"));
            let asked = asked(&daemon);
            let [_, first, second, last] = asked.as_slice() else { panic!("{asked:?}") };
            assert!(first.starts_with("admit default/web-0 uid-c1 in c1"), "{first}");
            assert_eq!((first, last.as_str()), (second, "confirm c1"));
            assert!(!node.log().contains("without its policies"), "{}", node.log());
        });
    }
}

#[test]
fn strict_mode_starts_no_pod_without_the_agent() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book::with_ferrule_agent(node, EnforcingMode::Strict));
        let message = fails(node, &daemon, 11);
        assert!(message.contains("cannot connect to ferrule-agent at"), "{message}");
    });
}

#[test]
fn standard_mode_starts_a_pod_open_and_logs_it() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book::with_ferrule_agent(node, EnforcingMode::Standard));
        node.add(&node.sandbox("c1", "web-0"));
        let log = node.log();
        assert!(
            log.contains("starts without its policies: cannot connect to ferrule-agent"),
            "{log}"
        );
        let open = Admitted::Open("no entry of the pod".to_owned());
        let _agent = FerruleAgent::start(node, &daemon, open);
        node.add(&node.sandbox("c2", "web-1"));
        let log = node.log();
        assert!(log.contains("starts without its policies: no entry of the pod"), "{log}");
        assert!(
            asked(&daemon)
                .iter()
                .any(|call| call.contains("web-1 uid-c2 in c2") && call.ends_with("Standard"))
        );
    });
}

#[test]
fn an_add_without_a_uid_is_refused_before_admit() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book::with_ferrule_agent(node, EnforcingMode::Standard));
        let _agent = FerruleAgent::start(node, &daemon, Admitted::Enforced);
        let sandbox = node.sandbox("c1", "web-0");
        let args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0";
        let call = node.call("ADD", &sandbox).var("CNI_ARGS", args);
        let (message, _) = call.run().error(4);
        assert!(message.contains("K8S_POD_UID"), "{message}");
        assert_eq!(asked(&daemon), ["reserve c1", "release SetupFailed c1"]);
    });
}

#[test]
fn the_agent_gets_no_call_if_policy_is_off() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let _agent = FerruleAgent::start(node, &daemon, Admitted::Refused("all".to_owned()));
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(asked(&daemon), ["reserve c1", "confirm c1", "release PodDeleted c1"]);
    });
}
