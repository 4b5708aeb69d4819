//! The world of a vector, with the changes of its steps.

use crate::table::{ExpectedNote, Step, written_out};
use anyhow::{Context as _, Result, anyhow, bail};
use policy_core::World;
use policy_objects::{Kind, Object, Parsed, Severity};
use serde_json::Value;
use std::net::IpAddr;

/// Objects and DNS results, and the model's world that received each change.
pub(crate) struct VectorWorld {
    pub(crate) objects: Vec<Object>,
    pub(crate) names: Vec<(IpAddr, String)>,
    /// The world that received every change. The model has no event that removes a DNS result, so the world
    /// is recreated for `forget`.
    pub(crate) live: World,
}

impl VectorWorld {
    pub(crate) fn new(standard: &[Value]) -> Result<Self> {
        let mut given = Self { objects: Vec::new(), names: Vec::new(), live: World::default() };
        for object in standard {
            given.put(parsed(object)?.object);
        }
        Ok(given)
    }

    /// A new model world from the current objects and DNS results.
    pub(crate) fn fresh(&self) -> World {
        let mut world = World::new(self.objects.iter().cloned());
        self.names.iter().for_each(|(address, name)| world.name(*address, name));
        world
    }

    /// Applies a step. Returns the differences from the expected notes and refusals.
    pub(crate) fn step(&mut self, step: &Step) -> Result<Vec<String>> {
        for gone in &step.remove {
            self.remove(gone)?;
        }
        let mut reported = Vec::new();
        for object in &step.objects {
            let Parsed { object, notes } = parsed(&written_out(object))?;
            let meta = object.meta();
            let name = match meta.namespace.as_str() {
                "" => meta.name.clone(),
                namespace => format!("{namespace}/{}", meta.name),
            };
            reported.extend(notes.into_iter().map(|note| (name.clone(), note)));
            self.put(object);
        }
        let names = written_out(&Value::Array(step.names.clone()));
        for name in names.as_array().into_iter().flatten() {
            let (address, name) = pair(name.as_str().context("a name is not a string")?)?;
            self.live.name(address, &name);
            self.names.push((address, name));
        }
        if !step.forget.is_empty() {
            let forgotten =
                step.forget.iter().map(|text| pair(text)).collect::<Result<Vec<_>>>()?;
            self.names.retain(|name| !forgotten.contains(name));
            self.live = self.fresh();
        }
        let mut faults = faults(&reported, step.notes.as_deref());
        for refused in &step.refused {
            match Object::read_value(&refused.object) {
                Err(error) if error.to_string().contains(&refused.text) => {}
                other => faults.push(format!("expected {refused:?}, got {other:?}")),
            }
        }
        Ok(faults)
    }

    fn put(&mut self, object: Object) {
        self.live.insert(object.clone());
        let same = |other: &Object| {
            is(other, object.kind(), &object.meta().namespace, &object.meta().name)
        };
        match self.objects.iter().position(same) {
            Some(at) => self.objects[at] = object,
            None => self.objects.push(object),
        }
    }

    fn remove(&mut self, gone: &str) -> Result<()> {
        let (kind, name) = gone.split_once(' ').with_context(|| format!("remove: {gone}"))?;
        let kind = Kind::ALL.into_iter().find(|known| known.text() == kind);
        let kind = kind.with_context(|| format!("remove: {gone}"))?;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let at = self.objects.iter().position(|object| is(object, kind, namespace, name));
        self.objects.remove(at.with_context(|| format!("remove: no object is named {gone}"))?);
        self.live.remove(kind, namespace, name);
        Ok(())
    }
}

fn parsed(value: &Value) -> Result<Parsed> {
    Object::read_value(value).map_err(|error| anyhow!("{error}: {value}"))
}

fn pair(text: &str) -> Result<(IpAddr, String)> {
    match text.split_once(' ') {
        Some((address, name)) => Ok((address.parse()?, name.to_owned())),
        None => bail!("`{text}` is not an address and a name"),
    }
}

/// Expected notes that are missing, and errors that are not expected.
fn faults(
    reported: &[(String, policy_objects::Note)],
    wanted: Option<&[ExpectedNote]>,
) -> Vec<String> {
    let all = wanted.unwrap_or_default();
    let is = |want: &ExpectedNote, (name, note): &(String, policy_objects::Note)| {
        want.object == *name
            && want.severity == severity(note.severity)
            && note.field.starts_with(&want.field)
            && note.text.contains(&want.text)
    };
    let missing = all.iter().filter(|want| !reported.iter().any(|note| is(want, note)));
    let missing = missing.map(|want| format!("missing note {want:?}; the notes are {reported:?}"));
    let quiet = wanted.is_some_and(<[ExpectedNote]>::is_empty);
    let stray = reported.iter().filter(|note| {
        (quiet || note.1.severity == Severity::Error) && !all.iter().any(|want| is(want, note))
    });
    missing
        .chain(stray.map(|(name, note)| format!("unexpected note on {name}: {note:?}")))
        .collect()
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn is(object: &Object, wanted: Kind, namespace: &str, name: &str) -> bool {
    let meta = object.meta();
    object.kind() == wanted && meta.namespace == namespace && meta.name == name
}
