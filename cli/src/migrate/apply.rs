//! Applies the steps. A power failure leaves each step either complete or undone.

use super::observe::{self, FOLDER, agent_lock, answers, lock_file, place, text};
use crate::args::Places;
use anyhow::{Context as _, Result, anyhow, bail};
use cli_migrate::{ASIDE, Network, OUR_CONFLIST, Program, Step, is_guarded};
use config_model::{Migration, Tombstone, registry};
use datapath_ebpf::Attachments;
use install_disk::Folders;
use install_plan::{Conflist, FolderKind, Op, Plan};
use nix::fcntl::{Flock, FlockArg};
use routing_netlink::{Socket, With, delete_nft_table};
use routing_plan::{Action, Op as KernelOp, Subject};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

pub(crate) struct Applier<'a> {
    places: &'a Places,
    /// The lock of ferrule-ipamd. While this process holds it, the daemon cannot start.
    daemon_lock: Option<Flock<File>>,
}

impl<'a> Applier<'a> {
    pub(crate) fn new(places: &'a Places) -> Self {
        Self { places, daemon_lock: None }
    }

    /// Returns true if this process holds the lock of ferrule-ipamd.
    pub(crate) fn has_daemon_lock(&self) -> bool {
        self.daemon_lock.is_some()
    }

    /// Keeps ferrule-ipamd from starting until this process exits.
    pub(crate) fn take_daemon_lock(&mut self) -> Result<()> {
        let path = lock_file(&self.places.state_dir);
        if self.has_daemon_lock() || !path.exists() {
            return Ok(());
        }
        let why = "cannot lock ferrule-ipamd's state: the daemon has started again; stop it and run this again";
        self.daemon_lock = Some(locked(&path, why)?);
        Ok(())
    }

    /// Removes ferrule-agent's programs and pins. No agent starts meanwhile.
    fn retire(&self) -> Result<()> {
        const WHY: &str =
            "cannot open the pods: ferrule-agent has started again; stop it and run this again";
        let Places { agent, agent_pins, state_dir, .. } = self.places;
        let path = agent_lock(state_dir);
        let _lock = path.exists().then(|| locked(&path, WHY)).transpose()?;
        if answers(agent) {
            bail!(WHY);
        }
        Attachments::remove(agent_pins)?;
        Ok(())
    }

    /// Applies one step.
    pub(crate) fn take(&mut self, step: &Step) -> Result<()> {
        let Places { results, aws_node, state_dir, .. } = self.places;
        match step {
            Step::Note(journal) => {
                let bytes = serde_json::to_vec(journal).context("cannot encode the journal")?;
                write(&state_dir.join(Migration::FILE), &bytes, 0o600)
            }
            Step::Await(_) => bail!("cannot apply a waiting step"),
            Step::WriteConflist(network) => {
                let bytes = self.conflist(network).text(&network.cni_version).into_bytes();
                self.network(Op::Write { name: OUR_CONFLIST.to_owned(), bytes })
            }
            Step::PutAside { name } => {
                self.network(Op::Rename { from: name.clone(), to: install_plan::aside(name) })
            }
            Step::Restore { name } => {
                self.network(Op::Rename { from: install_plan::aside(name), to: name.clone() })
            }
            Step::RemoveConflist { name } => {
                self.network(Op::Remove { place: FolderKind::Networks, name: name.clone() })
            }
            Step::AddTombstone { key } => {
                let tombstone = Tombstone::new(key.clone(), None, Vec::new());
                let bytes =
                    serde_json::to_vec(&tombstone).context("cannot encode the tombstone")?;
                let folder = state_dir.join(registry::TOMBSTONE_DIR);
                write(&folder.join(Tombstone::file_name(key)), &bytes, 0o600)
            }
            Step::WriteCheckpoint { name, bytes } => write(&aws_node.join(name), bytes, 0o600),
            Step::WriteResult { name, bytes } => write(&results.join(name), bytes, 0o600),
            Step::DropTwin { rule } => drop_rule(rule),
            Step::RemoveTable { table } => {
                let (family, name) = place(*table);
                let deleted = delete_nft_table(family, name).map(drop);
                deleted.with_context(|| format!("cannot delete the nftables table {table}"))
            }
            Step::Retire => self.retire(),
            Step::DropFerruleCheckpoint => self.drop_checkpoint(),
            Step::Detach { programs, enforced } => detach(programs, *enforced),
            Step::Unpin { names } => names.iter().try_for_each(|name| {
                let pin = self.places.pins.join(name);
                match fs::remove_file(&pin) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
                    _gone => Ok(()),
                }
                .with_context(|| format!("remove {}", pin.display()))
            }),
        }
    }

    /// Changes the installer's folders through the installer's own operations, under its lock.
    fn network(&self, op: Op) -> Result<()> {
        let Places { bin, net_d, .. } = self.places;
        let folders = Folders::new(bin, bin, net_d);
        let locked = folders.lock()?;
        locked.apply(Plan { ops: vec![op], notes: Vec::new() }, |_| {})?;
        Ok(())
    }

    fn conflist(&self, network: &Network) -> Conflist {
        Conflist {
            cni_version: Some(network.cni_version.clone()),
            mtu: network.mtu,
            veth_prefix: network.veth_prefix.clone(),
            add_wait: ADD_WAIT,
            socket: self.places.socket.clone(),
            state_dir: self.places.state_dir.clone(),
            log_file: network.log_file.clone(),
            log_level: network.log_level.clone(),
            bandwidth: false,
            chained: network.chained.clone(),
            taken_over: true,
        }
    }

    /// A later takeover reads amazon-vpc-cni's configuration again.
    fn drop_checkpoint(&self) -> Result<()> {
        let state = &self.places.state_dir;
        let aside = format!("{FOLDER}{ASIDE}");
        match fs::remove_dir_all(state.join(&aside)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                return Err(err).with_context(|| format!("remove {aside}"));
            }
            _gone => {}
        }
        let tombstones = state.join(registry::TOMBSTONE_DIR);
        let entries = match fs::read_dir(&tombstones) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>(),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(err) => Err(err),
        };
        for entry in entries.with_context(|| format!("cannot list {}", tombstones.display()))? {
            remove(&entry.path())?;
        }
        rename(state, FOLDER, &aside)
    }
}

/// Locks a file until the result is dropped.
fn locked(path: &Path, why: &'static str) -> Result<Flock<File>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    lock.map_err(|(_, errno)| anyhow!(errno).context(why))
}

/// Deletes the rule with this text if it is Ferrule's. Rules of other owners stay.
fn drop_rule(wanted: &str) -> Result<()> {
    let mut socket = Socket::open()?;
    let seen = socket.observe(With::Nothing)?;
    let ours = seen.rules.iter().filter(|rule| rule.protocol == registry::ROUTE_PROTOCOL);
    let ops: Vec<KernelOp> = ours
        .filter(|rule| text(rule) == wanted)
        .map(|rule| {
            let delete = Action::DeleteRule(rule.clone());
            KernelOp::new(Subject::Leftover(rule.clone()), delete)
        })
        .collect();
    let applied = socket.run(&ops)?;
    match applied.refused.first() {
        Some(refused) => bail!("the kernel refused the change: {refused}"),
        None => Ok(()),
    }
}

/// Detaches these programs from their links if they are present; `enforced`: and if Ferrule's are before them all. Other
/// programs stay.
fn detach(wanted: &[Program], enforced: bool) -> Result<()> {
    let kernel = observe::kernel().map_err(anyhow::Error::msg)?;
    let mut socket = Socket::open()?;
    let found = observe::programs(&kernel).map_err(anyhow::Error::msg)?;
    let all: Vec<Program> = found.iter().map(|(program, _)| program.clone()).collect();
    let open = wanted.iter().find(|program| all.contains(program) && !is_guarded(program, &all));
    if let Some(Program { link, name, .. }) = open.filter(|_| enforced) {
        bail!(
            "cannot detach {name} from {link}: no program of Ferrule is before it any longer; run this again"
        );
    }
    for (program, filter) in found {
        if let Some(filter) = filter.filter(|_| wanted.contains(&program)) {
            socket.delete_bpf_filter(&filter)?;
        }
    }
    Ok(())
}

/// Writes a temporary file and renames it; both are synced to disk.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Runtimes and daemons ignore names that start with a dot.
    let beside = folder.join(format!(".{name}.ferrule-new"));
    let written = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        sync(folder)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn rename(folder: &Path, from: &str, to: &str) -> Result<()> {
    let renamed = fs::rename(folder.join(from), folder.join(to)).and_then(|()| sync(folder));
    renamed.with_context(|| format!("cannot rename {} to {to}", folder.join(from).display()))
}

fn remove(path: &Path) -> Result<()> {
    let removed = match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _gone => sync(path.parent().unwrap_or(Path::new("/"))),
    };
    removed.with_context(|| format!("remove {}", path.display()))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The plugin's default, in seconds.
const ADD_WAIT: u64 = 45;
