//! The tool as people use it, with stand-ins for the daemon and the plugin: whatever goes wrong here
//! is the lab's.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics and tells its skips")]

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::File,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tests_eventually::{PATIENCE, eventually};

/// A lab in a folder of its own, taken down at the end.
struct Lab {
    name: &'static str,
    base: tempfile::TempDir,
}

impl Lab {
    /// `None` without the rights to make one.
    fn up(name: &'static str, args: &[&str]) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP {name}: needs root");
            return None;
        }
        let lab = Self { name, base: tempfile::tempdir().unwrap() };
        let programs = programs();
        let up = ["up", "--bin-dir", programs.to_str().unwrap(), "--nodes", "2"];
        lab.run(&[&up, args].concat());
        Some(lab)
    }

    fn output(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ferrule-lab"))
            .args(["--name", self.name])
            .args(args)
            .env("FERRULE_LAB_DIR", self.base.path())
            .output()
            .unwrap()
    }

    fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {}\n{stdout}{stderr}", output.status);
        stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[&["-o", "json"], args].concat())).unwrap()
    }

    fn on_node(&self, node: &str, script: &str) -> String {
        self.run(&["node", "exec", node, "--", "bash", "-c", script])
    }

    /// Assigns addresses to a node's primary ENI by EC2's API, and passes them to the stand-in.
    fn assign(&self, node: &str, count: usize) {
        let nodes = self.json(&["node", "list"]);
        let found = nodes.as_array().unwrap().iter().find(|found| found["name"] == node);
        let eni = found.unwrap()["enis"][0]["id"].as_str().unwrap().to_owned();
        let query = format!(
            "Action=AssignPrivateIpAddresses&Version=2016-11-15&NetworkInterfaceId={eni}\
             &SecondaryPrivateIpAddressCount={count}"
        );
        let answer = self.on_node(node, &http("10.0.0.3", &format!("GET /?{query}"), ""));
        assert!(answer.contains("200 OK"), "{answer}");
        let opened = answer.split("<privateIpAddress>").skip(1);
        let addresses: Vec<&str> = opened.map(|rest| rest.split('<').next().unwrap()).collect();
        assert_eq!(addresses.len(), count, "{answer}");
        let lines = addresses.join("\\n");
        self.on_node(node, &format!("printf '{lines}\\n' >> /var/lib/cni/free"));
    }

    fn daemon(&self, node: &str) -> Value {
        let nodes = self.json(&["node", "list"]);
        let found = nodes.as_array().unwrap().iter().find(|found| found["name"] == node);
        found.unwrap()["daemon"].clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", String::from_utf8_lossy(&self.output(&["logs"]).stdout));
        }
        let down = self.output(&["down"]);
        assert!(down.status.success() || std::thread::panicking(), "{down:?}");
    }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A request by bash alone.
fn http(host: &str, request: &str, headers: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/{host}/80; \
         printf '%s HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n{headers}\\r\\n' '{request}' >&3; \
         timeout 3 cat <&3"
    )
}

/// An unreaped zombie does not run.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn pods_are_made_as_a_runtime_makes_them_and_reach_each_other() {
    let Some(lab) = Lab::up("pods", &[]) else { return };
    for node in ["node1", "node2"] {
        lab.assign(node, 3);
        lab.run(&["pod", "add", node, "--prefix", &format!("{node}-"), "--count", "3"]);
    }
    let report = lab.json(&["check", "--tcp", "4"]);
    assert_eq!(report["pod_pairs_reached"], 30, "{report:#}");
    lab.run(&["pod", "check"]);
    let address = lab.run(&["exec", "node1-0", "--", "ip", "-br", "address", "show", "eth0"]);
    let pod = lab.json(&["pod", "list"])[0].clone();
    assert!(address.contains(pod["address"].as_str().unwrap()), "{address} {pod}");

    // The hop limit is 1: the node gets a token, a pod does not.
    let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60\\r\\n";
    let token = http("169.254.169.254", "PUT /latest/api/token", ttl);
    assert!(lab.on_node("node1", &token).contains("200 OK"));
    let in_pod = lab.output(&["exec", "node1-0", "--", "bash", "-c", &token]);
    assert!(!String::from_utf8_lossy(&in_pod.stdout).contains("HTTP/"), "{in_pod:?}");

    // A failed ADD is followed by a DEL, and leaves nothing.
    let failed = lab.output(&["-o", "json", "pod", "add", "node1", "--pod", "bad"]);
    assert!(!failed.status.success());
    let said: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(said["failed"][0]["cni"]["code"], 11, "{said:#}");
    assert_eq!(lab.on_node("node1", "ls /run/netns | wc -l").trim(), "3");
    let calls = lab.on_node("node1", "grep -c K8S_POD_NAME=bad /var/lib/cni/calls");
    assert_eq!(calls.trim(), "2");

    // DEL carries the result of the ADD.
    lab.run(&["pod", "delete", "node1-0"]);
    let del = lab.on_node("node1", "grep '^DEL.*POD_NAME=node1-0' /var/lib/cni/calls");
    assert!(del.contains("prevResult") && del.contains("netns=/run/netns/cni-"), "{del}");
    assert!(!lab.output(&["exec", "node1-0", "--", "true"]).status.success());

    // After a reboot the namespaces are gone, and runtimes report it.
    lab.run(&["node", "reboot", "node1"]);
    lab.run(&["pod", "delete", "--node", "node1"]);
    let del = lab.on_node("node1", "grep '^DEL.*POD_NAME=node1-1' /var/lib/cni/calls");
    assert!(del.contains("netns= ") && del.contains("prevResult"), "{del}");
}

#[test]
fn the_daemon_is_restarted_unless_it_was_stopped() {
    let Some(lab) = Lab::up("daemon", &["--env", "FLAVOUR=one"]) else { return };
    let first = lab.daemon("node1")["pid"].as_u64().unwrap();
    // Each run of the daemon logs its start, if it lasts long enough.
    let says = |words: &str, times: usize| {
        eventually("its words", PATIENCE, || {
            lab.run(&["logs", "node1"]).matches(words).count() == times
        });
    };
    says("with one", 1);
    lab.run(&["daemon", "kill", "node1"]);
    eventually("the restart", PATIENCE, || {
        let daemon = lab.daemon("node1");
        daemon["restarts"] == 1 && daemon["pid"].as_u64().is_some_and(|pid| pid != first)
    });
    says("with one", 2);
    lab.run(&["daemon", "stop", "node1"]);
    assert_eq!(lab.daemon("node1")["state"], "stopped");
    lab.run(&["daemon", "start", "node1", "--env", "FLAVOUR=two"]);
    eventually("the start", PATIENCE, || lab.daemon("node1")["state"] == "running");
    says("with two", 1);
    lab.run(&["node", "reboot", "node1"]);
    eventually("the start after the boot", PATIENCE, || lab.daemon("node1")["state"] == "running");
    says("with two", 2);
    let log = lab.run(&["logs", "node1"]);
    assert_eq!(log.matches("for node1 at http://10.0.0.3 with one").count(), 2, "{log}");
    assert!(log.contains("asked to end"), "{log}");
    assert_eq!(lab.daemon("node2")["restarts"], 0);
}

#[test]
fn nodes_stop_start_and_are_removed() {
    let Some(lab) = Lab::up("nodes", &["--no-daemon"]) else { return };
    lab.run(&["node", "stop", "node2"]);
    assert!(!lab.output(&["node", "exec", "node2", "--", "true"]).status.success());
    assert!(!lab.output(&["pod", "add", "node2"]).status.success());
    lab.run(&["node", "start", "node2"]);
    lab.on_node("node2", "true");
    lab.run(&["node", "terminate", "node2"]);
    let nodes = lab.json(&["node", "list"]);
    assert_eq!(nodes[1]["state"], "terminated");
    assert_eq!(nodes[1]["enis"].as_array().map(Vec::len), Some(0));
    lab.run(&["node", "remove", "node2"]);
    lab.run(&["node", "add", "--no-daemon", "--profile", "ens"]);
    assert!(lab.on_node("node2", "ls /sys/class/net").contains("ens5"));
    assert!(!lab.output(&["node", "add", "node2"]).status.success(), "a name was given twice");
}

/// Error message of the tool; also checks that it ends with this code.
fn refused(lab: &Lab, code: i32, args: &[&str]) -> String {
    let output = lab.output(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

#[test]
fn without_a_lab_every_verb_names_the_command_that_creates_one() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP without_a_lab_every_verb_names_the_command_that_creates_one: needs root");
        return;
    }
    let lab = Lab { name: "none", base: tempfile::tempdir().unwrap() };
    for verb in [
        "status",
        "node list",
        "node exec node1 -- true",
        "pod add node1 --count 20",
        "pod delete --all",
        "exec web -- true",
        "logs",
        "logs node1",
        "check",
        "counters",
        "fault list",
        "nlb list",
        "client show",
        "client exec -- true",
    ] {
        let said = refused(&lab, 1, &verb.split(' ').collect::<Vec<_>>());
        assert!(said.contains("make it: ferrule-lab --name none up"), "{verb}: {said}");
        assert_eq!(said.matches("is not up").count(), 1, "{verb}: {said}");
    }
    // `up` checks its arguments before it creates anything, and a wrong one leaves nothing.
    for (args, why) in [
        ("--vpc 10.0.0.0/8", "VPC 10.0.0.0/8 is not a /16 to /28 network"),
        ("--vpc 10.0.0.5/16", "VPC 10.0.0.5/16 has bits behind its prefix"),
        ("--vpc 192.0.0.0/16", "192.0.2.1"),
        ("--vpc 198.51.0.0/16", "the addresses of the lab's load balancers"),
        ("--subnet 10.0.0.0/20", "2 to 26 subnets"),
        ("--subnet 10.0.0.0/20 --subnet 10.0.8.0/21", "10.0.8.0/21 overlaps another subnet"),
        ("--subnet 10.0.0.0/29 --subnet 10.0.1.0/24", "10.0.0.0/29 is not a /16 to /28"),
        ("--subnet 10.1.0.0/24 --subnet 10.0.1.0/24", "10.1.0.0/24 lies outside of the VPC"),
        ("--type c5.huge", "c5.xlarge"),
    ] {
        let up = ["up", "--no-daemon"].into_iter().chain(args.split(' '));
        let said = refused(&lab, 1, &up.collect::<Vec<_>>());
        assert!(said.contains(why) && said.lines().count() == 1, "{args}: {said}");
        assert!(!lab.base.path().join("none").exists(), "{args}");
    }
}

#[test]
fn one_of_two_concurrent_ups_creates_the_lab() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP one_of_two_concurrent_ups_creates_the_lab: needs root");
        return;
    }
    let lab = Lab { name: "twice", base: tempfile::tempdir().unwrap() };
    let up = || lab.output(&["up", "--no-daemon", "--nodes", "1"]);
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(up);
        let other = up();
        (one.join().unwrap(), other)
    });
    assert!(one.status.success() != other.status.success(), "{one:?}\n{other:?}");
    lab.on_node("node1", "true");
}

#[test]
fn an_error_about_a_wrong_name_lists_the_right_ones() {
    let Some(lab) = Lab::up("names", &["--no-daemon"]) else { return };
    for (args, why) in [
        ("node remove nope", "there is no node nope"),
        ("node terminate nope", "there is no node nope"),
        ("node add Big", "1 to 32 lower-case letters"),
        ("node add x --subnet 7", "no subnet number 7; it has 2"),
        ("node start node1", "cannot start node node1"),
        ("pod delete --node nope", "there is no node nope"),
        ("pod add nope", "there is no node nope"),
        ("daemon signal node1 FOO", "there is no signal \"FOO\""),
        ("logs nope", "cannot find node nope"),
        ("fault set throttle --action Nope", "there is no action Nope; there are: Assign"),
        ("fault clear lag", "no fault lag is set"),
        ("nlb remove nope", "there is no load balancer nope"),
        ("nlb register nope node1", "there is no load balancer nope"),
        ("nlb add web --listener 80:30080 --target nope", "there is no node nope"),
        ("nlb add web --listener 80:80 --target 192.0.2.7", "192.0.2.7 is no address in the VPC"),
        (
            "nlb add web --listener 80:80 --target node1 --target 10.0.1.7",
            "only nodes or only addresses",
        ),
        ("nlb add web --listener 80:30080 --interval 1ms", "an interval from 100ms"),
        ("nlb add web --listener 80:1 --listener 80:2", "two listeners have one port"),
    ] {
        let said = refused(&lab, 1, &args.split(' ').collect::<Vec<_>>());
        assert_eq!(said.matches(why).count(), 1, "{args}: {said}");
    }
    let said = refused(&lab, 127, &["node", "exec", "node1", "--", "no-such-program"]);
    assert!(said.starts_with("ferrule-lab: run no-such-program"), "{said}");
    assert_eq!(
        lab.output(&["node", "exec", "node1", "--", "bash", "-c", "exit 7"]).status.code(),
        Some(7)
    );

    // A pod whose node went down is still there to be deleted, but cannot be entered or probed.
    lab.assign("node1", 2);
    lab.run(&["pod", "add", "node1", "--count", "2"]);
    lab.run(&["node", "stop", "node1"]);
    assert!(refused(&lab, 1, &["exec", "node1-0", "--", "true"]).contains("delete it"));
    assert!(
        refused(&lab, 1, &["node", "exec", "node1", "--", "true"]).contains("node start node1")
    );
    assert!(refused(&lab, 1, &["pod", "add", "node1"]).contains("node node1 is stopped"));
    assert_eq!(lab.json(&["check"])["without_namespace"], 2);
    assert!(lab.run(&["pod", "list"]).contains("node went down"));
}

#[test]
fn a_killed_lab_is_removed_by_the_next_down_and_its_neighbor_stays() {
    let Some(lab) = Lab::up("killed", &[]) else { return };
    let Some(other) = Lab::up("other", &[]) else { return };
    let server = lab.json(&["status"])["pid"].as_u64().unwrap();
    let daemon = lab.daemon("node1")["pid"].as_u64().unwrap();
    let killed = Command::new("kill").args(["-KILL", &server.to_string()]).status().unwrap();
    assert!(killed.success());
    eventually("the server's end", PATIENCE, || !lab.output(&["status"]).status.success());
    lab.run(&["down"]);
    assert!(!runs(daemon), "the daemon outlived its lab");
    assert!(!lab.base.path().join("killed").exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(lab.base.path().to_str().unwrap()), "{mounts}");
    lab.run(&["up", "--no-daemon", "--nodes", "1", "--bin-dir", programs().to_str().unwrap()]);
    other.on_node("node1", "true");
    assert_eq!(other.daemon("node1")["state"], "running");
}

#[test]
fn nodes_reach_an_api_server_of_this_machine() {
    // The server answers with the client's address, so that a connection from elsewhere would show.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, format!("cluster: {{server: \"https://{at}\"}}\n")).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = ["--api-server", &at, "--kubeconfig", kubeconfig];
    let Some(lab) = Lab::up("cluster", &args) else { return };
    let answering = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = server.accept().unwrap();
        let mut received = [0; 5];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(b"pong").unwrap();
        received
    });
    let ping = "exec 3<>/dev/tcp/10.0.0.2/443; printf hello >&3; timeout 5 cat <&3";
    assert_eq!(lab.on_node("node2", ping), "pong");
    assert_eq!(&answering.join().unwrap(), b"hello");
    assert_eq!(lab.json(&["status"])["api_server"], "https://10.0.0.2:443");
    let seen = lab.on_node("node1", "cat /run/lab/kubeconfig");
    assert_eq!(seen, "cluster: {server: \"https://10.0.0.2:443\"}\n");
    eventually("the daemon's environment", PATIENCE, || {
        let pid = lab.daemon("node1")["pid"].as_u64();
        let environ = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok());
        environ.is_some_and(|text| {
            let text = String::from_utf8_lossy(&text).into_owned();
            text.contains("CLUSTER_ENDPOINT=https://10.0.0.2:443")
                && text.contains("KUBECONFIG=/run/lab/kubeconfig")
        })
    });
}

#[test]
fn the_operator_changes_subnets_enis_groups_permissions_and_branches() {
    let third = "10.0.32.0/24,zone=a,kubernetes.io/role/cni=1";
    let subnets = ["--subnet", "10.0.0.0/20", "--subnet", "10.0.16.0/20", "--subnet", third];
    let args = [&["--no-daemon", "--ipv6", "--bucket", "100:5"], &subnets[..]].concat();
    let Some(lab) = Lab::up("hands", &args) else { return };
    let subnet = |lab: &Lab, name: &str| {
        let all = lab.json(&["subnet", "list"]);
        all.as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone()
    };
    let c = subnet(&lab, "c");
    assert_eq!((c["zone"].as_str(), c["free"].as_u64()), (Some("eu-west-1a"), Some(251)), "{c}");
    assert_eq!(c["tags"]["kubernetes.io/role/cni"], "1");
    assert!(c["ipv6_cidr"].as_str().unwrap().ends_with("::/64"), "{c}");
    let fragmented = lab.json(&["subnet", "fragment", "c"]);
    assert_eq!((&fragmented["free_prefixes"], &fragmented["taken"]), (&0.into(), &14.into()));
    let full = lab.json(&["subnet", "take", "c", "237"]);
    assert_eq!(full["free"], 0);
    assert!(refused(&lab, 1, &["subnet", "take", "c", "1"]).contains("no free address"));
    assert_eq!(lab.json(&["subnet", "free", "c", "51"])["free"], 51);
    assert_eq!(lab.json(&["subnet", "free", "c"])["free_prefixes"], 14);
    lab.run(&["subnet", "untag", "c", "kubernetes.io/role/cni"]);
    lab.run(&["subnet", "tag", "a", "kubernetes.io/role/cni=0"]);
    assert_eq!(subnet(&lab, "a")["tags"]["kubernetes.io/role/cni"], "0");
    lab.run(&["subnet", "reserve", "c", "10.0.32.32/28"]);
    assert!(refused(&lab, 1, &["subnet", "free", "z"]).contains("there are: a, b, c"));

    // The primary ENI has an IPv6 address; the operator gives it another group.
    let node = lab.json(&["node", "list"])[0].clone();
    assert_eq!(node["enis"][0]["ipv6_addresses"].as_array().unwrap().len(), 1, "{node}");
    let eni = node["enis"][0]["id"].as_str().unwrap();
    lab.run(&["group", "add", "pods"]);
    assert_eq!(lab.json(&["eni", "groups", eni, "pods"])["groups"][0], "pods");
    assert_eq!(lab.json(&["eni", "keep", eni])["delete_on_termination"], false);
    lab.run(&["eni", "let-go", eni]);
    assert!(refused(&lab, 1, &["eni", "groups", eni, "nope"]).contains("security group nope"));

    // An ENI that other software made, in use beside the node's own; its tags come and go.
    let no_manage = "node.k8s.amazonaws.com/no_manage=true";
    let made = ["eni", "add", "a", "--description", "theirs", "--tag", no_manage];
    let made = lab.json(&[&made[..], &["--addresses", "2", "--attach", "node1"]].concat());
    assert_eq!((&made["node"], &made["device"]), (&"node1".into(), &1.into()), "{made}");
    assert_eq!(made["tags"]["node.k8s.amazonaws.com/no_manage"], "true");
    assert_eq!(made["addresses"].as_array().map(Vec::len), Some(3), "{made}");
    let theirs = made["id"].as_str().unwrap();
    assert_eq!(lab.json(&["eni", "tag", theirs, "team=a"])["tags"]["team"], "a");
    assert!(lab.json(&["eni", "untag", theirs, "team"])["tags"]["team"].is_null());
    assert!(lab.json(&["eni", "add", "c"])["node"].is_null());
    assert!(refused(&lab, 1, &["eni", "add", "a", "--attach", "nope"]).contains("no node nope"));

    // Denied actions of the nodes' role.
    let denied = lab.json(&["iam", "deny", "CreateNetworkInterface", "Describe*"]);
    assert_eq!(denied[0]["deny"].as_array().unwrap().len(), 2, "{denied}");
    assert!(lab.run(&["iam", "allow"]).contains("everything is allowed"));

    // A trunk, and a branch of it, as the resource controller makes them.
    lab.run(&["node", "trunk", "node1"]);
    lab.run(&["branch", "add", "node1", "web", "--group", "pods"]);
    eventually("the branch", PATIENCE, || {
        lab.json(&["branch", "list"])[0]["annotation"].is_string()
    });
    let enis = lab.json(&["eni", "list"]);
    let kinds: Vec<&str> =
        enis.as_array().unwrap().iter().filter_map(|eni| eni["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "trunk").count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "branch").count(), 1, "{kinds:?}");
    lab.run(&["branch", "remove", "web"]);

    // Cards, adapters, and an unknown type.
    lab.run(&[
        "node",
        "add",
        "gpu",
        "--no-daemon",
        "--type",
        "p5.48xlarge",
        "--interface",
        "1:0:efa-only",
        "--interface",
        "2:0",
        "--show-type",
        "z9.mystery",
    ]);
    let gpu = lab.json(&["node", "list"])[0].clone();
    let cards: Vec<u64> =
        gpu["enis"].as_array().unwrap().iter().filter_map(|eni| eni["card"].as_u64()).collect();
    assert_eq!((gpu["name"].as_str(), cards), (Some("gpu"), vec![0, 2]), "{gpu}");
    let ask = "TOKEN=$(curl -s -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' \
               169.254.169.254/latest/api/token); curl -s -H \"X-aws-ec2-metadata-token: $TOKEN\" \
               169.254.169.254/latest/meta-data/instance-type";
    assert_eq!(lab.on_node("gpu", ask), "z9.mystery");
}

/// A server at a port of a node, which answers each connection with the node and the address of the client.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(lab: &Lab, node: &'static str, port: u16) -> Self {
        let pin = lab.base.path().join(lab.name).join(format!("fabric/ns/node-{node}.net"));
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let namespace = File::open(pin).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            while !is_stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A health check does not read.
                    Ok((mut stream, from)) => drop(writeln!(stream, "{node} {}", from.ip())),
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// The states of a load balancer's targets, by node.
fn states(lab: &Lab) -> Vec<String> {
    let all = lab.json(&["nlb", "list"]);
    let targets = all[0]["targets"].as_array().unwrap().iter();
    targets
        .map(|target| format!("{} {}", target["target"], target["state"]).replace('"', ""))
        .collect()
}

/// The answers to so many clients outside the VPC.
fn answers(lab: &Lab, to: &str, count: usize) -> BTreeSet<String> {
    let ask = format!("for i in $(seq {count}); do timeout 5 head -1 </dev/tcp/{to}; done; true");
    let printed = lab.run(&["client", "exec", "--", "bash", "-c", &ask]);
    printed.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_load_balancer_sends_clients_to_the_healthy_nodes() {
    let Some(lab) = Lab::up("nlb", &["--no-daemon"]) else { return };
    lab.run(&["group", "add", "outside"]);
    for node in lab.json(&["node", "list"]).as_array().unwrap() {
        lab.run(&["eni", "groups", node["enis"][0]["id"].as_str().unwrap(), "default", "outside"]);
    }
    let add = ["nlb", "add", "web", "--listener", "80:30080", "--interval", "100ms"];
    let address = lab.json(&add)["address"].as_str().unwrap().to_owned();
    let said = refused(&lab, 1, &add);
    assert!(said.contains("there is a load balancer web already"), "{said}");
    let to = format!("{address}/80");
    let becomes = |expected: &[&str]| {
        eventually("the states of the targets", PATIENCE, || states(&lab) == expected);
    };
    becomes(&["node1 unhealthy", "node2 unhealthy"]);
    let servers = [Server::start(&lab, "node1", 30_080), Server::start(&lab, "node2", 30_080)];
    becomes(&["node1 healthy", "node2 healthy"]);
    let both = BTreeSet::from(["node1 192.0.2.1", "node2 192.0.2.1"].map(str::to_owned));
    eventually("answers of both nodes", PATIENCE, || answers(&lab, &to, 32) == both);

    // The public address of a node leads to its node port.
    let outside = lab.json(&["client", "show"]);
    assert_eq!(outside["addresses"][0], "192.0.2.1");
    let public = outside["nodes"][1]["address"].as_str().unwrap();
    let second = BTreeSet::from(["node2 192.0.2.1".to_owned()]);
    assert_eq!(answers(&lab, &format!("{public}/30080"), 1), second);

    // A deregistered node gets no new connections. It is listed until the delay is over.
    lab.run(&["nlb", "deregister", "web", "node1"]);
    eventually("answers of the other node", PATIENCE, || answers(&lab, &to, 16) == second);
    assert_eq!(states(&lab), ["node1 draining", "node2 healthy"]);
    let said = refused(&lab, 1, &["nlb", "deregister", "web", "node1"]);
    assert!(said.contains("it is draining"), "{said}");
    lab.run(&["nlb", "register", "web", "node1"]);
    becomes(&["node1 healthy", "node2 healthy"]);
    // An unhealthy node gets no new connections either.
    let [first_server, second_server] = servers;
    drop(first_server);
    becomes(&["node1 unhealthy", "node2 healthy"]);
    eventually("answers of the other node", PATIENCE, || answers(&lab, &to, 16) == second);
    drop(second_server);
    becomes(&["node1 unhealthy", "node2 unhealthy"]);
    lab.run(&["nlb", "remove", "web"]);
    assert_eq!(lab.json(&["nlb", "list"]), serde_json::json!([]));
}
