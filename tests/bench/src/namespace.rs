//! Network namespaces, and the links of a node.

use crate::world::{self, WIRE};
use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns, unshare};
use std::{
    fmt::Write as _,
    fs::File,
    io::Write as _,
    ops::Range,
    os::fd::AsRawFd as _,
    process::{Command, Stdio, id},
    thread,
};

/// A network namespace. It lives as long as this value, and as its links' other ends.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    pub fn current() -> Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self).context("open the network namespace")
    }

    pub fn new() -> Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("create a network namespace")?;
            Self::current()
        });
        let made = made.join().map_err(|_| anyhow!("the thread panicked"))??;
        made.silence()?;
        Ok(made)
    }

    /// Keeps later links from packets of their own.
    fn silence(&self) -> Result<()> {
        self.set("net/ipv6/conf/default/disable_ipv6", "1")
    }

    /// Moves the calling thread.
    pub fn enter(&self) -> Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).context("enter a network namespace")
    }

    /// Calls a function in this namespace.
    pub fn run<T: Send>(&self, call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let called = scope.spawn(|| {
                self.enter()?;
                call()
            });
            called.join().map_err(|_| anyhow!("the thread panicked"))?
        })
    }

    /// Names the namespace for `ip`, as long as this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", id(), self.0.as_raw_fd())
    }

    /// Carries out the commands of `ip`.
    pub fn ip(&self, batch: &str) -> Result<()> {
        self.run(|| {
            let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
            ip.stdin.take().context("no pipe")?.write_all(batch.as_bytes())?;
            ensure!(ip.wait()?.success(), "ip refuses a command");
            Ok(())
        })
    }

    /// Gives a node its links: of each pod, and one to other nodes.
    pub fn add_links(&self, pods: u32) -> Result<()> {
        self.silence()?;
        self.add_wire()?;
        self.add_pods(0..pods)
    }

    /// Adds the link to other nodes, `wire`. Its other end is `beyond`.
    pub fn add_wire(&self) -> Result<()> {
        self.ip(&format!(
            "link add index {WIRE} name wire type veth peer name beyond\n\
             link set beyond up\nlink set wire up\n"
        ))
    }

    /// Adds the links of pods with their routes.
    pub fn add_pods(&self, pods: Range<u32>) -> Result<()> {
        let mut batch = String::new();
        for pod in pods {
            let link = world::link(pod);
            let (name, index, address) = (link.name, link.ifindex, world::pod_address(pod));
            writeln!(batch, "link add index {index} name {name} type veth peer name pod{pod}")?;
            writeln!(batch, "link set pod{pod} up\nlink set {name} up")?;
            writeln!(batch, "route add {address} dev {name}")?;
        }
        self.ip(&batch)
    }

    /// Sets a sysctl below `/proc/sys`.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        self.run(|| {
            std::fs::write(format!("/proc/sys/{name}"), value)
                .with_context(|| format!("set {name}"))
        })
    }
}
