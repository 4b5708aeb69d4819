//! The tools that do the work: iproute2 and nft, fed through stdin so that one process does a batch.

use crate::FabricError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

/// Runs `ip -batch`; the whole script stops at its first refused line.
pub(crate) fn ip_batch(script: &str, action: &str) -> Result<(), FabricError> {
    if script.is_empty() {
        return Ok(());
    }
    run(IP, &["-batch", "-"], script, action).map(drop)
}

/// Runs `ip -json` and reads its answer.
pub(crate) fn ip_json<T: DeserializeOwned>(
    args: &[&str],
    action: &str,
) -> Result<Vec<T>, FabricError> {
    let args: Vec<&str> = ["-json"].into_iter().chain(args.iter().copied()).collect();
    let text = run(IP, &args, "", action)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    // An object that a filter excluded from a list is in the list as an empty object.
    let items: Vec<Value> = parse(&text, "the output of ip")?;
    let items = items.into_iter().filter(|item| item.as_object().is_none_or(|o| !o.is_empty()));
    items
        .map(|item| {
            serde_json::from_value(item).map_err(|cause| FabricError::Parse {
                what: format!("the output of ip {}", args.join(" ")),
                cause,
            })
        })
        .collect()
}

/// Hands nft one script, which the kernel takes as a whole or not at all.
pub(crate) fn nft(script: &str, action: &str) -> Result<(), FabricError> {
    run(NFT, &["-f", "-"], script, action).map(drop)
}

/// Lists the fabric's ruleset as JSON; `None` when the table does not exist yet.
pub(crate) fn nft_list(family: &str, table: &str) -> Result<Option<String>, FabricError> {
    match run(NFT, &["-j", "list", "table", family, table], "", "list the ruleset") {
        Ok(text) => Ok(Some(text)),
        Err(FabricError::Refused { stderr, .. }) if stderr.contains("No such file") => Ok(None),
        Err(other) => Err(other),
    }
}

/// Reads JSON, naming whose it is.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, FabricError> {
    serde_json::from_str(text).map_err(|cause| FabricError::Parse { what: what.to_owned(), cause })
}

struct Tool {
    program: &'static str,
    package: &'static str,
}

const IP: Tool = Tool { program: "ip", package: "iproute2" };
const NFT: Tool = Tool { program: "nft", package: "nftables" };

/// Checks that the machine has all tools, before a lab is created.
///
/// # Errors
/// Names the first missing tool and its package.
pub fn tools_are_there() -> Result<(), FabricError> {
    let path = search_path();
    let missing =
        |tool: &Tool| !path.split(':').any(|dir| Path::new(dir).join(tool.program).is_file());
    [IP, NFT].into_iter().find(missing).map_or(Ok(()), |Tool { program, package }| {
        let cause = io::Error::new(io::ErrorKind::NotFound, format!("it is nowhere in {path}"));
        Err(FabricError::Tool { tool: program, package, cause })
    })
}

fn run(tool: Tool, args: &[&str], stdin: &str, action: &str) -> Result<String, FabricError> {
    let Tool { program, package } = tool;
    let failed = |cause| FabricError::Tool { tool: program, package, cause };
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A tool that stops reading has failed: its status and output contain the reason.
        let _ = pipe.write_all(stdin.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(FabricError::Refused {
        tool: program,
        action: action.to_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// The caller's search path and the folders of these tools on every Debian.
pub(crate) fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/sbin:/usr/bin:/sbin:/bin")
}
