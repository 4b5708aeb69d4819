//! Documents of files, folders and standard input.

use super::json;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
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
pub(crate) struct Place {
    file: String,
    /// From 1; 0 where there is but one.
    document: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.document {
            0 => f.write_str(&self.file),
            document => write!(f, "{}, document {document}", self.file),
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
                    Err(error) => documents.faults.push(format!("standard input: {error}")),
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
            Err(error) => self.faults.push(format!("{}: {error}", path.display())),
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
            .map_err(|error| format!("{}: {error}", path.display()));
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
        let documents = if json { vec![text.to_owned()] } else { documents(text) };
        let many = documents.len() > 1;
        for (number, document) in (1..).zip(&documents) {
            let document_number = if many { number } else { 0 };
            let place = Place { file: file.to_owned(), document: document_number };
            match value(document, json) {
                Ok(Value::Null) => {}
                Ok(value) => self.values.push((value, place)),
                Err(error) => self.faults.push(format!("{place}: {error:#}")),
            }
        }
    }
}

/// The documents of a stream. Only the lines between them begin with three dashes.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        let between = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if between {
            documents.push(String::new());
        }
        if let Some(document) = documents.last_mut() {
            document.push_str(if between { line.get(3..).unwrap_or_default() } else { line });
            document.push('\n');
        }
    }
    let says = |document: &String| {
        document.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
    };
    documents.retain(says);
    documents
}

fn value(document: &str, json: bool) -> Result<Value> {
    if json {
        return json::value(document).context("this is not JSON");
    }
    // Lists of a whole cluster have no bound; what is too large is the reader's own.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    serde_saphyr::from_str_with_options(document, options).context("this is not YAML")
}
