//! containerd in a node's namespaces, in its own process and mount namespace below them.
//!
//! The *machine* is the first process of that namespace. While it runs, containerd can be killed and
//! restarted, and the sandboxes survive. When it exits, the kernel kills all processes of the namespace, and
//! their mounts go too. It exits with the process that started it.

use crate::{client::Cri, image, program::Program};
use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use tests_lab::{Lab, wait_for};

/// A running containerd, with the state that survives it.
pub struct Containerd {
    program: Program,
    machine: Child,
    /// PID of the machine's first process.
    init: i32,
    /// The process that entered the namespace, and the PID of containerd itself.
    daemon: Option<(Child, i32)>,
    cgroup: String,
    folder: TempDir,
}

impl Containerd {
    /// Starts containerd in the node with this conflist as its only network, and imports the image.
    ///
    /// # Errors
    /// If it does not serve; the error contains the end of its log.
    pub fn start(lab: &Lab, node: &str, program: Program, conflist: &Value) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("/ferrule-cri-{}-{number}", std::process::id());
        let folder = tempfile::tempdir().context("create a folder for containerd")?;
        let enter: Vec<_> = std::iter::once(lab.command(&["node", "exec", node, "--"]))
            .flat_map(|tool| {
                let args: Vec<_> = tool.get_args().map(ToOwned::to_owned).collect();
                std::iter::once(tool.get_program().to_owned()).chain(args).collect::<Vec<_>>()
            })
            .collect();
        // The kernel kills unshare with this process, the machine with unshare, and all other processes with
        // the machine.
        let machine = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(enter)
            .args(["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
            .args(["bash", "-c", REAPER])
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("start a machine for containerd in {node}"))?;
        // From here on, `Drop` ends it.
        let mut containerd = Self { program, machine, init: 0, daemon: None, cgroup, folder };
        wait_for("the machine's first process", PATIENCE, || {
            containerd.init = child_of(i32::try_from(containerd.machine.id())?, "bash")?;
            Ok(true)
        })?;
        containerd.configure(conflist)?;
        containerd.launch()?;
        let image = image::pack(&containerd.folder.path().join("image"))?;
        let image = image.to_str().context("the folder's path is not UTF-8")?;
        containerd.ctr(&["--namespace", "k8s.io", "images", "import", image])?;
        Ok(containerd)
    }

    /// A connection, which is valid until containerd is killed.
    ///
    /// # Errors
    /// If containerd does not serve.
    pub fn connect(&self) -> Result<Cri> {
        Cri::connect(&self.socket())
    }

    /// The parent cgroup of its sandboxes.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Kills containerd with SIGKILL, as the OOM killer would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self) -> Result<()> {
        let (_, pid) = self.daemon.as_ref().context("containerd does not run")?;
        kill(Pid::from_raw(*pid), Signal::SIGKILL).with_context(|| format!("kill {pid}"))
    }

    /// Starts containerd again after [`Containerd::kill`].
    ///
    /// # Errors
    /// If it does not serve again.
    pub fn start_again(&mut self) -> Result<()> {
        let (mut entering, _) = self.daemon.take().context("containerd was never started")?;
        entering.wait().context("wait for containerd to end")?;
        self.launch()
    }

    /// The names of the network namespaces that containerd keeps for sandboxes.
    ///
    /// # Errors
    /// If their folder cannot be read.
    pub fn network_namespaces(&self) -> Result<Vec<String>> {
        let path = self.folder.path().join(NAMESPACES);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("list {}", path.display())),
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Runs a command in one of these namespaces, and returns its output.
    ///
    /// # Errors
    /// If the command fails; the error contains its output.
    pub fn in_network(&self, namespace: &str, command: &[&str]) -> Result<String> {
        let path = self.folder.path().join(NAMESPACES).join(namespace);
        let mut nsenter = self.in_machine("nsenter");
        let output = nsenter.arg(format!("--net={}", path.display())).args(command).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} in {namespace}: {text}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn configure(&self, conflist: &Value) -> Result<()> {
        let folder = self.folder.path();
        let networks = folder.join("net.d");
        fs::create_dir(&networks).context("create a folder for the conflist")?;
        fs::write(networks.join("05-ferrule.conflist"), format!("{conflist:#}\n"))
            .context("write the conflist")?;
        fs::write(folder.join("config.toml"), config(folder)).context("write containerd's settings")
    }

    /// Starts containerd and waits until it serves.
    fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.context("open containerd's log")?;
        let settings = self.folder.path().join("config.toml");
        let mut command = self.in_machine("containerd");
        command.arg("--config").arg(settings).stdout(log.try_clone()?).stderr(log);
        let entering = command.spawn().context("start containerd")?;
        let entered = i32::try_from(entering.id())?;
        self.daemon = Some((entering, 0));
        wait_for("containerd to start", PATIENCE, || {
            let pid = child_of(entered, "containerd").with_context(|| self.log_tail())?;
            if let Some((_, known)) = &mut self.daemon {
                *known = pid;
            }
            Ok(true)
        })?;
        wait_for("containerd to serve", PATIENCE, || {
            let cri = self.connect().with_context(|| self.log_tail())?;
            cri.version().with_context(|| self.log_tail())?;
            // The other services are ready when this one is.
            cri.list().with_context(|| self.log_tail())?;
            Ok(true)
        })
    }

    fn ctr(&self, args: &[&str]) -> Result<()> {
        let output = self
            .in_machine("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(args)
            .output()
            .context("start ctr")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ctr {}: {text}\n{}", args.join(" "), self.log_tail());
        Ok(())
    }

    /// A command in the machine's namespaces.
    fn in_machine(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string(), "--mount", "--net", "--uts", "--pid", "--"])
            .arg(program)
            .env("PATH", self.program.search_path())
            .stdin(Stdio::null());
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("c.sock")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("containerd.log")
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!(
            "containerd's log ends with\n{}",
            lines[lines.len().saturating_sub(20)..].join("\n")
        )
    }
}

/// The folder of the sandboxes' network namespaces, relative to containerd's.
const NAMESPACES: &str = "state/io.containerd.grpc.v1.cri/netns";

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.init != 0 {
            // An error means that it has already exited.
            let _ = kill(Pid::from_raw(self.init), Signal::SIGKILL);
        }
        // Its only child has exited, or is killed with it.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
        if let Some((mut entering, _)) = self.daemon.take() {
            let _ = entering.wait();
        }
        if let Err(err) = remove_cgroups(&self.cgroup) {
            print_warning(&format!("{err:#}"));
        }
    }
}

/// Removes the cgroups of sandboxes, once they are empty.
fn remove_cgroups(name: &str) -> Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    let mut roots = vec![top.to_owned()];
    // With cgroup version 1 each controller has a tree.
    for entry in fs::read_dir(top).with_context(|| format!("list {}", top.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            roots.push(path);
        }
    }
    for root in roots {
        let path = root.join(name.trim_start_matches('/'));
        if path.is_dir() {
            wait_for(&format!("cgroup {} to be removable", path.display()), PATIENCE, || {
                remove_tree(&path).map(|()| true)
            })?;
        }
    }
    Ok(())
}

/// The files of a cgroup are removed with it. Only folders are removed, the deepest first.
fn remove_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        let inner = entry?.path();
        if inner.is_dir() {
            remove_tree(&inner)?;
        }
    }
    fs::remove_dir(path).with_context(|| format!("remove {}", path.display()))
}

/// The only child of a process, once it executes this program.
fn child_of(pid: i32, name: &str) -> Result<i32> {
    for entry in fs::read_dir("/proc").context("list processes")? {
        let Ok(child) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        // A process that exits meanwhile is not the child.
        let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else { continue };
        let Some((front, back)) = stat.rsplit_once(')') else { continue };
        let parent = back.split_whitespace().nth(1).and_then(|word| word.parse::<i32>().ok());
        if parent == Some(pid) && front.ends_with(&format!("({name}")) {
            return Ok(child);
        }
    }
    match kill(Pid::from_raw(pid), None) {
        Err(Errno::ESRCH) => bail!("process {pid} exited before it started {name}"),
        _ => bail!("process {pid} has not started {name} yet"),
    }
}

fn config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"version = 2
root = "{folder}/root"
state = "{folder}/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  # A container in which the tests run may not lower anybody's score.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "{folder}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"#,
        image = image::NAME,
    )
}

#[expect(clippy::print_stderr, reason = "leftovers must be visible")]
fn print_warning(text: &str) {
    eprintln!("{text}");
}

/// Shims become children of this process when their parent exits; it waits for them.
const REAPER: &str = "trap '' TERM; while :; do sleep 3600 & wait $!; done";
const PATIENCE: Duration = Duration::from_secs(60);
