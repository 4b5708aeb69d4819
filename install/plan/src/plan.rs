//! The three plans of an installer: programs, network, and removal.

use crate::{
    CNI_VERSIONS, CONFLIST, Conflist, Machine, PLUGIN,
    conf::Conf,
    conflist::{Author, CNI_VERSION, PORTMAP, author, common_versions, taken_over},
};
use config_model::{Migration, Owner};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The observed content of the two folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The files in the plugins' folder, compared with ours of the same name.
    pub programs: BTreeMap<String, FileState>,
    /// The versions that the plugins of `chained` support, by their own answer.
    pub plugin_versions: BTreeMap<String, BTreeSet<String>>,
    /// The files in the networks' folder, with any name.
    pub confs: BTreeMap<String, Vec<u8>>,
    pub pods: Pods,
}

/// The origin of the node's pods, according to the files of both programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// True if our daemon's checkpoint contains pods.
    pub ours: bool,
    /// True if amazon-vpc-cni's checkpoint contains pods, also after a takeover.
    pub vpc_cni: bool,
    /// The direction of the last `ferrule migrate` on this node.
    pub migration: Option<Migration>,
}

/// A file in the plugins' folder, compared with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The file has the desired content and mode.
    AsDesired,
    /// The file differs, or the installer has no program with this name.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderKind {
    /// The folder of plugins.
    Programs,
    /// The folder of network configurations.
    Networks,
}

/// An atomic step, which may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Installs a program over one with the same name.
    Install { name: String },
    /// Installs a plugin of the CNI project that the node lacks.
    InstallMissing { name: String },
    /// Writes a file of the networks' folder over one with the same name.
    Write { name: String, bytes: Vec<u8> },
    /// Renames a file of the networks' folder, over one with the new name.
    Rename { from: String, to: String },
    /// Removes a file.
    Remove { place: FolderKind, name: String },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Install { name } => write!(f, "install program {name}"),
            Self::InstallMissing { name } => {
                write!(f, "install plugin {name}, which the node lacks")
            }
            Self::Write { name, .. } => write!(f, "write {name}"),
            Self::Rename { from, to } if *to == aside(from) => {
                write!(f, "put {from} aside as {to}")
            }
            Self::Rename { from, to } => write!(f, "put {from} back as {to}"),
            Self::Remove { name, .. } => write!(f, "remove {name}"),
        }
    }
}

/// A finding for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Our conflist was edited. The edited file is kept under the name of [`edited`].
    Edited {
        /// The changed settings, or the error of the file.
        why: String,
    },
    /// This file comes before ours and stays, because it calls our network itself or should.
    Delegates { name: String },
    /// Its owner has written this file again since it was set aside. The older version stays aside.
    Superseded { name: String },
    /// A takeover wrote our conflist, which stays.
    TakenOver,
    /// The node lacks the plugin for host ports.
    NoHostPorts,
    /// No network is left for the runtime.
    NoNetwork,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edited { why } => write!(
                f,
                "{CONFLIST} is not as it was written ({why}); it is kept as {}, which no runtime \
                 reads; set the daemon's settings instead",
                edited()
            ),
            Self::Delegates { name } => write!(
                f,
                "{name} comes before {CONFLIST} and stays, as it calls other networks: see that it \
                 calls ours"
            ),
            Self::Superseded { name } => write!(
                f,
                "{name} was written again since it was put aside; the older one stays as {}",
                aside(name)
            ),
            Self::TakenOver => write!(
                f,
                "{CONFLIST} is the result of `ferrule migrate` and stays; remove it to have it \
                 written with the daemon's settings"
            ),
            Self::NoHostPorts => write!(
                f,
                "{PORTMAP} is not in the plugins' folder, so pods' host ports lead nowhere; put it \
                 there (it is one of the CNI project's plugins)"
            ),
            Self::NoNetwork => f.write_str(
                "no network is left: the node is not ready until another one is installed",
            ),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub ops: Vec<Op>,
    /// Findings for operators.
    pub notes: Vec<Note>,
}

/// Causes for which the installer does nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The installer lacks our plugin.
    #[error("{PLUGIN} is not beside this program; the image lacks it")]
    NoPlugin,
    /// A file is not a program.
    #[error("{name} is not a complete program; the image is broken")]
    NoProgram { name: String },
    /// A program of another architecture.
    #[error(
        "{name} was built for {program}, and this node is {node}; use the image of this \
         architecture"
    )]
    OtherMachine {
        name: String,
        /// Machine of the program.
        program: Machine,
        /// Machine of the node.
        node: Machine,
    },
    /// The conflist would name a program that is missing, so every pod would fail.
    #[error(
        "the conflist names the plugin {name}, which is not in the plugins' folder; install it"
    )]
    NotThere { name: String },
    /// Pods of amazon-vpc-cni run, and there was no takeover.
    #[error(
        "{name} stays the node's network: amazon-vpc-cni's checkpoint lists pods, and the node is \
         not taken over; run `ferrule migrate apply`"
    )]
    NotTakenOver {
        /// amazon-vpc-cni's conflist.
        name: String,
    },
    /// Our pods run, and amazon-vpc-cni, which would become the network again, does not know their addresses.
    #[error(
        "ferrule-ipamd's checkpoint holds pods, and amazon-vpc-cni, which had the node before, \
         would give their addresses out again; give the node back with `ferrule migrate rollback`, \
         or drain it while ferrule-ipamd runs, and run this again"
    )]
    HoldsPods,
}

/// The name of a foreign file that was set aside. No runtime reads this suffix.
pub fn aside(name: &str) -> String {
    format!("{name}{ASIDE}")
}

/// The name of our edited conflist.
pub fn edited() -> String {
    format!("{CONFLIST}.ferrule-edited")
}

/// The name of a file that is being written.
pub fn temporary(name: &str) -> String {
    format!(".{name}{TEMPORARY}")
}

/// Installs the programs: those of `brought`, and the plugins of `fallback` that the node lacks. Each program must be
/// built for the node's machine. An existing plugin of `fallback` stays as it is, whatever its origin.
///
/// # Errors
/// When one of them cannot run there, or our plugin is not among them.
pub fn programs(
    brought: &BTreeMap<String, Option<Machine>>,
    fallback: &BTreeMap<String, Option<Machine>>,
    node: Machine,
    seen: &Observed,
) -> Result<Plan, Refusal> {
    if !brought.contains_key(PLUGIN) {
        return Err(Refusal::NoPlugin);
    }
    for (name, machine) in brought.iter().chain(fallback) {
        match *machine {
            Some(machine) if machine == node => {}
            Some(program) => {
                return Err(Refusal::OtherMachine { name: name.clone(), program, node });
            }
            None => return Err(Refusal::NoProgram { name: name.clone() }),
        }
    }
    let mut ops = leftovers(FolderKind::Programs, seen.programs.keys());
    let missing = |name: &&String| seen.programs.get(*name) != Some(&FileState::AsDesired);
    ops.extend(brought.keys().filter(missing).map(|name| Op::Install { name: name.clone() }));
    let is_missing =
        |name: &&String| !seen.programs.contains_key(*name) && !brought.contains_key(*name);
    ops.extend(
        fallback.keys().filter(is_missing).map(|name| Op::InstallMissing { name: name.clone() }),
    );
    Ok(Plan { ops, notes: Vec::new() })
}

/// Makes ours the network of the node. It writes our conflist before it sets the others aside, so that a network
/// exists at every moment.
///
/// # Errors
/// When the conflist names a plugin that is not there, or pods of amazon-vpc-cni run on a node that
/// is not taken over.
pub fn network(desired: &Conflist, seen: &Observed) -> Result<Plan, Refusal> {
    if let Some(name) =
        vpc_cni_conflist(seen, is_read).filter(|_| seen.pods.vpc_cni && !is_taken_over(seen))
    {
        return Err(Refusal::NotTakenOver { name });
    }
    let kept = seen.confs.get(CONFLIST).and_then(|bytes| taken_over(bytes));
    let chain = desired.chain(seen.programs.contains_key(PORTMAP));
    let chained = chain.iter().filter_map(|plugin| plugin["type"].as_str());
    let called: Vec<&str> = match &kept {
        Some(conf) => conf.types.iter().map(String::as_str).collect(),
        None => std::iter::once(PLUGIN).chain(chained).collect(),
    };
    if let Some(name) = called.iter().find(|name| !seen.programs.contains_key(**name)) {
        return Err(Refusal::NotThere { name: (*name).to_owned() });
    }
    let mut plan =
        Plan { ops: leftovers(FolderKind::Networks, seen.confs.keys()), notes: Vec::new() };
    if !called.contains(&PORTMAP) {
        plan.notes.push(Note::NoHostPorts);
    }
    if kept.is_some() {
        plan.notes.push(Note::TakenOver);
    } else {
        write_ours(&mut plan, desired, &chain, seen);
    }
    for (name, bytes) in seen.confs.iter().filter(|(name, _)| is_read(name)) {
        let conf = Conf::read(bytes);
        if name == CONFLIST || !competes(name, conf.as_ref().ok()) {
            continue;
        }
        if conf.is_ok_and(|conf| conf.delegates()) {
            plan.notes.push(Note::Delegates { name: name.clone() });
        } else {
            plan.ops.push(Op::Rename { from: name.clone(), to: aside(name) });
        }
    }
    Ok(plan)
}

fn write_ours(plan: &mut Plan, desired: &Conflist, chain: &[Value], seen: &Observed) {
    let common_versions = common_versions(chain, &seen.plugin_versions);
    let version = cni_version(desired, seen, &common_versions);
    let bytes = desired.text_with(&version, chain, &common_versions).into_bytes();
    if seen.confs.get(CONFLIST) != Some(&bytes) {
        keep_edited(plan, seen);
        plan.ops.push(Op::Write { name: CONFLIST.to_owned(), bytes });
    }
}

/// The plugins that [`network`] would chain after ours. The caller should ask for their versions before.
pub fn chained(desired: &Conflist, seen: &Observed) -> Vec<String> {
    let chain = desired.chain(seen.programs.contains_key(PORTMAP));
    let names = chain.iter().filter_map(|plugin| plugin["type"].as_str().map(str::to_owned));
    names.filter(|name| seen.programs.contains_key(name)).collect()
}

/// Undoes [`network`] and, unless they are to stay, the programs. Foreign files get their names back before ours is
/// removed. Programs stay for pods that are still to be deleted.
///
/// # Errors
/// When the checkpoint contains pods on a node that was taken over.
pub fn remove(brought: &[&str], keep_programs: bool, seen: &Observed) -> Result<Plan, Refusal> {
    let taken_over = seen.pods.migration.is_some_and(|last| last.owner == Owner::Ferrule);
    let was_vpc_cni = taken_over || vpc_cni_conflist(seen, |name| name.ends_with(ASIDE)).is_some();
    if seen.pods.ours && was_vpc_cni {
        return Err(Refusal::HoldsPods);
    }
    let mut plan =
        Plan { ops: leftovers(FolderKind::Networks, seen.confs.keys()), notes: Vec::new() };
    for (put_aside, bytes) in &seen.confs {
        let Some(name) = put_aside.strip_suffix(ASIDE) else { continue };
        match seen.confs.get(name) {
            None => plan.ops.push(Op::Rename { from: put_aside.clone(), to: name.to_owned() }),
            Some(there) if there == bytes => plan.ops.push(remove_conf(put_aside)),
            Some(_) => plan.notes.push(Note::Superseded { name: name.to_owned() }),
        }
    }
    if seen.confs.contains_key(CONFLIST) {
        keep_edited(&mut plan, seen);
        plan.ops.push(remove_conf(CONFLIST));
    }
    let stays = |name: &str| is_read(name.strip_suffix(ASIDE).unwrap_or(name)) && name != CONFLIST;
    if !seen.confs.keys().any(|name| stays(name)) {
        plan.notes.push(Note::NoNetwork);
    }
    if !keep_programs {
        plan.ops.extend(leftovers(FolderKind::Programs, seen.programs.keys()));
        let there = brought.iter().filter(|name| seen.programs.contains_key(**name));
        plan.ops.extend(
            there.map(|name| Op::Remove { place: FolderKind::Programs, name: (*name).to_owned() }),
        );
    }
    Ok(plan)
}

/// amazon-vpc-cni's conflist among the files of such names.
fn vpc_cni_conflist(seen: &Observed, named: fn(&str) -> bool) -> Option<String> {
    let mut files = seen.confs.iter().filter(|(name, _)| *name != CONFLIST && named(name));
    let found = files.find(|(_, bytes)| Conf::read(bytes).is_ok_and(|conf| conf.is_amazons()));
    found.map(|(name, _)| name.clone())
}

fn is_taken_over(seen: &Observed) -> bool {
    seen.pods.migration.is_some_and(|last| last.owner == Owner::Ferrule && last.done)
}

/// Cached results of pods that run are in the version of the conflist that they were made by.
fn cni_version(desired: &Conflist, seen: &Observed, common_versions: &[&str]) -> String {
    if let Some(version) = &desired.cni_version {
        return version.clone();
    }
    if let Some(Author::Installer(version)) = seen.confs.get(CONFLIST).map(|bytes| author(bytes)) {
        return version;
    }
    let confs = seen.confs.iter().filter(|(name, _)| *name != CONFLIST);
    let mut others = confs
        .filter(|(name, _)| is_read(name.strip_suffix(ASIDE).unwrap_or(name)))
        .filter_map(|(_, bytes)| Conf::read(bytes).ok().filter(Conf::is_of_our_network));
    let before = others.find_map(|conf| conf.cni_version);
    let before = before.filter(|version| CNI_VERSIONS.contains(&version.as_str()));
    let newest = || common_versions.iter().rev().find(|version| **version <= CNI_VERSION);
    before.unwrap_or_else(|| (*newest().unwrap_or(&CNI_VERSION)).to_owned())
}

/// Before our conflist is replaced or removed: what somebody has made of it is kept.
fn keep_edited(plan: &mut Plan, seen: &Observed) {
    let Some(bytes) = seen.confs.get(CONFLIST) else { return };
    let Author::Other(why) = author(bytes) else { return };
    if seen.confs.get(&edited()) != Some(bytes) {
        plan.ops.push(Op::Write { name: edited(), bytes: bytes.clone() });
    }
    plan.notes.push(Note::Edited { why });
}

/// True if a runtime would use this file, either now or after a removal of ours.
fn competes(name: &str, conf: Option<&Conf>) -> bool {
    name < CONFLIST || conf.is_some_and(Conf::is_of_our_network)
}

/// True if runtimes read files with this name.
fn is_read(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| ["conf", "conflist", "json"].contains(&ending))
}

/// Files that somebody was writing when he was killed.
fn leftovers<'a>(place: FolderKind, names: impl Iterator<Item = &'a String>) -> Vec<Op> {
    let unfinished = names.filter(|name| name.starts_with('.') && name.ends_with(TEMPORARY));
    unfinished.map(|name| Op::Remove { place, name: name.clone() }).collect()
}

fn remove_conf(name: &str) -> Op {
    Op::Remove { place: FolderKind::Networks, name: name.to_owned() }
}

const ASIDE: &str = ".ferrule-aside";
const TEMPORARY: &str = ".ferrule-new";

#[cfg(test)]
mod tests;
