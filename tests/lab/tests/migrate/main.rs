//! `ferrule migrate` on a node of the real amazon-vpc-cni, and the rollback, under traffic of its pods. No connection
//! is lost, no rule has a twin, and every DEL leaves nothing.

mod agent;
mod policy;

use anyhow::{Context as _, Result, ensure};
use lab_programs::Program;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};
use tests_lab::{Lab, flow::Flow, programs, spoof::Spoof, vpc_cni, wait_for};

const NODE: &str = "theirs";
const PORT: u16 = 5201;
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a lab with a node of amazon-vpc-cni that has this number of free addresses.
fn lab(bin: &Path, name: &str, kind: &str, addresses: usize) -> Result<Lab> {
    lab_with(bin, name, kind, addresses, &[])
}

/// Like [`lab`], with more settings.
fn lab_with(
    bin: &Path,
    name: &str,
    kind: &str,
    addresses: usize,
    settings: &[&str],
) -> Result<Lab> {
    let theirs = Program::vpc_cni()?;
    let theirs = theirs.path().to_str().context("the path is not UTF-8")?;
    let lab = Lab::up(bin, name, &["--nodes", "0", "--throttling", "off"])?;
    let warm = format!("WARM_IP_TARGET={addresses}");
    let how = ["--type", kind, "--cni", "amazon-vpc-cni", "--cni-dir", theirs, "--env", &warm];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--env", *setting]).collect();
    lab.run(&[&["node", "add", NODE][..], &how[..], &settings[..]].concat())?;
    vpc_cni::wait_until_ready(&lab, NODE)?;
    let count = u32::try_from(addresses).context("too many addresses")?;
    vpc_cni::wait_for_free(&lab, NODE, count)?;
    Ok(lab)
}

/// A running `ferrule migrate` on the node.
struct Migrate {
    child: Child,
    printed: Vec<String>,
}

impl Migrate {
    fn start(lab: &Lab, bin: &Path, words: &[&str]) -> Result<Self> {
        let program = ferrule(bin)?;
        let mut command =
            lab.command(&[&["node", "exec", NODE, "--", &program, "migrate"], words].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().context("cannot start ferrule migrate")?;
        Ok(Self { child, printed: Vec::new() })
    }

    /// Waits until the command exits and returns its output. When it waits for one of the conditions in `actions`, runs
    /// the action of that condition.
    fn run(mut self, mut actions: Vec<(&str, &mut dyn FnMut() -> Result<()>)>) -> Result<String> {
        let lines = self.child.stdout.take().context("no standard output")?;
        for line in BufReader::new(lines).lines() {
            let line = line.context("cannot read the output")?;
            let waited = actions
                .iter()
                .position(|(wait, _)| line.starts_with("wait until ") && line.contains(wait));
            self.printed.push(line);
            if let Some(at) = waited {
                let (_, act) = actions.remove(at);
                act()?;
            }
        }
        let status = self.child.wait().context("cannot wait for ferrule migrate")?;
        let printed = self.printed.join("\n");
        ensure!(status.success(), "ferrule migrate: {status}\n{printed}");
        let left: Vec<&str> = actions.iter().map(|(wait, _)| *wait).collect();
        ensure!(left.is_empty(), "the command did not wait for {left:?}:\n{printed}");
        Ok(printed)
    }
}

fn ferrule(bin: &Path) -> Result<String> {
    Ok(bin.join("ferrule").to_str().context("the path is not UTF-8")?.to_owned())
}

fn apply(lab: &Lab, bin: &Path) -> Result<String> {
    let mut swap = || lab.run(&["daemon", "start", NODE, "--cni", "ferrule"]).map(drop);
    let migrate = Migrate::start(lab, bin, &["apply", "--wait", "120"])?;
    migrate.run(vec![("amazon-vpc-cni's agent has stopped", &mut swap)])
}

fn rollback(lab: &Lab, bin: &Path) -> Result<String> {
    let mut stop = || lab.run(&["daemon", "stop", NODE]).map(drop);
    let mut start = || lab.run(&["daemon", "start", NODE, "--cni", "amazon-vpc-cni"]).map(drop);
    let migrate = Migrate::start(lab, bin, &["rollback", "--wait", "120"])?;
    migrate.run(vec![
        ("ferrule-ipamd has stopped", &mut stop),
        ("amazon-vpc-cni's agent serves", &mut start),
    ])
}

fn migrate(lab: &Lab, bin: &Path, words: &[&str]) -> Result<(Option<i32>, String)> {
    let program = ferrule(bin)?;
    let output =
        lab.output(&[&["node", "exec", NODE, "--", &program, "migrate"], words].concat())?;
    let printed =
        [&output.stdout, &output.stderr].map(|of| String::from_utf8_lossy(of).into_owned());
    Ok((output.status.code(), printed.join("")))
}

/// Returns the address of each pod and the device number of its ENI.
fn pods(lab: &Lab) -> Result<BTreeMap<String, (String, u64)>> {
    let of = |pod: &Value| {
        let address = pod["addresses"][0].as_str().or(pod["address"].as_str())?;
        let address = address.split('/').next()?.to_owned();
        Some((pod["name"].as_str()?.to_owned(), (address, pod["device"].as_u64()?)))
    };
    lab.pods(NODE)?
        .iter()
        .map(|pod| of(pod).with_context(|| format!("a pod without an address or ENI: {pod}")))
        .collect()
}

/// Fails if the node's rules and routes differ from those of its pods, or if a rule has a twin.
fn ensure_routed(lab: &Lab) -> Result<()> {
    let json = |command: &[&str]| -> Result<Vec<Value>> {
        let text = lab.on_node(NODE, command)?;
        serde_json::from_str(&text).with_context(|| format!("JSON of {command:?}"))
    };
    let (rules, routes) = (json(&["ip", "-j", "rule"])?, json(&["ip", "-j", "route"])?);
    let mut seen = BTreeMap::new();
    for rule in &rules {
        let mut same = rule.clone();
        same.as_object_mut().context("a rule is not an object")?.remove("protocol");
        *seen.entry(same.to_string()).or_insert(0) += 1;
    }
    let twins: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twins.is_empty(), "twin rules: {twins:?}");
    let of = |pref: u64, side: &str| -> BTreeMap<String, String> {
        let found = rules.iter().filter(|rule| rule["priority"] == pref);
        let pair = |rule: &Value| {
            Some((rule[side].as_str()?.to_owned(), rule["table"].as_str()?.to_owned()))
        };
        found.filter_map(pair).collect()
    };
    let (to, from) = (of(512, "dst"), of(1536, "src"));
    let pods = pods(lab)?;
    let wanted_to: BTreeMap<String, String> =
        pods.values().map(|(address, _)| (address.clone(), "main".to_owned())).collect();
    ensure!(to == wanted_to, "rules to pods: {to:?}\ninstead of {wanted_to:?}");
    let secondary = pods.values().filter(|(_, device)| *device > 0);
    let wanted_from: BTreeMap<String, String> =
        secondary.map(|(address, device)| (address.clone(), (device + 1).to_string())).collect();
    ensure!(from == wanted_from, "rules from pods: {from:?}\ninstead of {wanted_from:?}");
    for (pod, (address, _)) in &pods {
        let leads: Vec<&str> = routes
            .iter()
            .filter(|route| route["dst"] == address.as_str())
            .filter_map(|route| route["dev"].as_str())
            .collect();
        ensure!(
            leads.len() == 1 && leads[0].starts_with("eni"),
            "{pod}: {address} through {leads:?}"
        );
    }
    Ok(())
}

/// Fails if amazon-vpc-cni's checkpoint lists other addresses than those of the node's pods.
fn ensure_listed(lab: &Lab) -> Result<()> {
    let text = lab.on_node(NODE, &["cat", "/var/run/aws-node/ipam.json"])?;
    let checkpoint: Value = serde_json::from_str(&text).context("cannot parse ipam.json")?;
    let entries = checkpoint["allocations"].as_array().cloned().unwrap_or_default();
    let listed: BTreeSet<&str> = entries.iter().filter_map(|one| one["ipv4"].as_str()).collect();
    let pods = pods(lab)?;
    let wanted: BTreeSet<&str> = pods.values().map(|(address, _)| address.as_str()).collect();
    ensure!(listed == wanted && entries.len() == wanted.len(), "{listed:?} instead of {wanted:?}");
    Ok(())
}

/// Opens two connections from each pod: to a pod of another node, and to the host outside.
fn talk(lab: &Lab, program: &Path, names: &[String], peer: &str) -> Result<Vec<Flow>> {
    let targets = [&format!("{peer}:{PORT}")[..], "192.0.2.1:7"];
    names.iter().map(|name| Flow::hold(lab, program, name, &targets)).collect()
}

/// Waits until every connection has received more bytes.
fn ensure_talking(flows: &mut [Flow]) -> Result<()> {
    for flow in flows {
        let before = flow.counts()?;
        wait_for(&format!("bytes on both connections of {}", flow.pod()), PATIENCE, || {
            let now = flow.counts()?;
            Ok(before.iter().zip(&now).all(|(before, now)| now > before))
        })?;
    }
    Ok(())
}

fn added(lab: &Lab, node: &str, count: usize, prefix: &str) -> Result<Vec<String>> {
    lab.run(&["pod", "add", node, "--count", &count.to_string(), "--prefix", prefix])?;
    Ok((0..count).map(|number| format!("{prefix}{number}")).collect())
}

#[test]
fn pods_migrate_and_roll_back_without_losing_a_connection() -> Result<()> {
    let test = "pods_migrate_and_roll_back_without_losing_a_connection";
    over_and_back(test, "t-migrate", "m5.4xlarge", (100, 2), &[])
}

#[test]
fn pods_with_prefix_addresses_migrate_and_roll_back() -> Result<()> {
    let test = "pods_with_prefix_addresses_migrate_and_roll_back";
    over_and_back(test, "t-prefixes", "t3.small", (40, 1), &["ENABLE_PREFIX_DELEGATION=true"])
}

/// Migrates and rolls back `count` pods with addresses of at least `enis` ENIs.
fn over_and_back(
    test: &str,
    name: &str,
    kind: &str,
    (count, enis): (usize, usize),
    settings: &[&str],
) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_lab-flow"));
    let lab = lab_with(&bin, name, kind, count, settings)?;
    lab.run(&["node", "add", "peer", "--type", "m5.large"])?;
    added(&lab, "peer", 1, "p")?;
    let peers = lab.pods("peer")?;
    let peer = peers[0]["addresses"][0].as_str().or(peers[0]["address"].as_str());
    let peer = peer.and_then(|text| text.split('/').next()).context("no address")?.to_owned();
    let server = Flow::serve(&lab, &program, "p0", PORT)?;
    let theirs = added(&lab, NODE, count, "t")?;
    let devices: BTreeSet<u64> = pods(&lab)?.values().map(|(_, device)| *device).collect();
    ensure!(devices.len() >= enis, "pods are on {devices:?} alone");
    ensure_routed(&lab)?;
    let mut flows = talk(&lab, &program, &theirs, &peer)?;
    ensure_talking(&mut flows)?;

    let (code, plan) = migrate(&lab, &bin, &["plan"])?;
    ensure!(code == Some(0) && plan.contains(&format!("{count} pods run")), "{code:?}: {plan}");
    let printed = apply(&lab, &bin)?;
    ensure!(printed.contains("no steps remain"), "{printed}");
    ensure_talking(&mut flows)?;
    ensure_routed(&lab)?;
    let files = lab.on_node(NODE, &["ls", "/etc/cni/net.d"])?;
    ensure!(files == "05-ferrule.conflist\n10-aws.conflist.ferrule-aside\n", "{files}");
    let (code, again) = migrate(&lab, &bin, &["apply"])?;
    ensure!(code == Some(0) && again.contains("no steps remain"), "{code:?}: {again}");
    lab.run(&["check", "--tcp", "4"])?;

    // Ferrule's DEL of pods that amazon-vpc-cni created, and new pods of Ferrule.
    let (gone, stay) = flows.split_at(flows.len() / 10 + 1);
    let gone = gone.len();
    ensure!(!stay.is_empty(), "too few pods");
    let mut rest = flows.split_off(gone);
    for flow in flows {
        let pod = flow.pod().to_owned();
        flow.end()?;
        lab.run(&["pod", "delete", &pod])?;
    }
    let ours = added(&lab, NODE, gone, "o")?;
    rest.extend(talk(&lab, &program, &ours, &peer)?);
    let mut flows = rest;
    wait_for("the rules of the running pods", PATIENCE, || ensure_routed(&lab).map(|()| true))?;
    ensure_talking(&mut flows)?;

    let (code, status) = migrate(&lab, &bin, &["status"])?;
    ensure!(code == Some(0) && status.contains("05-ferrule.conflist"), "{code:?}: {status}");
    rollback(&lab, &bin)?;
    ensure_talking(&mut flows)?;
    ensure_routed(&lab)?;
    ensure_listed(&lab)?;
    let files = lab.on_node(NODE, &["ls", "/etc/cni/net.d"])?;
    ensure!(files == "10-aws.conflist\n", "{files}");
    let tables = lab.on_node(NODE, &["nft", "list", "tables"])?;
    ensure!(!tables.contains("table ip ferrule"), "{tables}");
    lab.run(&["check", "--tcp", "4"])?;
    let mut bytes = 0;
    let connections = flows.len() * 2;
    for flow in flows {
        bytes += flow.end()?.iter().sum::<u64>();
    }
    ensure!(bytes > 0, "no bytes received");
    eprintln!("{connections} connections, {bytes} bytes received");

    // amazon-vpc-cni's DEL of Ferrule's pods and of its own, also without its agent from the result that the runtime
    // kept.
    lab.run(&["pod", "delete", &ours[0], &theirs[gone]])?;
    ensure_routed(&lab)?;
    ensure_listed(&lab)?;
    lab.run(&["daemon", "stop", NODE])?;
    if let Some(second) = ours.get(1) {
        lab.run(&["pod", "delete", second, &theirs[gone + 1]])?;
        ensure_routed(&lab)?;
    }
    lab.run(&["daemon", "start", NODE, "--cni", "amazon-vpc-cni"])?;
    vpc_cni::wait_for_free(&lab, NODE, 1)?;
    lab.run(&["pod", "delete", "--node", NODE])?;
    ensure_routed(&lab)?;
    ensure_listed(&lab)?;
    drop(server);
    lab.down()
}

/// Waits until the plan has no refusals. The metadata service lags and shows some addresses later.
fn wait_for_plan_without_refusals(lab: &Lab, bin: &Path) -> Result<()> {
    wait_for("a plan without refusals", PATIENCE, || {
        let (code, plan) = migrate(lab, bin, &["plan", "-o", "json"])?;
        ensure!(code == Some(0), "{plan}");
        Ok(true)
    })
}

#[test]
fn an_unknown_node_state_is_refused_and_not_changed() -> Result<()> {
    let Some(bin) = programs("an_unknown_node_state_is_refused_and_not_changed") else {
        return Ok(());
    };
    let lab = lab(&bin, "t-refused", "m5.large", 5)?;
    added(&lab, NODE, 5, "t")?;
    wait_for_plan_without_refusals(&lab, &bin)?;
    let everything = || -> Result<String> {
        let dump = "ip rule; ip route; cat /etc/cni/net.d/*; cat /var/run/aws-node/ipam.json; ls -A \
                    /var/lib/ferrule 2>/dev/null; true";
        lab.on_node(NODE, &["sh", "-c", dump])
    };
    let refused = |harm: &str, words: &[&str], cause: &str, undo: &str| -> Result<()> {
        lab.on_node(NODE, &["sh", "-c", harm])?;
        let before = everything()?;
        for verb in ["plan", "apply"] {
            let (code, printed) = migrate(&lab, &bin, &[&[verb], words].concat())?;
            ensure!(
                code == Some(1) && printed.contains(cause),
                "{verb} after {harm}: {code:?} {printed}"
            );
            ensure!(printed.contains("REFUSED ") && printed.contains("next: "), "{printed}");
        }
        ensure!(everything()? == before, "{harm}: the node was changed");
        lab.on_node(NODE, &["sh", "-c", undo])?;
        Ok(())
    };
    let store = "/var/run/aws-node/ipam.json";
    let list = "/etc/cni/net.d/10-aws.conflist";
    let (keep, back) = (
        |path: &str| format!("cp {path} /run/kept; "),
        |path: &str| format!("cp /run/kept {path}"),
    );
    let truncate = format!("{}head -c 60 /run/kept > {store}", keep(store));
    refused(&truncate, &[], "no whole checkpoint", &back(store))?;
    let version = format!("{}sed -i s,ipam/1,ipam/2, {store}", keep(store));
    refused(&version, &[], "vpc-cni-ipam/2", &back(store))?;
    let edit = format!("{}sed -i s/portmap/cilium-cni/ {list}", keep(list));
    refused(&edit, &[], "cilium-cni", &back(list))?;
    let half = format!("{}head -c 100 /run/kept > {list}", keep(list));
    refused(&half, &[], "not JSON", &back(list))?;
    let (_, (address, _)) = pods(&lab)?.pop_first().context("no pod")?;
    let rule = format!("pref 1536 from {address} lookup 77");
    let (add, delete) = (format!("ip rule add {rule}"), format!("ip rule del {rule}"));
    refused(&add, &[], "does not match", &delete)?;
    let route = format!("ip route del {address}/32 && ip route add blackhole {address}/32");
    refused(&route, &[], "no route", "true")?;
    lab.down()
}

#[test]
fn a_killed_migration_resumes_and_the_other_daemon_never_starts() -> Result<()> {
    let Some(bin) = programs("a_killed_migration_resumes_and_the_other_daemon_never_starts") else {
        return Ok(());
    };
    let lab = lab(&bin, "t-mig-killed", "m5.large", 5)?;
    added(&lab, NODE, 5, "t")?;
    wait_for_plan_without_refusals(&lab, &bin)?;
    // The command times out while it waits for the daemons. It has written its own record only.
    let (code, printed) = migrate(&lab, &bin, &["apply", "--wait", "0"])?;
    ensure!(code == Some(2) && printed.contains("timeout after 0 s"), "{code:?}: {printed}");
    apply(&lab, &bin)?;
    ensure_routed(&lab)?;
    // amazon-vpc-cni's agent must not start before the pods are handed over. ferrule-ipamd must not start after that.
    let (code, printed) = migrate(&lab, &bin, &["rollback", "--wait", "0"])?;
    ensure!(
        code == Some(2) && printed.contains("ferrule-ipamd has stopped"),
        "{code:?}: {printed}"
    );
    lab.run(&["daemon", "kill", NODE])?;
    lab.wait_for_line(NODE, &["given back to amazon-vpc-cni"])?;
    ensure!(!lab.is(NODE, "ready")?, "ferrule-ipamd is ready on a node of amazon-vpc-cni");
    let (code, printed) = migrate(&lab, &bin, &["rollback", "--wait", "0"])?;
    ensure!(code == Some(2) && printed.contains("agent serves"), "{code:?}: {printed}");
    ensure_listed(&lab)?;
    // A takeover from the middle of the rollback.
    let printed = Migrate::start(&lab, &bin, &["apply", "--wait", "60"])?.run(Vec::new())?;
    ensure!(printed.contains("no steps remain"), "{printed}");
    ensure_routed(&lab)?;
    lab.run(&["pod", "delete", "--node", NODE])?;
    wait_for("the removal of all rules of pods", PATIENCE, || ensure_routed(&lab).map(|()| true))?;
    lab.down()
}

#[test]
fn an_adopted_pod_cannot_send_with_the_address_of_another() -> Result<()> {
    let Some(bin) = programs("an_adopted_pod_cannot_send_with_the_address_of_another") else {
        return Ok(());
    };
    let lab = lab(&bin, "t-mig-source", "m5.large", 5)?;
    let spoof = Spoof::v4(&lab, NODE, &[]);
    spoof.add_pods()?;
    wait_for_plan_without_refusals(&lab, &bin)?;
    apply(&lab, &bin)?;
    ensure_routed(&lab)?;
    spoof.test()?;
    lab.run(&["pod", "delete", "--node", NODE])?;
    wait_for("the removal of all rules of pods", PATIENCE, || ensure_routed(&lab).map(|()| true))?;
    lab.down()
}
