//! Invalid input and a daemon that does not serve. The call fails with the right code in time and leaves nothing.

use crate::{
    binary::{Call, Sandbox},
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use ipamd_rpc::Reason;
use serde_json::{Value, json};

/// Runs a call that must fail and leave the node unchanged.
#[track_caller]
fn refused(node: &Node, call: &Call, code: u32) -> (String, String) {
    let before = node.host_state();
    let answer = call.run().error(code);
    assert_eq!(node.host_state(), before);
    answer
}

fn with(node: &Node, sandbox: &Sandbox, verb: &str, key: &str, value: Value) -> Call {
    let mut conf = node.conf();
    conf[key] = value;
    node.call_with(verb, sandbox, &conf)
}

#[test]
fn a_configuration_that_is_not_json_has_code_6() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        for verb in ["ADD", "DEL", "CHECK"] {
            for stdin in ["", "{", "[]", "null", "not json", "{\"cniVersion\":\"1.0.0\"", "\u{7f}"]
            {
                refused(node, &node.call(verb, &sandbox).stdin(stdin), 6);
            }
        }
    });
}

#[test]
fn a_field_that_is_missing_or_wrong_has_code_7_and_is_named() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        for (key, value) in [
            ("name", Value::Null),
            ("name", json!("")),
            ("name", json!("no spaces please")),
            ("cniVersion", Value::Null),
            ("cniVersion", json!(1.0)),
            ("mtu", json!("many")),
            ("mtu", json!("65536")),
            ("vethPrefix", json!("vlan")),
            ("vethPrefix", json!("toolong")),
            ("addWait", json!("-1")),
            ("ipamdSocket", json!("relative.sock")),
            ("stateDir", json!(7)),
        ] {
            for verb in ["ADD", "DEL", "CHECK"] {
                let call = with(node, &sandbox, verb, key, value.clone());
                let (message, details) = refused(node, &call, 7);
                assert!(message.contains(key) && !details.is_empty(), "{message}");
            }
        }
        refused(node, &with(node, &sandbox, "ADD", "prevResult", json!(7)), 7);
    });
}

#[test]
fn an_unsupported_version_has_code_1() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        for version in ["0.1.0", "0.2.0", "1.2.0", "2.0.0", "one"] {
            let call = with(node, &sandbox, "ADD", "cniVersion", json!(version));
            let (_, details) = refused(node, &call, 1);
            assert!(details.contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{details}");
        }
    });
}

#[test]
fn a_wrong_environment_has_code_4_and_the_variable_is_named() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let add = || node.call("ADD", &sandbox);
        for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            let (message, _) = refused(node, &add().without(name), 4);
            assert!(message.contains(name), "{message}");
        }
        for (name, value) in [
            ("CNI_COMMAND", "Status"),
            ("CNI_COMMAND", "COLLECT"),
            ("CNI_COMMAND", "FROBNICATE"),
            ("CNI_COMMAND", "add"),
            ("CNI_CONTAINERID", "../../etc"),
            ("CNI_CONTAINERID", "with space"),
            ("CNI_IFNAME", "sixteen-bytes-xx"),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", ".."),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=default"),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME="),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;Other=1"),
            ("CNI_ARGS", "gibberish"),
        ] {
            refused(node, &add().var(name, value), 4);
        }
    });
}

#[test]
fn a_namespace_that_cannot_be_used_has_code_8() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let folder = node.path("");
        for netns in ["/no/such/netns", "/dev/null", folder.to_str().unwrap(), "/proc/self/ns/uts"]
        {
            refused(node, &node.call("ADD", &sandbox).var("CNI_NETNS", netns), 8);
        }
        for verb in ["ADD", "DEL"] {
            let own = node.call(verb, &sandbox).var("CNI_NETNS", "/proc/self/ns/net");
            let (message, _) = refused(node, &own, 8);
            assert!(message.contains("CNI_NETNS_OVERRIDE"), "{message}");
        }
        daemon.book(|book| assert!(book.asked.is_empty(), "{:?}", book.asked));
    });
}

#[test]
fn the_plugins_own_namespace_can_be_allowed() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let call = node
            .call("ADD", &node.sandbox("c1", "web-0"))
            .var("CNI_NETNS", "/proc/self/ns/net")
            .var("CNI_IFNAME", "net1")
            .var("CNI_NETNS_OVERRIDE", "1");
        call.run().result();
        assert!(node.link("net1").is_some());
    });
}

#[test]
fn an_add_without_a_daemon_has_code_11_when_its_wait_is_over() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let add = || with(node, &sandbox, "ADD", "addWait", json!("1"));
        let (message, details) = refused(node, &add(), 11);
        assert!(message.contains("ipamd.sock") && details.contains("ferrule-ipamd"), "{message}");

        // The socket's file exists, but no process listens.
        Daemon::start(node).kill();
        assert!(node.path("ipamd.sock").exists());
        refused(node, &add(), 11);
    });
}

#[test]
fn a_daemon_that_hangs_has_code_11_when_the_wait_is_over() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let add = || with(node, &sandbox, "ADD", "addWait", json!("1"));
        let daemon =
            Daemon::start_with(node, Book { behavior: DaemonBehavior::Hanging, ..Book::default() });
        let (message, _) = refused(node, &add(), 11);
        assert!(message.contains("no answer"), "{message}");
        daemon.kill();

        // A stopped process: the kernel accepts the connection, and the process does not read it.
        std::fs::remove_file(node.path("ipamd.sock")).unwrap();
        let _deaf = std::os::unix::net::UnixListener::bind(node.path("ipamd.sock")).unwrap();
        refused(node, &add(), 11);
    });
}

#[test]
fn a_daemon_of_another_version_has_code_11_at_once() {
    on_a_node(|node| {
        let _daemon = Daemon::start_of_another_version(node);
        let (message, details) = refused(node, &node.call("ADD", &node.sandbox("c1", "web-0")), 11);
        assert!(message.contains("version") && details.contains("upgrade"), "{message} {details}");
    });
}

#[test]
fn each_reason_for_having_no_address_has_its_code() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        for (reason, code) in
            [(Reason::TryAgain, 11), (Reason::Exhausted, 100), (Reason::Invalid, 7)]
        {
            daemon.book(|book| book.behavior = DaemonBehavior::Empty(reason));
            let (message, details) = refused(node, &node.call("ADD", &sandbox), code);
            assert!(message.contains("default/web-0") && message.contains("subnet-0"), "{message}");
            assert_eq!(details, "add a subnet");
        }
    });
}

#[test]
fn the_plugin_without_a_command_prints_its_version() {
    on_a_node(|node| {
        let call = node.call("ADD", &node.sandbox("c1", "web-0")).without("CNI_COMMAND");
        let ended = call.run();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
        assert!(ended.stderr.contains("ferrule-cni") && ended.stderr.contains("1.1.0"));
    });
}

#[test]
fn version_lists_the_supported_versions() {
    on_a_node(|node| {
        let call = node.call("VERSION", &node.sandbox("c1", "web-0"));
        let answer = call.clone().stdin(r#"{"cniVersion":"0.4.0"}"#).run().result();
        let spoken = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
        assert_eq!(answer, json!({"cniVersion": "0.4.0", "supportedVersions": spoken}));
        call.stdin("nonsense").run().error(6);
    });
}
