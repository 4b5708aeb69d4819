//! Objects from files or a cluster.

use super::documents::{Documents, Place};
use policy_core::{Aside, Foreign, ObjectName, PolicyKey, World};
use policy_kube::is_policy;
use policy_objects::{Kind, Note, Object, Parsed, ReadError, Severity};
use std::{collections::BTreeMap, path::PathBuf};

/// The objects in them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The last of each name.
    objects: BTreeMap<Name, (Object, Place)>,
    /// Of a cluster's objects the resource versions, which order those of one kind.
    versions: BTreeMap<Name, u64>,
    /// What is wrong with files and documents, so that the answer may be wrong.
    pub(crate) faults: Vec<String>,
    /// What people should know of where things are.
    pub(crate) hints: Vec<String>,
    /// What is odd in objects, and which policies are of kinds that nobody here enforces.
    pub(crate) aside: Aside,
}

type Name = (Kind, String, String);

impl Objects {
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

    /// In which file a policy stands.
    pub(crate) fn place(&self, key: &PolicyKey) -> Option<&Place> {
        self.file(&(key.kind, key.namespace.clone(), key.name.clone()))
    }

    /// In which file an object stands.
    pub(crate) fn place_of(&self, wanted: &ObjectName) -> Option<&Place> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.text() == wanted.kind)?;
        self.file(&(kind, wanted.namespace.clone(), wanted.name.clone()))
    }

    fn file(&self, name: &Name) -> Option<&Place> {
        let (_, place) = self.objects.get(name)?;
        (*place != Place::Cluster).then_some(place)
    }

    /// Takes in what was read of a cluster.
    pub(crate) fn take_live(&mut self, read: Result<Parsed, ReadError>, version: u64) {
        if let Ok(Parsed { object, .. }) = &read {
            let meta = object.meta();
            let name = (object.kind(), meta.namespace.clone(), meta.name.clone());
            self.versions.insert(name, version);
        }
        self.take(read, &Place::Cluster);
    }

    /// The resource version of an object of a cluster; 0 if it is not known.
    pub(crate) fn version(&self, kind: Kind, namespace: &str, name: &str) -> u64 {
        let name = (kind, namespace.to_owned(), name.to_owned());
        self.versions.get(&name).copied().unwrap_or_default()
    }

    /// The newest of a kind.
    pub(crate) fn newest(&self, kind: Kind) -> u64 {
        let of_kind = self.versions.iter().filter(|((other, ..), _)| *other == kind);
        of_kind.map(|(_, version)| *version).max().unwrap_or_default()
    }

    /// How many objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Takes in what was read.
    pub(crate) fn take(&mut self, read: Result<Parsed, ReadError>, place: &Place) {
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
                    let text = format!("it is in {first}, too; this one is taken: delete one");
                    self.hints.push(format!("{place}: {title}: {text}"));
                    let field = "metadata.name".to_owned();
                    let note = Note { severity: Severity::Warning, field, text };
                    self.aside.notes.push((title, note));
                }
            }
            Err(ReadError::Foreign { api_version, kind, namespace, name, known }) => {
                let foreign = Foreign { api_version, kind, namespace, name };
                let misspelt = foreign.is_misspelt();
                // Objects of a cluster hold much that is no matter of policy.
                if known.is_none() && !misspelt && !is_policy(&foreign.kind) {
                    return;
                }
                let Foreign { api_version, kind, name, .. } = &foreign;
                let text = format!(
                    "{place}: {kind} {name} of {api_version} is not enforced, and left out: {}",
                    foreign.next()
                );
                match misspelt {
                    true => self.faults.push(text),
                    false => self.hints.push(text),
                }
                self.aside.foreign.push(foreign);
            }
            Err(
                error @ (ReadError::NotJson { .. }
                | ReadError::NoObject
                | ReadError::NoKind
                | ReadError::NoItems { .. }
                | ReadError::NoName { .. }),
            ) => self.faults.push(format!("{place}: {:#}", anyhow::Error::new(error))),
        }
    }
}
