//! The world of a vector as it goes through its steps.

use crate::table::{Note, Step, written_out};
use anyhow::{Context as _, Result, anyhow, bail};
use policy_core::World;
use policy_objects::{Kind, Object, Parsed, Severity};
use serde_json::Value;
use std::net::IpAddr;

/// Objects and names, and the world that saw them change.
pub(crate) struct Given {
    pub(crate) objects: Vec<Object>,
    pub(crate) names: Vec<(IpAddr, String)>,
    /// It was told of every change. Names are never forgotten by it, so it is made anew then.
    pub(crate) lived: World,
}

impl Given {
    pub(crate) fn new(standard: &[Value]) -> Result<Self> {
        let mut given = Self { objects: Vec::new(), names: Vec::new(), lived: World::default() };
        for object in standard {
            given.put(parsed(object)?.object);
        }
        Ok(given)
    }

    /// The world as it is now, made anew.
    pub(crate) fn fresh(&self) -> World {
        let mut world = World::new(self.objects.iter().cloned());
        self.names.iter().for_each(|(address, name)| world.name(*address, name));
        world
    }

    /// Does what a step says; what is said of its objects otherwise than it should be is a fault.
    pub(crate) fn step(&mut self, step: &Step) -> Result<Vec<String>> {
        for gone in &step.remove {
            self.remove(gone)?;
        }
        let mut said = Vec::new();
        for object in &step.objects {
            let Parsed { object, notes } = parsed(&written_out(object))?;
            let meta = object.meta();
            let name = match meta.namespace.as_str() {
                "" => meta.name.clone(),
                namespace => format!("{namespace}/{}", meta.name),
            };
            said.extend(notes.into_iter().map(|note| (name.clone(), note)));
            self.put(object);
        }
        let names = written_out(&Value::Array(step.names.clone()));
        for name in names.as_array().into_iter().flatten() {
            let (address, name) = pair(name.as_str().context("a name is a text")?)?;
            self.lived.name(address, &name);
            self.names.push((address, name));
        }
        if !step.forget.is_empty() {
            let forgotten =
                step.forget.iter().map(|text| pair(text)).collect::<Result<Vec<_>>>()?;
            self.names.retain(|name| !forgotten.contains(name));
            self.lived = self.fresh();
        }
        let mut faults = faults(&said, step.notes.as_deref());
        for refused in &step.refused {
            match Object::read_value(&refused.object) {
                Err(error) if error.to_string().contains(&refused.text) => {}
                other => faults.push(format!("expected {refused:?}, got {other:?}")),
            }
        }
        Ok(faults)
    }

    fn put(&mut self, object: Object) {
        self.lived.insert(object.clone());
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
        self.objects.remove(at.with_context(|| format!("remove: there is no {gone}"))?);
        self.lived.remove(kind, namespace, name);
        Ok(())
    }
}

fn parsed(value: &Value) -> Result<Parsed> {
    Object::read_value(value).map_err(|error| anyhow!("{error}: {value}"))
}

fn pair(text: &str) -> Result<(IpAddr, String)> {
    match text.split_once(' ') {
        Some((address, name)) => Ok((address.parse()?, name.to_owned())),
        None => bail!("`{text}` is no address and name"),
    }
}

/// What should have been said and was not, and errors that nobody expects.
fn faults(said: &[(String, policy_objects::Note)], wanted: Option<&[Note]>) -> Vec<String> {
    let all = wanted.unwrap_or_default();
    let is = |want: &Note, (name, note): &(String, policy_objects::Note)| {
        want.object == *name
            && want.severity == severity(note.severity)
            && note.field.starts_with(&want.field)
            && note.text.contains(&want.text)
    };
    let missing = all.iter().filter(|want| !said.iter().any(|note| is(want, note)));
    let missing = missing.map(|want| format!("not said: {want:?}; said is {said:?}"));
    let quiet = wanted.is_some_and(<[Note]>::is_empty);
    let stray = said.iter().filter(|note| {
        (quiet || note.1.severity == Severity::Error) && !all.iter().any(|want| is(want, note))
    });
    missing.chain(stray.map(|(name, note)| format!("nobody expects of {name}: {note:?}"))).collect()
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
