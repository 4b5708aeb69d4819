//! Hostile clients of the production controller and of the agent: large bodies without a token, and a flooded port.

#![expect(clippy::print_stdout, reason = "the cost of the flood is printed, not judged")]

use crate::{
    policed::{AgentSite, Controllers, authority, gate::Gate, pods},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use config_model::registry::CONTROLLER_NAME;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::AsRawFd as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tests_lab::{flood::Flood, programs, wait_for};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::TlsConnector;

const NODE: &str = "node1";
const BODIES: usize = 64;
const BODY_BYTES: usize = 8 << 20;
/// Maximum growth of the controller's resident memory.
const MOST_GROWTH_KIB: u64 = 16 << 10;
const CHUNK: usize = 64 << 10;

#[test]
fn large_bodies_without_a_token_cost_no_memory_and_end_no_stream() -> Result<()> {
    let test = "large_bodies_without_a_token_cost_no_memory_and_end_no_stream";
    let Some(bin) = programs(test) else { return Ok(()) };
    let world = World::new()?;
    world.make_node(NODE, &serde_json::json!({}))?;
    let lab = world.lab(&bin, "t-bodies", &["--nodes", "1"])?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let gate = Gate::open(&lab, NODE, Ipv4Addr::LOCALHOST)?;
    gate.lead_to(Some(replica.at));
    let site = AgentSite::new(&world, &bin, NODE)?;
    let agent = site.start(&lab, &["--replica", &gate.at.to_string()])?;
    site.until(&agent, "a state in force", |status| status.applied > 0)?;
    let streams = || Ok::<_, anyhow::Error>(streams(&site.metrics()?));
    let before_streams = streams()?;
    ensure!(!before_streams.is_empty(), "the agent counts no streams");

    let before = memory_kib(replica.id(), "VmRSS")?;
    // Writing 5 sets the peak (VmHWM) to the present size: proc_pid_clear_refs(5).
    fs::write(format!("/proc/{}/clear_refs", replica.id()), "5")?;
    let trust = authority(&world)?;
    let refused = world.runtime.block_on(send_all(replica.at, &trust))?;
    ensure!(refused == BODIES, "{refused} of {BODIES} bodies were refused for their missing token");
    let peak = memory_kib(replica.id(), "VmHWM")?;
    ensure!(
        peak < before + MOST_GROWTH_KIB,
        "the controller had {before} KiB before the bodies and {peak} KiB with them"
    );
    ensure!(streams()? == before_streams, "the agent has lost its stream: {}", site.log());
    ensure!(!site.status(&agent)?.replica.is_empty(), "the agent does not follow: {}", site.log());
    lab.down()
}

/// The port of the agent's metrics in the chart.
const METRICS: u16 = 8_162;
const ADDS: usize = 20;

#[test]
fn a_pod_that_floods_the_agents_port_stops_no_add() -> Result<()> {
    let test = "a_pod_that_floods_the_agents_port_stops_no_add";
    let Some(bin) = programs(test) else { return Ok(()) };
    let world = World::new()?;
    world.make_node(NODE, &serde_json::json!({}))?;
    let settings = ["--env", "FERRULE_POLICY=true", "--env", "MINIMUM_IP_TARGET=60"];
    let up = [&["--nodes", "1", "--type", "m5.4xlarge"][..], &settings].concat();
    let lab = world.lab(&bin, "t-agent-flood", &up)?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let gate = Gate::open(&lab, NODE, Ipv4Addr::LOCALHOST)?;
    gate.lead_to(Some(replica.at));
    let mut site = AgentSite::new(&world, &bin, NODE)?;
    site.metrics_at = Some(format!("[::]:{METRICS}"));
    let agent = site.start(&lab, &["--replica", &gate.at.to_string()])?;
    site.until(&agent, "a state in force", |status| status.applied > 0)?;
    let hostile = pods::start(&world, &lab, NODE, "hostile", "hostile")?;
    let adds = |prefix: &str| -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        for number in 0..ADDS {
            let began = Instant::now();
            pods::start(&world, &lab, NODE, &format!("{prefix}-{number}"), "a")?;
            took.push(began.elapsed());
        }
        took.sort();
        Ok(took)
    };
    let quiet = adds("quiet")?;
    let node: Ipv4Addr = lab.node(NODE)?["address"].as_str().context("an address")?.parse()?;
    let flood = Flood::start(hostile.netns.file(), SocketAddrV4::new(node, METRICS))?;
    wait_for("the flood", PATIENCE, || Ok(flood.opened() > 200 && flood.pages() > 0))?;
    let under_flood = adds("flood")?;
    ensure!(flood.runs(), "the flood has ended");
    ensure!(!site.status(&agent)?.replica.is_empty(), "the agent does not follow: {}", site.log());
    println!(
        "{} connections, {} pages; median start {:?}, {:?} without the flood",
        flood.opened(),
        flood.pages(),
        under_flood[ADDS / 2],
        quiet[ADDS / 2],
    );
    flood.end()?;
    lab.down()
}

/// The port of the daemon's metrics.
const DAEMON_METRICS: u16 = 61_678;
const FLOODED_LAB: &str = "t-flooded";

#[test]
#[ignore = "a benchmark: `cargo xtask bench flood` runs it"]
fn measures_adds_under_floods() -> Result<()> {
    let Some(bin) = programs("measures_adds_under_floods") else { return Ok(()) };
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from).context(name.to_owned());
    let (bench, figures) = (path("FERRULE_BENCH_ADD")?, path("FERRULE_BENCH_FIGURES")?);
    let world = World::new()?;
    world.make_node(NODE, &serde_json::json!({}))?;
    let settings = ["FERRULE_POLICY=true", "MINIMUM_IP_TARGET=80", "WARM_IP_TARGET=1"];
    let more = ["IP_COOLDOWN_PERIOD=2", "AWS_VPC_K8S_CNI_LOGLEVEL=INFO"];
    let mut up = vec!["--nodes", "1", "--type", "m5.4xlarge"];
    up.extend(settings.iter().chain(&more).flat_map(|setting| ["--env", *setting]));
    let lab = world.lab(&bin, FLOODED_LAB, &up)?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let gate = Gate::open(&lab, NODE, Ipv4Addr::LOCALHOST)?;
    gate.lead_to(Some(replica.at));
    let mut site = AgentSite::new(&world, &bin, NODE)?;
    site.metrics_at = Some(format!("[::]:{METRICS}"));
    let agent = site.start(&lab, &["--replica", &gate.at.to_string()])?;
    site.until(&agent, "a state in force", |status| status.applied > 0)?;
    let hostile = pods::start(&world, &lab, NODE, "hostile", "hostile")?;
    let pod = pods::create(&world, NODE, "measured", "measured")?;
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("pods.json");
    let pod = serde_json::json!([{ "namespace": "default", "name": pod.name, "uid": pod.uid }]);
    fs::write(&list, pod.to_string())?;

    let node: Ipv4Addr = lab.node(NODE)?["address"].as_str().context("an address")?.parse()?;
    let mut command = Command::new(&bench);
    command.arg("flooded").arg("--lab").arg(bin.join("ferrule-lab")).args(["--name", FLOODED_LAB]);
    command.arg("--plugin").arg(bin.join("ferrule-cni")).args(["--node", NODE]).arg("--pods");
    let netns = hostile.netns.file().as_raw_fd();
    command.arg(&list).args(["--hostile", &format!("/proc/{}/fd/{netns}", std::process::id())]);
    for port in [DAEMON_METRICS, METRICS] {
        command.args(["--to", &format!("{node}:{port}")]);
    }
    if let Some(rounds) = std::env::var_os("FERRULE_BENCH_ROUNDS") {
        command.arg("--rounds").arg(rounds);
    }
    let status = command.stdin(Stdio::null()).stdout(File::create(&figures)?).status()?;
    ensure!(status.success(), "the benchmark failed: {status}\n{}", site.log());
    ensure!(!site.status(&agent)?.replica.is_empty(), "the agent does not follow: {}", site.log());
    lab.down()
}

/// Sends all bodies at once, and returns the number of calls with the answer `UNAUTHENTICATED`.
async fn send_all(to: SocketAddr, trust: &str) -> Result<usize> {
    let connector = connector(trust)?;
    let mut calls = JoinSet::new();
    for _ in 0..BODIES {
        let connector = connector.clone();
        calls.spawn(async move { timeout(PATIENCE, send(to, &connector)).await? });
    }
    let mut refused = 0;
    while let Some(call) = calls.join_next().await {
        refused += usize::from(call?? == "16");
    }
    Ok(refused)
}

/// Sends one message as far as the replica takes it, and returns the status of the answer.
async fn send(to: SocketAddr, connector: &TlsConnector) -> Result<String> {
    let tcp = TcpStream::connect(to).await?;
    let tls = connector.connect(CONTROLLER_NAME.try_into()?, tcp).await?;
    let (client, connection) = h2::client::handshake(tls).await?;
    tokio::spawn(connection);
    let uri = format!("https://{CONTROLLER_NAME}/ferrule.node.v1.Distribution/Report");
    let head = http::Request::post(uri).header("content-type", "application/grpc").body(())?;
    let (answer, mut body) = client.ready().await?.send_request(head, false)?;
    let writer = tokio::spawn(async move {
        let mut sent = 0;
        while sent < BODY_BYTES {
            body.reserve_capacity(CHUNK);
            match std::future::poll_fn(|context| body.poll_capacity(context)).await {
                Some(Ok(capacity)) if capacity > 0 => {
                    // Empty messages: two bytes each, and more in the memory of a decoder.
                    let chunk: Bytes = [0x12, 0].repeat(capacity.div_ceil(2)).into();
                    let chunk = chunk.slice(..capacity);
                    if body.send_data(chunk, false).is_err() {
                        return;
                    }
                    sent += capacity;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    let answer = answer.await?;
    let status = answer.headers().get("grpc-status").context("no status at the head")?;
    let status = status.to_str()?.to_owned();
    // The replica resets the rest of the body.
    writer.abort();
    Ok(status)
}

fn connector(trust: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trust.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The lines of the counter of started streams.
fn streams(page: &str) -> Vec<String> {
    let lines = page.lines().filter(|line| line.starts_with("ferrule_agent_streams_total"));
    lines.map(str::to_owned).collect()
}

/// A size in the status of a process.
fn memory_kib(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(field)).context(status.clone())?;
    line.split_whitespace().nth(1).context("no number")?.parse().context(line.to_owned())
}
