//! The two folders and what we bring.

mod lock;

use crate::{Disk, InstallError, RealDisk, plugin_versions};
use install_plan::{
    Conflist, FileState, FolderKind, HEADER_BYTES, Machine, Note, Observed, Op, PLUGIN, Plan, Pods,
    chained, network, programs, remove, temporary,
};
use lock::{LOCK_FILE, Lock};
use nix::unistd::{AccessFlags, access};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// A node's CNI folders, and the folder of what we bring.
#[derive(Clone, Debug)]
pub struct Folders<D = RealDisk> {
    brought: PathBuf,
    fallback: Option<PathBuf>,
    bin: PathBuf,
    conf: PathBuf,
    disk: D,
}

impl Folders {
    /// From `brought`, a folder that has our programs, to the node's folders of plugins and networks.
    pub fn new(brought: &Path, bin: &Path, conf: &Path) -> Self {
        Self::on(RealDisk, brought, bin, conf)
    }
}

impl<D: Disk> Folders<D> {
    /// The same on another disk.
    pub fn on(disk: D, brought: &Path, bin: &Path, conf: &Path) -> Self {
        let [brought, bin, conf] = [brought, bin, conf].map(Path::to_owned);
        Self { brought, fallback: None, bin, conf, disk }
    }

    /// With the CNI project's plugins of a folder, if there is one: those that the node lacks are
    /// brought.
    #[must_use]
    pub fn with_fallback(self, plugins: &Path) -> Self {
        Self { fallback: plugins.is_dir().then(|| plugins.to_owned()), ..self }
    }

    /// Locks the folders against other installers. Waits at most half a minute for the lock.
    ///
    /// # Errors
    /// When a folder does not exist or is not writable, or another process keeps the lock. The folders are unchanged
    /// then.
    pub fn lock(&self) -> Result<Locked<'_, D>, InstallError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.try_lock() {
                Err(InstallError::Locked { .. }) if Instant::now() < give_up => {
                    thread::sleep(ASK_AGAIN);
                }
                outcome => return outcome,
            }
        }
    }

    /// The same without waiting: [`InstallError::Locked`] where somebody else works on them.
    ///
    /// # Errors
    /// As [`Self::lock`] has them, at once.
    pub fn try_lock(&self) -> Result<Locked<'_, D>, InstallError> {
        for (path, setting) in [(&self.bin, BIN_SETTING), (&self.conf, CONF_SETTING)] {
            if !path.is_dir() {
                return Err(InstallError::NoFolder { path: path.clone(), setting });
            }
            access(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| {
                InstallError::NotWritable { path: path.clone(), setting, cause: errno.into() }
            })?;
        }
        Ok(Locked { folders: self, pods: Pods::default(), lock: Lock::take(&self.conf)? })
    }

    fn folder(&self, place: FolderKind) -> &Path {
        match place {
            FolderKind::Programs => &self.bin,
            FolderKind::Networks => &self.conf,
        }
    }
}

/// The locked folders.
pub struct Locked<'a, D = RealDisk> {
    folders: &'a Folders<D>,
    pods: Pods,
    lock: Lock,
}

impl<D: Disk> Locked<'_, D> {
    /// On a node with these pods.
    #[must_use]
    pub fn among(self, pods: Pods) -> Self {
        Self { pods, ..self }
    }

    /// Observes the folders.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn observe(&self) -> Result<Observed, InstallError> {
        let Folders { brought, bin, conf, .. } = self.folders;
        let mut seen = Observed { pods: self.pods, ..Observed::default() };
        for (name, path) in files(bin)? {
            let same = BROUGHT.contains(&name.as_str())
                && is_as_brought(&brought.join(&name), &path).map_err(unread(&path))?;
            let standing = if same { FileState::AsDesired } else { FileState::Other };
            seen.programs.insert(name, standing);
        }
        for (name, path) in files(conf)?.into_iter().filter(|(name, _)| name != LOCK_FILE) {
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                // A link that leads nowhere: no runtime can read it either.
                Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(cause) => return Err(InstallError::Unread { path, cause }),
            };
            seen.confs.insert(name, bytes);
        }
        Ok(seen)
    }

    /// Installs the programs. `each` is called after every step.
    ///
    /// # Errors
    /// When they cannot run on this node, or the disk refuses.
    pub fn bring_programs(&self, each: impl FnMut(&Op)) -> Result<Vec<Note>, InstallError> {
        let own = Path::new("/proc/self/exe");
        // We run on this node, so what runs on it is what we are.
        let node = header(own).map_err(unread(own))?;
        let node =
            Machine::of(&node).ok_or_else(|| unread(own)(io::ErrorKind::InvalidData.into()))?;
        let machine = |path: &Path| header(path).map_err(unread(path)).map(|it| Machine::of(&it));
        let mut brought = BTreeMap::new();
        for name in BROUGHT {
            let path = self.folders.brought.join(name);
            if path.exists() {
                brought.insert(name.to_owned(), machine(&path)?);
            }
        }
        let mut fallback = BTreeMap::new();
        if let Some(plugins) = &self.folders.fallback {
            for (name, path) in files(plugins)? {
                fallback.insert(name, machine(&path)?);
            }
        }
        self.apply(programs(&brought, &fallback, node, &self.observe()?)?, each)
    }

    /// Makes ours the network of the node.
    ///
    /// # Errors
    /// When the conflist names a plugin that is not there, the node is not taken over, or the disk
    /// refuses.
    pub fn make_network(
        &self,
        desired: &Conflist,
        each: impl FnMut(&Op),
    ) -> Result<Vec<Note>, InstallError> {
        let mut seen = self.observe()?;
        for name in chained(desired, &seen) {
            if let Some(versions) = plugin_versions::versions(&self.folders.bin.join(&name)) {
                seen.plugin_versions.insert(name, versions);
            }
        }
        self.apply(network(desired, &seen)?, each)
    }

    /// Takes it all back, but the programs if `keep_programs`. The file of the lock goes last.
    ///
    /// # Errors
    /// When pods are held on a node that was taken over, or the disk refuses.
    pub fn remove(
        self,
        keep_programs: bool,
        each: impl FnMut(&Op),
    ) -> Result<Vec<Note>, InstallError> {
        let notes = self.apply(remove(&BROUGHT, keep_programs, &self.observe()?)?, each)?;
        self.lock.remove().map_err(|cause| InstallError::LockLeft {
            path: self.folders.conf.join(LOCK_FILE),
            cause,
        })?;
        Ok(notes)
    }

    /// Carries out a plan, up to the first step that is refused.
    ///
    /// # Errors
    /// With that step.
    pub fn apply(&self, plan: Plan, mut each: impl FnMut(&Op)) -> Result<Vec<Note>, InstallError> {
        for op in &plan.ops {
            let place = place(op);
            let folder = self.folders.folder(place);
            let done = self.step(op).and_then(|()| self.folders.disk.sync_folder(folder));
            done.map_err(|cause| InstallError::Step {
                op: op.clone(),
                folder: folder.to_owned(),
                cause,
            })?;
            each(op);
        }
        Ok(plan.notes)
    }

    fn step(&self, op: &Op) -> io::Result<()> {
        let Folders { brought, fallback, bin, conf, disk } = self.folders;
        match op {
            Op::Install { name } => {
                let mut source = File::open(brought.join(name))?;
                self.put(bin, name, PROGRAM_MODE, &mut source)
            }
            Op::InstallMissing { name } => {
                let plugins = fallback.as_ref().ok_or(io::ErrorKind::NotFound)?;
                let mut source = File::open(plugins.join(name))?;
                self.put(bin, name, PROGRAM_MODE, &mut source)
            }
            Op::Write { name, bytes } => self.put(conf, name, CONF_MODE, &mut &bytes[..]),
            Op::Rename { from, to } => disk.rename(&conf.join(from), &conf.join(to)),
            Op::Remove { place, name } => disk.remove(&self.folders.folder(*place).join(name)),
        }
    }

    fn put(
        &self,
        folder: &Path,
        name: &str,
        mode: u32,
        from: &mut impl io::Read,
    ) -> io::Result<()> {
        let disk = &self.folders.disk;
        let beside = folder.join(temporary(name));
        let mut file = disk.create(&beside)?;
        let mut part = vec![0; PART];
        loop {
            let length = from.read(&mut part)?;
            if length == 0 {
                break;
            }
            disk.append(&mut file, &part[..length])?;
        }
        disk.set_mode(&file, mode)?;
        disk.sync(&file)?;
        // A program that is open for writing cannot be executed.
        drop(file);
        disk.rename(&beside, &folder.join(name))
    }
}

fn place(op: &Op) -> FolderKind {
    match op {
        Op::Install { .. } | Op::InstallMissing { .. } => FolderKind::Programs,
        Op::Write { .. } | Op::Rename { .. } => FolderKind::Networks,
        Op::Remove { place, .. } => *place,
    }
}

/// Everything of a folder that is no folder and has a name in UTF-8, with its path.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, InstallError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unread(folder))? {
        let path = entry.map_err(unread(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        if let Some(name) = name.filter(|_| !path.is_dir()) {
            found.push((name, path));
        }
    }
    Ok(found)
}

fn is_as_brought(source: &Path, there: &Path) -> io::Result<bool> {
    let (Ok(source), Ok(there)) = (File::open(source), File::open(there)) else {
        return Ok(false);
    };
    let (ours, theirs) = (source.metadata()?, there.metadata()?);
    if theirs.permissions().mode() & 0o7777 != PROGRAM_MODE || ours.len() != theirs.len() {
        return Ok(false);
    }
    have_the_same_bytes(source, there)
}

fn have_the_same_bytes(mut one: File, mut other: File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; PART], vec![0; PART]);
    loop {
        let length = one.read(&mut left)?;
        if length == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        match other.read_exact(&mut right[..length]) {
            Ok(()) if left[..length] == right[..length] => {}
            Ok(()) => return Ok(false),
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(err) => return Err(err),
        }
    }
}

fn header(path: &Path) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    File::open(path)?.take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    Ok(header)
}

fn unread(path: &Path) -> impl Fn(io::Error) -> InstallError {
    move |cause| InstallError::Unread { path: path.to_owned(), cause }
}

/// The plugin, and what people ask a node with.
const BROUGHT: [&str; 2] = [PLUGIN, "ferrule"];
const PROGRAM_MODE: u32 = 0o755;
const CONF_MODE: u32 = 0o644;
const PART: usize = 1 << 16;
const BIN_SETTING: &str = "HOST_CNI_BIN_PATH";
const CONF_SETTING: &str = "HOST_CNI_CONFDIR_PATH";
/// An installer holds the lock for less than a second.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
