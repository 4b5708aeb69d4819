//! `ferrule policy`: explains policies of a cluster or of files.
//!
//! Reads objects ([`objects`]; of a cluster with [`live`]), evaluates them with [`policy_core`] and prints. It contains
//! no decisions, and it needs no cluster if files are named.

mod args;
mod convert;
mod documents;
mod json;
mod live;
mod node;
mod objects;
mod print;
mod realized;
mod status;
mod yaml;

pub(crate) use args::{CODES, PolicyVerb};

use crate::{
    output::{Output, plain, write_text},
    target::{KubeTarget, pod_name},
};
use anyhow::{Context as _, Result, anyhow, bail};
use args::{DiffArgs, Input, VerdictArgs};
use node::InKernel;
use objects::Objects;
use policy_core::{
    Decision, World, lint,
    show::{Matrix, Question, Samples, changes, packet},
    verdict,
};
use policy_objects::{Named, Pod, Protocol};
use realized::Realized;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The exit code if traffic is denied, something changes, or there are findings.
const NO: u8 = 1;
/// The exit code if the maps of the node differ from the model.
const DIFFERS: u8 = 3;
/// The exit code if an input was not understood.
const NOT_UNDERSTOOD: u8 = 2;

/// Runs the subcommand and returns the exit code.
///
/// # Errors
/// The question is not understood, or the result cannot be printed.
pub(crate) fn run(verb: &PolicyVerb) -> Result<u8> {
    match verb {
        PolicyVerb::Verdict(args) => packet_verdict(args),
        PolicyVerb::Of { pod, namespace, input } => {
            of(&pod_name(pod, namespace.as_deref())?, input)
        }
        PolicyVerb::Matrix { port, svg, input } => matrix(port, svg.as_deref(), input),
        PolicyVerb::Lint { input } => findings(input),
        PolicyVerb::Convert { file, output } => convert::run(file, *output),
        PolicyVerb::Diff(args) => diff(args),
        PolicyVerb::Flows(args) => node::flows(args),
        PolicyVerb::Uses { agent, output } => node::uses(agent, *output),
        PolicyVerb::Status { cluster, output } => status::run(cluster, *output),
    }
}

fn packet_verdict(args: &VerdictArgs) -> Result<u8> {
    let objects = read(&args.input)?;
    let mut world = objects.world();
    let question = Question {
        from: &args.from,
        to: &args.to,
        protocol: &args.protocol,
        service: args.via_service.as_deref(),
    };
    let packet = packet(&world, &question)?;
    args.names.iter().for_each(|name| world.name(packet.destination, name));
    let verdict = verdict(&world, &packet);
    if args.input.output.is_text() {
        let text = print::Answer { objects: &objects, args, packet: &packet, verdict: &verdict };
        write_text(&text.to_string())?;
    }
    let pods: Vec<&Pod> = verdict.halves().filter_map(|half| world.pod(&half.pod)).collect();
    let realized = in_force(&args.input, &world, &objects, &pods)?;
    let kernel = args.kernel.then(|| InKernel::of(&args.agent, &packet, &verdict)).transpose()?;
    match (args.input.output, &kernel) {
        (output @ (Output::Json | Output::Yaml), _) => output.write(&json!({
            "packet": packet, "verdict": verdict, "files": print::places(&objects, &verdict),
            "realized": realized, "kernel": kernel.as_ref().map(InKernel::json),
        }))?,
        (Output::Text, Some(kernel)) => write_text(&kernel.text())?,
        (Output::Text, None) => {}
    }
    if kernel.is_some_and(|kernel| !kernel.agrees()) {
        return Ok(DIFFERS);
    }
    Ok(code(&[&objects], verdict.decision != Decision::Allow))
}

fn of(name: &Named, input: &Input) -> Result<u8> {
    let objects = read(input)?;
    let world = objects.world();
    let Some(pod) = world.pod(name) else {
        let Named { namespace, name } = name;
        bail!("cannot find pod {namespace}/{name}: it does not exist; see kubectl get pods -A");
    };
    match input.output {
        Output::Text => {
            write_text(&print::of(&world, &objects, pod))?;
            in_force(input, &world, &objects, &[pod])?;
        }
        Output::Json | Output::Yaml => {
            let mut answer = print::of_json(&world, &objects, pod);
            answer["realized"] = json!(in_force(input, &world, &objects, &[pod])?);
            input.output.write(&answer)?;
        }
    }
    Ok(code(&[&objects], false))
}

/// Compares a result with the policies in force on these pods' nodes. Files have no such state.
fn in_force(
    input: &Input,
    world: &World,
    objects: &Objects,
    pods: &[&Pod],
) -> Result<Option<Realized>> {
    match &*input.file {
        [] => print_realized(&input.cluster, input.output, &realized::needs(world, objects, pods)),
        _ => Ok(None),
    }
}

/// The same for a result about all pods of a cluster.
fn all_in_force(
    cluster: &KubeTarget,
    output: Output,
    world: &World,
    objects: &Objects,
) -> Result<Option<Realized>> {
    print_realized(cluster, output, &realized::needs_of_all(world, objects))
}

fn print_realized(
    cluster: &KubeTarget,
    output: Output,
    needs: &BTreeMap<String, realized::Needs>,
) -> Result<Option<Realized>> {
    if needs.is_empty() {
        return Ok(None);
    }
    let realized = realized::ask(cluster, needs)?;
    if output.is_text() {
        write_text(&format!("\n{realized}"))?;
    }
    Ok(Some(realized))
}

fn matrix(port: &[(Protocol, u16)], svg: Option<&Path>, input: &Input) -> Result<u8> {
    let objects = read(input)?;
    let world = objects.world();
    let matrix = Matrix::of(&world, &samples(&[&world], port));
    if let Some(path) = svg {
        fs::write(path, matrix.svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match input.output {
        Output::Text if matrix.sources.is_empty() => {
            write_text("no pod has an address\n")?;
        }
        Output::Text => write_text(&matrix.to_string())?,
        Output::Json | Output::Yaml => {}
    }
    let realized = match &*input.file {
        [] => all_in_force(&input.cluster, input.output, &world, &objects)?,
        _ => None,
    };
    if !input.output.is_text() {
        input.output.write(&with_realized(json!(matrix), realized))?;
    }
    Ok(code(&[&objects], false))
}

fn diff(args: &DiffArgs) -> Result<u8> {
    let base = match &*args.on {
        [] => live::read(&args.cluster)?,
        on if args.cluster.is_named() => return Err(both("--on", on)),
        on => Objects::read_but(on, &args.file),
    };
    let new = Objects::read(&args.file);
    print_remarks(&base)?;
    print_remarks(&new)?;
    let (before, after) = (base.world(), base.with(&new));
    let changes = changes(&before, &after, &samples(&[&before, &after], &args.port));
    if args.output.is_text() {
        write_text(&print::changes(&changes))?;
    }
    // The present policies; those of a change are not in force anywhere.
    let realized = match &*args.on {
        [] => all_in_force(&args.cluster, args.output, &before, &base)?,
        _ => None,
    };
    if !args.output.is_text() {
        args.output.write(&with_realized(json!(changes), realized))?;
    }
    Ok(code(&[&base, &new], !changes.pairs.is_empty()))
}

fn findings(input: &Input) -> Result<u8> {
    let objects = there(input)?;
    // Other oddities are findings.
    print_faults(&objects)?;
    let world = objects.world();
    let findings = lint(&world, &objects.aside);
    if input.output.is_text() {
        write_text(&print::findings(&findings, &objects))?;
    }
    let realized = match &*input.file {
        [] => all_in_force(&input.cluster, input.output, &world, &objects)?,
        _ => None,
    };
    if !input.output.is_text() {
        let findings = print::findings_json(&findings, &objects);
        input.output.write(&with_realized(json!({ "findings": findings }), realized))?;
    }
    Ok(code(&[&objects], !findings.is_empty()))
}

/// Adds the state in force, if it is known.
fn with_realized(mut answer: serde_json::Value, realized: Option<Realized>) -> serde_json::Value {
    if let (Some(fields), Some(realized)) = (answer.as_object_mut(), realized) {
        fields.insert("realized".to_owned(), json!(realized));
    }
    answer
}

fn samples(worlds: &[&World], port: &[(Protocol, u16)]) -> Samples {
    match port {
        [] => Samples::of(worlds),
        ports => Samples::only(ports),
    }
}

fn code(objects: &[&Objects], no: bool) -> u8 {
    match objects.iter().any(|objects| !objects.faults.is_empty()) {
        true => NOT_UNDERSTOOD,
        false if no => NO,
        false => 0,
    }
}

/// Reads the input.
fn there(input: &Input) -> Result<Objects> {
    match &*input.file {
        [] => live::read(&input.cluster),
        file if input.cluster.is_named() => Err(both("-f", file)),
        file => Ok(Objects::read(file)),
    }
}

fn both(option: &str, paths: &[PathBuf]) -> anyhow::Error {
    let path = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    anyhow!(
        "cannot combine {option} {path} with --kubeconfig or --context: one names files, the other a cluster; use one of them"
    )
}

fn read(input: &Input) -> Result<Objects> {
    let objects = there(input)?;
    print_remarks(&objects)?;
    Ok(objects)
}

/// Prints remarks and errors to standard error, so that the result can be piped.
fn print_remarks(objects: &Objects) -> Result<()> {
    let lines: String =
        objects.hints.iter().map(|hint| format!("note: {}\n", plain(hint))).collect();
    io::stderr().write_all(lines.as_bytes()).context("cannot print remarks")?;
    print_faults(objects)
}

fn print_faults(objects: &Objects) -> Result<()> {
    let mut lines: String =
        objects.faults.iter().map(|fault| format!("NOT UNDERSTOOD: {}\n", plain(fault))).collect();
    if objects.len() == 0 && objects.faults.is_empty() {
        lines.push_str("note: the input has no objects of the kinds that policy uses\n");
    }
    io::stderr().write_all(lines.as_bytes()).context("cannot print errors")
}
