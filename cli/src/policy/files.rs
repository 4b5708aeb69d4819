//! Objects from files.

use anyhow::{Context as _, Result};
use policy_core::{Aside, Foreign, ObjectName, PolicyKey, World};
use policy_objects::{Kind, Object, Parsed, ReadError};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Documents as they are written.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Each with its place.
    pub(crate) values: Vec<(Value, Place)>,
    /// What is wrong with files and documents, so that the answer may be wrong.
    pub(crate) faults: Vec<String>,
}

/// The objects in them.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The last of each name.
    objects: BTreeMap<Name, (Object, Place)>,
    /// What is wrong with files and documents, so that the answer may be wrong.
    pub(crate) faults: Vec<String>,
    /// What people should know of where things are.
    pub(crate) hints: Vec<String>,
    /// What is odd in objects, and which policies are of kinds that nobody here enforces.
    pub(crate) aside: Aside,
}

type Name = (Kind, String, String);

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

impl Files {
    /// Reads files, folders and standard input.
    pub(crate) fn read(paths: &[PathBuf]) -> Self {
        Self::read_but(paths, &[])
    }

    /// The same without these files.
    pub(crate) fn read_but(paths: &[PathBuf], without: &[PathBuf]) -> Self {
        let documents = Documents::read(paths, without);
        let mut files = Self { faults: documents.faults, ..Self::default() };
        for (value, place) in &documents.values {
            for read in Object::read_all_values(value) {
                files.take(read, place);
            }
        }
        files
    }

    /// A world of them.
    pub(crate) fn world(&self) -> World {
        World::new(self.objects.values().map(|(object, _)| object.clone()))
    }

    /// These and, of the same name instead, those.
    pub(crate) fn with(&self, other: &Self) -> World {
        let mut world = self.world();
        other.objects.values().for_each(|(object, _)| world.insert(object.clone()));
        world
    }

    /// Where a policy stands.
    pub(crate) fn place(&self, key: &PolicyKey) -> Option<&Place> {
        let name = (key.kind, key.namespace.clone(), key.name.clone());
        self.objects.get(&name).map(|(_, place)| place)
    }

    /// Where an object stands.
    pub(crate) fn place_of(&self, wanted: &ObjectName) -> Option<&Place> {
        let mut places = self.objects.values();
        let is = |object: &Object| ObjectName::new(object.kind(), object.meta()) == *wanted;
        places.find(|(object, _)| is(object)).map(|(_, place)| place)
    }

    /// How many objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    fn take(&mut self, read: Result<Parsed, ReadError>, place: &Place) {
        match read {
            Ok(Parsed { object, notes }) => {
                let meta = object.meta();
                let title = ObjectName::new(object.kind(), meta);
                let name = (object.kind(), meta.namespace.clone(), meta.name.clone());
                for note in notes {
                    self.hints.push(format!("{place}: {title} {}: {}", note.field, note.text));
                    self.aside.notes.push((title.clone(), note));
                }
                if let Some((_, first)) = self.objects.insert(name, (object, place.clone())) {
                    let text = format!("{place}: {title} is in {first}, too; this one is taken");
                    self.hints.push(text);
                }
            }
            Err(ReadError::Foreign { api_version, kind, namespace, name, known }) => {
                // Files of a cluster hold much that is no matter of policy.
                if known.is_none() && !is_policy(&kind) {
                    return;
                }
                self.hints.push(format!(
                    "{place}: {kind} {name} of {api_version} is not enforced, and left out; \
                     `ferrule policy convert` writes old versions of policies anew"
                ));
                let group = api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
                self.aside.foreign.push(Foreign { group, kind, namespace, name });
            }
            Err(
                error @ (ReadError::NotJson { .. }
                | ReadError::NoObject
                | ReadError::NoKind
                | ReadError::NoName { .. }),
            ) => self.faults.push(format!("{place}: {:#}", anyhow::Error::new(error))),
        }
    }
}

/// Whether a kind that is not read is somebody's network policy, or belongs to one.
fn is_policy(kind: &str) -> bool {
    kind.ends_with("NetworkPolicy") || OTHERS.contains(&kind)
}

/// What other vendors' network policies are made of.
const OTHERS: [&str; 5] =
    ["NetworkSet", "GlobalNetworkSet", "CiliumCIDRGroup", "ClusterGroup", "ExternalEntity"];

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
        return serde_json::from_str(document).context("this is not JSON");
    }
    // Lists of a whole cluster have no bound; what is too large is the reader's own.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    serde_saphyr::from_str_with_options(document, options).context("this is not YAML")
}
