//! Tests on another kernel than this machine's: Debian's, under QEMU. An initial file system has the needed programs: a
//! shell, `ip`, the plugin, the test program and the libraries of both.
//!
//! QEMU translates (TCG), so the machine needs no virtualization. One processor is used, since kernels crash with more of
//! them under QEMU 7.2.

use crate::{binaries, cargo, say};
use anyhow::{Context as _, Result, ensure};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The package that depends on Debian's newest kernel for clouds.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Kernel modules that the node of a branch pod needs, each after its dependencies.
const MODULES: [&str; 6] = [
    "net/llc/llc.ko",
    "net/802/stp.ko",
    "net/802/garp.ko",
    "net/802/mrp.ko",
    "net/8021q/8021q.ko",
    "drivers/net/veth.ko",
];
/// Commands of the shell in the initial file system.
const APPLETS: [&str; 6] = ["sh", "mount", "mkdir", "insmod", "poweroff", "echo"];
/// The time limit for the machine. A longer run is a failure.
const DEADLINE: Duration = Duration::from_secs(900);
/// The prefix of the machine's last line.
const ENDED: &str = "the tests ended with";

/// Runs the ignored tests of the plugin's suite whose names hold `filter`; shows each line.
pub(crate) fn run(tests: &Path, filter: &str, mut line: impl FnMut(&str)) -> Result<()> {
    let plugin = binaries::plugin()?;
    let dir = cargo::target_dir().join("vm");
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let kernel = Kernel::fetch(&dir)?;
    let initrd = file_system(&dir, &kernel, &plugin, tests, filter)?;
    say::step(&format!("booting {} under QEMU", kernel.release));
    boot(&kernel, &initrd, &mut line)
}

/// An unpacked kernel.
struct Kernel {
    folder: PathBuf,
    release: String,
}

impl Kernel {
    /// Fetches the current kernel of Debian, unless an earlier run did. It is unpacked, not installed.
    fn fetch(dir: &Path) -> Result<Self> {
        let package = match newest() {
            Ok(package) => package,
            // A machine without package lists.
            Err(_) => {
                succeed(Command::new("apt-get").args(["update", "-q"]))?;
                newest()?
            }
        };
        let folder = dir.join(&package);
        if !folder.is_dir() {
            say::step(&format!("fetching {package} from Debian"));
            let fetched = dir.join("fetched");
            let _ = fs::remove_dir_all(&fetched);
            fs::create_dir(&fetched).with_context(|| format!("create {}", fetched.display()))?;
            succeed(
                Command::new("apt-get").args(["download", "-q", &package]).current_dir(&fetched),
            )?;
            let mut debs = fs::read_dir(&fetched)?;
            let deb = debs.next().context("apt-get download left nothing")??.path();
            let unpacked = dir.join("unpacked");
            let _ = fs::remove_dir_all(&unpacked);
            succeed(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked))?;
            fs::rename(&unpacked, &folder).with_context(|| format!("make {}", folder.display()))?;
            fs::remove_dir_all(&fetched)?;
        }
        let release = package.trim_start_matches("linux-image-").to_owned();
        Ok(Self { folder, release })
    }

    fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    fn module(&self, name: &str) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release).join("kernel").join(name)
    }
}

fn newest() -> Result<String> {
    let output = Command::new("apt-cache").args(["depends", "--important", KERNEL]).output();
    let output = output.context("start apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let depends = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    depends.map(str::to_owned).with_context(|| format!("Debian's lists do not know {KERNEL}"))
}

/// Packs the files of the machine.
fn file_system(
    dir: &Path,
    kernel: &Kernel,
    plugin: &Path,
    tests: &Path,
    filter: &str,
) -> Result<PathBuf> {
    let root = dir.join("root");
    let _ = fs::remove_dir_all(&root);
    for folder in
        ["bin", "usr/sbin", "lib64", "modules", "proc", "sys", "dev", "run", "tmp", "var/log"]
    {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = on_path("busybox")?;
    fs::copy(busybox, root.join("bin/busybox")).context("copy busybox")?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let mut script = String::from(
        "#!/bin/sh\nmount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         mount -t tmpfs tmp /tmp; mount -t tmpfs run /run\n",
    );
    for module in MODULES {
        let name = Path::new(module).file_name().context("a module has a name")?;
        fs::copy(kernel.module(module), root.join("modules").join(name))
            .with_context(|| format!("copy the module {module}"))?;
        script += &format!("insmod /modules/{}\n", name.display());
    }
    let ip = fs::canonicalize(on_path("ip")?).context("find ip")?;
    for (program, at) in [(ip.as_path(), "usr/sbin/ip"), (plugin, "plugin"), (tests, "tests")] {
        cargo::place(program, &root.join(at))?;
        libraries(program, &root)?;
    }
    succeed(Command::new("strip").arg(root.join("tests")))?;
    script += &format!(
        "export PATH=/usr/sbin:/bin FERRULE_CNI=/plugin RUST_BACKTRACE=0\n\
         /tests {filter} --ignored --nocapture --test-threads 1\necho \"{ENDED} $?\"\npoweroff -f\n"
    );
    let init = root.join("init");
    fs::write(&init, script)?;
    succeed(Command::new("chmod").arg("755").arg(&init))?;
    let packed = dir.join("initrd");
    let file = fs::File::create(&packed)?;
    let pack = "find . | busybox cpio -o -H newc";
    succeed(Command::new("sh").args(["-c", pack]).current_dir(&root).stdout(file))?;
    Ok(packed)
}

/// Copies the libraries of a program to the paths at which its loader searches.
fn libraries(program: &Path, root: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("start ldd")?;
    for path in String::from_utf8_lossy(&output.stdout).split_whitespace() {
        if !path.starts_with('/') {
            continue;
        }
        let to = root.join(&path[1..]);
        fs::create_dir_all(to.parent().context("a library is in a folder")?)?;
        if !to.exists() {
            fs::copy(path, &to).with_context(|| format!("copy {path}"))?;
        }
    }
    Ok(())
}

fn boot(kernel: &Kernel, initrd: &Path, line: &mut impl FnMut(&str)) -> Result<()> {
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1024", "-no-reboot"])
        .args(["-nographic", "-nic", "none", "-monitor", "none", "-append"])
        .arg("console=ttyS0 quiet panic=-1 rdinit=/init")
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(initrd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start qemu-system-x86_64")?;
    let output = machine.stdout.take().context("QEMU has no output")?;
    let (said, told) = mpsc::channel();
    let reader = thread::spawn(move || {
        for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // A closed receiver has given up on the machine.
            let _ = said.send(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
    });
    let deadline = Instant::now() + DEADLINE;
    let mut ended = false;
    let late = loop {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(told) => {
                ended |= told.starts_with(ENDED);
                line(&told);
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        machine.kill().context("end QEMU")?;
    }
    machine.wait().context("wait for QEMU")?;
    reader.join().map_err(|_| anyhow::anyhow!("QEMU's output cannot be read"))?;
    ensure!(!late, "the machine had not ended after {} s", DEADLINE.as_secs());
    ensure!(ended, "the machine went down before its tests ended");
    Ok(())
}

fn on_path(program: &str) -> Result<PathBuf> {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new);
    let found = folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.with_context(|| format!("{program} is not installed"))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}
