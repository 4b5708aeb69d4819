//! Documents of files, folders and standard input.

use super::{
    json,
    yaml::{self, Fault},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Documents as they are written.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Each with its place.
    pub(crate) values: Vec<(Value, Place)>,
    /// What is wrong with files and documents, so that the answer may be wrong.
    pub(crate) faults: Vec<String>,
    /// Folders that were read, by device and inode: links may lead back to them.
    seen: BTreeSet<(u64, u64)>,
}

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a file.
    File {
        /// Its path as it was named.
        file: String,
        /// From 1; 0 where there is but one.
        document: usize,
    },
    /// In the cluster, as everything else that was asked.
    Cluster,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { file, document: 0 } => f.write_str(file),
            Self::File { file, document } => write!(f, "{file}, document {document}"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

impl Documents {
    /// Reads files, folders and standard input, but for these files. What cannot be read is told, and the
    /// others are.
    pub(crate) fn read(paths: &[PathBuf], without: &[PathBuf]) -> Self {
        let mut documents = Self::default();
        let without: Vec<PathBuf> =
            without.iter().filter_map(|path| path.canonicalize().ok()).collect();
        for path in paths {
            if path == Path::new("-") {
                let mut text = String::new();
                match std::io::stdin().read_to_string(&mut text) {
                    Ok(_) => documents.text("standard input", &text, false),
                    Err(error) => documents.faults.push(unreadable("standard input", &error)),
                }
                continue;
            }
            documents.path(path, &without, true);
        }
        documents
    }

    /// A file or a folder; one that was named is read whatever it is called.
    fn path(&mut self, path: &Path, without: &[PathBuf], named: bool) {
        if path.canonicalize().is_ok_and(|path| without.contains(&path)) {
            return;
        }
        if path.is_dir() {
            return self.folder(path, without);
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !named && !["yaml", "yml", "json"].contains(&ending) {
            return;
        }
        match fs::read_to_string(path) {
            Ok(text) => self.text(&path.display().to_string(), &text, ending == "json"),
            Err(error) => self.faults.push(unreadable(&path.display().to_string(), &error)),
        }
    }

    fn folder(&mut self, path: &Path, without: &[PathBuf]) {
        if let Ok(folder) = fs::metadata(path)
            && !self.seen.insert((folder.dev(), folder.ino()))
        {
            return;
        }
        let entries = fs::read_dir(path)
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
            .map_err(|error| unreadable(&path.display().to_string(), &error));
        match entries {
            Err(error) => self.faults.push(error),
            Ok(entries) => {
                let mut paths: Vec<PathBuf> =
                    entries.into_iter().map(|entry| entry.path()).collect();
                paths.sort();
                paths.iter().for_each(|path| self.path(path, without, false));
            }
        }
    }

    fn text(&mut self, file: &str, text: &str, json: bool) {
        let documents = if json { vec![(0, text.to_owned())] } else { documents(text) };
        let many = documents.len() > 1;
        for (number, (before, document)) in (1..).zip(&documents) {
            let document_number = if many { number } else { 0 };
            let place = Place::File { file: file.to_owned(), document: document_number };
            match if json { read_json(document) } else { yaml::value(document) } {
                Ok(Value::Null) => {}
                Ok(value) => self.values.push((value, place)),
                Err(Fault { line, text }) => {
                    let line = line.map(|line| format!(", line {}", before + line));
                    let what = if json { "JSON" } else { "YAML" };
                    let line = line.unwrap_or_default();
                    self.faults.push(format!("{place}{line}: this is not {what}: {text}"));
                }
            }
        }
    }
}

/// The documents of a stream, each with the number of lines before it. Only the lines between them
/// begin with three dashes.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(0, String::new())];
    for (number, line) in text.lines().enumerate() {
        let between = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if between {
            documents.push((number, String::new()));
        }
        if let Some((_, document)) = documents.last_mut() {
            document.push_str(if between { line.get(3..).unwrap_or_default() } else { line });
            document.push('\n');
        }
    }
    let says = |(_, document): &(usize, String)| {
        document.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
    };
    documents.retain(says);
    documents
}

fn read_json(document: &str) -> Result<Value, Fault> {
    json::value(document).map_err(|error| {
        let words = error.to_string();
        let cause = words.split(" at line ").next().unwrap_or_default();
        let text = format!("{cause} at column {}: mend that", error.column());
        Fault { line: Some(error.line()), text }
    })
}

fn unreadable(what: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        return format!("{what}: it is no text: save it in UTF-8, or name another file");
    }
    if error.kind() == io::ErrorKind::NotFound {
        return format!("{what}: it is not there: name a file or a folder that is");
    }
    format!("{what}: it cannot be read: {error}")
}
