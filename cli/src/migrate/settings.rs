//! The settings of the running daemons, from the environments of their processes.

use cli_migrate::{Observed, Settings};
use config_settings::{Effect, Origin, table};
use std::{collections::BTreeMap, fs, path::Path};

/// Reads the settings that both daemons have by the same name.
pub(super) fn observe(proc: &Path) -> Settings {
    let defaults: BTreeMap<String, String> = table()
        .filter(|setting| matches!(setting.origin, Origin::AmazonVpcCni))
        .filter(|setting| matches!(setting.effect, Effect::Used | Effect::Refused { .. }))
        .filter(|setting| !OF_A_PROGRAM.iter().any(|part| setting.name.contains(part)))
        .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
        .collect();
    let of = |program: &str| environment(proc, program, &defaults);
    Settings { vpc_cni: of(VPC_CNI), ferrule: of(FERRULE).ok().flatten(), defaults }
}

/// Returns these variables of the only process of a program in this network namespace; `None` without such a process.
fn environment(
    proc: &Path,
    program: &str,
    wanted: &BTreeMap<String, String>,
) -> Observed<Option<BTreeMap<String, String>>> {
    let failed = |err| format!("cannot read the environment of {program}: {err}");
    let own = fs::read_link(proc.join("self/ns/net")).map_err(failed)?;
    let processes = fs::read_dir(proc).map_err(failed)?;
    for process in processes.flatten().map(|entry| entry.path()) {
        let is = |file: &str, text: &str| {
            fs::read_to_string(process.join(file)).is_ok_and(|found| found.trim_end() == text)
        };
        let is_here = || fs::read_link(process.join("ns/net")).is_ok_and(|space| space == own);
        if !is("comm", program) || !is_here() || !is_daemon(&process) {
            continue;
        }
        let environment = fs::read(process.join("environ")).map_err(failed)?;
        let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let pairs = variables.filter_map(|variable| {
            let (name, value) = variable.split_once('=')?;
            // No other variable is printed: it could be a credential.
            wanted.contains_key(name).then(|| (name.to_owned(), value.to_owned()))
        });
        return Ok(Some(pairs.collect()));
    }
    Ok(None)
}

/// Returns true for a process without a verb: the installer and probes have the daemon's name too.
fn is_daemon(process: &Path) -> bool {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    words.all(|word| word.starts_with(b"-"))
}

const VPC_CNI: &str = "aws-k8s-agent";
const FERRULE: &str = "ferrule-ipamd";
/// Parts of names of settings that differ between the two programs: logs and folders of a container.
const OF_A_PROGRAM: [&str; 3] = ["LOG", "HOST_CNI", "VPC_CNI_VERSION"];
