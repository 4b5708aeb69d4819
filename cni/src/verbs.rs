//! Dispatches a verb and formats its answer.

use crate::{
    add,
    attachment::{Call, Served},
    check, del,
    fault::{Code, Fault},
    gc,
    invocation::{self, Attachment, Verb},
    log::{Destination, Level, Log},
    netconf::{NetConf, RawConf},
    session::Daemon,
    status,
    version::SpecVersion,
};
use config_model::PodKey;
use ipamd_rpc::TraceParent;
use serde_json::json;
use std::{collections::BTreeSet, ffi::OsString, io::Read, time::Instant};

/// The output of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// For standard output: a result, an error object, or nothing.
    pub stdout: Vec<u8>,
    /// Standard error, for people who run the plugin by hand.
    pub stderr: String,
    /// True if the exit code is 1.
    pub failed: bool,
}

/// The longest configuration in bytes, far above every real one.
const STDIN_MAX: u64 = 4 * 1024 * 1024;

/// Answers one call.
pub fn run(var: impl Fn(&str) -> Option<OsString>, stdin: impl Read) -> Reply {
    let verb = match invocation::verb(&var) {
        Ok(None) => return about(),
        Ok(Some(verb)) => Ok(verb),
        Err(fault) => Err(fault),
    };
    let input = read(stdin);
    let parsed = input.and_then(|bytes| match (&verb, bytes.trim_ascii().is_empty()) {
        (Ok(Verb::Version), true) => Ok(None),
        _ => RawConf::parse(&bytes).map(Some),
    });
    let named = parsed.as_ref().ok().and_then(Option::as_ref).and_then(RawConf::version);
    if let (Ok(Verb::Version), Ok(_)) = (&verb, &parsed) {
        return versions(named.unwrap_or(SpecVersion::NEWEST));
    }
    let log = open_log(parsed.as_ref().ok().and_then(Option::as_ref));
    let started = Instant::now();
    let (log, outcome) = serve(verb, parsed, &var, log);
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match outcome {
        Ok(served) => {
            let mut fields = served.fields;
            fields.push(("elapsedMs", elapsed_ms.into()));
            log.line(Level::Info, "done", &fields);
            Reply { stdout: served.stdout, ..Reply::default() }
        }
        Err(fault) => {
            let fields = [
                ("code", fault.code.number().into()),
                ("nextStep", fault.details.as_str().into()),
                ("elapsedMs", elapsed_ms.into()),
            ];
            log.line(Level::Error, &fault.message, &fields);
            let version = named.unwrap_or(SpecVersion::FALLBACK);
            Reply { stdout: fault.to_json(version), failed: true, ..Reply::default() }
        }
    }
}

fn read(stdin: impl Read) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let cannot = |why: String| {
        Fault::new(
            Code::Io,
            format!("the network configuration on standard input cannot be read: {why}"),
            "the container runtime must write it and close the pipe",
        )
    };
    stdin.take(STDIN_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(error.to_string()))?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(cannot(format!("it is longer than {STDIN_MAX} bytes")));
    }
    Ok(bytes)
}

fn open_log(conf: Option<&RawConf>) -> Log {
    match conf.map(RawConf::log_settings) {
        Some(settings) => Log::open(&settings.destination, settings.level),
        None => Log::open(&Destination::of(""), Level::Info),
    }
}

/// Carries out the verb. Returns the log with the fields known by then.
fn serve(
    verb: Result<Verb, Fault>,
    conf: Result<Option<RawConf>, Fault>,
    var: &impl Fn(&str) -> Option<OsString>,
    mut log: Log,
) -> (Log, Result<Served, Fault>) {
    // An invalid traceparent is ignored: a trace must not fail a pod.
    let trace: Option<TraceParent> =
        var("TRACEPARENT").and_then(|text| text.to_str()?.parse().ok());
    if let Some(trace) = &trace {
        log = log.with("traceID", trace.trace_id());
    }
    let prepared = verb.and_then(|verb| {
        log = std::mem::replace(&mut log, Log::nowhere()).with("verb", verb.as_str());
        prepare(verb, conf, var, trace)
    });
    let task = match prepared {
        Ok(task) => task,
        Err(fault) => return (log, Err(fault)),
    };
    let call = match task {
        Task::Attachment(call) => call,
        Task::Status(daemon) => return (log, status::status(&daemon)),
        Task::Gc { conf, daemon, valid } => {
            let outcome = gc::gc(&conf, &daemon, &valid, &log);
            return (log, outcome);
        }
    };
    let (verb, call) = *call;
    let log = log
        .with("containerID", call.key.container_id.as_str())
        .with("ifname", call.key.ifname.as_str())
        .with("pod", call.pod_text());
    let outcome = match verb {
        Verb::Add => add::add(&call, &log),
        Verb::Del => del::del(&call, &log),
        Verb::Check => check::check(&call),
        Verb::Status | Verb::Gc | Verb::Version => Ok(Served::default()),
    };
    (log, outcome)
}

/// A validated call, for an interface or for a whole network.
enum Task {
    Attachment(Box<(Verb, Call)>),
    Status(Daemon),
    Gc { conf: Box<NetConf>, daemon: Daemon, valid: BTreeSet<PodKey> },
}

/// Validates the environment before the configuration.
fn prepare(
    verb: Verb,
    conf: Result<Option<RawConf>, Fault>,
    var: &impl Fn(&str) -> Option<OsString>,
    trace: Option<TraceParent>,
) -> Result<Task, Fault> {
    let attachment = match verb {
        Verb::Status | Verb::Gc => None,
        Verb::Add | Verb::Del | Verb::Check | Verb::Version => Some(Attachment::of(verb, var)?),
    };
    let raw = conf?.ok_or_else(|| {
        Fault::new(Code::Undecodable, "the network configuration is empty", "send one")
    })?;
    let conf = raw.resolve()?;
    if conf.version < verb.since() {
        return Err(Fault::new(
            Code::IncompatibleVersion,
            format!("CNI {} has no {}", conf.version, verb.as_str()),
            format!("use cniVersion {} or later", verb.since()),
        ));
    }
    if let Some(attachment) = attachment {
        let call = Call::new(attachment, conf, trace)?;
        return Ok(Task::Attachment(Box::new((verb, call))));
    }
    let daemon = Daemon { socket: conf.socket.clone(), trace };
    if verb == Verb::Status {
        return Ok(Task::Status(daemon));
    }
    let valid = raw.valid_attachments(&conf.network)?;
    Ok(Task::Gc { conf: Box::new(conf), daemon, valid })
}

fn about() -> Reply {
    let stderr = format!(
        "ferrule-cni {}: the CNI plugin of Ferrule; a container runtime runs it.\n\
         CNI versions: {}\nverbs (CNI_COMMAND): {}\n",
        env!("CARGO_PKG_VERSION"),
        SpecVersion::list(),
        Verb::SERVED,
    );
    Reply { stderr, ..Reply::default() }
}

fn versions(version: SpecVersion) -> Reply {
    let answer = json!({
        "cniVersion": version.as_str(),
        "supportedVersions": SpecVersion::ALL.map(SpecVersion::as_str),
    });
    Reply { stdout: answer.to_string().into_bytes(), ..Reply::default() }
}

#[cfg(test)]
mod tests;
