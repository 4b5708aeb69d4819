//! The command line: each verb asks the server, or looks at the lab's folder itself.

mod args;
mod batch;
mod cloud_args;
mod cloud_verbs;
mod cluster;
mod cluster_view;
mod duration;
mod enter;
mod fault_args;
mod key_value;
mod lifecycle;
mod logs;
mod nlb;
mod nlb_args;
mod show;
mod show_cloud;
mod show_nlb;
mod table;

pub use args::Cli;

use crate::{
    control::{
        CheckSpec, Client, ClientError, DaemonOrder, FaultSpec, FaultView, NodeView, PodView,
    },
    serve::Layout,
};
use anyhow::{Context as _, Result, anyhow, bail};
use args::{DaemonVerb, NodeVerb, Output, PodVerb, Verb};
use cluster_view::WithCluster;
use duration::millis;
use fault_args::{FaultArgs, FaultVerb};
use nix::sys::signal::Signal;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// Runs one verb.
///
/// # Errors
/// The failed action and its causes, for people.
pub fn run(cli: Cli) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a lab is made of network namespaces and needs root; try again with sudo");
    }
    let layout = Layout::new(base_dir()?.join(&cli.name));
    if let Verb::Serve(args) = &cli.verb {
        return lifecycle::serve(&cli.name, &layout, args);
    }
    // One thread: a process that enters a namespace later must have a single thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tool = Tool { client: Client::new(layout.socket()), layout, output: cli.output };
    runtime.block_on(tool.verb(&cli.name, cli.verb)).map_err(|err| explain(err, &cli.name))
}

/// `$FERRULE_LAB_DIR`, or `/run/ferrule-lab`; each lab is a folder in it.
fn base_dir() -> Result<PathBuf> {
    let dir = std::env::var_os("FERRULE_LAB_DIR").unwrap_or_else(|| "/run/ferrule-lab".into());
    // The server's working folder differs from its caller's.
    std::path::absolute(&dir).with_context(|| format!("FERRULE_LAB_DIR={}", dir.display()))
}

/// A lab that does not answer: what to do about it.
fn explain(err: anyhow::Error, lab: &str) -> anyhow::Error {
    let Some(ClientError::Down { source, .. }) = err.downcast_ref() else { return err };
    if source.kind() == io::ErrorKind::NotFound {
        return not_up(lab);
    }
    if source.kind() == io::ErrorKind::ConnectionRefused {
        return anyhow!(
            "the server of lab {lab} is dead; remove what it left: ferrule-lab --name {lab} down"
        );
    }
    err
}

fn not_up(lab: &str) -> anyhow::Error {
    anyhow!("lab {lab} is not up; make it: ferrule-lab --name {lab} up")
}

struct Tool {
    client: Client,
    layout: Layout,
    output: Output,
}

impl Tool {
    async fn verb(&self, name: &str, verb: Verb) -> Result<ExitCode> {
        match verb {
            Verb::Up(args) => self.up(name, &args).await,
            Verb::Serve(_) => bail!("a server needs a process of its own"),
            Verb::Down => self.down(name).await,
            Verb::Status => {
                let status = self.client.get("/status").await?;
                let whole = WithCluster { status, cluster: self.cluster_of() };
                self.print(&whole, show::whole)
            }
            Verb::Cluster(verb) => self.cluster(name, verb).await,
            Verb::Node(verb) => self.node(name, verb).await,
            Verb::Pod(verb) => self.pod(verb).await,
            Verb::Subnet(verb) => self.subnet(verb).await,
            Verb::Eni(verb) => self.eni(verb).await,
            Verb::Group(verb) => self.group(verb).await,
            Verb::Iam(verb) => self.iam(verb).await,
            Verb::Branch(verb) => self.branch(verb).await,
            Verb::Nlb(verb) => self.nlb(verb).await,
            Verb::Client(verb) => self.outside(name, verb).await,
            Verb::Exec { pod, command } => {
                let pod: PodView = self.client.get(&pod_path(&pod)?).await?;
                enter::pod(&self.layout, &pod, &command)
            }
            Verb::Daemon(verb) => self.daemon(verb).await,
            Verb::Fault(verb) => self.fault(verb).await,
            Verb::Logs { node, lines } => {
                if !self.layout.log().exists() {
                    return Err(not_up(name));
                }
                let files = logs::read(&self.layout, node.as_deref(), lines)?;
                self.print(&files, |files| show::logs(files))
            }
            Verb::Check(args) => {
                say("probing every pod, every pair, both ways");
                let timeout_ms = millis(args.timeout);
                let spec = CheckSpec { packet: args.packet, tcp: args.tcp, timeout_ms };
                let report: crate::control::CheckView = self.client.post("/check", &spec).await?;
                self.print(&report, show::check)?;
                Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Verb::Counters => {
                let counters = self.client.get("/counters").await?;
                self.print(&counters, show::counters)
            }
        }
    }

    async fn node(&self, lab: &str, verb: NodeVerb) -> Result<ExitCode> {
        match verb {
            NodeVerb::Add { node, subnet, how } => {
                say(&format!("launching a {}", how.instance_type));
                let added: NodeView = self.client.post("/nodes", &how.spec(node, subnet)).await?;
                self.print(&added, |node| show::nodes(std::slice::from_ref(node)))
            }
            NodeVerb::Remove { node } => {
                let () = self.client.delete(&format!("/nodes/{}", segment(&node))).await?;
                self.print(&serde_json::json!({ "removed": node }), |_| format!("{node} is gone"))
            }
            NodeVerb::Reboot { node } => self.order(&node, "reboot").await,
            NodeVerb::Stop { node } => self.order(&node, "stop").await,
            NodeVerb::Start { node } => self.order(&node, "start").await,
            NodeVerb::Terminate { node } => self.order(&node, "terminate").await,
            NodeVerb::Trunk { node } => self.order(&node, "trunk").await,
            NodeVerb::List => {
                let nodes: Vec<NodeView> = self.client.get("/nodes").await?;
                self.print(&nodes, |nodes| show::nodes(nodes))
            }
            // Not by the server: it also works when that is dead.
            NodeVerb::Exec { .. } if !self.layout.fabric().exists() => Err(not_up(lab)),
            NodeVerb::Exec { node, command } => enter::node(&self.layout, &node, &command),
        }
    }

    async fn order(&self, node: &str, order: &str) -> Result<ExitCode> {
        let path = format!("/nodes/{}/{order}", segment(node));
        let view: NodeView = self.client.post(&path, &()).await?;
        self.print(&view, |node| show::nodes(std::slice::from_ref(node)))
    }

    async fn pod(&self, verb: PodVerb) -> Result<ExitCode> {
        match verb {
            PodVerb::Add { node, count, prefix, from, pod, annotations, parallel } => {
                let prefix = prefix.unwrap_or_else(|| format!("{node}-"));
                let pods = match pod {
                    Some(pod) => vec![batch::named(&node, &pod, &annotations)],
                    None => (from..from + count)
                        .map(|number| {
                            batch::named(&node, &format!("{prefix}{number}"), &annotations)
                        })
                        .collect(),
                };
                let outcome = batch::add(&self.client, pods, parallel).await?;
                self.print(&outcome, show::added)?;
                Ok(exit(outcome.failed.is_empty()))
            }
            PodVerb::Delete { pods, all, node, parallel } => {
                let pods = batch::chosen(&self.client, pods, all, node.as_deref()).await?;
                let outcome = batch::delete(&self.client, pods, parallel).await?;
                self.print(&outcome, show::deleted)?;
                Ok(exit(outcome.failed.is_empty()))
            }
            PodVerb::List => {
                let pods: Vec<PodView> = self.client.get("/pods").await?;
                self.print(&pods, |pods| show::pods(pods))
            }
            PodVerb::Check { pods } => {
                let all = pods.is_empty();
                let pods = batch::chosen(&self.client, pods, all, None).await?;
                let outcome = batch::check(&self.client, pods).await?;
                self.print(&outcome, show::checked)?;
                Ok(exit(outcome.failed.is_empty()))
            }
        }
    }

    async fn daemon(&self, verb: DaemonVerb) -> Result<ExitCode> {
        let (node, order) = match verb {
            DaemonVerb::Start { node, env, cni } => {
                let env = env.into_iter().collect::<BTreeMap<_, _>>();
                (node, DaemonOrder::Start { env, cni })
            }
            DaemonVerb::Install { node } => (node, DaemonOrder::Install),
            DaemonVerb::Stop { node } => (node, DaemonOrder::Stop),
            DaemonVerb::Kill { node } => {
                (node, DaemonOrder::Signal { signal: Signal::SIGKILL as i32 })
            }
            DaemonVerb::Signal { node, signal } => {
                (node, DaemonOrder::Signal { signal: signal_number(&signal)? })
            }
        };
        let path = format!("/nodes/{}/daemon", segment(&node));
        let view: NodeView = self.client.post(&path, &order).await?;
        self.print(&view, |node| show::nodes(std::slice::from_ref(node)))
    }

    async fn fault(&self, verb: FaultVerb) -> Result<ExitCode> {
        let faults: Vec<FaultView> = match verb {
            FaultVerb::Set { fault: FaultArgs::Detach { eni } } => {
                // It happens and is over: not one of the faults that are set.
                let spec = FaultSpec::Detach { eni: eni.clone() };
                let faults: Vec<FaultView> = self.client.post("/faults", &spec).await?;
                return self.print(&faults, |_| format!("{eni} is being detached"));
            }
            FaultVerb::Set { fault } => {
                self.client.post("/faults", &FaultSpec::from(fault)).await?
            }
            FaultVerb::Clear { which } => {
                let query = which.map_or_else(String::new, |w| format!("?which={}", segment(&w)));
                self.client.delete(&format!("/faults{query}")).await?
            }
            FaultVerb::List => self.client.get("/faults").await?,
        };
        self.print(&faults, |faults| show::faults(faults))
    }

    fn print<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<ExitCode> {
        let text = match self.output {
            Output::Json => format!("{:#}", serde_json::to_value(value)?),
            Output::Text => text(value),
        };
        match writeln!(io::stdout(), "{text}") {
            // A reader such as `head` that has seen enough is no failure.
            Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
                Err(err).context("standard output")
            }
            Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
        }
    }
}

/// A line of progress.
fn say(line: &str) {
    eprintln!("{line}");
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `name` or `namespace/name` as a path of the control socket.
fn pod_path(pod: &str) -> Result<String> {
    let (namespace, name) = split(pod);
    if namespace.is_empty() || name.is_empty() {
        bail!("a pod is called NAME or NAMESPACE/NAME, not {pod:?}");
    }
    Ok(format!("/pods/{}/{}", segment(namespace), segment(name)))
}

fn split(pod: &str) -> (&str, &str) {
    pod.split_once('/').unwrap_or(("default", pod))
}

fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn signal_number(text: &str) -> Result<i32> {
    let signal = match text.parse::<i32>() {
        Ok(number) => Signal::try_from(number),
        Err(_) => {
            let name = text.to_ascii_uppercase();
            format!("SIG{}", name.strip_prefix("SIG").unwrap_or(&name)).parse()
        }
    };
    let unknown = |_| anyhow!("there is no signal {text:?}; kill -l lists them");
    signal.map(|signal| signal as i32).map_err(unknown)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        assert_eq!(signal_number("STOP").unwrap(), Signal::SIGSTOP as i32);
        assert_eq!(signal_number("sigcont").unwrap(), Signal::SIGCONT as i32);
        assert_eq!(signal_number("9").unwrap(), 9);
        for bad in ["HELLO", "0", "99"] {
            let said = signal_number(bad).unwrap_err().to_string();
            assert!(said.contains(bad), "{said}");
        }
    }

    #[test]
    fn a_pod_without_a_namespace_is_in_default() {
        assert_eq!(pod_path("web-0").unwrap(), "/pods/default/web-0");
        assert_eq!(pod_path("a/b").unwrap(), "/pods/a/b");
        assert_eq!(pod_path("a/b/../c d").unwrap(), "/pods/a/b%2F..%2Fc+d");
        assert!(pod_path("/b").is_err());
    }
}
