//! Observes a node during a migration. All decisions are in `cli-migrate`.

use super::settings;
use crate::{
    args::Places,
    gather::{chain, imds},
};
use cli_migrate::{
    Assignment, Calls, Cluster, Eni, Ferrule, File, Kernel, LinkView, NftTable, Observation,
    Observed, Policy, Program, RouteView, RuleView, VpcCni,
};
use config_model::{EnforcingMode, Migration, PodKey, PodName, TableId, Tombstone, registry};
use datapath_ebpf::{Attachments, tcx_programs};
use datapath_rpc::AgentAt;
use ipamd_core::{
    BlockSource, Checkpoint, HeldAddress, Record,
    frame::{self, Damage},
};
use nix::fcntl::{Flock, FlockArg};
use routing_netlink::{BpfFilter, Side, Socket, SocketError, TableFamily, With, has_nft_table};
use routing_plan::{
    Family, IfIndex, LinkKind, Rule,
    nat::{nftables::TABLE, source_check},
};
use runtime_socket::{probe, server::HealthName};
use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Reads the input of the plan. `has_daemon_lock` means that this process holds the lock of ferrule-ipamd. The cluster is
/// read before, because this process can have another root meanwhile.
pub(crate) fn observe(
    places: &Places,
    cluster: &Observed<Cluster>,
    has_daemon_lock: bool,
) -> Observation {
    let state = &places.state_dir;
    let kernel = kernel();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Observation {
        conflists: files(&places.net_d, |_| true),
        vpc_cni: VpcCni {
            serves: serves(&places.aws_node.join("ipamd.sock")),
            checkpoints: files(&places.aws_node, |name| {
                name == "ipam.json" || (name.starts_with("ipam-nic-") && name.ends_with(".json"))
            }),
            policy: policy(places, &kernel),
        },
        ferrule: Ferrule {
            runs: !has_daemon_lock && is_locked(&lock_file(state)),
            ready: health(&places.socket, HealthName::Ready).unwrap_or(false),
            unavailable: unavailable(&places.socket),
            policy_agent: health(&places.socket, HealthName::PolicyAgent).unwrap_or(false),
            assignments: assignments(&state.join(CHECKPOINT)),
            enforces: enforces(&places.agent),
            tombstones: tombstones(&state.join(registry::TOMBSTONE_DIR)),
            agent_runs: answers(&places.agent) || is_locked(&agent_lock(state)),
            attachments: attachments(&places.agent_pins),
            tables: tables(),
        },
        settings: settings::observe(&places.proc),
        cluster: cluster.clone(),
        calls: calls(&places.proc),
        kernel,
        enis: enis(&places.imds),
        results: files(&places.results, |name| name.starts_with(registry::CNI_NETWORK)),
        journal: journal(&state.join(Migration::FILE)),
        unix_nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// ferrule-ipamd locks this file while it runs.
pub(crate) fn lock_file(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join("lock")
}

/// ferrule-agent locks this file while it runs, if the folder of its state is the default.
pub(crate) fn agent_lock(state_dir: &Path) -> PathBuf {
    state_dir.join("agent/lock")
}

fn attachments(pins: &Path) -> Observed<usize> {
    let found = Attachments::observe(pins);
    let found = found.map_err(|err| chain("cannot list Ferrule's eBPF programs", &err))?;
    Ok(found.filters + found.tcx_links + found.folders)
}

/// Reads the files of a folder by name; empty if the folder does not exist.
fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> Observed<Vec<File>> {
    let failed = |err: &io::Error| chain(&format!("cannot list {}", folder.display()), err);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(failed(&err)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|err| failed(&err))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !wanted(&name) || !path.is_file() {
            continue;
        }
        let bytes = match fs::read(&path) {
            // The file was deleted during the listing.
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(|err| chain(&format!("cannot read {}", path.display()), &err)),
        };
        found.push(File { name, bytes });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns true if a process accepts connections at the socket.
pub(crate) fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

fn policy(places: &Places, kernel: &Observed<Kernel>) -> Policy {
    let socket = places.aws_node.join("npa.sock");
    let links = kernel.as_ref().map_err(Clone::clone);
    Policy {
        serves: answers(&socket),
        socket: socket.display().to_string(),
        programs: links.and_then(|kernel| {
            Ok(programs(kernel)?.into_iter().map(|(program, _)| program).collect())
        }),
        folder: places.pins.display().to_string(),
        pins: pins(&places.pins),
    }
}

/// Returns the programs on the host's veths, in the kernel's order, and the filter of each. A program of a TCX link has none.
pub(crate) fn programs(kernel: &Kernel) -> Observed<Vec<(Program, Option<BpfFilter>)>> {
    let failed = |err: SocketError| chain("cannot read the programs on links", &err);
    let mut socket = Socket::open().map_err(failed)?;
    let mut found = Vec::new();
    for link in kernel.links.iter().filter(|link| link.veth) {
        for side in [Side::Ingress, Side::Egress] {
            let tcx = tcx_programs(&link.name, side);
            let tcx = match socket.index_of(&link.name).map_err(failed)? {
                // The link was removed or renamed meanwhile.
                index if index != Some(IfIndex(link.index)) => continue,
                _ => tcx.map_err(|err| chain("cannot read the programs on links", &err))?,
            };
            found.extend(tcx.into_iter().map(|name| (tcx_program(&link.name, side, name), None)));
            let filters = socket.bpf_filters(IfIndex(link.index), side).map_err(failed)?;
            let filters =
                filters.into_iter().map(|filter| (program(&link.name, &filter), Some(filter)));
            found.extend(filters);
        }
    }
    Ok(found)
}

fn tcx_program(link: &str, side: Side, name: String) -> Program {
    Program {
        link: link.to_owned(),
        ingress: side == Side::Ingress,
        name,
        chain: 0,
        priority: 0,
        protocol: 0,
        handle: 0,
        is_tcx: true,
    }
}

fn program(link: &str, filter: &BpfFilter) -> Program {
    Program {
        link: link.to_owned(),
        ingress: filter.side == Side::Ingress,
        name: filter.name.clone(),
        chain: filter.chain,
        priority: filter.priority,
        protocol: filter.protocol,
        handle: filter.handle,
        is_tcx: false,
    }
}

/// Lists the pins in the subfolders, with the subfolder's name.
fn pins(folder: &Path) -> Observed<Vec<String>> {
    let mut found = Vec::new();
    for kind in PINNED {
        let folder = folder.join(kind);
        let failed = |err: &io::Error| chain(&format!("cannot list {}", folder.display()), err);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(failed(&err)),
        };
        for entry in entries {
            let name = entry.map_err(|err| failed(&err))?.file_name();
            found.push(format!("{kind}/{}", name.to_string_lossy()));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true if a process other than ferrule-ipamd accepts connections at amazon-vpc-cni's socket. A ferrule-ipamd that
/// exits still accepts connections for a moment and answers none, so an answer is awaited.
fn serves(socket: &Path) -> bool {
    let Ok(runtime) = imds::runtime() else { return answers(socket) };
    let last = Instant::now() + EXIT;
    while answers(socket) {
        let now = Instant::now();
        match runtime.block_on(probe(socket, HealthName::Live, now + TRY)) {
            Ok(_) => return false,
            Err(error) if error.is_answer() || now >= last => return true,
            Err(_) => thread::sleep(LOOK_AGAIN),
        }
    }
    false
}

/// Returns the daemon's health from this socket; `None` if the socket does not exist.
fn health(socket: &Path, name: HealthName) -> Option<bool> {
    if !answers(socket) {
        return None;
    }
    let runtime = imds::runtime().ok()?;
    let deadline = Instant::now() + PATIENCE;
    runtime.block_on(probe(socket, name, deadline)).ok()
}

/// Returns the reasons for which the daemon at this socket does not serve; none without a daemon.
fn unavailable(socket: &Path) -> Vec<String> {
    let Ok(runtime) = imds::runtime() else { return Vec::new() };
    if !answers(socket) {
        return Vec::new();
    }
    let deadline = Instant::now() + PATIENCE;
    let status = runtime.block_on(async {
        ipamd_rpc::Client::connect(socket, deadline).await?.status(deadline).await
    });
    match status {
        Ok(status) => status.unavailable,
        Err(error) => vec![chain("it does not answer STATUS", &error)],
    }
}

/// Returns the reason why ferrule-agent's policies are not in force on a pod of this node.
fn enforces(socket: &Path) -> Observed<()> {
    if !socket.exists() {
        return Err(format!("no ferrule-agent serves {}", socket.display()));
    }
    let agent = AgentAt { socket: socket.to_owned(), mode: EnforcingMode::Standard };
    let status = imds::runtime()?.block_on(agent.status(Instant::now() + PATIENCE));
    let status = status.map_err(|err| chain("ferrule-agent does not answer", &err))?;
    let first_pod = status.failing_endpoints.iter().map(|of| (&of.pod, &of.why));
    let first_pod = first_pod.chain(status.waiting.iter().map(|of| (&of.pod, &of.why))).next();
    let why = if status.backend != EBPF {
        format!("its backend is {}, not {EBPF}", status.backend)
    } else if !status.fault.is_empty() {
        status.fault
    } else if !status.disconnected.is_empty() {
        status.disconnected
    } else if status.behind {
        "its replica has not read all policies yet".to_owned()
    } else if let Some((pod, why)) = first_pod {
        let pod = pod.clone().unwrap_or_default();
        format!("pod {}/{}: {why}", pod.namespace, pod.name)
    } else if let Some(of) = status.failing.first() {
        format!("policy {}: {}", of.name, of.why)
    } else if !status.drift.is_empty() {
        status.drift
    } else if status.applied < status.revision || status.revision == 0 {
        "its last state is not in force yet".to_owned()
    } else {
        return Ok(());
    };
    Err(why)
}

/// The name of the backend that enforces.
const EBPF: &str = "ebpf";

fn is_locked(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Returns the assignments of the daemon's checkpoint; `None` if there is no checkpoint.
fn assignments(path: &Path) -> Observed<Option<Vec<Assignment>>> {
    let mut tries = 0;
    let records = loop {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(chain(&format!("cannot read {}", path.display()), &err)),
        };
        let decoded = frame::decode(&bytes);
        match decoded.damage {
            None => break decoded.records,
            // The daemon may be writing at this moment.
            Some(Damage::TornTail { .. }) if tries < 5 => thread::sleep(LOOK_AGAIN),
            // A plan from an incomplete checkpoint would lose a pod.
            Some(damage) => return Err(format!("cannot use {}: {damage}", path.display())),
        }
        tries += 1;
    };
    let mut found: BTreeMap<PodKey, Assignment> = BTreeMap::new();
    for record in Checkpoint::replay(records).compact() {
        // The remaining records are cooling addresses and pending EC2 calls.
        let (key, pod, addresses) = if let Record::Confirmed { key, .. } = record {
            if let Some(held) = found.get_mut(&key) {
                held.confirmed = true;
            }
            continue;
        } else if let Record::Reserved { key, pod, address, eni, card, device, more, .. } = record {
            let source = BlockSource::Eni(eni);
            let first = HeldAddress { address: IpAddr::V4(address), source, card, device };
            (key, pod, std::iter::once(first).chain(more).collect())
        } else if let Record::ReservedV6 { key, pod, addresses, .. }
        | Record::ReservedCidr { key, pod, addresses, .. } = record
        {
            (key, pod, addresses)
        } else if let Record::ReservedBranch { key, pod, .. } = record {
            (key, pod, Vec::new())
        } else {
            continue;
        };
        let addresses: Vec<HeldAddress> = addresses;
        let addresses = addresses.iter().map(|it| (it.address, it.card, it.device)).collect();
        let held = Assignment { key: key.clone(), pod: named(pod), addresses, confirmed: false };
        found.insert(key, held);
    }
    Ok(Some(found.into_values().collect()))
}

/// Removes the placeholder that stands for the name of a pod known only from the kernel. No pod can have it.
fn named(pod: PodName) -> Option<PodName> {
    Some(pod).filter(|pod| !pod.namespace.starts_with('('))
}

fn tombstones(folder: &Path) -> Observed<Vec<PodKey>> {
    let found = files(folder, |name| name.ends_with(".json") && !name.starts_with('.'))?;
    let read = |file: File| {
        let tombstone: Tombstone = serde_json::from_slice(&file.bytes?)
            .map_err(|err| chain(&format!("cannot read the tombstone {}", file.name), &err))?;
        Ok(tombstone.key)
    };
    found.into_iter().map(read).collect()
}

fn tables() -> Observed<Vec<NftTable>> {
    let exists = |table: &NftTable| {
        let (family, name) = place(*table);
        has_nft_table(family, name).map(|there| there.then_some(*table))
    };
    let found: Result<Vec<_>, _> = NftTable::ALL.iter().map(exists).collect();
    found
        .map(|found| found.into_iter().flatten().collect())
        .map_err(|err| chain("cannot look up Ferrule's nftables tables", &err))
}

/// The family and the name of a table.
pub(super) fn place(table: NftTable) -> (TableFamily, &'static str) {
    match table {
        NftTable::Nat => (TableFamily::Ip, TABLE),
        NftTable::SourceCheck => (TableFamily::Inet, source_check::TABLE),
    }
}

/// Returns the plugin processes in this node's mount namespace or network namespace. In a container, this process has the
/// node's network namespace only, and process 1 has the node's mount namespace.
fn calls(proc: &Path) -> Observed<Calls> {
    let entries = fs::read_dir(proc)
        .map_err(|err| chain(&format!("cannot list {}", proc.display()), &err))?;
    let namespace = |process: &Path, kind: &str| fs::read_link(process.join("ns").join(kind)).ok();
    let (own, first) = (proc.join("self"), proc.join("1"));
    let network = namespace(&own, "net");
    let is_of_node = network.is_some() && namespace(&first, "net") == network;
    let first_mounts = namespace(&first, "mnt").filter(|_| is_of_node);
    let node = [("net", network), ("mnt", namespace(&own, "mnt")), ("mnt", first_mounts)];
    let of_node = |process: &Path| {
        let mut node = node.iter();
        node.any(|(kind, of_node)| of_node.is_some() && namespace(process, kind) == *of_node)
    };
    let mut calls = Calls::default();
    for process in entries.flatten().map(|entry| entry.path()) {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let count = match name.trim_end() {
            "aws-cni" => &mut calls.vpc_cni,
            "ferrule-cni" => &mut calls.ferrule,
            _ => continue,
        };
        *count += usize::from(of_node(&process));
    }
    Ok(calls)
}

pub(crate) fn kernel() -> Observed<Kernel> {
    let seen = Socket::open()
        .and_then(|mut socket| socket.observe(With::Nothing))
        .map_err(|err| chain("cannot read links, rules and routes", &err))?;
    let links = seen.links.values().filter(|link| link.group != registry::GROUP_REAP);
    let links = links.map(|link| LinkView {
        index: link.index.0,
        name: link.name.clone(),
        veth: link.kind == LinkKind::Veth,
        key: link.key(),
    });
    let rules = seen.rules.iter().map(|rule| RuleView {
        pref: rule.pref,
        src: rule.selector.src,
        dst: rule.selector.dst,
        table: rule.table,
        protocol: rule.protocol,
        text: text(rule),
    });
    let routes = seen.routes.iter().filter(|route| route.table == TableId::MAIN);
    let routes = routes.filter_map(|route| {
        Some(RouteView { address: route.host_address()?, dev: route.dev.map(|dev| dev.0) })
    });
    Ok(Kernel { links: links.collect(), rules: rules.collect(), routes: routes.collect() })
}

/// Formats a rule for `ip rule`, so that IPv4 and IPv6 rules never have the same text.
pub(crate) fn text(rule: &Rule) -> String {
    match rule.family {
        Family::V4 => rule.to_string(),
        Family::V6 => format!("{rule} (IPv6)"),
    }
}

fn enis(endpoint: &str) -> Observed<Vec<Eni>> {
    imds::enis(endpoint)
}

fn journal(path: &Path) -> Observed<Option<Migration>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(chain(&format!("cannot read {}", path.display()), &err)),
    };
    let read: Migration = serde_json::from_slice(&bytes)
        .map_err(|err| chain(&format!("cannot read {}", path.display()), &err))?;
    if read.version == Migration::VERSION {
        Ok(Some(read))
    } else {
        Err(format!("{} has the unknown version {}", path.display(), read.version))
    }
}

/// The daemon's folder within the state directory.
pub(crate) const FOLDER: &str = "ipam";
const CHECKPOINT: &str = "ipam/checkpoint.log";
/// The folders of the policy agent's pins.
const PINNED: [&str; 2] = ["programs", "maps"];
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The time in which a daemon that exits closes its socket.
const EXIT: Duration = Duration::from_secs(5);
/// Timeout of one question to a daemon that may exit.
const TRY: Duration = Duration::from_millis(500);
/// Timeout for the daemon's health endpoint.
const PATIENCE: Duration = Duration::from_secs(2);
