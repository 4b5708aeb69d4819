//! Tests on other kernels than this machine's: Debian's, under QEMU. An initial file system has the needed programs: a
//! shell, `ip`, `tc`, `nft`, the test programs and the libraries of all. Its only tree of cgroups is that of version 2.
//!
//! QEMU translates (TCG), so the machine needs no virtualization. One processor is used, since kernels crash with more of
//! them under QEMU 7.2.

mod modules;

use crate::{cargo, say};
use anyhow::{Context as _, Result, ensure};
use modules::Modules;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The releases of Debian whose kernels are tested: 6.1, the oldest supported one, and 6.12.
pub(crate) const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// The package that depends on the newest kernel for clouds of a release.
const KERNEL: &str = "linux-image-cloud-amd64";
const ARCHIVE: &str = "http://deb.debian.org";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Kernel modules of the machine. Their dependencies are added.
const MODULES: [&str; 18] = [
    "8021q",
    "veth",
    "sch_ingress",
    "cls_bpf",
    "ifb",
    "sch_tbf",
    "cls_u32",
    "cls_flower",
    "act_mirred",
    "nf_conntrack_netlink",
    "nft_chain_nat",
    "nft_ct",
    "nft_nat",
    "nft_masq",
    "nft_fib_inet",
    "sctp",
    "udp_diag",
    "overlay",
];
/// Modules of 6.1 whose parts later kernels have in other modules.
const EARLIER_MODULES: [&str; 1] = ["nft_objref"];
/// Commands of the shell in the initial file system.
const APPLETS: [&str; 9] =
    ["sh", "mount", "mkdir", "insmod", "poweroff", "echo", "chroot", "cat", "sleep"];
/// The time limit for one machine. A longer run is a failure.
const DEADLINE: Duration = Duration::from_secs(2700);
/// The memory of one machine, in MiB. One process runs all tests of the programs, and maps of 30 MB are in use.
const MEMORY: &str = "2048";
/// The prefix of the line after each test program.
const ENDED: &str = "the tests ended: ";
/// Random cases of each property. A translated kernel is slow.
const CASES: u32 = 20;
/// The exit code of libtest if a test failed.
const TEST_FAILED: &str = "101";

/// A test program for the machine.
pub(crate) struct Suite<'a> {
    pub(crate) name: &'a str,
    pub(crate) executable: &'a Path,
    /// Arguments of libtest.
    pub(crate) arguments: &'a str,
    /// Files that its tests need, by the variable with their path.
    pub(crate) files: BTreeMap<&'a str, &'a Path>,
}

/// Runs the suites, one after another, on the newest kernel of a release; shows each line.
///
/// # Errors
/// If the machine goes down early, or a test program crashes or has no tests. Failed tests are no error.
pub(crate) fn run(release: &str, suites: &[Suite<'_>], mut line: impl FnMut(&str)) -> Result<()> {
    let dir = cargo::target_dir().join("vm").join(release);
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let kernel = Kernel::fetch(&dir, release)?;
    let initrd = file_system(&dir, &kernel, suites)?;
    say::step(&format!("booting {} under QEMU", kernel.version));
    let (mut codes, mut is_empty) = (BTreeMap::new(), false);
    boot(&kernel, &initrd, |text| {
        if let Some((suite, code)) = text.strip_prefix(ENDED).and_then(|text| text.split_once(' '))
        {
            codes.insert(suite.to_owned(), code.to_owned());
        }
        is_empty |= text == "running 0 tests";
        line(text);
    })?;
    for suite in suites {
        let code = codes.get(suite.name).map(String::as_str);
        let code = code.with_context(|| {
            format!("the machine went down before the tests of {} ended", suite.name)
        })?;
        ensure!(
            ["0", TEST_FAILED].contains(&code),
            "the tests of {} ended with code {code}",
            suite.name
        );
    }
    ensure!(!is_empty, "a suite has no tests of the wanted names");
    Ok(())
}

/// An unpacked kernel.
struct Kernel {
    folder: PathBuf,
    version: String,
}

impl Kernel {
    /// Fetches the newest kernel of a release, unless an earlier run did. It is unpacked, not installed.
    fn fetch(dir: &Path, release: &str) -> Result<Self> {
        let apt = Apt::new(dir, release)?;
        // Without a network, apt succeeds and leaves the lists of the last run.
        succeed(apt.command("apt-get").args(["update", "-qq"]))?;
        let package = apt.newest()?;
        let folder = dir.join(&package);
        if !folder.is_dir() {
            say::step(&format!("fetching {package} of Debian {release}"));
            let fetched = dir.join("fetched");
            let _ = fs::remove_dir_all(&fetched);
            fs::create_dir(&fetched).with_context(|| format!("create {}", fetched.display()))?;
            let mut download = apt.command("apt-get");
            succeed(download.args(["download", "-q", &package]).current_dir(&fetched))?;
            let mut debs = fs::read_dir(&fetched)?;
            let deb = debs.next().context("apt-get download left nothing")??.path();
            let unpacked = dir.join("unpacked");
            let _ = fs::remove_dir_all(&unpacked);
            succeed(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked))?;
            fs::rename(&unpacked, &folder).with_context(|| format!("make {}", folder.display()))?;
            fs::remove_dir_all(&fetched)?;
        }
        let version = package.trim_start_matches("linux-image-").to_owned();
        Ok(Self { folder, version })
    }

    fn image(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    fn modules(&self) -> Result<Modules> {
        let folders = ["lib/modules", "usr/lib/modules"].map(|folder| self.folder.join(folder));
        let folder = folders.into_iter().map(|folder| folder.join(&self.version));
        let folder = folder.into_iter().find(|folder| folder.is_dir());
        Modules::read(&folder.with_context(|| format!("{} has no modules", self.version))?)
    }
}

/// apt with the package lists of one release. The machine's own lists may be those of another.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(dir: &Path, release: &str) -> Result<Self> {
        let folder = dir.join("apt");
        for part in ["lists/partial", "cache/archives/partial", "parts"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| format!("create {}", part.display()))?;
        }
        let source = |suite: String| format!("deb [signed-by={KEYRING}] {ARCHIVE}/{suite} main\n");
        let sources = [format!("debian {release}"), format!("debian-security {release}-security")];
        fs::write(folder.join("sources.list"), sources.map(source).concat())?;
        fs::write(folder.join("status"), "")?;
        Ok(Self { folder })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, path) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::Etc::SourceParts", "parts"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(path).display()));
        }
        // apt's own user may have no access to the build folder.
        for option in [
            "APT::Sandbox::User=root",
            "APT::Architecture=amd64",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ] {
            command.args(["-o", option]);
        }
        command
    }

    fn newest(&self) -> Result<String> {
        let output = self.command("apt-cache").args(["depends", "--important", KERNEL]).output();
        let text = String::from_utf8_lossy(&output.context("start apt-cache")?.stdout).into_owned();
        let depends = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        depends.map(str::to_owned).with_context(|| format!("Debian's lists do not know {KERNEL}"))
    }
}

/// Packs the files of the machine.
fn file_system(dir: &Path, kernel: &Kernel, suites: &[Suite<'_>]) -> Result<PathBuf> {
    let root = dir.join("root");
    let _ = fs::remove_dir_all(&root);
    for folder in [
        "bin", "usr/sbin", "lib64", "modules", "proc", "sys", "dev", "run", "tmp", "var/log",
        "tests", "files", "whole",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = on_path("busybox")?;
    fs::copy(busybox, root.join("bin/busybox")).context("copy busybox")?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    // Nodes of the lab exchange their root, and the kernel does not exchange its first one. So a mount of it is moved there.
    let first =
        "#!/bin/sh\nmount --bind / /whole; cd /whole; mount --move . /; exec chroot . /tests/all\n";
    let mut script = String::from(
        "#!/bin/sh\nmount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mount -t cgroup2 cgroup /sys/fs/cgroup\n",
    );
    let modules = kernel.modules()?;
    let earlier = EARLIER_MODULES.into_iter().filter(|name| modules.has(name));
    let names: Vec<&str> = MODULES.into_iter().chain(earlier).collect();
    for (module, contents) in modules.with_dependencies(&names)? {
        let path = format!("modules/{module}.ko");
        fs::write(root.join(&path), contents).with_context(|| format!("write {path}"))?;
        script += &format!("insmod /{path}\n");
    }
    for name in ["ip", "nft", "tc"] {
        let program = fs::canonicalize(on_path(name)?).with_context(|| format!("find {name}"))?;
        place(&program, &root, &format!("usr/sbin/{name}"))?;
    }
    script += "export PATH=/usr/sbin:/bin RUST_BACKTRACE=0\n";
    script += &format!("export PROPTEST_CASES={CASES}\n");
    if let Ok(seed) = std::env::var("PROPTEST_RNG_SEED") {
        script += &format!("export PROPTEST_RNG_SEED={seed}\n");
    }
    for Suite { name, executable, arguments, files } in suites {
        let path = format!("tests/{name}");
        place(executable, &root, &path)?;
        succeed(Command::new("strip").arg(root.join(&path)))?;
        for (variable, file) in files {
            place(file, &root, &format!("files/{variable}"))?;
            script += &format!("export {variable}=/files/{variable}\n");
        }
        script += &format!(
            "/{path} {arguments} --nocapture --test-threads=1\necho \"{ENDED}{name} $?\"\n"
        );
    }
    script += "poweroff -f\n";
    for (file, text) in [("init", first), ("tests/all", &*script)] {
        let file = root.join(file);
        fs::write(&file, text)?;
        succeed(Command::new("chmod").arg("755").arg(&file))?;
    }
    let packed = dir.join("initrd");
    let file = fs::File::create(&packed)?;
    let pack = "find . | busybox cpio -o -H newc";
    succeed(Command::new("sh").args(["-c", pack]).current_dir(&root).stdout(file))?;
    Ok(packed)
}

/// Copies a program, or another file, with its libraries.
fn place(file: &Path, root: &Path, at: &str) -> Result<()> {
    cargo::place(file, &root.join(at))?;
    libraries(file, root)
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

fn boot(kernel: &Kernel, initrd: &Path, mut line: impl FnMut(&str)) -> Result<()> {
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", MEMORY, "-no-reboot"])
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
    let (lines, received) = mpsc::channel();
    let reader = thread::spawn(move || {
        for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // A closed receiver has given up on the machine.
            let _ = lines.send(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
    });
    let deadline = Instant::now() + DEADLINE;
    let late = loop {
        match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => line(&text),
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
