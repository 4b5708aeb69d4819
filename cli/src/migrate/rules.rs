//! `ferrule migrate services rules`: the rules of kube-proxy on this node.
//!
//! [`cli_migrate::services::rules`] decides. This module reads netfilter and the kernel's table of connections, and applies
//! the transactions.

use crate::{args::RulesArgs, output};
use anyhow::{Context as _, Result, anyhow, bail};
use cli_migrate::services::rules::{
    Action, Flow, MAPS, NodeRules, Plan, ProxyTable, Saved, TABLE, elements, plan,
};
use config_model::causes;
use datapath_conntrack::{Connection, TcpState, dump_if};
use routing_plan::nat::iptables;
use std::{
    env, fs,
    io::{self, ErrorKind, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// The exit code if rules exist or the Service does not answer.
const NOT_CLEAN: u8 = 1;
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Timeout of one connection to the Service.
const REACH: Duration = Duration::from_secs(5);

/// Runs the command and returns the exit code.
///
/// # Errors
/// The rules cannot be read, a transaction fails, or nothing can be printed.
pub(super) fn run(args: &RulesArgs) -> Result<u8> {
    if args.only_reach {
        return reach();
    }
    if args.stay {
        return stay(&args.proc);
    }
    let planned = if args.remove { remove(&args.proc)? } else { plan(&observe(&args.proc)?) };
    report(&planned, args.remove)?;
    let are_removed = args.remove && planned.kept.is_none();
    if !are_removed && !planned.is_clean() {
        return Ok(NOT_CLEAN);
    }
    if args.reach { reach() } else { Ok(0) }
}

/// Removes the rules whenever no connection uses them, until the reader of standard output is gone.
fn stay(proc: &Path) -> Result<u8> {
    let mut last = String::new();
    loop {
        let text = match remove(proc) {
            Ok(planned) => text(&planned, true),
            Err(error) => format!("{error:#}\n"),
        };
        if text != last {
            if !output::write_block(&text)? {
                return Ok(0);
            }
            last = text;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Removes the rules if no connection uses them, and returns the plan.
fn remove(proc: &Path) -> Result<Plan> {
    let planned = plan(&observe(proc)?);
    for action in &planned.actions {
        apply(action).with_context(|| format!("cannot {action}"))?;
    }
    Ok(planned)
}

fn report(planned: &Plan, is_applied: bool) -> Result<()> {
    output::write_raw(&text(planned, is_applied))
}

fn text(planned: &Plan, is_applied: bool) -> String {
    let mut text = String::new();
    for action in &planned.actions {
        let done = if is_applied { "done" } else { "with --remove" };
        text += &format!("{done}: {action}\n");
    }
    match &planned.kept {
        Some(kept) => text += &format!("rules of kube-proxy stay: {kept}\n"),
        None if planned.actions.is_empty() => text += "no rules of kube-proxy\n",
        None => {}
    }
    text
}

/// Connects to the Service of the API server.
fn reach() -> Result<u8> {
    let variable = |name| {
        let why = || {
            format!(
                "cannot find the Service of the API server: {name} is not set; run this in a pod"
            )
        };
        env::var(name).with_context(why)
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let address: IpAddr = host.parse().with_context(|| format!("cannot parse {host}"))?;
    let port: u16 = port.parse().with_context(|| format!("cannot parse port {port}"))?;
    let at = SocketAddr::new(address, port);
    match TcpStream::connect_timeout(&at, REACH) {
        Ok(_) => {
            output::write_raw(&format!("the Service of the API server answers at {at}\n"))?;
            Ok(0)
        }
        Err(error) => {
            output::write_raw(&format!(
                "the Service of the API server does not answer at {at}: {error}; see ferrule service default/kubernetes\n"
            ))?;
            Ok(NOT_CLEAN)
        }
    }
}

fn observe(proc: &Path) -> Result<NodeRules> {
    let mut saved = Vec::new();
    for (names, variant) in LEGACY {
        // A query would make the kernel load the module, so tables that are not loaded are not queried.
        let loaded = match fs::read_to_string(proc.join(names)) {
            Ok(tables) => !tables.trim().is_empty(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(anyhow!(error).context(format!("cannot read {names}"))),
        };
        if loaded {
            saved.push(save(variant)?);
        }
    }
    for variant in NFT {
        saved.push(save(variant)?);
    }
    let mut tables = Vec::new();
    let names = output("nft", &["list", "tables"])?;
    for family in ["ip", "ip6"] {
        if names.lines().any(|line| line.trim() == format!("table {family} {TABLE}")) {
            tables.push(table(family)?);
        }
    }
    let mut seen = NodeRules { saved, tables, ..NodeRules::default() };
    // A node without rules can have a million connections that do not matter.
    if seen.has_rules() {
        seen.is_proxy_running = is_proxy_running(proc)?;
        seen.flows = flows()?;
    }
    Ok(seen)
}

fn save(variant: &str) -> Result<Saved> {
    let program = format!("{variant}-save");
    let text = output(&program, &[])?;
    let read = iptables::parse(&text)
        .map_err(|error| anyhow!("cannot parse the output of {program}: {error}"))?;
    let tables = read.tables.into_iter().map(|(name, table)| (name, table.chains)).collect();
    Ok(Saved { variant: variant.to_owned(), tables })
}

fn table(family: &str) -> Result<ProxyTable> {
    let mut table = ProxyTable { family: family.to_owned(), ..ProxyTable::default() };
    for map in MAPS {
        let text = output("nft", &["-j", "list", "map", family, TABLE, map])?;
        let document = serde_json::from_str(&text).context("cannot parse the output of nft")?;
        table.frontends.extend(elements(&document).map_err(anyhow::Error::msg)?);
    }
    Ok(table)
}

/// Returns the open connections whose destination netfilter has changed.
fn flows() -> Result<Vec<Flow>> {
    let is_translated = |it: &Connection| {
        let (to, from) = (&it.original, &it.reply);
        let has_ended = matches!(it.tcp_state, Some(TcpState::TimeWait | TcpState::Close));
        !has_ended && (to.destination, to.destination_port) != (from.source, from.source_port)
    };
    let listed = dump_if(is_translated)
        .map_err(|error| anyhow!("cannot list connections: {}", causes(&error)))?;
    // Without a table the kernel has translated no connection.
    let Some(table) = listed else { return Ok(Vec::new()) };
    if table.left_out.unreadable > 0 {
        bail!(
            "cannot list connections: {} entries of the kernel cannot be parsed",
            table.left_out.unreadable
        );
    }
    let flow = |of: Connection| Flow {
        protocol: of.protocol,
        address: of.original.destination,
        port: of.original.destination_port,
    };
    Ok(table.connections.into_iter().map(flow).collect())
}

/// Returns true if kube-proxy runs in the network namespace of the node. Nodes in containers share a list of processes.
fn is_proxy_running(proc: &Path) -> Result<bool> {
    let own = network(proc)?;
    let fault = || format!("cannot list {}", proc.display());
    for entry in fs::read_dir(proc).with_context(fault)? {
        let process = entry.with_context(fault)?.path();
        let at = process.join("comm");
        let name =
            of_running(fs::read(&at)).with_context(|| format!("cannot read {}", at.display()))?;
        if name.is_some_and(|name| name.trim_ascii_end() == PROCESS)
            && own.is_some()
            && network(&process)? == own
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the identity of a process's network namespace; `None` if the process has ended. Unlike `ns/net`, this file needs no
/// right to trace the process.
fn network(process: &Path) -> Result<Option<(u64, u64)>> {
    let at = process.join("net/dev");
    let read = of_running(fs::metadata(&at));
    let metadata = read.with_context(|| format!("cannot read {}", at.display()))?;
    Ok(metadata.map(|it| (it.dev(), it.ino())))
}

/// Returns `None` for a file of a process that has ended, and for an entry of procfs that is no process.
fn of_running<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(None),
        read => read.map(Some),
    }
}

fn apply(action: &Action) -> Result<()> {
    match action {
        Action::Restore { variant, script } => {
            let program = format!("{variant}-restore");
            // The wait for another writer's lock, in seconds.
            let is_legacy = LEGACY.iter().any(|(_, name)| name == variant);
            let args: &[&str] = if is_legacy { &["--noflush", "-w", "10"] } else { &["--noflush"] };
            feed(&program, args, script).map(drop)
        }
        Action::DeleteTable { family } => {
            output("nft", &["delete", "table", family, TABLE]).map(drop)
        }
    }
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    feed(program, args, "")
}

/// Runs a program and returns its output.
fn feed(program: &str, args: &[&str], input: &str) -> Result<String> {
    let run = || format!("cannot run {program}; install iptables and nftables");
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that exits before it has read its input reports the cause itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(run)?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", args.join(" "), cause.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of kube-proxy's process.
const PROCESS: &[u8] = b"kube-proxy";
/// The variants of legacy iptables, each with the list of its tables below procfs.
const LEGACY: [(&str, &str); 2] =
    [("net/ip_tables_names", "iptables-legacy"), ("net/ip6_tables_names", "ip6tables-legacy")];
const NFT: [&str; 2] = ["iptables-nft", "ip6tables-nft"];

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use cli_migrate::services::rules::Kept;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_process_of_kube_proxy_is_found_by_its_name_and_its_network() {
        let proc = tempfile::tempdir().unwrap();
        let network = |name: &str| {
            let folder = proc.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("dev"), "").unwrap();
            folder
        };
        let (own, other) = (network("net"), network("sys/other"));
        let process = |number: &str, name: &str, network: &Path| {
            let folder = proc.path().join(number);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            symlink(network, folder.join("net")).unwrap();
        };
        process("7", "kubelet", &own);
        process("8", "kube-proxy-x", &own);
        process("9", "kube-proxy", &other);
        // A process that ends meanwhile has no network.
        process("10", "kube-proxy", &proc.path().join("11/net"));
        fs::write(proc.path().join("uptime"), "1 1\n").unwrap();
        assert!(!is_proxy_running(proc.path()).unwrap());
        process("12", "kube-proxy", &own);
        assert!(is_proxy_running(proc.path()).unwrap());
    }

    #[test]
    fn an_unreadable_process_is_an_error() {
        let proc = tempfile::tempdir().unwrap();
        // A folder cannot be read as a file.
        fs::create_dir_all(proc.path().join("7/comm")).unwrap();
        let error = is_proxy_running(proc.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.ends_with("7/comm"), "{error}");
    }

    #[test]
    fn processes_of_this_machine_have_a_network() {
        let own = network(Path::new("/proc")).unwrap();
        assert!(own.is_some());
        assert_eq!(network(Path::new("/proc/self")).unwrap(), own);
    }

    #[test]
    fn the_output_starts_with_the_state() {
        let action = Action::DeleteTable { family: "ip6".to_owned() };
        let removal = Plan { actions: vec![action], kept: None };
        let line = "delete the nftables table ip6 kube-proxy\n";
        assert_eq!(text(&removal, true), format!("done: {line}"));
        assert_eq!(text(&removal, false), format!("with --remove: {line}"));
        assert_eq!(text(&Plan::default(), true), "no rules of kube-proxy\n");
        let first = Flow { protocol: 6, address: "172.20.0.1".parse().unwrap(), port: 443 };
        let kept = Plan { actions: Vec::new(), kept: Some(Kept::Flows { count: 2, first }) };
        let expected = "rules of kube-proxy stay: 2 connections use them, such as TCP to 172.20.0.1 port 443\n";
        assert_eq!(text(&kept, true), expected);
    }
}
