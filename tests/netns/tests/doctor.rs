//! The real `ferrule doctor` on nodes that consist of namespaces: a good node, and nodes with faults.
//!
//! Needs root, iproute2 and nft. `FERRULE_CLI` names the program; by default the tests build this workspace's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};
use tests_netns::{ferrule, ip, run};

#[test]
fn a_good_node_has_no_findings() {
    on_a_node(|node| {
        let report = node.report(0);
        assert_eq!(report["findings"], Value::Array(Vec::new()));
        assert_eq!(report["unseen"], Value::Array(Vec::new()));
        assert_eq!(report["good"].as_array().unwrap().len(), 16);
        let output = node.doctor(&[]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with("16 good, 0 faults, 0 warnings, 0 notices, 0 not checked\n"));
    });
}

#[test]
fn a_twin_rule_a_strict_filter_and_a_dhcp_route_are_reported_together() {
    on_a_node(|node| {
        ip("rule add pref 1536 from 10.0.0.57 lookup 2 protocol 4");
        fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", "1").unwrap();
        ip("route add default via 10.0.0.1 dev eth1 metric 512 proto dhcp onlink");
        let report = node.report(1);
        assert_eq!(
            findings(&report),
            [
                "fault main-routes eth1",
                "fault rp-filter eth0",
                "warning twin-rules pref 1536 from 10.0.0.57 lookup 2",
            ]
        );
        // The fix, executed literally up to its first comma, removes the finding.
        for finding in report["findings"].as_array().unwrap() {
            let mend = finding["mend"].as_str().unwrap();
            let first = mend.split(',').next().unwrap();
            let first = first.strip_prefix("delete one: ").unwrap_or(first);
            let first = first.replace("sysctl -w net.ipv4.conf.eth0.rp_filter=", "");
            if first == "2" {
                fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", first).unwrap();
            } else {
                ip(first.strip_prefix("ip ").unwrap());
            }
        }
        assert_eq!(findings(&node.report(0)), Vec::<String>::new());
    });
}

#[test]
fn leftover_rules_foreign_tables_and_other_mtus_are_reported() {
    on_a_node(|node| {
        ip("rule add pref 512 to 10.0.0.99 lookup main");
        ip("rule add pref 30400 from 10.0.0.57 lookup 30400");
        ip("rule add pref 700 from 10.0.0.0/16 lookup 77");
        ip("link set eth1 mtu 1500");
        fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        let report = node.report(1);
        assert_eq!(
            findings(&report),
            [
                "fault foreign-tables table 30400",
                "fault forwarding net.ipv4.ip_forward",
                "warning foreign-rules pref 700 from 10.0.0.0/16 lookup 77",
                "warning leftover-rules pref 512 to 10.0.0.99 lookup main",
                "warning mtu eni0a",
                "warning mtu eth1",
            ]
        );
    });
}

#[test]
fn drop_chains_and_two_iptables_backends_are_reported() {
    on_a_node(|node| {
        run("nft", "add table ip filter");
        run(
            "nft",
            "add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }",
        );
        assert_eq!(findings(&node.report(1)), ["fault forward-policy ip filter FORWARD"]);
        run("nft", "chain ip filter FORWARD { policy accept ; }");
        assert_eq!(findings(&node.report(0)), Vec::<String>::new());
        if Command::new("iptables-legacy").arg("-V").output().is_err() {
            skip("iptables-legacy is missing");
            return;
        }
        run("nft", "add rule ip filter FORWARD counter");
        run("iptables-legacy", "-A FORWARD -s 192.0.2.1");
        assert_eq!(findings(&node.report(1)), ["warning iptables-mixed iptables"]);
        run("iptables-legacy", "-P FORWARD DROP");
        let both = ["fault forward-policy ip filter FORWARD", "warning iptables-mixed iptables"];
        assert_eq!(findings(&node.report(1)), both);
    });
}

#[test]
fn daemons_and_files_of_the_node_are_reported() {
    on_a_node(|node| {
        node.file("etc/systemd/system/timers.target.wants/nm-cloud-setup.timer", "");
        node.file("run/systemd/units/invocation:systemd-networkd.service", "");
        node.file(
            "usr/lib/udev/rules.d/99-vpc-policy-routes.rules",
            "ENV{SYSTEMD_WANTS}+=\"policy-routes@$name.service\"\n",
        );
        node.file(
            "usr/lib/systemd/network/99-default.link",
            "[Match]\nOriginalName=*\n[Link]\nMACAddressPolicy=persistent\n",
        );
        let root = node.folder.path().display().to_string();
        assert_eq!(
            findings(&node.report(1)),
            [
                format!(
                    "fault foreign-daemons {root}/usr/lib/udev/rules.d/99-vpc-policy-routes.rules"
                ),
                "fault foreign-daemons nm-cloud-setup.timer".to_owned(),
                format!("notice udev-mac {root}/usr/lib/systemd/network/99-default.link"),
                "warning network-managers systemd-networkd.service".to_owned(),
            ]
        );
    });
}

#[test]
fn the_hop_limit_of_the_metadata_service_is_measured() {
    on_a_node(|node| {
        let near = serve_imds(1);
        let report: Value =
            serde_json::from_slice(&node.doctor(&["-o", "json", "--imds", &near]).stdout).unwrap();
        assert_eq!(findings(&report), ["notice imds IMDS"]);
        // A closed port.
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let output = node.doctor(&["-o", "json", "--imds", &format!("http://{closed}")]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(findings(&serde_json::from_slice(&output.stdout).unwrap()), ["fault imds IMDS"]);
    });
}

#[test]
fn a_check_that_cannot_run_has_its_own_exit_code() {
    on_a_node(|node| {
        let proc = node.folder.path().join("proc");
        let output = node.doctor(&["-o", "json", "--proc", proc.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(findings(&report), Vec::<String>::new());
        let unseen: Vec<&str> = report["unseen"]
            .as_array()
            .unwrap()
            .iter()
            .map(|unseen| unseen["check"].as_str().unwrap())
            .collect();
        assert_eq!(
            unseen,
            [
                "rp-filter",
                "forwarding",
                "forward-policy",
                "iptables-mixed",
                "kernel-features",
                "conntrack"
            ]
        );
    });
}

#[test]
fn the_help_lists_the_exit_codes_and_uses_the_name_of_the_kubectl_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-ferrule");
    std::os::unix::fs::symlink(ferrule(), &plugin).unwrap();
    for (program, name) in [(ferrule(), "ferrule doctor"), (&plugin, "kubectl ferrule doctor")] {
        let output = Command::new(program).args(["doctor", "--help"]).output().unwrap();
        assert!(output.status.success());
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
        assert!(
            help.contains("Exit code: 0 no problems; 1 at least one problem to fix;"),
            "{help}"
        );
    }
    let wrong = Command::new(ferrule()).args(["doctor", "-o", "xml"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// A node. Its namespace is removed with its thread, its folder with the test.
struct Node {
    folder: tempfile::TempDir,
    imds: String,
}

/// Runs a test on a good node with two ENIs and a pod on the second one. Without root prints a skip.
fn on_a_node(test: impl FnOnce(&Node) + Send) {
    if !nix::unistd::geteuid().is_root() {
        skip("needs root");
        return;
    }
    // The build needs the machine's network, so it runs before the thread enters a namespace.
    ferrule();
    let finished = thread::scope(|scope| {
        scope
            .spawn(|| {
                let node = Node::set_up();
                test(&node);
            })
            .join()
    });
    if let Err(panic) = finished {
        std::panic::resume_unwind(panic);
    }
}

impl Node {
    fn set_up() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        for (eni, last) in [("eth0", 2), ("eth1", 3)] {
            ip(&format!(
                "link add {eni} mtu 9001 address 02:00:00:00:00:0{last} type veth peer name {eni}-vpc"
            ));
            ip(&format!("link set {eni} up"));
            ip(&format!("link set {eni}-vpc up"));
        }
        ip("addr add 10.0.0.10/24 dev eth0");
        ip("addr add 10.0.0.11/24 dev eth1 noprefixroute");
        ip("route add default via 10.0.0.1 dev eth0");
        ip("route add 10.0.0.1 dev eth1 table 2");
        ip("route add default via 10.0.0.1 dev eth1 table 2 onlink");
        ip("rule add pref 32765 from 10.0.0.11 lookup 2");
        ip("link add eni0a mtu 9001 type veth peer name pod");
        ip("link set eni0a up");
        ip("route add 10.0.0.57 dev eni0a");
        ip("rule add pref 512 to 10.0.0.57 lookup main");
        ip("rule add pref 1536 from 10.0.0.57 lookup 2");
        for (name, value) in [
            ("ip_forward", "1"),
            ("conf/all/rp_filter", "0"),
            ("conf/eth0/rp_filter", "2"),
            ("conf/eth1/rp_filter", "0"),
        ] {
            fs::write(Path::new("/proc/sys/net/ipv4").join(name), value).unwrap();
        }
        let node = Self { folder: tempfile::tempdir().unwrap(), imds: serve_imds(64) };
        // The kernel of the machine may lack features that branch ENIs need.
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let options =
            ["VETH", "IP_MULTIPLE_TABLES", "NF_CONNTRACK", "NF_NAT", "NF_TABLES", "VLAN_8021Q"];
        let config: String = options.iter().map(|option| format!("CONFIG_{option}=y\n")).collect();
        node.file(&format!("boot/config-{}", release.trim()), &config);
        node
    }

    /// Writes a file below the program's root.
    fn file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn doctor(&self, more: &[&str]) -> Output {
        let mut command = Command::new(ferrule());
        command.arg("doctor").arg("--root").arg(self.folder.path()).args(more);
        if !more.contains(&"--imds") {
            command.args(["--imds", &self.imds]);
        }
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs the program with this expected exit code and returns the report.
    #[track_caller]
    fn report(&self, code: i32) -> Value {
        let output = self.doctor(&["-o", "json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_str(&text).unwrap()
    }
}

/// Returns every finding as `severity check object`, sorted. Fails if a finding lacks cause, reason or fix.
fn findings(report: &Value) -> Vec<String> {
    let word = |finding: &Value, key: &str| {
        let text = finding[key].as_str().unwrap();
        assert!(!text.is_empty(), "{key} of {finding}");
        text.to_owned()
    };
    let mut lines: Vec<String> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            for key in ["wrong", "why", "mend"] {
                word(finding, key);
            }
            let [severity, check, object] =
                ["severity", "check", "object"].map(|key| word(finding, key));
            format!("{severity} {check} {object}")
        })
        .collect();
    lines.sort();
    lines
}

/// Starts a metadata service on the loopback interface whose answers have this TTL, and returns its URL. It runs until
/// the process exits.
fn serve_imds(hops: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, hops));
        }
    });
    url
}

/// Answers one request. The client may close the connection before the answer.
fn answer(mut stream: TcpStream, hops: u32) {
    stream.set_ttl(hops).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(request)) = lines.next() else { return };
    let token = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).any(|line| {
        line.eq_ignore_ascii_case("x-aws-ec2-metadata-token: secret")
            || line.eq_ignore_ascii_case("x-aws-ec2-metadata-token-ttl-seconds: 60")
    });
    let body = match request.split_whitespace().nth(1) {
        Some("/latest/api/token") if token && request.starts_with("PUT") => "secret",
        Some("/latest/meta-data/mac") if token => "02:00:00:00:00:02",
        Some("/latest/meta-data/network/interfaces/macs/") if token => {
            "02:00:00:00:00:02/\n02:00:00:00:00:03/\n"
        }
        _ => {
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
            return;
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

/// Writes to standard error directly, because the test harness hides the output of passing tests.
fn skip(why: &str) {
    let _ = std::io::stderr().write_all(format!("SKIP doctor: {why}\n").as_bytes());
}
