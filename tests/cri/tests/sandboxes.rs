//! Sandboxes of a real containerd: one, a hundred in parallel, and over restarts of both daemons.

#![expect(clippy::print_stdout, reason = "the version of the runtime, and the number of kills")]

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

/// The suite for every version of CNI. A sandbox gets a working address, survives the end of its runtime and
/// of the daemon, and leaves nothing behind.
fn check_sandbox_life(
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
    // The result that the runtime keeps for the DEL has this version.
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
    node.is_empty_of_sandboxes(&cri)
}

#[test]
fn a_sandbox_of_debians_containerd_survives_restarts_with_cni_0_4_0() -> Result<()> {
    let test = "a_sandbox_of_debians_containerd_survives_restarts_with_cni_0_4_0";
    check_sandbox_life(test, "t-cri-040", || Ok(Program::Debian), "0.4.0")
}

#[test]
fn a_sandbox_of_debians_containerd_survives_restarts_with_cni_1_0_0() -> Result<()> {
    let test = "a_sandbox_of_debians_containerd_survives_restarts_with_cni_1_0_0";
    check_sandbox_life(test, "t-cri-100", || Ok(Program::Debian), "1.0.0")
}

#[test]
fn a_sandbox_of_a_current_containerd_survives_restarts_with_cni_1_1_0() -> Result<()> {
    let test = "a_sandbox_of_a_current_containerd_survives_restarts_with_cni_1_1_0";
    check_sandbox_life(test, "t-cri-110", Program::built, "1.1.0")
}

/// Runs a closure for all items in parallel, and returns the results in the same order.
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

/// Creates a sandbox as a kubelet does: after a failure it cleans up and retries.
fn make_with_retries(node: &Node, cri: &Cri, name: &str, failed: &AtomicUsize) -> Result<Sandbox> {
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
        pod.metadata.as_mut().context("the pod has no metadata")?.attempt = attempt + 1;
    }
}

/// Checks the number of sandboxes, and that each answers at its own address.
fn all_answer(node: &Node, sandboxes: &[Sandbox]) -> Result<()> {
    let addresses: BTreeSet<_> = sandboxes.iter().map(|of| &of.address).collect();
    ensure!(addresses.len() == MANY, "{MANY} sandboxes have {} addresses", addresses.len());
    node.answer(sandboxes)
}

#[test]
fn a_hundred_parallel_sandboxes_survive_kills_of_the_daemon() -> Result<()> {
    let test = "a_hundred_parallel_sandboxes_survive_kills_of_the_daemon";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings =
        ["--type", "m5.4xlarge", "--env", "WARM_IP_TARGET=20", "--env", "IP_COOLDOWN_PERIOD=5"];
    let node = Node::up(&bin, "t-cri-many", &settings, Program::Debian, "1.0.0", |_| ())?;
    let cri = node.containerd.connect()?;
    let names = |of: std::ops::Range<usize>| of.map(|n| format!("web-{n}")).collect::<Vec<_>>();
    let failed = AtomicUsize::new(0);
    let make = |name: &String| make_with_retries(&node, &cri, name, &failed);
    let working = AtomicBool::new(true);
    let kills = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while working.load(Ordering::Relaxed) {
                // The daemon may still be down from the previous kill.
                let killed = node.lab.output(&["daemon", "kill", "node1"]);
                let killed = killed.is_ok_and(|output| output.status.success());
                kills.fetch_add(usize::from(killed), Ordering::Relaxed);
                thread::sleep(BETWEEN_KILLS);
            }
        });
        let work = || -> Result<()> {
            let first = side_by_side(&names(0..MANY), make)?;
            all_answer(&node, &first)?;
            // One half is removed while as many are created.
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
    println!("{test}: {kills} kills, {} sandboxes retried", failed.into_inner());
    ensure!(kills > 1, "the daemon was killed {kills} times only");
    node.is_empty_of_sandboxes(&cri)
}

/// Sandboxes that the runtime has confirmed survive. A kubelet removes and recreates the half-built ones. At
/// the end nothing is left. (Debian's containerd loses namespaces in this case.)
#[test]
fn a_containerd_killed_while_it_makes_sandboxes_leaves_nothing() -> Result<()> {
    let test = "a_containerd_killed_while_it_makes_sandboxes_leaves_nothing";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings = ["--type", "m5.4xlarge"];
    let mut node = Node::up(&bin, "t-cri-kill", &settings, Program::built()?, "1.1.0", |_| ())?;
    let names: Vec<String> = (0..BURST).map(|n| format!("web-{n}")).collect();
    let cri = node.containerd.connect()?;
    let results = thread::scope(|scope| {
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
    let mut unfinished = Vec::new();
    for (name, result) in names.iter().zip(results) {
        match result {
            Ok(id) => {
                let address = node.address(&cri, &id).with_context(|| name.clone())?;
                all.push(Sandbox { name: name.clone(), address, id });
            }
            Err(_) => unfinished.push(name),
        }
    }
    println!("{test}: {} made, {} under way", all.len(), unfinished.len());
    ensure!(
        !unfinished.is_empty(),
        "all {BURST} sandboxes were made before the runtime was killed"
    );
    let kept: BTreeSet<&String> = all.iter().map(|of| &of.id).collect();
    let half_made: Vec<String> =
        cri.list()?.into_iter().map(|of| of.id).filter(|id| !kept.contains(id)).collect();
    for id in half_made {
        cri.stop(&id)?;
        cri.remove(&id)?;
    }
    for name in unfinished {
        let mut pod = node.pod(name);
        pod.metadata.as_mut().context("the pod has no metadata")?.attempt = 1;
        all.push(node.make(&cri, &pod)?);
    }
    let addresses: BTreeSet<_> = all.iter().map(|of| &of.address).collect();
    ensure!(addresses.len() == BURST, "{BURST} sandboxes have {} addresses", addresses.len());
    node.answer(&all)?;
    side_by_side(&all, |of| node.remove(&cri, of))?;
    node.is_empty_of_sandboxes(&cri)
}

/// The network of a node with a current containerd is ready while STATUS returns 0. A kubelet makes that the
/// node's readiness.
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
            let found = found.context("the runtime has no condition NetworkReady")?;
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

/// No containerd calls GC yet, so the test does, with the attachments that the runtime still has.
#[test]
fn a_sandbox_that_the_runtime_has_lost_is_collected() -> Result<()> {
    let test = "a_sandbox_that_the_runtime_has_lost_is_collected";
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
    // The runtime's own DEL follows the collection.
    node.remove(&cri, &forgotten)?;
    node.remove(&cri, &kept)?;
    node.is_empty_of_sandboxes(&cri)
}

/// A plugin that records its input and then executes `ferrule-cni`.
const RECORDER: &str = r#"cat > /opt/cni/bin/recorder <<'END'
#!/bin/bash
read -r -d '' netconf
printf '%s\n' "$netconf" | tr -d '\n' >> /var/log/ferrule/netconf.$CNI_COMMAND
echo >> /var/log/ferrule/netconf.$CNI_COMMAND
exec /opt/cni/bin/ferrule-cni <<< "$netconf"
END
chmod 755 /opt/cni/bin/recorder"#;

#[test]
fn annotations_and_port_mappings_of_a_pod_reach_the_plugin() -> Result<()> {
    let test = "annotations_and_port_mappings_of_a_pod_reach_the_plugin";
    let Some(bin) = programs(test) else { return Ok(()) };
    let settings = ["--type", "p4d.24xlarge", "--env", "ENABLE_MULTI_NIC=true"];
    let look = |conflist: &mut Value| conflist["plugins"][0]["type"] = json!("recorder");
    let node = Node::up(&bin, "t-cri-conf", &settings, Program::Debian, "1.0.0", look)?;
    node.lab.on_node("node1", &["bash", "-c", RECORDER])?;
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
    // The annotation has its effect: an interface on each of the four network cards.
    let rules = node.lab.on_node("node1", &["ip", "-o", "link"])?;
    let links = rules.lines().filter(|line| line.contains(": eni")).count();
    ensure!(links == 4, "{links} links of the pod on the node:\n{rules}");
    node.remove(&cri, &sandbox)?;
    node.is_empty_of_sandboxes(&cri)?;
    for verb in ["ADD", "DEL"] {
        let path = format!("/var/log/ferrule/netconf.{verb}");
        let noted = node.lab.on_node("node1", &["cat", &path])?;
        let first = noted.lines().next().context("the plugin was not called")?;
        let netconf: Value = serde_json::from_str(first).with_context(|| noted.clone())?;
        let given = &netconf["runtimeConfig"];
        let annotation = &given["io.kubernetes.cri.pod-annotations"][NIC_CONFIG];
        ensure!(annotation == "multi-nic-attachment", "{verb} received {given}");
        let mapping = &given["portMappings"][0];
        ensure!(mapping["HostPort"] == 18080, "{verb} received {given}");
        ensure!(mapping["ContainerPort"] == 8080, "{verb} received {given}");
    }
    Ok(())
}

/// The plugins of Debian's package, which the installer chains after `ferrule-cni`. A host port leads to pods
/// of either ENI, from another node and from the node itself. An annotation limits bandwidth. A sysctl is
/// set.
#[test]
fn chained_plugins_set_host_ports_bandwidth_and_sysctls() -> Result<()> {
    let test = "chained_plugins_set_host_ports_bandwidth_and_sysctls";
    let Some(bin) = programs(test) else { return Ok(()) };
    // Three addresses per ENI, so the last pods are on another ENI.
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
            for direction in ["ingress", "egress"] {
                let limit = format!("kubernetes.io/{direction}-bandwidth");
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
            ensure!(limits == 2, "{limits} limits instead of one per direction");
        }
    }
    node.answer(&sandboxes)?;
    ensure!(node.lab.enis("node1")?.len() > 1, "all pods are on one ENI");
    let address =
        node.lab.node("node1")?["address"].as_str().context("the node has no address")?.to_owned();
    for (number, sandbox) in sandboxes.iter().enumerate() {
        let call = format!("exec 3<> /dev/tcp/{address}/{}; cat <&3", 18080 + number);
        for from in ["node2", "node1"] {
            let answer = node.lab.on_node(from, &["timeout", "10", "bash", "-c", &call]);
            let answer = answer.with_context(|| format!("{from} calls {}", sandbox.name))?;
            ensure!(answer.trim() == sandbox.name, "{from} got {answer:?} from {sandbox:?}");
        }
    }
    for sandbox in &sandboxes {
        node.remove(&cri, sandbox)?;
    }
    node.is_empty_of_sandboxes(&cri)?;
    let left = node.lab.on_node("node1", &["bash", "-c", "tc qdisc show; ip -o link"])?;
    ensure!(!left.contains("tbf") && !left.contains("bwp"), "{left}");
    let rules = node.lab.on_node("node1", &["iptables-save", "-t", "nat"])?;
    ensure!(!rules.contains("1808"), "{rules}");
    Ok(())
}

/// Number of sandboxes that are created or removed at once.
const MANY: usize = 100;
/// Number of pods with a host port; more than one ENI has addresses for.
const PORTS: i32 = 5;
/// Number of sandboxes under construction when the runtime is killed.
const BURST: usize = 40;
/// Number of retries for a sandbox before the test fails.
const ATTEMPTS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_KILLS: Duration = Duration::from_secs(3);
const NIC_CONFIG: &str = "k8s.amazonaws.com/nicConfig";
