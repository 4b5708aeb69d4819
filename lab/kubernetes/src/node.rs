//! A node of the lab as a node of the cluster: its runtime, its kubelet, its proxy.
//!
//! The programs are in process, mount and UTS namespaces of their own below the node's. The first process of these
//! namespaces (`node/machine.sh`) keeps them running. The kernel ends them with that process. Their host name is the node's name
//! in the cluster, as on EKS.

mod cgroup;
mod files;

pub use files::{NodeConfig, ProxyMode};

use crate::{Access, Identity, Program, component::start_time};
use anyhow::{Context as _, Result, bail, ensure};
use lab_fabric::Node;
use std::{
    fs::{self, File},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A node of the cluster, whether it runs or not.
pub struct Machine<'a> {
    node: &'a Node,
    folder: PathBuf,
}

/// One of the programs of a node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Running {
    pub name: &'static str,
    /// Its process on this machine; none while it is between two lives.
    pub pid: Option<i32>,
    /// File for its output.
    pub log: PathBuf,
}

impl<'a> Machine<'a> {
    /// The node of this fabric; `folder` is the cluster's.
    pub fn of(node: &'a Node, folder: &Path) -> Self {
        Self { node, folder: folder.to_owned() }
    }

    /// Starts runtime, kubelet and proxy unless they run, and waits until the runtime serves.
    ///
    /// # Errors
    /// If the runtime does not serve; the error contains the end of its output.
    pub fn start(&self, kubernetes: &Program, access: &Access, config: &NodeConfig) -> Result<()> {
        if self.init().is_some() {
            return Ok(());
        }
        self.write_files(access, config)?;
        cgroup::make(&config.cgroup)?;
        let log = self.on_machine("/var/log/lab/machine.log")?;
        make_parent(&log)?;
        let out = File::options().create(true).append(true).open(&log);
        let out = out.with_context(|| format!("open {}", log.display()))?;
        // A session of its own: Ctrl-C in a terminal is not for it.
        let child = self
            .node
            .command("setsid")
            .args([
                "unshare",
                "--pid",
                "--mount",
                "--uts",
                "--fork",
                "--kill-child=KILL",
                "--",
                "bash",
                "-c",
                SCRIPT,
            ])
            .args(["machine", &kubernetes.path().display().to_string(), &config.name])
            .args([&config.addresses(), &config.labels()])
            .env("PATH", SEARCH_PATH)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("share a log")?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start the machine of {}", config.name))?;
        let parent = i32::try_from(child.id()).context("a process id")?;
        let init = wait_for(PATIENCE, || first_child(parent))
            .with_context(|| format!("{} does not start; see {}", config.name, log.display()))?;
        let began = start_time(init).context("the machine has ended")?;
        let note = self.note();
        make_parent(&note)?;
        fs::write(&note, format!("{init} {began}\n"))
            .with_context(|| format!("write {}", note.display()))?;
        self.serving()
    }

    /// Ends everything of it at once, as pulling the plug does; its files stay.
    pub fn stop(&self) {
        if let Some(init) = self.init() {
            let pid = nix::unistd::Pid::from_raw(init);
            // Gone already is as good.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Imports an image into the runtime.
    ///
    /// # Errors
    /// If the runtime does not accept the image; the error contains its output.
    pub fn load(&self, image: &Path) -> Result<()> {
        let archive = File::open(image).with_context(|| format!("open {}", image.display()))?;
        let mut ctr = self.ctr()?;
        ctr.args(["--namespace", "k8s.io", "images", "import", "-"]);
        let output = ctr.stdin(archive).output().context("start ctr")?;
        let (said, name) = (String::from_utf8_lossy(&output.stderr), self.node.name());
        ensure!(output.status.success(), "load {} on {name}: {said}", image.display());
        Ok(())
    }

    /// Its programs.
    pub fn running(&self) -> Vec<Running> {
        let mine = self.init().map(processes_beside).unwrap_or_default();
        let of = |name: &'static str| {
            let found = mine.iter().find(|(_, words)| words.iter().any(|word| word == name));
            let log = self.node.on_machine(&Path::new("/var/log/lab").join(format!("{name}.log")));
            Running { name, pid: found.map(|(pid, _)| *pid), log: log.unwrap_or_default() }
        };
        let has_proxy = self.on_machine(PROXY).is_ok_and(|file| file.exists());
        let proxy = has_proxy.then_some("kube-proxy");
        ["containerd", "kubelet"].into_iter().chain(proxy).map(of).collect()
    }

    /// Its first process, as this machine numbers it, if it runs.
    pub fn init(&self) -> Option<i32> {
        let note = fs::read_to_string(self.note()).ok()?;
        let (pid, began) = note.trim().split_once(' ')?;
        let (pid, began) = (pid.parse().ok()?, began.parse::<u64>().ok()?);
        (start_time(pid) == Some(began)).then_some(pid)
    }

    /// A command in it.
    ///
    /// # Errors
    /// When it does not run.
    pub fn command(&self, program: &str) -> Result<Command> {
        let name = self.node.name();
        let init =
            self.init().with_context(|| format!("{name} is no running node of a cluster"))?;
        // By way of the node, for its cgroup. The kernel's numbers of processes are the machine's there.
        let mut command = self.node.command("nsenter");
        command
            .args(["--target", &init.to_string(), "--mount", "--net", "--uts", "--pid", "--"])
            .arg(program)
            .env("PATH", SEARCH_PATH)
            .stdin(Stdio::null());
        Ok(command)
    }

    fn ctr(&self) -> Result<Command> {
        let mut ctr = self.command("ctr")?;
        ctr.args(["--address", "/run/containerd/containerd.sock"]);
        Ok(ctr)
    }

    fn serving(&self) -> Result<()> {
        wait_for(PATIENCE, || {
            let output = self.ctr()?.arg("version").output().context("start ctr")?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            // Its other services are up when this one lists.
            let images = self.ctr()?.args(["-n", "k8s.io", "images", "ls", "-q"]).output()?;
            ensure!(images.status.success(), "{}", String::from_utf8_lossy(&images.stderr));
            Ok(())
        })
        .with_context(|| format!("containerd of {} does not serve", self.node.name()))
    }

    fn write_files(&self, access: &Access, config: &NodeConfig) -> Result<()> {
        let name = &config.name;
        let kubelet = Identity {
            group: Some("system:nodes".to_owned()),
            ..Identity::user(&format!("system:node:{name}"))
        };
        let proxy = Identity::user("system:kube-proxy");
        let kubeconfig = access.kubeconfig(&format!("kubelet-{name}"), &kubelet, &config.server)?;
        let of_proxy = access.kubeconfig(&format!("proxy-{name}"), &proxy, &config.server)?;
        let serving = access.server_of(&format!("serving-{name}"), IpAddr::V4(config.address))?;
        for (from, to) in [
            (kubeconfig, "/var/lib/kubelet/kubeconfig"),
            (of_proxy, "/var/lib/kubelet/proxy.kubeconfig"),
            (access.file("ca.crt"), "/var/lib/kubelet/ca.crt"),
            (serving.with_extension("crt"), "/var/lib/kubelet/serving.crt"),
            (serving.with_extension("key"), "/var/lib/kubelet/serving.key"),
        ] {
            let to = self.on_machine(to)?;
            make_parent(&to)?;
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
        }
        for (to, text) in [
            ("/var/lib/kubelet/config.yaml", config.kubelet()),
            ("/var/lib/containerd/config.toml", files::containerd()),
        ] {
            let to = self.on_machine(to)?;
            make_parent(&to)?;
            fs::write(&to, text).with_context(|| format!("write {}", to.display()))?;
        }
        // The machine's script starts kube-proxy if this file exists.
        if let Some(text) = config.proxy() {
            let to = self.on_machine(PROXY)?;
            fs::write(&to, text).with_context(|| format!("write {}", to.display()))?;
        }
        let bin = self.on_machine("/opt/cni/bin")?;
        for entry in fs::read_dir(&config.plugins).context("list the CNI plugins")? {
            let entry = entry.context("list the CNI plugins")?;
            let to = bin.join(entry.file_name());
            fs::copy(entry.path(), &to).with_context(|| format!("write {}", to.display()))?;
        }
        Ok(())
    }

    fn on_machine(&self, inside: &str) -> Result<PathBuf> {
        let place = self.node.on_machine(Path::new(inside));
        place.with_context(|| format!("{inside} is in no folder of the node's own"))
    }

    fn note(&self) -> PathBuf {
        self.folder.join("nodes").join(format!("{}.pid", self.node.name()))
    }
}

/// Sees that this machine has what nodes run.
///
/// # Errors
/// Names what is missing, and the packages of Debian that bring it.
pub fn tools_are_there() -> Result<()> {
    let there = |tool: &&str| SEARCH_PATH.split(':').any(|dir| Path::new(dir).join(tool).is_file());
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !there(tool)).collect();
    ensure!(
        missing.is_empty(),
        "this machine has no {}; on Debian: apt-get install containerd runc iptables nftables",
        missing.join(", ")
    );
    Ok(())
}

/// Removes what nodes with these cgroups left in the machine's, once nothing of them runs.
///
/// # Errors
/// When one cannot be removed.
pub fn remove_cgroups(prefix: &str) -> Result<()> {
    cgroup::remove(prefix)
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))
}

/// Tries until it works; the last failure when it does not.
pub(crate) fn wait_for<T>(patience: Duration, mut what: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + patience;
    loop {
        match what() {
            Ok(result) => return Ok(result),
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => thread::sleep(LOOK_AGAIN),
        }
    }
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn first_child(parent: i32) -> Result<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map(|(_, after)| after.to_owned()).unwrap_or_default();
        after.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    match pids().into_iter().find(is_child) {
        Some(pid) => Ok(pid),
        None if start_time(parent).is_none() => bail!("process {parent} has ended"),
        None => bail!("process {parent} has no child yet"),
    }
}

/// The processes of the process namespace that this one is the first of, each with the first words of its
/// command line, without folders.
fn processes_beside(init: i32) -> Vec<(i32, Vec<String>)> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(own) = namespace(init) else { return Vec::new() };
    let mine = pids().into_iter().filter(|pid| namespace(*pid).as_ref() == Some(&own));
    mine.filter_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).take(2).map(|word| {
            let word = String::from_utf8_lossy(word).into_owned();
            word.rsplit('/').next().unwrap_or_default().to_owned()
        });
        Some((pid, words.collect()))
    })
    .collect()
}

/// Tools that a node's programs call.
const TOOLS: [&str; 9] =
    ["bash", "containerd", "ctr", "iptables", "nft", "nsenter", "runc", "setsid", "unshare"];
const SCRIPT: &str = include_str!("node/machine.sh");
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The configuration of kube-proxy on the node.
const PROXY: &str = "/var/lib/kubelet/proxy.yaml";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
