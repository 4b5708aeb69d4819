//! A node: network, mount and UTS namespaces without a process of their own.

use crate::{
    FabricError, NodeSpec, Power, cgroup,
    enter::{EnterSpec, OWN_BINARY, enter_command, pin_cgroup_namespace},
    namespace::{self, Kind, NamespaceSet},
    process,
    state::{State, delete_folder, make_folder, write_file},
    sysctl::write_sysctl,
    tool,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

mod disk;

/// Folders of the node alone; they are on the machine in the node's state directory.
///
/// All but `/run` are the node's disk and survive a reboot. The rest of its `/etc`, `/opt` and `/var` shows the
/// machine's files. Changes to these are lost at the next boot.
pub const OWN_FOLDERS: [&str; 8] = [
    "/run",
    "/etc/cni/net.d",
    "/opt/cni/bin",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/ferrule",
    "/var/lib/kubelet",
    "/var/log",
];

/// A handle on a node; cheap to clone, holds nothing open.
#[derive(Clone, Debug)]
pub struct Node {
    state: State,
    name: String,
    spec: NodeSpec,
}

impl Node {
    pub(crate) fn new(state: State, name: &str, spec: NodeSpec) -> Self {
        Self { state, name: name.to_owned(), spec }
    }

    /// The lab's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its host name.
    pub fn hostname(&self) -> &str {
        &self.spec.hostname
    }

    /// True if its namespaces exist.
    pub fn is_up(&self) -> bool {
        let cgroup = self.cgroup_pin();
        self.pins().iter().map(|(_, pin)| pin).chain(&cgroup).all(|pin| namespace::is_pinned(pin))
    }

    /// The id of its present boot.
    ///
    /// # Errors
    /// When it is off.
    pub fn boot_id(&self) -> Result<String, FabricError> {
        self.require_up()?;
        let path = self.boot_id_file();
        let text = fs::read_to_string(&path).map_err(|cause| FabricError::File {
            action: "read",
            path,
            cause,
        })?;
        Ok(text.trim().to_owned())
    }

    /// Path on the machine of a path in one of the node's [`OWN_FOLDERS`]; `None` for any other path. Callers use
    /// it to read the node's logs or to install a binary.
    pub fn on_machine(&self, inside: &Path) -> Option<PathBuf> {
        OWN_FOLDERS.iter().find_map(|folder| {
            let rest = inside.strip_prefix(folder).ok()?;
            Some(if rest.as_os_str().is_empty() {
                self.own_folder(folder)
            } else {
                self.own_folder(folder).join(rest)
            })
        })
    }

    /// A command that runs in the node as root, as on its console.
    ///
    /// Like `Command::new`: arguments, environment and streams are the caller's to set.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(self.place(), false, program.as_ref())
    }

    /// A command that runs with the limits of the daemon's container.
    ///
    /// It gets the node's network and exactly `CAP_NET_ADMIN` and `CAP_NET_RAW`. `/proc/sys` is read-only, with
    /// `/proc/sys/net` writable at [`crate::enter::HOST_PROC_SYS_NET`]. The environment is `PATH` and `env` alone.
    pub fn contained_command<K, V>(
        &self,
        program: impl AsRef<OsStr>,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut command = self.enter(self.place(), true, program.as_ref());
        command.env_clear().env("PATH", tool::search_path()).envs(env);
        command
    }

    /// A command that runs in the network namespace `/run/netns/<pod>` of the node.
    pub fn pod_command(&self, pod: &str, program: impl AsRef<OsStr>) -> Command {
        self.enter(self.pod_place(pod), false, program.as_ref())
    }

    fn enter(&self, place: NamespaceSet, contained: bool, program: &OsStr) -> Command {
        let spec = EnterSpec { place, contained, cgroup: self.cgroup().filter(|of| of.is_dir()) };
        enter_command(Path::new(OWN_BINARY), &spec, program)
    }

    /// Runs `task` on a thread that is inside the node's namespaces and returns what it returned.
    ///
    /// Files and sockets it opens are the node's and may be handed out; children it starts are in
    /// the node. The thread stays in the cgroup of its process, so programs at the node's cgroup do not act for it.
    ///
    /// # Errors
    /// When the node is off.
    pub fn inside<T: Send>(&self, task: impl FnOnce() -> T + Send) -> Result<T, FabricError> {
        self.require_up()?;
        self.place().run(task)
    }

    pub(crate) fn require_up(&self) -> Result<(), FabricError> {
        if self.is_up() { Ok(()) } else { Err(FabricError::NoNode(self.name.clone())) }
    }

    pub(crate) fn place(&self) -> NamespaceSet {
        let [(_, net), (_, mnt), (_, uts)] = self.pins();
        let name = format!("node {}", self.name);
        NamespaceSet {
            name,
            mnt: Some(mnt),
            uts: Some(uts),
            net: Some(net),
            cgroup: self.cgroup_pin(),
            pod: None,
        }
    }

    /// The network namespace alone: the machine's files, the node's links.
    pub(crate) fn net_place(&self) -> NamespaceSet {
        NamespaceSet::net(&format!("node {}", self.name), &self.net_pin())
    }

    pub(crate) fn net_pin(&self) -> PathBuf {
        self.pin(Kind::Net)
    }

    fn pins(&self) -> [(Kind, PathBuf); 3] {
        [Kind::Net, Kind::Mnt, Kind::Uts].map(|kind| (kind, self.pin(kind)))
    }

    fn pin(&self, kind: Kind) -> PathBuf {
        self.state.pins().join(format!("node-{}.{}", self.name, kind.file()))
    }

    /// The pin of the node's cgroup namespace. `None` with trees of version 1: kubelets then use these for pods, with names
    /// of the whole machine.
    fn cgroup_pin(&self) -> Option<PathBuf> {
        let is_alone = cgroup::root().is_some_and(|root| !cgroup::is_beside_version_1(&root));
        is_alone.then(|| self.state.pins().join(format!("node-{}.cgroup", self.name)))
    }

    /// The cgroup above its pods, as programs of the node name it.
    pub fn cgroup_root(&self) -> String {
        match self.cgroup_pin() {
            Some(_) => "/".to_owned(),
            None => format!("/{}", self.cgroup_name()),
        }
    }

    /// The name of its cgroup, which is also that of the cgroup above its pods in the trees of version 1.
    pub fn cgroup_name(&self) -> String {
        format!("{}{}", cgroup::cgroup_prefix(self.state.root()), self.name)
    }

    /// Its cgroup in the tree of cgroup v2; `None` if the machine has no such tree. It exists while the node is up.
    pub fn cgroup(&self) -> Option<PathBuf> {
        Some(cgroup::root()?.join(self.cgroup_name()))
    }

    fn folder(&self) -> PathBuf {
        self.state.node(&self.name)
    }

    fn boot_id_file(&self) -> PathBuf {
        self.folder().join("boot_id")
    }

    fn own_folder(&self, inside: &str) -> PathBuf {
        self.folder().join("own").join(inside.trim_start_matches('/').replace('/', "-"))
    }

    pub(crate) fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    /// Brings the node up: a new boot id, an empty `/run`, its folders, its namespaces.
    pub(crate) fn boot(&self) -> Result<(), FabricError> {
        self.halt()?;
        self.state.write_node_spec(&self.name, &self.spec)?;
        for folder in OWN_FOLDERS {
            make_folder(&self.own_folder(folder))?;
        }
        for folder in ["netns", "lock"] {
            make_folder(&self.own_folder("/run").join(folder))?;
        }
        write_file(&self.boot_id_file(), &new_boot_id()?)?;
        self.cgroup().as_deref().map_or(Ok(()), cgroup::create)?;
        if let (Some(cgroup), Some(pin)) = (self.cgroup(), self.cgroup_pin()) {
            pin_cgroup_namespace(&self.name, &cgroup, &pin)?;
        }
        let root = self.folder().join("root");
        make_folder(&root)?;
        namespace::create(&format!("node {}", self.name), &self.pins(), || {
            nix::unistd::sethostname(&self.spec.hostname).map_err(|cause| {
                FabricError::Namespace {
                    action: "name",
                    name: format!("node {}", self.name),
                    cause: cause.into(),
                }
            })?;
            tool::ip_batch("link set lo up\n", "bring lo up")?;
            // A node of Kubernetes forwards: its image sees to it.
            write_sysctl("net/ipv4/ip_forward", "1")?;
            // An ENI's address is unique, so duplicate address detection would only cost a second.
            write_sysctl("net/ipv6/conf/default/accept_dad", "0")?;
            self.mount_disk(&root)
        })
    }

    /// Takes the node down, with all that runs in it; what is on its disk stays.
    pub(crate) fn halt(&self) -> Result<(), FabricError> {
        self.kill_all()?;
        let pins = self.pins().map(|(_, pin)| pin);
        for pin in pins.iter().chain(&self.cgroup_pin()) {
            namespace::unpin(pin)?;
        }
        self.cgroup().as_deref().map_or(Ok(()), cgroup::remove)?;
        delete_folder(&self.own_folder("/run"))
    }

    /// Takes the node down and its disk with it.
    pub(crate) fn terminate(&self) -> Result<(), FabricError> {
        self.halt()?;
        delete_folder(&self.folder())
    }

    /// Writes down that the node is off.
    pub(crate) fn note_off(&self) -> Result<(), FabricError> {
        let spec = NodeSpec { power: Power::Off, ..self.spec.clone() };
        self.state.write_node_spec(&self.name, &spec)
    }

    pub(crate) fn kill_all(&self) -> Result<usize, FabricError> {
        let own = self.pins().map(|(_, pin)| pin);
        let mut inodes: BTreeSet<u64> = process::inodes(&own);
        if namespace::is_pinned(&self.pin(Kind::Mnt)) {
            inodes.extend(self.pod_inodes()?);
        }
        process::kill_in_namespaces(&inodes)
    }
}

fn new_boot_id() -> Result<String, FabricError> {
    let path = PathBuf::from("/proc/sys/kernel/random/uuid");
    fs::read_to_string(&path).map_err(|cause| FabricError::File { action: "read", path, cause })
}
