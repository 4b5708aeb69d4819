//! Nodes: how ENIs appear and vanish, what a reboot keeps.

use crate::{
    Test,
    lab::{TestLab, eni_id, ip_batch, links},
};
use lab_fabric::{NicProfile, OWN_FOLDERS, Power};
use std::{fs, path::Path, process::Command};
use tests_eventually::eventually;

pub(crate) const TESTS: &[Test] = &[
    ("an_eni_appears_down_and_bare_and_vanishes_on_detach", an_eni_appears_and_vanishes),
    ("a_link_is_renamed_late", a_link_is_renamed_late),
    ("a_network_manager_adds_its_routes", a_network_manager_adds_its_routes),
    ("an_eni_moves_between_nodes", an_eni_moves_between_nodes),
    ("a_reboot_keeps_the_disk_and_nothing_else", a_reboot_keeps_the_disk),
    ("the_report_has_the_steps_before_a_failure", the_report_has_the_steps_before_a_failure),
    ("stop_start_and_terminate", stop_start_and_terminate),
    ("files_of_a_node_stay_in_the_node", files_of_a_node_stay_in_the_node),
    ("a_node_has_a_bpffs_of_its_own_until_it_is_off", a_node_has_a_bpffs_of_its_own),
    ("a_deleted_pods_processes_are_killed", a_deleted_pods_processes_are_killed),
];

fn show(lab: &TestLab, node: &str, args: &[&str]) -> String {
    let output = lab.node(node).command("ip").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn an_eni_appears_and_vanishes() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &[]);
    assert_eq!(lab.apply().attached, [eni_id("a", 1)]);
    let link = show(&lab, "a", &["link", "show", "eth1"]);
    assert!(link.contains("02:00:00:00:01:14") && link.contains("mtu 9001"), "{link}");
    assert!(link.contains("state DOWN"), "{link}");
    assert_eq!(show(&lab, "a", &["-4", "address", "show", "dev", "eth1"]), "");
    let routes = show(&lab, "a", &["route"]);
    assert!(routes.contains("default via 10.0.1.1 dev eth0 proto dhcp src 10.0.1.10"), "{routes}");
    lab.wanted.enis.remove(&eni_id("a", 1));
    assert_eq!(lab.apply().detached, [eni_id("a", 1)]);
    assert!(!links(&lab.node("a")).contains("eth1"));
}

fn a_link_is_renamed_late() {
    let mut lab = TestLab::empty();
    lab.want_node("a", NicProfile::EnsLateRename, "10.0.1.10");
    lab.apply();
    assert!(links(&lab.node("a")).contains("ens5"));
    lab.want_eni("a", 1, "10.0.1.20", &[]);
    lab.want_eni("a", 2, "10.0.1.30", &[]);
    lab.apply();
    // A daemon that is quick brings it up under its first name.
    if links(&lab.node("a")).contains("eth1") {
        let _ = lab.node("a").command("ip").args(["link", "set", "eth1", "up"]).output().unwrap();
    }
    eventually("ens6 and ens7", tests_eventually::PATIENCE, || {
        let links = links(&lab.node("a"));
        ["ens6", "ens7"].iter().all(|link| links.contains(*link)) && !links.contains("eth1")
    });
}

fn a_network_manager_adds_its_routes() {
    let mut lab = TestLab::empty();
    lab.want_node("a", NicProfile::NetworkManager, "10.0.1.10");
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.apply();
    let routes = show(&lab, "a", &["route", "show", "dev", "eth1"]);
    assert!(
        routes.contains("default via 10.0.1.1 proto dhcp src 10.0.1.20 metric 101"),
        "{routes}"
    );
    assert!(routes.contains("10.0.1.0/24"), "{routes}");
}

fn an_eni_moves_between_nodes() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &[]);
    lab.apply();
    lab.eni("a", 1).node = "b".into();
    let applied = lab.apply();
    assert_eq!((applied.attached, applied.detached), (vec![eni_id("a", 1)], vec![]));
    assert!(!links(&lab.node("a")).contains("eth1") && links(&lab.node("b")).contains("eth1"));
}

fn a_reboot_keeps_the_disk() {
    let mut lab = TestLab::two_nodes();
    let node = lab.node("a");
    let before = node.boot_id().unwrap();
    let shell = |script: &str| {
        let output = lab.node("a").command("sh").args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shell("cat /proc/sys/kernel/random/boot_id").trim(), before);
    assert_eq!(shell("hostname").trim(), "ip-10-0-1-10");
    shell("mkdir /run/ferrule; touch /run/ferrule/sock /var/lib/ferrule/kept /etc/cni/net.d/kept");
    assert!(node.on_machine(Path::new("/var/lib/ferrule/kept")).unwrap().exists());
    node.add_pod("web").unwrap();
    let mut sleeper = node.command("sleep").arg("1000").spawn().unwrap();
    let mut in_pod = node.pod_command("web", "sleep").arg("1000").spawn().unwrap();
    eventually("the program runs in the pod", tests_eventually::PATIENCE, || {
        let exe = fs::read_link(format!("/proc/{}/exe", in_pod.id()));
        exe.is_ok_and(|exe| exe.ends_with("sleep") || exe.ends_with("coreutils"))
    });
    lab.wanted.nodes.get_mut("a").unwrap().boot = 2;
    let applied = lab.apply();
    assert_eq!((applied.halted, applied.booted), (vec!["a".to_owned()], vec!["a".to_owned()]));
    assert_eq!(applied.attached, [eni_id("a", 0)]);
    assert!(!sleeper.wait().unwrap().success() && !in_pod.wait().unwrap().success());
    assert_ne!(lab.node("a").boot_id().unwrap(), before);
    assert_eq!(lab.node("a").pods().unwrap(), Vec::<String>::new());
    assert_eq!(shell_in(&lab, "ls /run/ferrule || true"), "");
    assert_eq!(shell_in(&lab, "ls /var/lib/ferrule /etc/cni/net.d | grep -c kept"), "2\n");
    assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
}

fn shell_in(lab: &TestLab, script: &str) -> String {
    let output = lab.node("a").command("sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn the_report_has_the_steps_before_a_failure() {
    let mut lab = TestLab::empty();
    lab.want_node("a", NicProfile::EthN, "10.0.1.10");
    lab.want_node("b", NicProfile::EthN, "10.0.2.10");
    // A folder where the pin of b's network is to be.
    let in_the_way = lab.dir.join("ns/node-b.net");
    fs::create_dir(&in_the_way).unwrap();
    assert!(lab.fabric.apply(&lab.wanted).is_err());
    assert!(lab.node("a").is_up());
    fs::remove_dir(&in_the_way).unwrap();
    let applied = lab.apply();
    assert_eq!((applied.booted, applied.halted.len()), (vec!["a".to_owned(), "b".to_owned()], 0));
    assert_eq!(applied.attached, [eni_id("a", 0), eni_id("b", 0)]);
    assert_eq!(lab.apply(), lab_fabric::Applied::default());
}

fn stop_start_and_terminate() {
    let mut lab = TestLab::two_nodes();
    let kept = lab.node("a").on_machine(Path::new("/var/lib/cni/kept")).unwrap();
    fs::write(&kept, "").unwrap();
    lab.wanted.nodes.get_mut("a").unwrap().power = Power::Off;
    assert_eq!(lab.apply().halted, ["a"]);
    assert!(!lab.node("a").is_up() && kept.exists());
    assert!(lab.node("a").inside(|| ()).is_err() && lab.node("a").add_pod("web").is_err());
    assert_eq!(lab.apply(), lab_fabric::Applied::default());
    let spec = lab.wanted.nodes.get_mut("a").unwrap();
    (spec.power, spec.boot) = (Power::On, 2);
    assert_eq!(lab.apply().booted, ["a"]);
    assert_eq!(lab.echo("b", "10.0.2.10", "10.0.1.10"), Ok(()));
    lab.wanted.nodes.remove("a");
    lab.wanted.enis.remove(&eni_id("a", 0));
    let applied = lab.apply();
    assert_eq!((applied.halted, applied.detached), (vec!["a".to_owned()], vec![eni_id("a", 0)]));
    assert!(lab.fabric.node("a").is_err() && !kept.exists());
}

fn files_of_a_node_stay_in_the_node() {
    let lab = TestLab::two_nodes();
    let name = format!("ferrule-lab-test-{}", std::process::id());
    for folder in ["/etc", "/opt", "/var", "/var/lib"].iter().chain(&OWN_FOLDERS) {
        let path = format!("{folder}/{name}");
        let touched = lab.node("a").command("touch").arg(&path).status().unwrap();
        assert!(touched.success(), "{path}");
        let there = |node: &str| lab.node(node).command("test").args(["-e", &path]).status();
        assert!(there("a").unwrap().success() && !there("b").unwrap().success(), "{path}");
        assert!(!Path::new(&path).exists(), "{path}");
    }
    // Its /sys shows its own links, and no namespace of others is kept alive by its mounts.
    let shown = shell_in(&lab, "ls /sys/class/net");
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["eth0", "lo"]);
    assert_eq!(shell_in(&lab, "grep -c ' - nsfs ' /proc/self/mountinfo || true"), "0\n");
    ip_batch(&lab.node("a"), "netns add by-hand\n");
    assert_eq!(lab.node("a").pods().unwrap(), ["by-hand"]);
    let machine = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!String::from_utf8(machine.stdout).unwrap().contains("by-hand"));
}

/// A folder on the bpffs stands for the pins.
fn a_node_has_a_bpffs_of_its_own() {
    let mut lab = TestLab::two_nodes();
    let pins = format!("/sys/fs/bpf/ferrule-lab-test-{}", std::process::id());
    assert_eq!(shell_in(&lab, "stat --file-system --format %T /sys/fs/bpf"), "bpf_fs\n");
    let made = lab.node("a").command("mkdir").arg(&pins).status().unwrap();
    assert!(made.success());
    let has = |lab: &TestLab, node: &str| {
        lab.node(node).command("test").args(["-d", &pins]).status().unwrap().success()
    };
    assert!(has(&lab, "a") && !has(&lab, "b") && !Path::new(&pins).exists());
    lab.wanted.nodes.get_mut("a").unwrap().boot = 2;
    lab.apply();
    assert!(!has(&lab, "a"), "a reboot drops all pins");
    assert!(lab.node("a").command("mkdir").arg(&pins).status().unwrap().success());
    lab.wanted.nodes.remove("a");
    lab.wanted.enis.remove(&eni_id("a", 0));
    lab.apply();
    for process in fs::read_dir("/proc").unwrap() {
        let root = process.unwrap().path().join("root");
        assert!(!root.join(pins.trim_start_matches('/')).exists(), "{}", root.display());
    }
}

fn a_deleted_pods_processes_are_killed() {
    let lab = TestLab::two_nodes();
    let node = lab.node("a");
    assert_eq!(node.add_pod("web").unwrap(), Path::new("/run/netns/web"));
    assert!(node.add_pod("web").is_err());
    let ready = "ip -o link | wc -l; exec sleep 1000";
    let mut child = node
        .pod_command("web", "sh")
        .args(["-c", ready])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line.trim(), "1", "a fresh pod has lo alone");
    node.remove_pod("web").unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(node.pods().unwrap(), Vec::<String>::new());
    node.remove_pod("web").unwrap();
    assert!(node.inside_pod("web", || ()).is_err());
}
