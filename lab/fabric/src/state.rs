//! The lab's state directory: where everything lies, so that a lab can be taken down by it alone.

use crate::{FabricError, NodeSpec, Vpc, namespace, process::Recorded, tool};
use nix::mount::MsFlags;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// The layout of a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    root: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct LabFile {
    version: u32,
    vpc: Vpc,
}

const VERSION: u32 = 1;

impl State {
    /// Makes a new one.
    pub(crate) fn create(root: &Path, vpc: &Vpc) -> Result<Self, FabricError> {
        let refuse =
            |why: &str| Err(FabricError::StateDir { path: root.to_owned(), why: why.to_owned() });
        let plain = root.is_absolute()
            && root.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !plain {
            return refuse("it is no plain absolute path");
        }
        let state = Self { root: root.to_owned() };
        if state.lab_file().exists() {
            return refuse("it holds a lab already");
        }
        make_folder(root)?;
        if fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some()) {
            return refuse("it is not empty");
        }
        // Written first: `remove` works with this record from here on.
        state.keep_vpc(vpc)?;
        make_folder(&state.nodes())?;
        make_folder(&state.pins())?;
        Ok(state)
    }

    /// Notes what the VPC is.
    pub(crate) fn keep_vpc(&self, vpc: &Vpc) -> Result<(), FabricError> {
        write_json(&self.lab_file(), &LabFile { version: VERSION, vpc: vpc.clone() })
    }

    /// Prepares the folder of pins.
    pub(crate) fn mount_pins(&self) -> Result<(), FabricError> {
        let pins = self.pins();
        namespace::bind(&pins, &pins, false)?;
        // A mount namespace can be pinned on a private mount only; unbindable, the pins are also
        // left out of the nodes' own trees.
        namespace::do_mount(None, &pins, None, MsFlags::MS_UNBINDABLE, None, "make unbindable")
    }

    /// Opens what [`State::create`] made.
    pub(crate) fn open(root: &Path) -> Result<(Self, Vpc), FabricError> {
        let state = Self { root: root.to_owned() };
        let lab: LabFile = read_json(&state.lab_file())?.ok_or_else(|| FabricError::StateDir {
            path: root.to_owned(),
            why: "it holds no lab".to_owned(),
        })?;
        if lab.version != VERSION {
            let why = format!("its version is {}, not {VERSION}", lab.version);
            return Err(FabricError::StateDir { path: root.to_owned(), why });
        }
        Ok((state, lab.vpc))
    }

    /// True if the directory contains the start of a lab.
    pub(crate) fn exists(root: &Path) -> bool {
        Self { root: root.to_owned() }.lab_file().exists()
    }

    /// Refers to a directory without looking at it.
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn lab_file(&self) -> PathBuf {
        self.root.join("lab.json")
    }

    fn process_file(&self) -> PathBuf {
        self.root.join("processes.json")
    }

    /// The folder of pinned namespaces.
    pub(crate) fn pins(&self) -> PathBuf {
        self.root.join("ns")
    }

    /// The pin of the VPC's network namespace.
    pub(crate) fn vpc_pin(&self) -> PathBuf {
        self.pins().join("vpc.net")
    }

    /// The pin of the internet's network namespace.
    pub(crate) fn internet_pin(&self) -> PathBuf {
        self.pins().join("inet.net")
    }

    fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// A node's folder.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    /// The nodes that have a folder, whether they run or not.
    pub(crate) fn node_names(&self) -> Result<Vec<String>, FabricError> {
        folder_names(&self.nodes())
    }

    /// The last applied specification of a node.
    pub(crate) fn node_spec(&self, name: &str) -> Result<Option<NodeSpec>, FabricError> {
        read_json(&self.node(name).join("node.json"))
    }

    pub(crate) fn write_node_spec(&self, name: &str, spec: &NodeSpec) -> Result<(), FabricError> {
        make_folder(&self.node(name))?;
        write_json(&self.node(name).join("node.json"), spec)
    }

    pub(crate) fn processes(&self) -> Result<Vec<Recorded>, FabricError> {
        Ok(read_json(&self.process_file())?.unwrap_or_default())
    }

    pub(crate) fn write_processes(&self, processes: &[Recorded]) -> Result<(), FabricError> {
        write_json(&self.process_file(), &processes)
    }
}

/// Names within a folder, sorted; none when it is absent.
pub(crate) fn folder_names(folder: &Path) -> Result<Vec<String>, FabricError> {
    let failed = |cause| FabricError::File { action: "list", path: folder.to_owned(), cause };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(failed(cause)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(path: &Path) -> Result<(), FabricError> {
    fs::create_dir_all(path).map_err(|cause| FabricError::File {
        action: "create the folder",
        path: path.to_owned(),
        cause,
    })
}

/// Deletes a folder and all in it; absence is success. The caller has made sure that nothing is
/// mounted below.
pub(crate) fn delete_folder(path: &Path) -> Result<(), FabricError> {
    match fs::remove_dir_all(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(FabricError::File { action: "delete", path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

/// Writes a file as a whole: under another name first, then renamed.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), FabricError> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)
        .and_then(|()| fs::rename(&fresh, path))
        .map_err(|cause| FabricError::File { action: "write", path: path.to_owned(), cause })
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FabricError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|cause| FabricError::Parse { what: path.display().to_string(), cause })?;
    write_file(path, &text)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FabricError> {
    match fs::read_to_string(path) {
        Ok(text) => tool::parse(&text, &path.display().to_string()).map(Some),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(FabricError::File { action: "read", path: path.to_owned(), cause }),
    }
}
