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

#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The values with their origins.
    pub(crate) values: Vec<(Value, Position)>,
    /// Errors in files and documents. With an error the result may be wrong.
    pub(crate) faults: Vec<String>,
    /// Folders that were read, by device and inode, because symbolic links may lead back to them.
    seen: BTreeSet<(u64, u64)>,
}

/// The origin of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    File {
        /// The path as the user gave it.
        file: String,
        /// Starts at 1; 0 if the file has only one document.
        document: usize,
    },
    Cluster,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { file, document: 0 } => f.write_str(file),
            Self::File { file, document } => write!(f, "{file}, document {document}"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

impl Documents {
    /// Reads files, folders and standard input, except for the files in `without`. An error does not stop the other
    /// inputs.
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

    /// Reads a file or a folder. A file that the user names is read whatever its extension.
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
            let place = Position::File { file: file.to_owned(), document: document_number };
            match if json { read_json(document) } else { yaml::value(document) } {
                Ok(Value::Null) => {}
                Ok(value) => self.values.push((value, place)),
                Err(Fault { line, text }) => {
                    let line = line.map(|line| format!(", line {}", before + line));
                    let what = if json { "JSON" } else { "YAML" };
                    let line = line.unwrap_or_default();
                    self.faults.push(format!("{place}{line}: cannot read {what}: {text}"));
                }
            }
        }
    }
}

/// Splits a stream into documents, each with the number of lines before it. Only separator lines start with three
/// dashes.
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
        let text = format!("{cause} at column {}; fix the syntax", error.column());
        Fault { line: Some(error.line()), text }
    })
}

fn unreadable(what: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        return format!(
            "cannot read {what}: the file is not UTF-8; convert it or name another file"
        );
    }
    if error.kind() == io::ErrorKind::NotFound {
        return format!(
            "cannot read {what}: the file does not exist; name an existing file or folder"
        );
    }
    format!("cannot read {what}: {error}")
}
