//! Reading logs where they lie, also when the server is dead.

use crate::{
    control::LogFile,
    lab::{DAEMON_LOG, PLUGIN_LOG},
    serve::Layout,
};
use anyhow::{Context as _, Result};
use lab_fabric::Fabric;
use std::{fs, path::Path};

/// The last lines of the server's log, or of a node's daemon and plugin.
pub(super) fn read(layout: &Layout, node: Option<&str>, lines: usize) -> Result<Vec<LogFile>> {
    let Some(node) = node else { return Ok(vec![tail(&layout.log(), lines)?]) };
    let node = Fabric::open(&layout.fabric())?.node(node)?;
    let paths = [DAEMON_LOG, PLUGIN_LOG].map(Path::new);
    let there = paths.into_iter().filter_map(|path| node.on_machine(path)).filter(|p| p.exists());
    there.map(|path| tail(&path, lines)).collect()
}

/// The end of a file.
pub(super) fn tail(path: &Path, lines: usize) -> Result<LogFile> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = all[all.len().saturating_sub(lines)..].iter().map(|&line| line.to_owned());
    Ok(LogFile { path: path.to_owned(), lines: last.collect() })
}
