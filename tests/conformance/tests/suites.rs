//! Both suites on a cluster of the lab with Ferrule's chart, its image, and the backend `ebpf`.

#![expect(clippy::print_stdout, reason = "progress of tests that take minutes")]

use anyhow::{Context as _, Result, ensure};
use lab_programs::{Program, image};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
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

/// Loads the image agnhost on all nodes, under the names that the suites use.
fn load_agnhost(lab: &Lab, programs: &Program) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let agnhost = programs.path().join("agnhost");
    let kubernetes = programs.path().join("agnhost.kubernetes");
    let listed = images_of_kubernetes(programs)?;
    let mut names: Vec<&str> = listed.iter().map(String::as_str).collect();
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
    let archive = archive.to_str().context("the image's path is not UTF-8")?;
    lab.run(&["cluster", "load-image", archive]).map(drop)
}

/// Starts a cluster of two nodes whose agents enforce policies, with the image agnhost.
fn cluster(inputs: LaneInputs, name: &str, programs: &Program) -> Result<Installed> {
    let cluster = Installed::bare(inputs, name, 2)?;
    load_agnhost(cluster.lab(), programs)?;
    cluster.install(&[
        "enableNetworkPolicy=true",
        "policy.backend=ebpf",
        "crds.upstreamPolicies=true",
    ])?;
    println!("the cluster {name} is ready");
    Ok(cluster)
}

/// Writes the files of a Debian system with the tools that the tests call in agnhost: a shell, curl, dig, netcat, ip.
fn debian(archive: &Path) -> Result<()> {
    let packages = "--include=bind9-dnsutils,curl,netcat-openbsd,iproute2,iptables";
    let status = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", packages, "bookworm"])
        .arg(archive)
        .stdin(Stdio::null())
        .status()
        .context("cannot start mmdebstrap; install the package mmdebstrap")?;
    ensure!(status.success(), "mmdebstrap: {status}; it needs a mirror of Debian's packages");
    Ok(())
}

/// Returns the names of the images in Kubernetes' tests that agnhost can stand for: agnhost, pause, and a glibc system with dig.
fn images_of_kubernetes(programs: &Program) -> Result<Vec<String>> {
    let output = Command::new(programs.path().join("e2e.test"))
        .arg("--list-images")
        .output()
        .context("cannot start e2e.test")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let usable = ["/agnhost:", "/pause:", "/glibc-dns-testing:"];
    let is_usable = |line: &&str| usable.iter().any(|it| line.contains(it));
    let names = listed.lines().filter(is_usable);
    let names: Vec<String> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "e2e.test lists no agnhost: {listed}");
    Ok(names)
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
    log: &Path,
) -> Result<()> {
    let differences = differences(results, &skips(suite, kernel())?);
    if differences.is_empty() {
        return Ok(());
    }
    let log = fs::read_to_string(log).unwrap_or_default();
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
    let (report, log) = (folder.path().join("report.json"), folder.path().join("log"));
    let mut command = Command::new(programs.path().join("e2e.test"));
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    command.args(["--provider=skeleton", "--dump-logs-on-failure=false"]);
    command.args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=3h"]);
    let parts: Vec<String> = which.texts.iter().map(|text| escaped(text)).collect();
    command.arg(format!("--ginkgo.focus={}", parts.join(".*")));
    for (skip, why) in skips(which.suite, kernel())? {
        println!("not run: {skip}: {why}");
        command.arg(format!("--ginkgo.skip={}", escaped(&skip)));
    }
    command.arg("--ginkgo.json-report").arg(&report).current_dir(folder.path());
    let (mut progress, began, mut count) = (ginkgo::Progress::default(), Instant::now(), 0);
    run(&mut command, &log, |line| {
        if let Some(ended) = progress.read(line) {
            count += 1;
            println!("{count} ({} s): {ended}", began.elapsed().as_secs());
        }
    })?;
    let report = fs::read_to_string(&report).with_context(|| {
        format!("the suite wrote no report:\n{}", fs::read_to_string(&log).unwrap_or_default())
    })?;
    let is_of = |name: &str| which.texts.iter().all(|text| name.contains(text));
    let results = ginkgo::results(&report, is_of)?;
    ensure!(results.len() >= which.least, "only {} tests: {results:?}", results.len());
    judge(cluster, which.suite, &results, &log)
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

/// Tests for agents without kube-proxy, by their group. The later ones have clients on nodes and outside. Tests that
/// compare host names with names of nodes are left out, because nodes of the lab have EC2's host names. So are tests
/// that need three nodes or the image busybox.
const SERVICES: [[&str; 2]; 25] = [
    [OF_SERVICES, "should serve a basic endpoint from pods"],
    [OF_SERVICES, "should serve multiport endpoints from pods"],
    [OF_SERVICES, "should serve endpoints on same port and different protocols"],
    [OF_SERVICES, "should have session affinity work for service with type clusterIP"],
    [OF_SERVICES, "should be able to switch session affinity for service with type clusterIP"],
    [OF_SERVICES, "should have session affinity timeout work for service with type clusterIP"],
    [OF_SERVICES, "should be able to create a functioning NodePort service"],
    [OF_SERVICES, "should be possible to connect to a service via ExternalIP"],
    [OF_SERVICES, "should be able to update service type to NodePort listening on same port"],
    [OF_SERVICES, "should be able to change the type from ExternalName to NodePort"],
    [OF_SERVICES, "should have session affinity work for NodePort service"],
    [OF_SERVICES, "should be able to switch session affinity for NodePort service"],
    [OF_SERVICES, "should respect internalTrafficPolicy=Local Pod to Pod"],
    [OF_SERVICES, "should respect internalTrafficPolicy=Local Pod (hostNetwork: true) to Pod"],
    [OF_SERVICES, "should support externalTrafficPolicy=Local for type=NodePort"],
    [OF_SERVICES, "should fail health check node port if there are only terminating endpoints"],
    [OF_SERVICES, "no ready endpoints with internalTrafficPolicy=Cluster"],
    [OF_SERVICES, "no ready endpoints with externallTrafficPolicy=Cluster"],
    [OF_SERVICES, "no ready endpoints with externalTrafficPolicy=Local"],
    [OF_SERVICES, "should be rejected when no endpoints exist"],
    [OF_SERVICES, "should allow pods to hairpin back to themselves through services"],
    [OF_SERVICES, "should preserve source pod IP for traffic thru service cluster IP"],
    [OF_SERVICES, "should support named targetPorts that resolve to different ports"],
    [OF_CONNTRACK, "server pod cycles for a NodePort service"],
    [OF_CONNTRACK, "for a ClusterIP service and client is hostNetwork"],
];
const OF_SERVICES: &str = "[sig-network] Services";
const OF_CONNTRACK: &str = "[sig-network] Conntrack";

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
    load_agnhost(&cluster.lab, &programs)?;
    println!("the cluster conf-lab is ready");
    run_kubernetes(&cluster, &programs, CONFORMANCE)
}

#[test]
fn services_of_kubernetes_without_kube_proxy() -> Result<()> {
    let test = "services_of_kubernetes_without_kube_proxy";
    let Some(inputs) = LaneInputs::or_skip(test) else { return Ok(()) };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Program::conformance()?;
    let installed = Installed::without_proxy(inputs, "conf-services", 2, &[])?;
    load_agnhost(installed.lab(), &programs)?;
    installed.install_with_services()?;
    println!("the cluster conf-services is ready");
    let mut failed = Vec::new();
    for texts in &SERVICES {
        let which = Which { suite: Suite::KubernetesServices, texts, least: 1 };
        if let Err(error) = run_kubernetes(installed.cluster(), &programs, which) {
            println!("failed: {texts:?}: {error:#}");
            failed.push(texts[1]);
        }
    }
    ensure!(failed.is_empty(), "{} of {} tests failed: {failed:#?}", failed.len(), SERVICES.len());
    Ok(())
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
    judge(cluster.cluster(), Suite::PolicyApi, &results, &log)
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
