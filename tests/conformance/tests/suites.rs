//! Both suites on a cluster of the lab with Ferrule's chart, its image, and the backend `ebpf`.

#![expect(clippy::print_stdout, reason = "progress of tests that take minutes")]

use anyhow::{Context as _, Result, ensure};
use lab_programs::{Program, image};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Instant,
};
use tempfile::TempDir;
use tests_conformance::{Kernel, Outcome, Suite, differences, ginkgo, gotest, skips};
use tests_lab::{Lab, programs};
use tests_whole::{Cluster, Installed, LaneInputs};

/// Only one cluster runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The number of tests in the suite of network-policy-api.
const POLICY_API_TESTS: usize = 24;
/// The image in the manifests of network-policy-api.
const AGNHOST_OF_POLICY_API: &str = "registry.k8s.io/e2e-test-images/agnhost:2.45";

fn kernel() -> Kernel {
    Kernel { has_sctp: Path::new("/proc/net/sctp").exists() }
}

/// Loads the images on all nodes, under the names that the suites use.
fn load_images(lab: &Lab, programs: &Program) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let agnhost = programs.path().join("agnhost");
    let kubernetes = programs.path().join("agnhost.kubernetes");
    let listed = e2e(programs, &["--list-images"])?;
    let named = |parts: &[&str]| -> Vec<&str> {
        listed.lines().filter(|name| parts.iter().any(|part| name.contains(part))).collect()
    };
    // A Debian system stands for these images: it has dig, a shell, and netcat.
    let mut names = named(&["/agnhost:", "/pause:", "/glibc-dns-testing:", "/busybox:"]);
    ensure!(!names.is_empty(), "e2e.test lists no agnhost: {listed}");
    names.push(AGNHOST_OF_POLICY_API);
    let base = folder.path().join("base.tar");
    debian(&base)?;
    // The server `porter` of agnhost serves TLS with these files.
    let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(&certificate, issued.cert.pem()).context("cannot write a certificate")?;
    fs::write(&key, issued.signing_key.serialize_pem()).context("cannot write a key")?;
    let archive = image::Contents {
        base: Some(&base),
        files: &[
            ("agnhost", &agnhost),
            ("agnhost.kubernetes", &kubernetes),
            ("localhost.crt", &certificate),
            ("localhost.key", &key),
        ],
        links: &[],
        entrypoint: &["/agnhost"],
        arguments: &["pause"],
    }
    .pack(folder.path(), &names)?;
    let boom = programs.path().join("regression-issue-74839");
    let boom = image::Contents {
        base: None,
        files: &[("regression-issue-74839", &boom)],
        links: &[],
        entrypoint: &["/regression-issue-74839"],
        arguments: &[],
    }
    .pack(folder.path(), &named(&["/regression-issue-74839:"]))?;
    for archive in [archive, boom] {
        let archive = archive.to_str().context("the image's path is not UTF-8")?;
        lab.run(&["cluster", "load-image", archive])?;
    }
    Ok(())
}

/// Starts a cluster of two nodes whose agents enforce policies, with the image agnhost.
fn cluster(inputs: LaneInputs, name: &str, programs: &Program) -> Result<Installed> {
    let cluster = Installed::bare(inputs, name, 2)?;
    load_images(cluster.lab(), programs)?;
    cluster.install(&[
        "enableNetworkPolicy=true",
        "policy.backend=ebpf",
        "crds.upstreamPolicies=true",
    ])?;
    println!("the cluster {name} is ready");
    Ok(cluster)
}

/// Writes the files of a Debian system with the tools that the tests call in agnhost: a shell, curl, wget, dig, netcat, ip.
fn debian(archive: &Path) -> Result<()> {
    let packages = "--include=bind9-dnsutils,curl,wget,netcat-openbsd,iproute2,iptables";
    let status = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", packages, "bookworm"])
        .arg(archive)
        .stdin(Stdio::null())
        .status()
        .context("cannot start mmdebstrap; install the package mmdebstrap")?;
    ensure!(status.success(), "mmdebstrap: {status}; it needs a mirror of Debian's packages");
    Ok(())
}

/// Returns what e2e.test prints with these arguments.
fn e2e(programs: &Program, args: &[&str]) -> Result<String> {
    let output = Command::new(programs.path().join("e2e.test"))
        .args(args)
        .output()
        .context("cannot start e2e.test")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a suite's program and passes each line of its output to `read`. The whole output goes to the file `log`.
fn run(command: &mut Command, log: &Path, mut read: impl FnMut(&str)) -> Result<()> {
    let file = fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let (output, input) = std::io::pipe().context("cannot create a pipe")?;
    let mut child = command
        .stdin(Stdio::null())
        .stderr(input.try_clone().context("cannot share a pipe")?)
        .stdout(input)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    // The pipe ends with the process, so no other process may have its writing end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut file = std::io::BufWriter::new(file);
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the suite's output")?;
        let line = String::from_utf8_lossy(&line);
        writeln!(file, "{line}").context("cannot write the log")?;
        read(&line);
    }
    child.wait().context("cannot wait for the suite")?;
    Ok(())
}

/// Fails if the results differ from the list of skipped tests.
fn judge(
    cluster: &Cluster,
    suite: Suite,
    results: &BTreeMap<String, Outcome>,
    logs: &[PathBuf],
) -> Result<()> {
    let differences = differences(results, &skips(suite, kernel())?);
    if differences.is_empty() {
        return Ok(());
    }
    let log: String = logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default()).collect();
    let is_failure = |line: &str| {
        ["FAILED", "Expected", "Error", "level=error"].iter().any(|word| line.contains(word))
    };
    // The cause of an error is in the next lines.
    let mut left = 0;
    let shown = log.lines().filter(|line| {
        left = if is_failure(line) { OF_FAILURE } else { left.saturating_sub(1) };
        left > 0
    });
    for line in shown.take(MOST_LINES) {
        println!("{line}");
    }
    println!("{}", cluster.kubectl(&["get", "pods", "-A", "-o", "wide"])?);
    let agents = ["-n", "kube-system", "logs", "daemonset/ferrule", "-c", "agent", "--tail=40"];
    // The lab's own cluster has no DaemonSet.
    println!("{}", cluster.kubectl(&agents).unwrap_or_default());
    anyhow::bail!("{} differences:\n{}", differences.len(), differences.join("\n"))
}

/// Runs the tests of Kubernetes' suite whose names contain all of these texts in this order, and judges the results.
fn run_kubernetes(cluster: &Cluster, programs: &Program, which: Which<'_>) -> Result<()> {
    let folder = TempDir::new().context("cannot create a folder")?;
    let parts: Vec<String> = which.texts.iter().map(|text| escaped(text)).collect();
    let mut selection = vec![format!("--ginkgo.focus={}", parts.join(".*"))];
    for (skip, why) in skips(which.suite, kernel())? {
        println!("not run: {skip}: {why}");
        selection.push(format!("--ginkgo.skip={}", escaped(&skip)));
    }
    let is_of = |name: &str| which.texts.iter().all(|text| name.contains(text));
    let results = run_selection(cluster, programs, folder.path(), &selection, "", is_of)?;
    ensure!(results.len() >= which.least, "only {} tests: {results:?}", results.len());
    judge(cluster, which.suite, &results, &[folder.path().join(LOG)])
}

/// Runs the tests of Kubernetes' suite that these arguments select, and returns the results of those that are `is_of`. The log is
/// in the folder.
fn run_selection(
    cluster: &Cluster,
    programs: &Program,
    folder: &Path,
    selection: &[String],
    title: &str,
    is_of: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Outcome>> {
    let (report, log) = (folder.join("report.json"), folder.join(LOG));
    let mut command = Command::new(programs.path().join("e2e.test"));
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    command.args(["--provider=skeleton", "--dump-logs-on-failure=false"]);
    command.args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=3h"]);
    command.args(selection).arg("--ginkgo.json-report").arg(&report).current_dir(folder);
    let (mut progress, began, mut count) = (ginkgo::Progress::default(), Instant::now(), 0);
    run(&mut command, &log, |line| {
        if let Some(ended) = progress.read(line) {
            count += 1;
            println!("{title}{count} ({} s): {ended}", began.elapsed().as_secs());
        }
    })?;
    let report = fs::read_to_string(&report).with_context(|| {
        format!("the suite wrote no report:\n{}", fs::read_to_string(&log).unwrap_or_default())
    })?;
    Ok(ginkgo::results(&report, is_of)?)
}

/// Runs Kubernetes' tests of Services in several processes at a time, as upstream does, and judges the results. Tests that are
/// `[Serial]` follow.
fn run_services(cluster: &Cluster, programs: &Program) -> Result<()> {
    let listed = e2e(programs, &["--list-tests"])?;
    let names =
        listed.lines().filter_map(|line| line.split_once(": ").map(|(_, name)| name.trim()));
    let names: BTreeSet<&str> = names.filter(|name| is_of_services(name)).collect();
    ensure!(names.len() >= LEAST_OF_SERVICES, "only {} tests: {names:?}", names.len());
    let skipped = skips(Suite::KubernetesServices, kernel())?;
    for (skip, why) in &skipped {
        println!("not run: {skip}: {why}");
    }
    let (serial, parallel): (Vec<&str>, Vec<&str>) = names
        .iter()
        .filter(|name| !skipped.contains_key(**name))
        .partition(|name| name.contains("[Serial]"));
    let mut shares = vec![Vec::new(); SIDE_BY_SIDE];
    for (number, name) in parallel.into_iter().enumerate() {
        shares[number % SIDE_BY_SIDE].push(name);
    }
    let folder = TempDir::new().context("cannot create a folder")?;
    let run_share = |number: usize, share: &[&str]| -> Result<BTreeMap<String, Outcome>> {
        let folder = folder.path().join(number.to_string());
        fs::create_dir(&folder).context("cannot create a folder")?;
        let names: Vec<String> = share.iter().map(|name| escaped(name)).collect();
        let focus = format!("--ginkgo.focus= ({})$", names.join("|"));
        let title = format!("process {number}, ");
        run_selection(cluster, programs, &folder, &[focus], &title, |name| share.contains(&name))
    };
    let ended = std::thread::scope(|scope| {
        let run_share = &run_share;
        let running =
            shares.iter().enumerate().map(|(n, share)| scope.spawn(move || run_share(n, share)));
        let running: Vec<_> = running.collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut results = BTreeMap::new();
    for share in ended {
        let share = share.map_err(|_| anyhow::anyhow!("the thread of a process panicked"))?;
        results.extend(share?);
    }
    results.extend(run_share(SIDE_BY_SIDE, &serial)?);
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !skipped.contains_key(**name) && !results.contains_key(**name))
        .collect();
    ensure!(missing.is_empty(), "tests without a result: {missing:#?}");
    // A report of Ginkgo does not have tests outside its focus.
    let not_run = skipped.into_keys().filter(|name| names.contains(name.as_str()));
    results.extend(not_run.map(|name| (name, Outcome::Skipped)));
    println!("{} tests have results", results.len());
    let logs: Vec<_> =
        (0..=SIDE_BY_SIDE).map(|number| folder.path().join(number.to_string()).join(LOG)).collect();
    judge(cluster, Suite::KubernetesServices, &results, &logs)
}

/// Tests of Kubernetes' suite.
#[derive(Clone, Copy)]
struct Which<'a> {
    suite: Suite,
    texts: &'a [&'a str],
    /// Minimum number of tests. Fewer tests mean that a name has changed.
    least: usize,
}

const NETWORK_POLICIES: Which<'_> =
    Which { suite: Suite::Kubernetes, texts: &["[sig-network] Netpol"], least: 45 };
const CONFORMANCE: Which<'_> = Which {
    suite: Suite::KubernetesConformance,
    texts: &["[sig-network]", "[Conformance]"],
    least: 47,
};

/// True for the tests that the nodes' agents are judged by without kube-proxy: all tests of four groups, and the network's
/// conformance tests.
fn is_of_services(name: &str) -> bool {
    let groups = ["Services ", "Conntrack ", "Networking ", "Traffic Distribution "];
    name.strip_prefix("[sig-network] ").is_some_and(|rest| {
        groups.iter().any(|group| rest.starts_with(group)) || rest.contains("[Conformance]")
    })
}

/// 98 tests of the four groups in this version, and 28 more conformance tests.
const LEAST_OF_SERVICES: usize = 126;
const SIDE_BY_SIDE: usize = 4;

#[test]
fn network_policies_of_kubernetes() -> Result<()> {
    let Some(inputs) = LaneInputs::or_skip("network_policies_of_kubernetes") else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Program::conformance()?;
    let installed = cluster(inputs, "conf-k8s", &programs)?;
    run_kubernetes(installed.cluster(), &programs, NETWORK_POLICIES)?;
    run_kubernetes(installed.cluster(), &programs, CONFORMANCE)
}

#[test]
fn network_conformance_of_kubernetes_on_the_labs_own_cluster() -> Result<()> {
    let test = "network_conformance_of_kubernetes_on_the_labs_own_cluster";
    let Some(bin) = programs(test) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Program::conformance()?;
    let cluster = Cluster::up(&bin, "conf-lab", &["--nodes", "2", "--cni", "ferrule"])?;
    load_images(&cluster.lab, &programs)?;
    println!("the cluster conf-lab is ready");
    run_kubernetes(&cluster, &programs, CONFORMANCE)
}

#[test]
fn services_of_kubernetes_without_kube_proxy() -> Result<()> {
    services_without_proxy("services_of_kubernetes_without_kube_proxy", "conf-services", &[])
}

#[test]
fn services_of_kubernetes_without_kube_proxy_and_with_policies() -> Result<()> {
    let test = "services_of_kubernetes_without_kube_proxy_and_with_policies";
    services_without_proxy(test, "conf-policed", &[policy_of_all_pods()])
}

fn services_without_proxy(test: &str, lab: &str, policies: &[Value]) -> Result<()> {
    let Some(inputs) = LaneInputs::or_skip(test) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Program::conformance()?;
    // Tests of Traffic Distribution need three zones with two nodes each.
    let zones = ["--subnet", "10.0.0.0/20", "--subnet", "10.0.16.0/20", "--subnet", "10.0.32.0/20"];
    let installed = Installed::without_proxy(inputs, lab, 6, &zones)?;
    load_images(installed.lab(), &programs)?;
    installed.install_with_services_and(&["crds.upstreamPolicies=true"])?;
    installed.cluster().apply(policies)?;
    println!("the cluster {lab} is ready");
    run_services(installed.cluster(), &programs)
}

/// Rules decide about each packet of each pod, and deny only packets to a range for documentation.
fn policy_of_all_pods() -> Value {
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": { "name": "all-pods" },
        "spec": {
            "tier": "Admin", "priority": 1, "subject": { "namespaces": {} },
            "ingress": [{ "action": "Accept", "from": [{ "namespaces": {} }] }],
            "egress": [
                { "action": "Deny", "to": [{ "networks": ["203.0.113.0/24"] }] },
                { "action": "Accept", "to": [{ "networks": ["0.0.0.0/0"] }] },
            ],
        },
    })
}

#[test]
fn cluster_network_policies_of_network_policy_api() -> Result<()> {
    let test = "cluster_network_policies_of_network_policy_api";
    let Some(inputs) = LaneInputs::or_skip(test) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (programs, suite) = (Program::conformance()?, Program::policy_api()?);
    let cluster = cluster(inputs, "conf-api", &programs)?;
    let folder = TempDir::new().context("cannot create a folder")?;
    let log = folder.path().join("log");
    let mut command = Command::new(suite.path().join("policy-api.test"));
    command.args(["-test.v", "-test.run", "^TestConformance$", "-all-features"]);
    let skipped = skips(Suite::PolicyApi, kernel())?;
    if !skipped.is_empty() {
        println!("not run: {skipped:?}");
        let names: Vec<_> = skipped.keys().map(String::as_str).collect();
        command.args(["-test.skip", &format!("^TestConformance$/^({})$", names.join("|"))]);
    }
    command.env("KUBECONFIG", cluster.cluster().kubeconfig()).current_dir(folder.path());
    let (mut results, began) = (BTreeMap::new(), Instant::now());
    run(&mut command, &log, |line| {
        if let Some((name, outcome)) = gotest::ended(line, "TestConformance") {
            println!(
                "{} ({} s): {name}: {outcome:?}",
                results.len() + 1,
                began.elapsed().as_secs()
            );
            results.insert(name, outcome);
        }
    })?;
    // The program does not print the tests of `-test.skip`.
    for skip in skipped.into_keys() {
        results.entry(skip).or_insert(Outcome::Skipped);
    }
    ensure!(
        results.len() == POLICY_API_TESTS,
        "{} of {POLICY_API_TESTS} tests:\n{}",
        results.len(),
        fs::read_to_string(&log).unwrap_or_default()
    );
    judge(cluster.cluster(), Suite::PolicyApi, &results, &[log])
}

/// Returns a regular expression that matches this text.
fn escaped(text: &str) -> String {
    let special = |letter: char| "\\.+*?()|[]{}^$".contains(letter);
    let letters =
        text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter]));
    letters.collect()
}

/// The printed lines of a failure, with the first one.
const OF_FAILURE: u32 = 3;
const MOST_LINES: usize = 200;
/// The file with the output of e2e.test in its folder.
const LOG: &str = "log";
