//! Sandboxes of a real containerd: one, a hundred side by side, over restarts of both daemons.

#![expect(
    clippy::print_stdout,
    reason = "which runtime it was, and how often the daemon was killed"
)]

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use tests_cri::{Cri, Node, PortMapping, Program, Sandbox};
use tests_lab::{Lab, programs, wait_for};

/// The suite that every version of CNI passes: a sandbox gets an address that works, lives through
/// the end of its runtime and of its daemon, and goes without a trace.
fn a_sandbox_lives(
    test: &str,
    lab: &str,
    program: fn() -> Result<Program>,
    cni: &str,
) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let mut node = Node::up(&bin, lab, &[], program()?, cni, |_| ())?;
    let cri = node.containerd.connect()?;
    println!("{test}: {}", cri.version()?);
    let sandboxes = ["web-0", "web-1"].map(|name| node.make(&cri, &node.pod(name)));
    let sandboxes = sandboxes.into_iter().collect::<Result<Vec<_>>>()?;
    node.answer(&sandboxes)?;
    // What the runtime keeps for the DEL is a result of this version.
    let kept = node.lab.on_node("node1", &["bash", "-c", "cat /var/lib/cni/results/*"])?;
    ensure!(kept.contains(&format!("\"cniVersion\":\"{cni}\"")), "kept results: {kept}");

    node.containerd.kill()?;
    node.lab.run(&["daemon", "kill", "node1"])?;
    node.containerd.start_again()?;
    let cri = node.containerd.connect()?;
    for sandbox in &sandboxes {
        let address = node.address(&cri, &sandbox.id)?;
        ensure!(address == sandbox.address, "{sandbox:?} has {address} after the restart");
    }
    let younger = node.make(&cri, &node.pod("web-2"))?;
    let taken: BTreeSet<_> = sandboxes.iter().map(|of| &of.address).collect();
    ensure!(!taken.contains(&younger.address), "{} is held twice", younger.address);
    let all = [&sandboxes[..], &[younger]].concat();
    node.answer(&all)?;
    for sandbox in &all {
        node.remove(&cri, sandbox)?;
    }
    node.holds_nothing(&cri)
}

#[test]
fn a_sandbox_of_debians_containerd_lives_with_cni_0_4_0() -> Result<()> {
    let test = "a_sandbox_of_debians_containerd_lives_with_cni_0_4_0";
    a_sandbox_lives(test, "t-cri-040", || Ok(Program::Debian), "0.4.0")
}

#[test]
fn a_sandbox_of_debians_containerd_lives_with_cni_1_0_0() -> Result<()> {
    let test = "a_sandbox_of_debians_containerd_lives_with_cni_1_0_0";
    a_sandbox_lives(test, "t-cri-100", || Ok(Program::Debian), "1.0.0")
}

#[test]
fn a_sandbox_of_a_current_containerd_lives_with_cni_1_1_0() -> Result<()> {
    let test = "a_sandbox_of_a_current_containerd_lives_with_cni_1_1_0";
    a_sandbox_lives(test, "t-cri-110", Program::built, "1.1.0")
}

/// Does it for each of these at once; what came of them, in the same order.
fn side_by_side<T: Sync, R: Send>(
    of: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let threads: Vec<_> = of.iter().map(|item| scope.spawn(|| each(item))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    })
}

/// Makes a sandbox as a kubelet does: what failed is cleaned up and begun anew.
fn make_in_the_end(node: &Node, cri: &Cri, name: &str, failed: &AtomicUsize) -> Result<Sandbox> {
    let mut pod = node.pod(name);
    loop {
        let attempt = pod.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let error = match node.make(cri, &pod) {
            Ok(sandbox) => return Ok(sandbox),
            Err(error) => error,
        };
        failed.fetch_add(1, Ordering::Relaxed);
        if attempt == ATTEMPTS {
            return Err(error.context(format!("{name}, attempt {attempt}")));
        }
        pod.metadata.as_mut().context("a pod without metadata")?.attempt = attempt + 1;
    }
}

/// There are as many as there should be, each with an address of its own at which it answers.
fn all_answer(node: &Node, sandboxes: &[Sandbox]) -> Result<()> {
    let addresses: BTreeSet<_> = sandboxes.iter().map(|of| &of.address).collect();
    ensure!(addresses.len() == MANY, "{MANY} sandboxes have {} addresses", addresses.len());
    node.answer(sandboxes)
}

#[test]
fn a_hundred_sandboxes_side_by_side_outlive_a_daemon_that_is_killed() -> Result<()> {
    let test = "a_hundred_sandboxes_side_by_side_outlive_a_daemon_that_is_killed";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings =
        ["--type", "m5.4xlarge", "--env", "WARM_IP_TARGET=20", "--env", "IP_COOLDOWN_PERIOD=5"];
    let node = Node::up(&bin, "t-cri-many", &settings, Program::Debian, "1.0.0", |_| ())?;
    let cri = node.containerd.connect()?;
    let names = |of: std::ops::Range<usize>| of.map(|n| format!("web-{n}")).collect::<Vec<_>>();
    let failed = AtomicUsize::new(0);
    let make = |name: &String| make_in_the_end(&node, &cri, name, &failed);
    let working = AtomicBool::new(true);
    let kills = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while working.load(Ordering::Relaxed) {
                // It may be down still from the last time.
                let killed = node.lab.output(&["daemon", "kill", "node1"]);
                let killed = killed.is_ok_and(|output| output.status.success());
                kills.fetch_add(usize::from(killed), Ordering::Relaxed);
                thread::sleep(BETWEEN_KILLS);
            }
        });
        let work = || -> Result<()> {
            let first = side_by_side(&names(0..MANY), make)?;
            all_answer(&node, &first)?;
            // One half goes while as many come.
            let (going, staying) = first.split_at(MANY / 2);
            let (gone, came) = thread::scope(|scope| {
                let gone = scope.spawn(|| side_by_side(going, |of| node.remove(&cri, of)));
                let came = side_by_side(&names(MANY..MANY + MANY / 2), make);
                (gone.join(), came)
            });
            gone.map_err(|_| anyhow!("a thread panicked"))??;
            let all = [staying, &came?].concat();
            all_answer(&node, &all)?;
            side_by_side(&all, |of| node.remove(&cri, of)).map(drop)
        };
        let worked = work();
        working.store(false, Ordering::Relaxed);
        worked
    })?;
    let kills = kills.into_inner();
    println!("{test}: {kills} kills, {} sandboxes begun anew", failed.into_inner());
    ensure!(kills > 1, "the daemon was hardly ever killed");
    node.holds_nothing(&cri)
}

/// What the runtime had promised is there afterwards; what a kubelet finds half made it removes and
/// begins anew; in the end nothing is left. (Debian's containerd forgets namespaces in such a moment.)
#[test]
fn a_containerd_killed_while_it_makes_sandboxes_leaves_nothing() -> Result<()> {
    let test = "a_containerd_killed_while_it_makes_sandboxes_leaves_nothing";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings = ["--type", "m5.4xlarge"];
    let mut node = Node::up(&bin, "t-cri-kill", &settings, Program::built()?, "1.1.0", |_| ())?;
    let names: Vec<String> = (0..BURST).map(|n| format!("web-{n}")).collect();
    let cri = node.containerd.connect()?;
    let promised = thread::scope(|scope| {
        let making: Vec<_> =
            names.iter().map(|name| scope.spawn(|| cri.run(&node.pod(name)))).collect();
        let killed = wait_for("the first sandbox to be made", PATIENCE, || {
            ensure!(making.iter().any(thread::ScopedJoinHandle::is_finished), "all are under way");
            Ok(true)
        })
        .and_then(|()| node.containerd.kill());
        let made: Vec<Result<String>> = making
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect();
        killed.map(|()| made)
    })?;
    node.containerd.start_again()?;
    let cri = node.containerd.connect()?;
    let mut all = Vec::new();
    let mut begun_anew = Vec::new();
    for (name, promised) in names.iter().zip(promised) {
        match promised {
            Ok(id) => {
                let address = node.address(&cri, &id).with_context(|| name.clone())?;
                all.push(Sandbox { name: name.clone(), address, id });
            }
            Err(_) => begun_anew.push(name),
        }
    }
    println!("{test}: {} made, {} under way", all.len(), begun_anew.len());
    ensure!(
        !begun_anew.is_empty(),
        "all {BURST} sandboxes were made before the runtime was killed"
    );
    let kept: BTreeSet<&String> = all.iter().map(|of| &of.id).collect();
    let half_made: Vec<String> =
        cri.list()?.into_iter().map(|of| of.id).filter(|id| !kept.contains(id)).collect();
    for id in half_made {
        cri.stop(&id)?;
        cri.remove(&id)?;
    }
    for name in begun_anew {
        let mut pod = node.pod(name);
        pod.metadata.as_mut().context("a pod without metadata")?.attempt = 1;
        all.push(node.make(&cri, &pod)?);
    }
    let addresses: BTreeSet<_> = all.iter().map(|of| &of.address).collect();
    ensure!(addresses.len() == BURST, "{BURST} sandboxes have {} addresses", addresses.len());
    node.answer(&all)?;
    side_by_side(&all, |of| node.remove(&cri, of))?;
    node.holds_nothing(&cri)
}

/// The network of a node with a current containerd is ready while STATUS is 0, which a kubelet makes
/// the node's readiness.
#[test]
fn a_node_is_ready_while_its_daemon_can_serve() -> Result<()> {
    let test = "a_node_is_ready_while_its_daemon_can_serve";
    let Some(bin) = programs(test) else { return Ok(()) };
    let node = Node::up(&bin, "t-cri-ready", &[], Program::built()?, "1.1.0", |_| ())?;
    let cri = node.containerd.connect()?;
    let network = |wanted: bool| {
        wait_for(&format!("NetworkReady to be {wanted}"), PATIENCE, || {
            let conditions = cri.conditions()?;
            let found = conditions.iter().find(|condition| condition.r#type == "NetworkReady");
            let found = found.context("no condition NetworkReady")?;
            ensure!(found.status == wanted, "{}: {}", found.reason, found.message);
            Ok(true)
        })
    };
    network(true)?;
    node.lab.run(&["daemon", "stop", "node1"])?;
    network(false)?;
    node.lab.run(&["daemon", "start", "node1"])?;
    network(true)
}

/// No containerd asks for GC yet, so the test does, as a runtime would: with what it still knows.
#[test]
fn what_the_runtime_does_not_know_any_more_is_collected() -> Result<()> {
    let test = "what_the_runtime_does_not_know_any_more_is_collected";
    let Some(bin) = programs(test) else { return Ok(()) };
    let node = Node::up(&bin, "t-cri-gc", &[], Program::built()?, "1.1.0", |_| ())?;
    let cri = node.containerd.connect()?;
    let made = ["web-0", "web-1"].map(|name| node.make(&cri, &node.pod(name)));
    let [kept, forgotten] = made;
    let (kept, forgotten) = (kept?, forgotten?);
    let netconf = json!({
        "cniVersion": "1.1.0", "name": "aws-cni", "type": "ferrule-cni",
        "cni.dev/valid-attachments": [{"containerID": kept.id, "ifname": "eth0"}],
    });
    let collect = format!(
        "env CNI_COMMAND=GC CNI_PATH=/opt/cni/bin /opt/cni/bin/ferrule-cni <<< '{netconf}'"
    );
    node.lab.on_node("node1", &["bash", "-c", &collect])?;
    wait_for("the forgotten pod's address to be free", PATIENCE, || {
        let held = node.lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
        ensure!(held == Some(1.0), "{held:?} addresses are held");
        let rules = node.lab.on_node("node1", &["ip", "rule"])?;
        ensure!(!rules.contains(&format!(" {} ", forgotten.address)), "{rules}");
        Ok(true)
    })?;
    node.answer(std::slice::from_ref(&kept))?;
    // The runtime's own DEL comes later than the collection.
    node.remove(&cri, &forgotten)?;
    node.remove(&cri, &kept)?;
    node.holds_nothing(&cri)
}

/// A plugin that notes what the runtime gave it and then is ours.
const EYE: &str = r#"cat > /opt/cni/bin/eye <<'END'
#!/bin/bash
read -r -d '' netconf
printf '%s\n' "$netconf" | tr -d '\n' >> /var/log/ferrule/netconf.$CNI_COMMAND
echo >> /var/log/ferrule/netconf.$CNI_COMMAND
exec /opt/cni/bin/ferrule-cni <<< "$netconf"
END
chmod 755 /opt/cni/bin/eye"#;

#[test]
fn annotations_and_port_mappings_of_a_pod_arrive() -> Result<()> {
    let test = "annotations_and_port_mappings_of_a_pod_arrive";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings = ["--type", "p4d.24xlarge", "--env", "ENABLE_MULTI_NIC=true"];
    let look = |conflist: &mut Value| conflist["plugins"][0]["type"] = json!("eye");
    let node = Node::up(&bin, "t-cri-conf", &settings, Program::Debian, "1.0.0", look)?;
    node.lab.on_node("node1", &["bash", "-c", EYE])?;
    let cri = node.containerd.connect()?;
    let mut pod = node.pod("web-0");
    pod.annotations.insert(NIC_CONFIG.to_owned(), "multi-nic-attachment".to_owned());
    pod.port_mappings.push(PortMapping {
        container_port: 8080,
        host_port: 18080,
        ..PortMapping::default()
    });
    let sandbox = node.make(&cri, &pod)?;
    node.answer(std::slice::from_ref(&sandbox))?;
    // The plugin did what the annotation says: an interface on each of the four network cards.
    let rules = node.lab.on_node("node1", &["ip", "-o", "link"])?;
    let links = rules.lines().filter(|line| line.contains(": eni")).count();
    ensure!(links == 4, "{links} links of the pod on the node:\n{rules}");
    node.remove(&cri, &sandbox)?;
    node.holds_nothing(&cri)?;
    for verb in ["ADD", "DEL"] {
        let path = format!("/var/log/ferrule/netconf.{verb}");
        let noted = node.lab.on_node("node1", &["cat", &path])?;
        let first = noted.lines().next().context("the plugin was not called")?;
        let netconf: Value = serde_json::from_str(first).with_context(|| noted.clone())?;
        let given = &netconf["runtimeConfig"];
        let annotation = &given["io.kubernetes.cri.pod-annotations"][NIC_CONFIG];
        ensure!(annotation == "multi-nic-attachment", "{verb} was given {given}");
        let mapping = &given["portMappings"][0];
        ensure!(mapping["HostPort"] == 18080, "{verb} was given {given}");
        ensure!(mapping["ContainerPort"] == 8080, "{verb} was given {given}");
    }
    Ok(())
}

/// The plugins of Debian's package, chained after ours by the installer's own code: a host port leads to
/// pods of either ENI, from another node and from the node itself; bandwidth is limited by annotation;
/// a sysctl holds.
#[test]
fn host_ports_bandwidth_and_sysctls_by_chained_plugins() -> Result<()> {
    let test = "host_ports_bandwidth_and_sysctls_by_chained_plugins";
    let Some(bin) = programs(test) else { return Ok(()) };
    // Three addresses an ENI: the last pods are on another one.
    let lab = Lab::up(&bin, "t-cri-chain", &["--nodes", "2", "--type", "t3.small"])?;
    let copy = "cp /usr/lib/cni/{portmap,bandwidth,tuning} /opt/cni/bin/";
    lab.on_node("node1", &["bash", "-c", copy])?;
    lab.run(&["daemon", "stop", "node1"])?;
    let tuning = json!([{"type": "tuning", "sysctl": {"net.core.somaxconn": "513"}}]);
    let tuning = format!("FERRULE_CHAINED_PLUGINS={tuning}");
    let settings = ["ENABLE_BANDWIDTH_PLUGIN=true", "POD_MTU=1400", &tuning];
    let settings = settings.iter().flat_map(|setting| ["--env", setting]);
    let start = ["daemon", "start", "node1"].into_iter().chain(settings);
    lab.run(&start.collect::<Vec<_>>())?;
    let node = Node::in_lab(lab, Program::Debian, "1.0.0", |_| ())?;
    let cri = node.containerd.connect()?;
    let mut sandboxes = Vec::new();
    for number in 0..PORTS {
        let mut pod = node.pod(&format!("web-{number}"));
        if number == 0 {
            for way in ["ingress", "egress"] {
                let limit = format!("kubernetes.io/{way}-bandwidth");
                pod.annotations.insert(limit, "8M".to_owned());
            }
        }
        pod.port_mappings.push(PortMapping {
            container_port: 8080,
            host_port: 18080 + number,
            ..PortMapping::default()
        });
        sandboxes.push(node.make(&cri, &pod)?);
        if number == 0 {
            let namespaces = node.containerd.network_namespaces()?;
            let [namespace] = &namespaces[..] else { panic!("{namespaces:?}") };
            let inside = |command: &[&str]| node.containerd.in_network(namespace, command);
            let somaxconn = inside(&["cat", "/proc/sys/net/core/somaxconn"])?;
            ensure!(somaxconn.trim() == "513", "net.core.somaxconn is {somaxconn}");
            let link = inside(&["ip", "-o", "link", "show", "eth0"])?;
            ensure!(link.contains(" mtu 1400 "), "{link}");
            let limits = node.lab.on_node("node1", &["tc", "qdisc", "show"])?;
            let limits = limits.matches("qdisc tbf").count();
            ensure!(limits == 2, "{limits} limits, not one each way");
        }
    }
    node.answer(&sandboxes)?;
    ensure!(node.lab.enis("node1")?.len() > 1, "all pods are on one ENI");
    let address = node.lab.node("node1")?["address"].as_str().context("no address")?.to_owned();
    for (number, sandbox) in sandboxes.iter().enumerate() {
        let call = format!("exec 3<> /dev/tcp/{address}/{}; cat <&3", 18080 + number);
        for from in ["node2", "node1"] {
            let said = node.lab.on_node(from, &["timeout", "10", "bash", "-c", &call]);
            let said = said.with_context(|| format!("{from} calls {}", sandbox.name))?;
            ensure!(said.trim() == sandbox.name, "{from} heard {said:?} from {sandbox:?}");
        }
    }
    for sandbox in &sandboxes {
        node.remove(&cri, sandbox)?;
    }
    node.holds_nothing(&cri)?;
    let left = node.lab.on_node("node1", &["bash", "-c", "tc qdisc show; ip -o link"])?;
    ensure!(!left.contains("tbf") && !left.contains("bwp"), "{left}");
    let rules = node.lab.on_node("node1", &["iptables-save", "-t", "nat"])?;
    ensure!(!rules.contains("1808"), "{rules}");
    Ok(())
}

/// How many sandboxes come or go at once.
const MANY: usize = 100;
/// How many pods have a host port: more than one ENI has addresses for.
const PORTS: i32 = 5;
/// How many of them a runtime has under way when it is killed.
const BURST: usize = 40;
/// How often a kubelet begins a sandbox anew here before the test gives up.
const ATTEMPTS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_KILLS: Duration = Duration::from_secs(3);
const NIC_CONFIG: &str = "k8s.amazonaws.com/nicConfig";
