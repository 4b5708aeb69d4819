//! `up`, `serve` and `down`.

use super::{Tool, args::Throttling, args::UpArgs, cluster, duration::millis, logs, say, show};
use crate::{
    control::{Cni, NodeView, StatusView},
    lab::Cluster,
    serve::{Layout, ServeSpec},
};
use anyhow::{Context as _, Result, bail};
use config_model::Span;
use ipnet::Ipv4Net;
use lab_cloud::{Cloud, CloudSpec, InstanceType, SubnetSpec};
use lab_fabric::{BALANCER_ADDRESSES, Fabric, INTERNET_ADDRESSES, INTERNET_HOST, process};
use std::{
    ffi::OsString,
    fs, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::DirBuilderExt as _,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Is the server, in the foreground.
pub(super) fn serve(name: &str, layout: &Layout, args: &UpArgs) -> Result<ExitCode> {
    // A session of its own: Ctrl-C in the terminal of `up` is not for us. A shell's job, which a
    // person wants to end by Ctrl-C, leads a process group, and so is refused one.
    let _ = nix::unistd::setsid();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(filter())
        .init();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(layout.dir())?;
    let spec = ServeSpec {
        name: name.to_owned(),
        dir: layout.dir().to_owned(),
        bin_dir: bin_dir(args)?,
        cloud: cloud_spec(args)?,
        cluster: api_server(args),
    };
    // Not earlier: paths in the arguments are relative to the folder of `up`.
    std::env::set_current_dir("/").context("leave the folder of `up`")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(crate::serve::serve(spec))?;
    Ok(ExitCode::SUCCESS)
}

impl Tool {
    pub(super) async fn up(&self, name: &str, args: &UpArgs) -> Result<ExitCode> {
        let _one = self.make_room(name).await?;
        self.check(args)?;
        if self.layout.dir().exists() {
            say("removing what a lab of this name left behind");
            self.remove().await?;
        }
        let interrupted = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = self.raise(name, args) => match outcome {
                Ok(status) => self.print(&status, show::status),
                Err(err) => {
                    if let Err(also) = self.remove().await {
                        say(&format!("{also:#}; run: ferrule-lab --name {name} down"));
                    }
                    Err(err)
                }
            },
            _ = interrupted => {
                say("interrupted: taking the lab down");
                self.remove().await?;
                Ok(ExitCode::from(130))
            }
        }
    }

    /// Sees that no lab of this name is up or coming up, as long as what is returned lives.
    pub(super) async fn make_room(&self, name: &str) -> Result<UnixListener> {
        let one = lock(self.layout.dir()).with_context(|| format!("make lab {name}"))?;
        if self.client.get::<StatusView>("/status").await.is_ok() {
            bail!("lab {name} is up already; see: ferrule-lab --name {name} status");
        }
        Ok(one)
    }

    /// Checks that the server could start with these arguments.
    pub(super) fn check(&self, args: &UpArgs) -> Result<()> {
        lab_fabric::tools_are_there()?;
        bin_dir(args)?;
        check(cloud_spec(args)?, args)?;
        check_kubeconfigs(args)
    }

    async fn raise(&self, name: &str, args: &UpArgs) -> Result<StatusView> {
        // The same command line with `serve` in the place of `up`.
        self.raise_by(name, args, as_server(std::env::args_os().skip(1))).await
    }

    /// Raises a lab whose server is started with these arguments.
    pub(super) async fn raise_by(
        &self,
        name: &str,
        args: &UpArgs,
        server: Vec<OsString>,
    ) -> Result<StatusView> {
        say(&format!("lab {name}: the VPC"));
        let mut server = self.start_server(name, server)?;
        self.wait_for(&mut server).await?;
        self.add_nodes(args).await?;
        Ok(self.client.get("/status").await?)
    }

    /// In the background.
    fn start_server(&self, name: &str, args: Vec<OsString>) -> Result<Child> {
        let layout = &self.layout;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(layout.dir())?;
        let log = fs::File::create(layout.log()).context("the server's log")?;
        Command::new(std::env::current_exe()?)
            .args(args)
            .env("FERRULE_LAB_DIR", layout.dir().parent().unwrap_or(layout.dir()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start the server of lab {name}"))
    }

    async fn wait_for(&self, server: &mut Child) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if self.client.get::<StatusView>("/status").await.is_ok() {
                return Ok(());
            }
            if let Some(status) = server.try_wait()? {
                let log = logs::tail(&self.layout.log(), 20)?;
                bail!("the lab's server ended ({status}):\n{}", log.lines.join("\n"));
            }
            if Instant::now() > give_up {
                bail!("the lab's server does not answer; see {}", self.layout.log().display());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn add_nodes(&self, args: &UpArgs) -> Result<()> {
        let mut tasks = JoinSet::new();
        for number in 0..args.nodes {
            let spec = args.node.spec(Some(format!("node{}", number + 1)), Some(number));
            let subnet = Some(number % args.subnets.len().max(1));
            let spec = crate::control::NodeSpec { subnet, ..spec };
            let client = self.client.clone();
            tasks.spawn(async move { client.post::<NodeView>("/nodes", &spec).await });
        }
        while let Some(added) = tasks.join_next().await {
            let node = added?.context("add a node")?;
            let address = node.address.map_or_else(String::new, |address| address.to_string());
            say(&format!("{}: {} {address} in {}", node.name, node.instance, node.zone));
        }
        Ok(())
    }

    pub(super) async fn down(&self, name: &str) -> Result<ExitCode> {
        if !self.layout.dir().exists() {
            let text = format!("there is no lab {name}");
            return self.print(&serde_json::json!({ "down": false }), |_| text);
        }
        self.remove().await?;
        self.print(&serde_json::json!({ "down": true }), |_| format!("lab {name} is gone"))
    }

    /// Ends the server, if there is one, then removes what is left.
    pub(super) async fn remove(&self) -> Result<()> {
        let layout = self.layout.clone();
        tokio::task::spawn_blocking(move || remove(&layout)).await?
    }
}

/// Lock against a second `up` of the same lab, which could treat the unfinished lab of the first as remains. The
/// lock is a socket without a file, which ends with its holder.
fn lock(dir: &Path) -> Result<UnixListener> {
    let name = format!("ferrule-lab up {}", dir.display());
    let address = SocketAddr::from_abstract_name(name)?;
    match UnixListener::bind_addr(&address) {
        Err(err) if err.kind() == io::ErrorKind::AddrInUse => {
            bail!("another `up` is at it; wait for its end")
        }
        outcome => outcome.context("bind a socket"),
    }
}

/// The arguments of `up`, with `serve` in the place of the verb.
fn as_server(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut verb_seen, mut is_value) = (false, false);
    let translated = args.map(|arg| {
        let is_verb = !verb_seen && !is_value && arg == "up";
        is_value = arg == "--name" || arg == "-o" || arg == "--output";
        verb_seen |= is_verb;
        if is_verb { "serve".into() } else { arg }
    });
    translated.collect()
}

fn remove(layout: &Layout) -> Result<()> {
    let fabric = layout.fabric();
    cluster::before_removal(layout);
    if fabric.exists() {
        let processes = process::recorded(&fabric)?;
        // A server that is well takes its lab down itself.
        process::end(&processes, PATIENCE)?;
    }
    if fabric.exists() {
        let removed = Fabric::remove(&fabric)?;
        say(&format!("removed {} processes, {} mounts", removed.processes, removed.mounts));
    }
    cluster::after_removal(layout)?;
    match fs::remove_dir_all(layout.dir()) {
        // An `up` that was interrupted and a `down` do the same at once.
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.with_context(|| format!("remove {}", layout.dir().display())),
    }
}

fn filter() -> tracing_subscriber::EnvFilter {
    let filter = std::env::var("FERRULE_LAB_LOG").unwrap_or_else(|_| "info".to_owned());
    tracing_subscriber::EnvFilter::new(filter)
}

/// Folder of the production programs: the argument's, or the one of this program.
fn bin_dir(args: &UpArgs) -> Result<PathBuf> {
    let dir = match &args.bin_dir {
        Some(dir) => dir.clone(),
        None => {
            let exe = std::env::current_exe()?;
            exe.parent().context("cannot find the folder of this program")?.to_owned()
        }
    };
    let dir = fs::canonicalize(&dir).with_context(|| format!("--bin-dir {}", dir.display()))?;
    if !args.node.no_daemon && args.node.cni == Cni::Ferrule {
        for program in ["ferrule-ipamd", "ferrule-cni"] {
            if !dir.join(program).is_file() {
                bail!(
                    "cannot find {}; build it, name its folder with --bin-dir, or use --no-daemon",
                    dir.join(program).display()
                );
            }
        }
    }
    Ok(dir)
}

/// Checks before the start that the server could start with this.
fn check(spec: CloudSpec, args: &UpArgs) -> Result<()> {
    let vpc = args.vpc;
    if vpc.contains(&spec.public_pool) || spec.public_pool.contains(&vpc) {
        bail!("VPC {vpc} overlaps {}, the lab's public addresses", spec.public_pool);
    }
    let overlaps = |block: Ipv4Net| vpc.contains(&block) || block.contains(&vpc);
    if overlaps(INTERNET_ADDRESSES) {
        bail!(
            "VPC {vpc} overlaps {INTERNET_ADDRESSES}, with the lab's host in the internet, {INTERNET_HOST}"
        );
    }
    if overlaps(BALANCER_ADDRESSES) {
        bail!("VPC {vpc} overlaps {BALANCER_ADDRESSES}, the addresses of the lab's load balancers");
    }
    InstanceType::require(&args.node.instance_type)?;
    Cloud::new(spec, 0)?;
    Ok(())
}

fn api_server(args: &UpArgs) -> Option<Cluster> {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let kubeconfig = args.kubeconfig.as_ref().map(absolute);
    let controller = args.controller_kubeconfig.as_ref().map(absolute);
    args.api_server.map(|api_server| Cluster { api_server, kubeconfig, controller })
}

fn check_kubeconfigs(args: &UpArgs) -> Result<()> {
    let given = [
        ("--kubeconfig", &args.kubeconfig),
        ("--controller-kubeconfig", &args.controller_kubeconfig),
    ];
    for (flag, path) in given {
        let Some(path) = path else { continue };
        fs::File::open(path).map(drop).with_context(|| format!("{flag} {}", path.display()))?;
    }
    Ok(())
}

fn cloud_spec(args: &UpArgs) -> Result<CloudSpec> {
    if !(2..=26).contains(&args.subnets.len()) {
        bail!("a lab has 2 to 26 subnets; give --subnet once for each");
    }
    let mut spec = CloudSpec::two_zones();
    let zones = b'a'..=b'z';
    spec.vpc_cidrs = vec![args.vpc];
    let subnets = args.subnets.iter().zip(zones).map(|(subnet, letter)| {
        let name = char::from(letter);
        let zone = format!("{}{}", spec.region, subnet.zone.unwrap_or(name));
        SubnetSpec {
            map_public_ip_on_launch: true,
            assign_ipv6_address_on_creation: args.ipv6,
            tags: subnet.tags.iter().cloned().collect(),
            ..SubnetSpec::new(name, subnet.cidr, zone)
        }
    });
    spec.subnets = subnets.collect();
    if args.ipv6 {
        spec = spec.with_ipv6();
    }
    spec.timing.attach = Span(millis(args.attach_delay));
    spec.timing.detach = Span(millis(args.detach_delay));
    spec.timing.imds_lag = Span(millis(args.imds_lag));
    spec.throttling = match (args.bucket, args.throttling) {
        (Some(bucket), _) => lab_cloud::Throttling::Uniform(bucket),
        (None, Throttling::Published) => lab_cloud::Throttling::Published,
        (None, Throttling::Off) => lab_cloud::Throttling::Off,
    };
    Ok(spec)
}

/// Making or removing a lab with many pods takes seconds, not minutes.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_may_be_called_up() {
        let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let server = as_server(args("--name up -o json up --nodes 2").into_iter());
        assert_eq!(server, args("--name up -o json serve --nodes 2"));
    }
}
