//! `ferrule policy flows`, `uses` and `verdict --kernel`: the state of the agent of this node.

use super::args::{AgentArgs, FlowsArgs};
use crate::output::{self, Output, plain};
use anyhow::{Context as _, Result};
use config_model::EnforcingMode;
use datapath_rpc::{AgentAt, wire};
use k8s_openapi::jiff::Timestamp;
use policy_core::{Decision, Half, Packet, Segment, Verdict};
use policy_objects::Protocol;
use serde_json::{Value, json};
use std::{
    future::Future,
    io::{self, Write as _},
    net::IpAddr,
    time::{Duration, Instant},
};
use view_text::{Table, Text, counted};

/// Prints flows, and with `--follow` until the agent ends.
pub(super) fn flows(args: &FlowsArgs) -> Result<u8> {
    wait(async {
        let agent = agent(&args.agent);
        let mut flows = agent.flows(args.allowed, args.follow, deadline()).await?;
        while let Some(flow) = flows.message().await.context("the agent ended the stream")? {
            if flow.lost > 0 {
                let lost = counted(flow.lost, "flow was", "flows were");
                eprintln!("{lost} lost: this command reads too slowly");
            }
            let text = match args.output {
                Output::Text => line(&flow),
                Output::Json => flow_json(&flow).to_string(),
                Output::Yaml => {
                    format!("---\n{}", args.output.document(&flow_json(&flow))?.trim_end())
                }
            };
            match writeln!(io::stdout(), "{text}") {
                // The reader of a pipe has gone.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                written => written.context("cannot print a flow")?,
            }
        }
        Ok(0)
    })
}

/// Prints the use of rules.
pub(super) fn uses(args: &AgentArgs, output: Output) -> Result<u8> {
    let reply = wait(async { Ok(agent(args).uses(deadline()).await?) })?;
    match output {
        Output::Text => {
            let heads = ["POLICY", "RULE", "FLOWS", "DROPPED", "BYTES", "LAST"];
            let mut table = Table::new(&heads);
            for of in &reply.uses {
                let rule = of.rule.clone().unwrap_or_default();
                table.row([
                    policy(&rule),
                    rule_text(&rule),
                    of.flows.to_string(),
                    of.packets.to_string(),
                    of.bytes.to_string(),
                    time(of.last),
                ]);
            }
            let mut text = match reply.uses.is_empty() {
                true => Text::from("no rule was used on this node\n"),
                false => table.text(output::columns()),
            };
            if reply.left_out > 0 {
                let more = counted(reply.left_out, "more rule was", "more rules were");
                text.push_plain(&format!("{more} used less recently\n"));
            }
            output::write(&text)?;
        }
        Output::Json | Output::Yaml => {
            let uses = reply.uses.iter().map(|of| {
                json!({
                    "rule": of.rule.as_ref().map(rule_json), "flows": of.flows,
                    "droppedPackets": of.packets, "droppedBytes": of.bytes, "last": time(of.last),
                })
            });
            let uses: Vec<Value> = uses.collect();
            output.write(&json!({ "uses": uses, "leftOut": reply.left_out }))?;
        }
    }
    Ok(0)
}

/// The lookups of a packet in the maps of this node, beside the verdict of the model.
pub(super) struct InKernel {
    lookups: Vec<wire::Lookup>,
    differences: Vec<String>,
}

impl InKernel {
    /// Asks the agent of this node.
    pub(super) fn of(args: &AgentArgs, packet: &Packet, verdict: &Verdict) -> Result<Self> {
        let reply = wait(async { Ok(agent(args).look_up(question(packet), deadline()).await?) })?;
        let differences = differences(&reply.lookups, verdict);
        Ok(Self { lookups: reply.lookups, differences })
    }

    pub(super) fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for lookup in &self.lookups {
            let direction = if lookup.ingress { "ingress" } else { "egress" };
            let pod = lookup.pod.as_ref().map(pod).unwrap_or_default();
            let rule = match &lookup.rule {
                Some(rule) => format!(" by {} {}", policy(rule), rule_text(rule)),
                None => String::new(),
            };
            text += &format!(
                "\nmaps of this node, {direction} of {pod}: {}{rule}\n",
                outcome(lookup.decision())
            );
            for step in &lookup.steps {
                text += &format!("  {:<22}{}\n", step.name, step.value);
            }
        }
        if self.lookups.is_empty() {
            text += "\nmaps of this node: neither end is a pod of this node\n";
        }
        for difference in &self.differences {
            text += &format!("the maps differ from the model: {difference}\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let lookups = self.lookups.iter().map(|lookup| {
            let steps = lookup.steps.iter().map(|step| (step.name.clone(), json!(step.value)));
            json!({
                "pod": lookup.pod.as_ref().map(pod),
                "direction": if lookup.ingress { "ingress" } else { "egress" },
                "decision": decision(lookup.decision()),
                "rule": lookup.rule.as_ref().map(rule_json),
                "steps": steps.collect::<serde_json::Map<_, _>>(),
            })
        });
        let lookups: Vec<Value> = lookups.collect();
        json!({ "lookups": lookups, "differences": self.differences })
    }
}

/// The lookups whose decision is not that of the model.
fn differences(lookups: &[wire::Lookup], verdict: &Verdict) -> Vec<String> {
    let differs = |lookup: &wire::Lookup| {
        let half: Option<&Half> =
            if lookup.ingress { verdict.ingress.as_ref() } else { verdict.egress.as_ref() };
        let expected = half.map_or(Decision::Allow, |half| half.decision);
        let is_same = match (lookup.decision(), expected) {
            (wire::Decision::Allow, Decision::Allow)
            | (wire::Decision::Drop | wire::Decision::Unspecified, Decision::Drop)
            | (wire::Decision::Reject, Decision::Reject) => true,
            (
                wire::Decision::Allow
                | wire::Decision::Drop
                | wire::Decision::Unspecified
                | wire::Decision::Reject,
                _,
            ) => false,
        };
        let direction = if lookup.ingress { "ingress" } else { "egress" };
        let pod = lookup.pod.as_ref().map(pod).unwrap_or_default();
        (!is_same).then(|| {
            format!(
                "{direction} of {pod} is {} in the maps and {} in the model; see ferrule policy status",
                outcome(lookup.decision()),
                outcome(of_model(expected))
            )
        })
    };
    lookups.iter().filter_map(differs).collect()
}

fn of_model(decision: Decision) -> wire::Decision {
    match decision {
        Decision::Allow => wire::Decision::Allow,
        Decision::Drop => wire::Decision::Drop,
        Decision::Reject => wire::Decision::Reject,
    }
}

fn question(packet: &Packet) -> wire::LookUpRequest {
    let of = wire::LookUpRequest {
        source: packet.source.to_string(),
        destination: packet.destination.to_string(),
        service: packet.service.map(|address| address.to_string()).unwrap_or_default(),
        ..wire::LookUpRequest::default()
    };
    match packet.segment {
        Segment::Ports { protocol, source, destination } => wire::LookUpRequest {
            protocol: match protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
                Protocol::Sctp => 132,
            },
            source_port: source.into(),
            destination_port: destination.into(),
            ..of
        },
        Segment::Icmp { kind, code } => wire::LookUpRequest {
            protocol: 1,
            icmp_type: kind.into(),
            icmp_code: code.into(),
            ..of
        },
        Segment::Other(protocol) => wire::LookUpRequest { protocol: protocol.into(), ..of },
    }
}

fn agent(args: &AgentArgs) -> AgentAt {
    AgentAt { socket: args.agent.clone(), mode: EnforcingMode::Standard }
}

fn deadline() -> Instant {
    Instant::now() + ANSWER
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(work)
}

/// One line for a flow.
fn line(flow: &wire::Flow) -> String {
    let end = |of: &Option<wire::Pod>, address: &str, port: Option<u32>| {
        let at = match (address.parse::<IpAddr>(), port) {
            (Ok(IpAddr::V6(v6)), Some(port)) => format!("[{v6}]:{port}"),
            (_, Some(port)) => format!("{address}:{port}"),
            (_, None) => address.to_owned(),
        };
        match of {
            Some(of) => format!("{} ({at})", pod(of)),
            None => at,
        }
    };
    let protocol = match (flow.protocol, flow.icmp_type, flow.icmp_code) {
        (_, Some(kind), Some(code)) => format!("ICMP {kind}/{code}"),
        (6, ..) => "TCP".to_owned(),
        (17, ..) => "UDP".to_owned(),
        (132, ..) => "SCTP".to_owned(),
        _ if flow.source.is_empty() => "not IP".to_owned(),
        _ => "other protocol".to_owned(),
    };
    let mut line = format!("{} {} {protocol}", time(flow.time), outcome(flow.decision()));
    if !flow.source.is_empty() {
        let source = end(&flow.source_pod, &flow.source, flow.source_port);
        let destination = end(&flow.destination_pod, &flow.destination, flow.destination_port);
        line += &format!(" {source} -> {destination}");
    } else if let Some(of) = &flow.source_pod {
        line += &format!(" from {}", pod(of));
    }
    if !flow.reason.is_empty() {
        line += &format!(" reason {}", flow.reason);
    }
    for rule in &flow.rules {
        line += &format!(" by {} {}", policy(rule), rule_text(rule));
    }
    if flow.fast {
        line += " path fast";
    }
    // A name with a line break does not start a line of its own.
    plain(&line.replace('\n', "\\n"))
}

fn flow_json(flow: &wire::Flow) -> Value {
    json!({
        "time": time(flow.time),
        "decision": decision(flow.decision()),
        "reason": Some(&flow.reason).filter(|reason| !reason.is_empty()),
        "source": { "pod": flow.source_pod.as_ref().map(pod), "address": flow.source, "port": flow.source_port },
        "destination": {
            "pod": flow.destination_pod.as_ref().map(pod), "address": flow.destination,
            "port": flow.destination_port,
        },
        "protocol": flow.protocol,
        "icmpType": flow.icmp_type,
        "icmpCode": flow.icmp_code,
        "bytes": flow.length,
        "path": if flow.fast { "fast" } else { "stack" },
        "rules": flow.rules.iter().map(rule_json).collect::<Vec<_>>(),
    })
}

fn pod(pod: &wire::Pod) -> String {
    match &*pod.name {
        "" => format!("pod {}", pod.uid),
        name => format!("{}/{name}", pod.namespace),
    }
}

fn policy(rule: &wire::RuleRef) -> String {
    match &*rule.policy {
        "" => format!("policy {}", rule.uid),
        name => format!("{} {name}", rule.kind),
    }
}

fn rule_text(rule: &wire::RuleRef) -> String {
    let direction = if rule.ingress { "ingress" } else { "egress" };
    match &*rule.name {
        "" => format!("{direction} rule {}", rule.index + 1),
        name => format!("{direction} rule {} ({name})", rule.index + 1),
    }
}

fn rule_json(rule: &wire::RuleRef) -> Value {
    json!({
        "uid": rule.uid, "kind": rule.kind, "policy": rule.policy,
        "direction": if rule.ingress { "ingress" } else { "egress" },
        "index": rule.index, "name": rule.name, "logLabel": rule.log_label,
    })
}

fn outcome(decision: wire::Decision) -> &'static str {
    match decision {
        wire::Decision::Allow => "ALLOWED",
        wire::Decision::Drop => "DROPPED",
        wire::Decision::Reject => "REJECTED",
        wire::Decision::Unspecified => "DROPPED (no verdict)",
    }
}

fn decision(decision: wire::Decision) -> &'static str {
    match decision {
        wire::Decision::Allow => "allow",
        wire::Decision::Drop => "drop",
        wire::Decision::Reject => "reject",
        wire::Decision::Unspecified => "none",
    }
}

/// The time in UTC, to a millisecond.
fn time(nanoseconds: u64) -> String {
    let at = Timestamp::from_nanosecond(i128::from(nanoseconds));
    at.map(|at| format!("{at:.3}")).unwrap_or_default()
}

/// The wait for the agent's answer.
const ANSWER: Duration = Duration::from_secs(10);
