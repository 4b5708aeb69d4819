//! Objects from files or a cluster.

use super::documents::{Documents, Position};
use policy_core::{Aside, Foreign, ObjectName, PolicyKey, World};
use policy_kube::is_policy;
use policy_objects::{Kind, Note, Object, Parsed, ReadError, Severity};
use std::{collections::BTreeMap, path::PathBuf};

#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The last object of each name counts.
    objects: BTreeMap<Name, (Object, Position)>,
    /// Resource versions of a cluster's objects. They order the objects of one kind.
    versions: BTreeMap<Name, u64>,
    /// Errors in files and documents. With an error the result may be wrong.
    pub(crate) faults: Vec<String>,
    /// Remarks about inputs.
    pub(crate) hints: Vec<String>,
    /// Oddities of objects, and policies of kinds that Ferrule does not enforce.
    pub(crate) aside: Aside,
}

type Name = (Kind, String, String);

impl Objects {
    pub(crate) fn read(paths: &[PathBuf]) -> Self {
        Self::read_but(paths, &[])
    }

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

    pub(crate) fn world(&self) -> World {
        World::new(self.objects.values().map(|(object, _)| object.clone()))
    }

    /// Returns these objects, replaced by those of `other` that have the same name.
    pub(crate) fn with(&self, other: &Self) -> World {
        let mut world = self.world();
        other.objects.values().for_each(|(object, _)| world.insert(object.clone()));
        world
    }

    /// Returns the file of a policy.
    pub(crate) fn place(&self, key: &PolicyKey) -> Option<&Position> {
        self.file(&(key.kind, key.namespace.clone(), key.name.clone()))
    }

    /// Returns the file of an object.
    pub(crate) fn place_of(&self, wanted: &ObjectName) -> Option<&Position> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.text() == wanted.kind)?;
        self.file(&(kind, wanted.namespace.clone(), wanted.name.clone()))
    }

    fn file(&self, name: &Name) -> Option<&Position> {
        let (_, place) = self.objects.get(name)?;
        (*place != Position::Cluster).then_some(place)
    }

    /// Adds objects of a cluster.
    pub(crate) fn take_live(&mut self, read: Result<Parsed, ReadError>, version: u64) {
        if let Ok(Parsed { object, .. }) = &read {
            let meta = object.meta();
            let name = (object.kind(), meta.namespace.clone(), meta.name.clone());
            self.versions.insert(name, version);
        }
        self.take(read, &Position::Cluster);
    }

    /// Returns an object's resource version; 0 if it is unknown.
    pub(crate) fn version(&self, kind: Kind, namespace: &str, name: &str) -> u64 {
        let name = (kind, namespace.to_owned(), name.to_owned());
        self.versions.get(&name).copied().unwrap_or_default()
    }

    /// Returns the newest version of a kind.
    pub(crate) fn newest(&self, kind: Kind) -> u64 {
        let of_kind = self.versions.iter().filter(|((other, ..), _)| *other == kind);
        of_kind.map(|(_, version)| *version).max().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Adds objects of a file.
    pub(crate) fn take(&mut self, read: Result<Parsed, ReadError>, place: &Position) {
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
                    let text = format!("also in {first}, this one is used; delete one");
                    self.hints.push(format!("{place}: {title}: {text}"));
                    let field = "metadata.name".to_owned();
                    let note = Note { severity: Severity::Warning, field, text };
                    self.aside.notes.push((title, note));
                }
            }
            Err(ReadError::Foreign { api_version, kind, namespace, name, known }) => {
                let foreign = Foreign { api_version, kind, namespace, name };
                let misspelled = foreign.is_misspelled();
                // A cluster's objects have many fields that are irrelevant for policy.
                if known.is_none() && !misspelled && !is_policy(&foreign.kind) {
                    return;
                }
                let Foreign { api_version, kind, name, .. } = &foreign;
                let text = format!(
                    "{place}: {kind} {name} of {api_version} is not enforced and was left out: {}",
                    foreign.next()
                );
                match misspelled {
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
