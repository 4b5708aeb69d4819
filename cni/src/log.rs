//! The plugin's log: one JSON object a line, one `write(2)` a line, never on standard output.
//!
//! Several plugins write at once, so the file is opened for appending and rotated under a lock. A log that cannot be
//! written never fails a verb: the runtime has the error object anyway.

use serde_json::{Map, Value};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

mod timestamp;

/// A line's level, most verbose first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each step.
    Debug,
    /// Each verb.
    Info,
    /// Problems that do not fail the verb.
    Warn,
    /// Failure of a verb.
    Error,
}

impl Level {
    /// The level of this name in any case; `Info` if there is none.
    pub fn of(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "debug" | "trace" => Self::Debug,
            "warn" | "warning" => Self::Warn,
            "error" | "fatal" => Self::Error,
            _ => Self::Info,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Destination of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard error, which runtimes pass on.
    Stderr,
    File(PathBuf),
}

impl Destination {
    /// The log file of amazon-vpc-cni's plugin.
    pub const DEFAULT_FILE: &str = "/var/log/aws-routed-eni/plugin.log";

    /// The destination of `pluginLogFile`. Standard output is for the result, so `stdout` means standard error. A path that
    /// is not absolute means the default file.
    pub fn of(text: &str) -> Self {
        match text {
            "stderr" | "stdout" => Self::Stderr,
            path if path.starts_with('/') && !path.contains('\0') => Self::File(path.into()),
            _ => Self::File(Self::DEFAULT_FILE.into()),
        }
    }
}

/// The size in bytes at which a file is rotated.
const FILE_MAX: u64 = 20 * 1024 * 1024;
/// The number of rotated files kept, as `<file>.1`, `<file>.2` …
const FILES_KEPT: u32 = 3;
/// The longest text of a field, so that a long message does not fill the disk.
const TEXT_MAX: usize = 4096;

/// An open log.
#[derive(Debug)]
pub struct Log {
    sink: Sink,
    level: Level,
    context: Map<String, Value>,
}

#[derive(Debug)]
enum Sink {
    Nowhere,
    Stderr,
    File(File),
}

impl Log {
    /// A log that discards all lines.
    pub fn nowhere() -> Self {
        Self { sink: Sink::Nowhere, level: Level::Error, context: Map::new() }
    }

    /// Opens the log and rotates its file if it is full.
    pub fn open(destination: &Destination, level: Level) -> Self {
        Self::open_with_limit(destination, level, FILE_MAX)
    }

    fn open_with_limit(destination: &Destination, level: Level, limit: u64) -> Self {
        let sink = match destination {
            Destination::Stderr => Sink::Stderr,
            Destination::File(path) => open_file(path, limit).map_or(Sink::Nowhere, Sink::File),
        };
        Self { sink, level, context: Map::new() }
    }

    /// Adds a field that every later line has.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.context.insert(field.to_owned(), value.into());
        self
    }

    /// Writes a line if its level is enabled.
    pub fn line(&self, level: Level, message: &str, fields: &[(&str, Value)]) {
        if level < self.level || matches!(self.sink, Sink::Nowhere) {
            return;
        }
        let mut line = Map::new();
        line.insert("ts".to_owned(), timestamp::rfc3339(SystemTime::now()).into());
        line.insert("level".to_owned(), level.as_str().into());
        line.insert("msg".to_owned(), clipped(message).into());
        line.extend(self.context.clone());
        for (field, value) in fields {
            let value = value.as_str().map_or_else(|| value.clone(), |text| clipped(text).into());
            line.insert((*field).to_owned(), value);
        }
        let mut text = Value::Object(line).to_string().into_bytes();
        text.push(b'\n');
        // A line that cannot be written is lost: there is no other place to report it.
        let _ = match &self.sink {
            Sink::Nowhere => Ok(0),
            Sink::Stderr => io::stderr().write(&text),
            Sink::File(file) => (&*file).write(&text),
        };
    }
}

fn clipped(text: &str) -> &str {
    match text.char_indices().find(|(at, _)| *at >= TEXT_MAX) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

fn open_file(path: &Path, limit: u64) -> io::Result<File> {
    let file = match open_appending(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            open_appending(path)?
        }
        other => other?,
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() < limit {
        return Ok(file);
    }
    // A file that cannot be renamed continues to grow: better than no log.
    let _ = turn_over(path, &file, limit);
    open_appending(path)
}

fn open_appending(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK a FIFO in the file's place would hold up every pod of the node.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)
}

/// Rotates a full file once. The lock is on the full file itself, so a process that gets it later finds another file at
/// the path. A process that has the rotated file open finishes its lines there.
fn turn_over(path: &Path, full: &File, limit: u64) -> io::Result<()> {
    if full.try_lock().is_err() {
        return Ok(());
    }
    let (ours, present) = (full.metadata()?, fs::metadata(path)?);
    if (ours.dev(), ours.ino()) != (present.dev(), present.ino()) || present.len() < limit {
        return Ok(());
    }
    for number in (1..FILES_KEPT).rev() {
        // A missing number is not an error.
        let _ = fs::rename(numbered(path, number), numbered(path, number + 1));
    }
    fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
