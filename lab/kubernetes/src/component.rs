//! One process of the cluster, and its end.

use anyhow::{Context as _, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

/// A running component.
pub(crate) struct Component {
    name: &'static str,
    process: Process,
    log: PathBuf,
}

enum Process {
    Own(Child),
    /// Started by an earlier command. The start time distinguishes it from a later process with the same pid.
    Found {
        pid: i32,
        started: u64,
    },
}

impl Component {
    /// Starts `program NAME ARGS…`; it ends with the starting process unless it is to `outlive` it.
    pub(crate) fn start(
        program: &Path,
        name: &'static str,
        args: &[String],
        folder: &Path,
        outlive: bool,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("make {}", log.display()))?;
        let both = out.try_clone().with_context(|| format!("share {}", log.display()))?;
        // util-linux's setpriv asks the kernel for the signal; setsid keeps a terminal's away.
        let mut command = Command::new(if outlive { "setsid" } else { "setpriv" });
        if !outlive {
            command.args(["--pdeathsig", "KILL", "--"]);
        }
        command.arg(program).arg(name).args(args).current_dir(folder);
        command.stdin(Stdio::null()).stdout(out).stderr(both);
        let child = spawn(command).with_context(|| format!("start {name}"))?;
        Ok(Self { name, process: Process::Own(child), log })
    }

    /// The component that an earlier command noted in this folder, if it still runs.
    pub(crate) fn found(name: &'static str, folder: &Path) -> Option<Self> {
        let note = fs::read_to_string(note(name, folder)).ok()?;
        let (pid, started) = note.trim().split_once(' ')?;
        let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
        let found =
            Self { name, process: Process::Found { pid, started }, log: folder.join("unused") };
        found.is_alive().then_some(found)
    }

    /// Notes pid and start time for a later command.
    pub(crate) fn note(&self, folder: &Path) -> Result<()> {
        let pid = self.pid();
        let started = start_time(pid).with_context(|| format!("{} has ended", self.name))?;
        let path = note(self.name, folder);
        fs::write(&path, format!("{pid} {started}\n"))
            .with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn pid(&self) -> i32 {
        match &self.process {
            Process::Own(child) => i32::try_from(child.id()).unwrap_or(i32::MAX),
            Process::Found { pid, .. } => *pid,
        }
    }

    /// Fails, with the end of its log, if it has ended.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        let Process::Own(child) = &mut self.process else { return Ok(()) };
        let Some(status) = child.try_wait().context("look after a component")? else {
            return Ok(());
        };
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(12)..].join("\n");
        bail!("{} has ended ({status}); {} ends with\n{end}", self.name, self.log.display())
    }

    fn is_alive(&self) -> bool {
        match &self.process {
            Process::Own(_) => start_time(self.pid()).is_some(),
            Process::Found { pid, started } => start_time(*pid) == Some(*started),
        }
    }

    /// Ends it: SIGTERM, and SIGKILL if it takes longer than the grace.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        while !self.has_ended() {
            if Instant::now() >= until {
                self.signal(Signal::SIGKILL);
                break;
            }
            thread::sleep(LOOK_AGAIN);
        }
        if let Process::Own(child) = &mut self.process {
            // An error means that somebody else has waited for it.
            let _ = child.wait();
        }
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.process {
            Process::Own(child) => !matches!(child.try_wait(), Ok(None)),
            Process::Found { .. } => !self.is_alive(),
        }
    }

    fn signal(&mut self, signal: Signal) {
        if self.has_ended() {
            return;
        }
        match kill(Pid::from_raw(self.pid()), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => complain(&format!("cannot signal {}: {errno}", self.name)),
        }
    }
}

/// Starts it from a thread that lasts: the kernel's signal is for the end of the starting *thread*,
/// and each test has its own.
fn spawn(command: Command) -> std::io::Result<Child> {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // The caller waits for the process.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = mpsc::channel();
    let gone = |_| std::io::Error::other("the starting thread has ended");
    SPAWNER.send((command, reply)).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

#[expect(clippy::print_stderr, reason = "a process that stays should not stay unseen")]
fn complain(text: &str) {
    eprintln!("{text}");
}

fn note(name: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{name}.pid"))
}

/// Field 22 of `/proc/PID/stat`; none if there is no such process, or only its zombie.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let dead = matches!(*fields.first()?, "Z" | "X");
    (!dead).then_some(fields.get(19)?.parse().ok()?)
}

const GRACE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
