//! GC: it removes unlisted pods, and nothing else.
//!
//! Without a daemon the plugin searches all processes of the machine for ADDs. Tests without a daemon therefore use
//! container IDs that no other test uses.

use crate::{
    binary::{Call, Ended, Sandbox},
    daemon::{Book, Daemon, DaemonBehavior},
    del::tombstones,
    node::{Node, on_a_node},
};
use config_model::{PodKey, PodName, VethName, registry};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use tests_eventually::{PATIENCE, eventually};

/// Returns a GC call of a runtime with this list of valid attachments.
pub(crate) fn gc(node: &Node, valid: &Value) -> Call {
    let mut conf = node.conf();
    conf["cniVersion"] = json!("1.1.0");
    conf["cni.dev/valid-attachments"] = valid.clone();
    let vars = [("CNI_COMMAND", "GC"), ("CNI_PATH", "/opt/cni/bin")];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Call { vars, stdin: conf.to_string() }
}

fn valid(sandboxes: &[&Sandbox]) -> Value {
    let entry = |sandbox: &&Sandbox| json!({"containerID": sandbox.container, "ifname": "eth0"});
    sandboxes.iter().map(entry).collect()
}

fn veth(sandbox: &Sandbox) -> String {
    let pod = PodName { namespace: "default".into(), name: sandbox.pod.clone() };
    VethName::of("eni", &pod, 0).to_string()
}

fn key(sandbox: &Sandbox) -> PodKey {
    PodKey::new("aws-cni", &sandbox.container, "eth0").unwrap()
}

/// Returns the rules and routes of an address.
fn traces_of(node: &Node, address: &str) -> Vec<String> {
    let all = node.pod_rules().into_iter().chain(node.pod_routes());
    all.filter(|line| line.split(' ').any(|word| word == address)).collect()
}

fn is_given_up(node: &Node, veth: &str) -> bool {
    let link = node.link(veth).unwrap();
    let reap = registry::GROUP_REAP.to_string();
    link["group"].as_str().map_or_else(|| link["group"].to_string(), str::to_owned) == reap
}

fn address(result: &Value) -> String {
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

#[test]
fn gc_removes_what_is_not_in_the_list_also_without_its_namespace() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["c1", "c2", "c3"].map(|id| node.sandbox(id, &format!("web-{id}")));
        let [kept, stale, bare] = &pods;
        let [kept_ip, stale_ip, bare_ip] = [kept, stale, bare].map(|pod| address(&node.add(pod)));
        let kept_before = traces_of(node, &kept_ip);
        assert_eq!(kept_before.len(), 3, "{kept_before:?}");
        node.delete_netns("c3");
        eventually("the kernel removes the link with its namespace", PATIENCE, || {
            node.link(&veth(bare)).is_none()
        });
        assert_eq!(traces_of(node, &bare_ip).len(), 2, "the rules are not removed with the link");

        gc(node, &valid(&[kept])).run().is_silent_success();
        assert_eq!(traces_of(node, &kept_ip), kept_before);
        assert!(!is_given_up(node, &veth(kept)) && is_given_up(node, &veth(stale)));
        for gone in [&stale_ip, &bare_ip] {
            assert_eq!(traces_of(node, gone), Vec::<String>::new());
        }
        daemon.book(|book| assert_eq!(book.held.keys().collect::<Vec<_>>(), [&key(kept)]));
        assert_eq!(tombstones(node), []);
        // A repeated GC changes nothing.
        let before = node.host_state();
        gc(node, &valid(&[kept])).run().is_silent_success();
        assert_eq!(node.host_state(), before);
        // A runtime without pods sends null.
        gc(node, &Value::Null).run().is_silent_success();
        assert_eq!(traces_of(node, &kept_ip), Vec::<String>::new());
    });
}

#[test]
fn gc_removes_links_that_the_daemon_does_not_know() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let address = address(&node.add(&sandbox));
        daemon.book(|book| book.held.clear());
        gc(node, &valid(&[])).run().is_silent_success();
        assert!(is_given_up(node, &veth(&sandbox)));
        assert_eq!(traces_of(node, &address), Vec::<String>::new());
    });
}

#[test]
fn gc_spares_other_networks_foreign_links_and_adds_under_way() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let mut other = node.conf();
        other["name"] = json!("other-net");
        let elsewhere = node.sandbox("c1", "web-0");
        node.call_with("ADD", &elsewhere, &other).run().result();
        let adding = node.sandbox("c2", "web-1");
        node.add(&adding);
        // An ADD without a confirm is under way.
        daemon.book(|book| book.held.get_mut(&key(&adding)).unwrap().1 = false);
        node.ip("link add enimine type veth peer name eniyours");
        node.ip("link add enialias type bridge");
        node.ip(&format!(
            "link set enialias alias {}",
            PodKey::new("aws-cni", "c9", "eth0").unwrap().alias()
        ));
        node.ip("rule add to 10.0.0.77 lookup main pref 512");
        let before = node.host_state();
        gc(node, &valid(&[])).run().is_silent_success();
        assert_eq!(node.host_state(), before);
        daemon.book(|book| assert_eq!(book.held.len(), 2));
        // Without a daemon the other network and foreign objects are spared as well.
        daemon.kill();
        gc(node, &valid(&[&adding])).run().error(11);
        assert_eq!(node.host_state(), before);
        assert_eq!(tombstones(node), []);
    });
}

#[test]
fn gc_continues_after_errors_and_reports_all_of_them() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["c1", "c2", "c3"].map(|id| node.sandbox(id, &format!("web-{id}")));
        let addresses = pods.each_ref().map(|pod| address(&node.add(pod)));
        daemon.book(|book| book.unreleasable = ["c1".to_owned(), "c3".to_owned()].into());
        let (message, _) = gc(node, &valid(&[])).run().error(11);
        assert!(
            message.contains("aws-cni/c1/eth0") && message.contains("aws-cni/c3/eth0"),
            "{message}"
        );
        assert!(message.contains("its record cannot be written"), "{message}");
        let left = addresses.each_ref().map(|address| traces_of(node, address).len());
        assert_eq!(left, [3, 0, 3], "what is still reserved keeps its routing");
    });
}

#[test]
fn gc_without_a_daemon_removes_by_key_and_leaves_tombstones() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["kept1", "stale1"].map(|id| node.sandbox(id, &format!("web-{id}")));
        let [kept, stale] = &pods;
        let result = node.add(kept);
        let with_kept = node.host_state();
        let stale_ip = address(&node.add(stale));
        daemon.kill();
        let (message, _) = gc(node, &valid(&[kept])).run().error(11);
        assert!(message.contains("tombstones"), "{message}");
        assert_eq!(node.host_state(), with_kept);
        let [tombstone] = tombstones(node).try_into().unwrap();
        let recorded = (&tombstone.key, tombstone.addresses[0].to_string());
        assert_eq!(recorded, (&key(stale), stale_ip));
        node.first_del(kept, &result).run().is_silent_success();
        assert_eq!(node.host_state(), before);
    });
}

/// A process that is killed with this value.
struct Claim(Child);

impl Claim {
    fn start(mut command: Command, container: &str) -> Self {
        let command = command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", container);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn gc_without_a_daemon_spares_no_sandbox_that_a_pods_process_names() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["claimed1", "claimed2"].map(|id| node.sandbox(id, &format!("web-{id}")));
        pods.iter().for_each(|pod| drop(node.add(pod)));
        // The program of a pod can have the name and the variables of a call.
        let program = node.path("ferrule-cni");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut other_mounts = Command::new("unshare");
        other_mounts.arg("--mount").arg(&program).arg("600");
        let mut other_name = Command::new("sleep");
        other_name.arg("600");
        let claim = Claim::start(other_mounts, "claimed1");
        let _second = Claim::start(other_name, "claimed2");
        eventually("the process has the name of the plugin", PATIENCE, || {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", claim.0.id())).unwrap();
            comm == "ferrule-cni\n"
        });
        daemon.kill();
        gc(node, &valid(&[])).run().error(11);
        assert_eq!(node.veths(), Vec::<String>::new());
        assert_eq!(tombstones(node).len(), 2);
    });
}

#[test]
fn gc_with_a_hanging_daemon_ends_as_without_a_daemon() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["hung1", "hung2"].map(|id| node.sandbox(id, &format!("web-{id}")));
        let [kept, stale] = &pods;
        let result = node.add(kept);
        let with_kept = node.host_state();
        node.add(stale);
        daemon.book(|book| book.behavior = DaemonBehavior::Hanging);
        let (message, details) = gc(node, &valid(&[kept])).run().error(11);
        assert!(message.contains("no answer") && message.contains("tombstones"), "{message}");
        assert!(details.contains("ferrule-ipamd"), "{details}");
        assert_eq!(node.host_state(), with_kept);
        let [tombstone] = tombstones(node).try_into().unwrap();
        assert_eq!(tombstone.key, key(stale));
        daemon.book(|book| book.behavior = DaemonBehavior::Serving);
        node.first_del(kept, &result).run().is_silent_success();
        node.ip(&format!("link del {}", veth(kept)));
        assert_eq!(node.host_state(), before);
    });
}

#[test]
fn the_next_gc_finishes_an_incomplete_gc_with_and_without_namespaces() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let pods = ["kept2", "stale2", "bare2"].map(|id| node.sandbox(id, &format!("web-{id}")));
        let [kept, stale, bare] = &pods;
        let [kept_ip, stale_ip, bare_ip] = [kept, stale, bare].map(|pod| address(&node.add(pod)));
        let kept_before = traces_of(node, &kept_ip);
        node.delete_netns("bare2");
        eventually("the kernel removes the link with its namespace", PATIENCE, || {
            node.link(&veth(bare)).is_none()
        });
        daemon.book(|book| book.behavior = DaemonBehavior::Hanging);
        for _ in 0..2 {
            let (message, _) = gc(node, &valid(&[kept])).run().error(11);
            assert!(message.contains("no answer"), "{message}");
            assert_eq!(traces_of(node, &kept_ip), kept_before);
            assert_eq!(traces_of(node, &stale_ip), Vec::<String>::new());
            // Only the daemon has the owner of these rules.
            assert_eq!(traces_of(node, &bare_ip).len(), 2);
        }
        daemon.book(|book| book.behavior = DaemonBehavior::Serving);
        gc(node, &valid(&[kept])).run().is_silent_success();
        assert_eq!(traces_of(node, &bare_ip), Vec::<String>::new());
        assert_eq!(traces_of(node, &kept_ip), kept_before);
        daemon.book(|book| assert_eq!(book.held.keys().collect::<Vec<_>>(), [&key(kept)]));
    });
}

#[test]
fn gc_reports_a_failed_tombstone_and_leaves_the_pod_of_it() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        node.add(&node.sandbox("unrecorded1", "web-0"));
        daemon.kill();
        std::fs::write(node.path("state"), "a file instead of a folder").unwrap();
        let before = node.host_state();
        let (message, _) = gc(node, &valid(&[])).run().error(11);
        assert!(
            message.contains("ipamd.sock") && message.contains("aws-cni/unrecorded1/eth0"),
            "{message}"
        );
        assert_eq!(node.host_state(), before);
    });
}

#[test]
fn gc_without_a_daemon_spares_an_add_whose_process_runs() {
    on_a_node(|node| {
        let daemon =
            Daemon::start_with(node, Book { hangs_on_confirm: true, ..Book::on_table_2() });
        let sandbox = node.sandbox("adding1", "web-0");
        let adding = node.call("ADD", &sandbox).start();
        eventually("the ADD waits for the answer to its confirm", PATIENCE, || {
            daemon.book(|book| book.asked.iter().any(|asked| asked == "confirm adding1"))
        });
        daemon.kill();
        let before = node.host_state();
        gc(node, &valid(&[])).run().error(11);
        assert_eq!(node.host_state(), before);
        assert_eq!(tombstones(node), []);
        // The ADD reaches the next daemon, which has no reservation for it.
        let _next = Daemon::start_with(node, Book::on_table_2());
        let (message, _) = Ended::of(adding).error(11);
        assert!(message.contains("lapsed"), "{message}");
    });
}

#[test]
fn gc_removes_all_interfaces_of_a_pod_or_none() {
    on_a_node(|node| {
        let empty = node.host_state();
        for up in [true, false] {
            let daemon = Daemon::start_with(node, Book { cards: 2, ..Book::default() });
            let mut conf = node.conf();
            conf["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations":
                {"k8s.amazonaws.com/nicConfig": "multi-nic-attachment"}});
            let sandbox = node.sandbox("cards1", "web-0");
            node.call_with("ADD", &sandbox, &conf).run().result();
            assert_eq!(node.veths().len(), 2);
            let before = node.host_state();
            gc(node, &valid(&[&sandbox])).run().is_silent_success();
            assert_eq!(node.host_state(), before);
            if up {
                gc(node, &valid(&[])).run().is_silent_success();
                assert!(node.veths().iter().all(|veth| is_given_up(node, veth)));
                assert_eq!((node.pod_rules(), node.pod_routes()), (vec![], vec![]));
                for veth in node.veths() {
                    node.ip(&format!("link del {veth}"));
                }
            } else {
                daemon.kill();
                gc(node, &valid(&[])).run().error(11);
                let [tombstone] = tombstones(node).try_into().unwrap();
                assert_eq!((tombstone.key, tombstone.addresses.len()), (key(&sandbox), 2));
            }
            assert_eq!(node.host_state(), empty);
        }
    });
}

#[test]
fn gc_refuses_a_list_that_it_cannot_read_and_touches_nothing() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        let before = node.host_state();
        for list in [
            json!("c1"),
            json!({}),
            json!(["c1"]),
            json!([{"containerID": "c1"}]),
            json!([{"containerID": "c1", "ifname": 7}]),
            json!([{"containerID": "../c1", "ifname": "eth0"}]),
            json!([{"containerID": "c1", "ifname": "eth0"}, null]),
        ] {
            let (message, _) = gc(node, &list).run().error(7);
            assert!(message.contains("cni.dev/valid-attachments"), "{message}");
        }
        let mut conf = node.conf();
        conf["cniVersion"] = json!("1.1.0");
        let (message, _) = gc(node, &json!([])).stdin(conf.to_string()).run().error(7);
        assert!(message.contains("is missing"), "{message}");
        // The name of the field in an earlier text of the specification.
        conf["cni.dev/attachments"] = valid(&[&sandbox]);
        gc(node, &json!([])).stdin(conf.to_string()).run().is_silent_success();
        assert_eq!(node.host_state(), before);
    });
}
