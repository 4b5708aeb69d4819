//! The real kube-proxy on a node.

use crate::{
    api::{Api, NODE_NAME},
    cluster::{self, Cluster},
    site::{PATIENCE, Site},
};
use anyhow::{Context as _, Result, bail};
use std::{
    fs::{self, File},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tests_bench::namespace::Namespace;

/// A process that a drop kills. Its rules stay on the node.
pub(crate) struct Proxy {
    process: Child,
    log: NamedTempFile,
    pub(crate) api: Api,
}

impl Proxy {
    /// Starts kube-proxy in this mode with the cluster's Services, and waits until they are in force.
    pub(crate) fn start(
        program: &Path,
        mode: &str,
        site: &Site,
        cluster: &Cluster,
    ) -> Result<Self> {
        Self::start_on(&site.node, &site.client, program, mode, cluster)
    }

    /// `client` can reach Services of the node.
    pub(crate) fn start_on(
        node: &Namespace,
        client: &Namespace,
        program: &Path,
        mode: &str,
        cluster: &Cluster,
    ) -> Result<Self> {
        let api = node.run(|| Api::start(cluster))?;
        let log = NamedTempFile::new().context("create a file for the log of kube-proxy")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).arg("kube-proxy");
        command
            .arg(format!("--master=http://{}", api.at))
            .arg(format!("--hostname-override={NODE_NAME}"))
            .arg(format!("--proxy-mode={mode}"))
            .arg("--kube-api-content-type=application/json")
            // These sysctls belong to the machine, not to the namespace.
            .args(["--conntrack-max-per-core=0", "--conntrack-min=0"])
            .args(["--oom-score-adj=0", "--v=1"]);
        let out: File = log.reopen().context("open the log of kube-proxy")?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        // The kernel kills it when this thread ends, so that no other thread may start it.
        let own = Namespace::current()?;
        node.enter()?;
        let process = command.spawn();
        own.enter()?;
        let process = process.context("start setpriv with kube-proxy")?;
        let mut proxy = Self { process, log, api };
        proxy.wait(client)?;
        Ok(proxy)
    }

    /// Waits until the client reaches the first Service. kube-proxy puts all Services into force at once.
    fn wait(&mut self, client: &Namespace) -> Result<()> {
        let until = Instant::now() + START;
        let look = || Ok(TcpStream::connect_timeout(&cluster::frontend(0), PATIENCE));
        loop {
            let Err(error) = client.run(look)? else { return Ok(()) };
            let ended = self.process.try_wait().context("look at kube-proxy")?;
            if Instant::now() > until || ended.is_some() {
                bail!("kube-proxy serves no Service: {error}; its log:\n{}", self.last_lines());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The end of its log.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read_to_string(self.log.path()).unwrap_or_default();
        let from = log.lines().count().saturating_sub(20);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }

    /// The resident memory in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        resident(&self.process.id().to_string())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The resident memory of a process in MiB.
pub(crate) fn resident(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    Ok(kib / 1024.0)
}

/// With 10,000 Services of ten endpoints the rules take long to load.
const START: Duration = Duration::from_secs(300);
