//! The real `ferrule migrate services rules` in a network namespace with the rules of kube-proxy and a connection that they
//! translate.
//!
//! Needs root, iptables and nft. `FERRULE_CLI` names the program; by default the tests build this workspace's.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and reports a skip")]

use nix::sched::{CloneFlags, unshare};
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};
use tests_netns::{ferrule, ip};

const VIP: &str = "172.20.7.7";
const PORT: u16 = 18_080;

/// Rules as kube-proxy writes them in the mode iptables, beside those of another program.
const IPTABLES: &str = r#"*filter
:KUBE-FORWARD - [0:0]
:KUBE-FIREWALL - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A INPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]
:OTHER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -j OTHER
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -m comment --comment "default/web" -m tcp -j DNAT --to-destination 127.0.0.1:18080
-A KUBE-SERVICES -d 172.20.7.7/32 -p tcp -m comment --comment "default/web cluster IP" -m tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNOP
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-ABCDEFGHIJKLMNOP -m comment --comment "default/web -> 127.0.0.1:18080" -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A OTHER -d 192.0.2.1/32 -j RETURN
COMMIT
"#;

/// The same Service in the mode nftables.
const NFTABLES: &str = r#"
table ip kube-proxy {
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 172.20.7.7 . tcp . 80 comment "default/web" : goto service-web }
    }
    map service-nodeports {
        type inet_proto . inet_service : verdict
    }
    chain service-web { ip protocol tcp dnat to 127.0.0.1:18080; }
    chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
    chain nat-output { type nat hook output priority -100; jump services; }
}
table ip others {
    chain kept { type filter hook input priority 0; }
}
"#;

#[test]
fn rules_of_iptables_stay_until_the_last_connection_ends() {
    let foreign = ["KUBE-FIREWALL", "-A OUTPUT -j OTHER", "-A OTHER -d 192.0.2.1/32 -j RETURN"];
    in_a_namespace(|proc| {
        feed("iptables-nft-restore", &["--noflush"], IPTABLES);
        leaves_after_the_connection(proc);
        let left = feed("iptables-nft-save", &[], "");
        assert!(foreign.iter().all(|rule| left.contains(rule)), "{left}");
        let of_proxy =
            left.lines().find(|line| line.contains("KUBE-") && !line.contains("KUBE-FIREWALL"));
        assert_eq!(of_proxy, None, "{left}");
    });
}

#[test]
fn the_table_of_nftables_stays_until_the_last_connection_ends() {
    in_a_namespace(|proc| {
        feed("nft", &["-f", "-"], NFTABLES);
        leaves_after_the_connection(proc);
        let left = feed("nft", &["list", "tables"], "");
        assert!(left.contains("table ip others") && !left.contains("kube-proxy"), "{left}");
    });
}

/// A connection by the Service keeps the rules and works; its end removes them.
fn leaves_after_the_connection(proc: &Path) {
    let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
    let mut client = TcpStream::connect((VIP, 80)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    rules(
        proc,
        &["--remove"],
        1,
        "rules of kube-proxy stay: 1 connection uses them: TCP to 172.20.7.7 port 80",
    );
    client.write_all(b"x").unwrap();
    let mut byte = [0];
    server.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"x", "the connection continues");
    rules(proc, &[], 1, "rules of kube-proxy stay");
    drop(client);
    assert_eq!(server.read(&mut byte).unwrap(), 0);
    drop(server);
    rules(proc, &[], 1, "with --remove: ");
    rules(proc, &["--remove"], 0, "done: ");
    rules(proc, &["--remove"], 0, "no rules of kube-proxy");
}

#[track_caller]
fn rules(proc: &Path, flags: &[&str], code: i32, text: &str) {
    let mut command = Command::new(ferrule());
    command.args(["migrate", "services", "rules", "--proc"]).arg(proc).args(flags);
    let output: Output = command.output().unwrap();
    let printed = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(text), "{text}: {printed}");
}

fn in_a_namespace(test: impl FnOnce(&Path) + Send) {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP kube_proxy_rules: needs root");
        return;
    }
    if Command::new("iptables-nft-save").arg("--version").output().is_err() {
        println!("SKIP kube_proxy_rules: iptables-nft-save is missing");
        return;
    }
    // The build needs the machine's network, so it runs before the thread enters a namespace.
    ferrule();
    // The machine may run processes of kube-proxy for other tests.
    let proc = tempfile::tempdir().unwrap();
    symlink("/proc/self/net", proc.path().join("net")).unwrap();
    let finished = thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                ip("link set lo up");
                ip("route add 172.20.0.0/16 dev lo src 127.0.0.1");
                test(proc.path());
            })
            .join()
    });
    if let Err(panic) = finished {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a program and returns its output.
#[track_caller]
fn feed(program: &str, args: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
