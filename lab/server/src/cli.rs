//! The command line: each verb asks the server, or looks at the lab's folder itself.

mod args;
mod batch;
mod enter;
mod lifecycle;
mod logs;
mod show;

pub use args::Cli;

use crate::{
    control::{CheckSpec, Client, DaemonOrder, FaultSpec, NodeView, PodView},
    serve::Layout,
};
use anyhow::{Context as _, Result, bail};
use args::{DaemonVerb, FaultVerb, NodeVerb, Output, PodVerb, Verb, millis};
use nix::sys::signal::Signal;
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

/// Runs one verb.
///
/// # Errors
/// What went wrong, for people.
pub fn run(cli: Cli) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a lab is made of network namespaces and needs root; try again with sudo");
    }
    let layout = Layout::new(base_dir().join(&cli.name));
    if let Verb::Serve(args) = &cli.verb {
        return lifecycle::serve(&cli.name, &layout, args);
    }
    // One thread: whoever enters a namespace afterwards must be alone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tool = Tool { client: Client::new(layout.socket()), layout, output: cli.output };
    runtime.block_on(tool.verb(&cli.name, cli.verb))
}

/// `$FERRULE_LAB_DIR`, or `/run/ferrule-lab`; each lab is a folder in it.
fn base_dir() -> PathBuf {
    std::env::var_os("FERRULE_LAB_DIR").map_or_else(|| "/run/ferrule-lab".into(), PathBuf::from)
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
                self.print(&status, show::status)
            }
            Verb::Node(verb) => self.node(verb).await,
            Verb::Pod(verb) => self.pod(verb).await,
            Verb::Exec { pod, command } => {
                let pod: PodView = self.client.get(&pod_path(&pod)?).await?;
                enter::pod(&self.layout, &pod, &command)
            }
            Verb::Daemon(verb) => self.daemon(verb).await,
            Verb::Fault(verb) => self.fault(verb).await,
            Verb::Logs { node, lines } => {
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

    async fn node(&self, verb: NodeVerb) -> Result<ExitCode> {
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
            NodeVerb::List => {
                let nodes: Vec<NodeView> = self.client.get("/nodes").await?;
                self.print(&nodes, |nodes| show::nodes(nodes))
            }
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
            PodVerb::Add { node, count, prefix, from, pod, parallel } => {
                let prefix = prefix.unwrap_or_else(|| format!("{node}-"));
                let pods = match pod {
                    Some(pod) => vec![batch::named(&node, &pod)],
                    None => (from..from + count)
                        .map(|number| batch::named(&node, &format!("{prefix}{number}")))
                        .collect(),
                };
                let outcome = batch::add(&self.client, pods, parallel).await;
                self.print(&outcome, show::added)?;
                Ok(exit(outcome.failed.is_empty()))
            }
            PodVerb::Delete { pods, all, node, parallel } => {
                let pods = batch::chosen(&self.client, pods, all, node.as_deref()).await?;
                let outcome = batch::delete(&self.client, pods, parallel).await;
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
                let outcome = batch::check(&self.client, pods).await;
                self.print(&outcome, show::checked)?;
                Ok(exit(outcome.failed.is_empty()))
            }
        }
    }

    async fn daemon(&self, verb: DaemonVerb) -> Result<ExitCode> {
        let (node, order) = match verb {
            DaemonVerb::Start { node, env } => {
                (node, DaemonOrder::Start { env: env.into_iter().collect::<BTreeMap<_, _>>() })
            }
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
        let faults: Vec<crate::control::FaultView> = match verb {
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

    #[expect(clippy::print_stdout, reason = "the result of a verb goes to standard output")]
    fn print<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<ExitCode> {
        match self.output {
            Output::Json => println!("{:#}", serde_json::to_value(value)?),
            Output::Text => println!("{}", text(value)),
        }
        Ok(ExitCode::SUCCESS)
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
    if let Ok(number) = text.parse::<i32>() {
        return Ok(Signal::try_from(number).map(|signal| signal as i32)?);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let signal: Signal = format!("SIG{name}").parse().with_context(|| format!("signal {text}"))?;
    Ok(signal as i32)
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
        assert!(signal_number("HELLO").is_err());
    }

    #[test]
    fn a_pod_without_a_namespace_is_in_default() {
        assert_eq!(pod_path("web-0").unwrap(), "/pods/default/web-0");
        assert_eq!(pod_path("a/b").unwrap(), "/pods/a/b");
        assert_eq!(pod_path("a/b/../c d").unwrap(), "/pods/a/b%2F..%2Fc+d");
        assert!(pod_path("/b").is_err());
    }
}
