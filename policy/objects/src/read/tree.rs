//! A JSON value, and the way to it.

use crate::{Note, Severity};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A value, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    above: Option<&'a At<'a>>,
    step: Step<'a>,
    pub(crate) value: &'a Value,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(&'a str, usize),
}

/// A field that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) field: String,
    pub(crate) cause: String,
}

impl Doubt {
    pub(crate) fn why(&self) -> String {
        format!("{}: {}", self.field, self.cause)
    }
}

impl<'a> At<'a> {
    /// A value at the top of an object.
    pub(crate) fn top(key: &'a str, value: &'a Value) -> Self {
        Self { above: None, step: Step::Key(key), value }
    }

    /// The value under a key; `null` is none, and what is no object has none.
    pub(crate) fn get<'s>(&'s self, key: &'s str) -> Option<At<'s>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(At { above: Some(self), step: Step::Key(key), value })
    }

    /// Fails if an object has a key that is not in `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Doubt> {
        let map = self.value.as_object().ok_or_else(|| self.unlike("an object"))?;
        let odd =
            map.iter().find(|(key, value)| !value.is_null() && !known.contains(&key.as_str()));
        match odd {
            None => Ok(()),
            Some((key, _)) => Err(self.doubt(format!(
                "`{key}` is not a field that is known here; known are {}",
                known.join(", ")
            ))),
        }
    }

    /// The items of the list under a key; none where there is no list.
    pub(crate) fn items<'s>(
        &'s self,
        key: &'s str,
    ) -> Result<impl ExactSizeIterator<Item = At<'s>>, Doubt> {
        let items = match self.get(key) {
            None => &[],
            Some(list) => match list.value.as_array() {
                Some(items) => items.as_slice(),
                None => return Err(list.unlike("a list")),
            },
        };
        let item =
            move |(index, value)| At { above: Some(self), step: Step::Item(key, index), value };
        Ok(items.iter().enumerate().map(item))
    }

    /// The values of an object, by their keys.
    pub(crate) fn entries<'s>(&'s self) -> Result<impl Iterator<Item = (&'s str, At<'s>)>, Doubt> {
        let map = self.value.as_object().ok_or_else(|| self.unlike("an object"))?;
        Ok(map.iter().map(move |(key, value)| {
            (key.as_str(), At { above: Some(self), step: Step::Key(key), value })
        }))
    }

    pub(crate) fn text(&self) -> Result<&'a str, Doubt> {
        self.value.as_str().ok_or_else(|| self.unlike("a text"))
    }

    /// A string that is not empty.
    pub(crate) fn word(&self) -> Result<&'a str, Doubt> {
        let text = self.text()?;
        if text.is_empty() { Err(self.doubt("it is empty")) } else { Ok(text) }
    }

    /// Yes or no.
    pub(crate) fn flag(&self) -> Result<bool, Doubt> {
        self.value.as_bool().ok_or_else(|| self.unlike("true or false"))
    }

    pub(crate) fn integer(&self) -> Result<i64, Doubt> {
        self.value.as_i64().ok_or_else(|| self.unlike("a whole number"))
    }

    pub(crate) fn doubt(&self, cause: impl Into<String>) -> Doubt {
        Doubt { field: self.path(), cause: cause.into() }
    }

    /// That a field that must be there is not.
    pub(crate) fn lacks(&self, key: &str) -> Doubt {
        self.doubt(format!("`{key}` is missing"))
    }

    pub(crate) fn unlike(&self, wanted: &str) -> Doubt {
        let is = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.doubt(format!("it is {is} where {wanted} belongs"))
    }

    /// Such as `spec.ingress[0].from[1]`.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        self.write(&mut path);
        path
    }

    fn write(&self, path: &mut String) {
        if let Some(above) = self.above {
            above.write(path);
        }
        let (Step::Key(key) | Step::Item(key, _)) = self.step;
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(key);
        if let Step::Item(_, index) = self.step {
            let _ = write!(path, "[{index}]");
        }
    }
}

/// Notes for people; bounded for each severity.
#[derive(Default)]
pub(crate) struct Notes {
    notes: Vec<Note>,
    /// Beyond the most.
    more: BTreeSet<Note>,
    /// Place of the first note of each severity.
    from: BTreeMap<Severity, String>,
}

impl Notes {
    /// Adds a warning: the part is enforced, but perhaps not as the author intended.
    pub(crate) fn warn(&mut self, at: &At<'_>, text: impl Into<String>) {
        self.push(Severity::Warning, at.path(), text.into());
    }

    /// Adds an error: the part is not understood, and `becomes` is the effect.
    pub(crate) fn fail(&mut self, doubt: &Doubt, becomes: &str) {
        self.push(Severity::Error, doubt.field.clone(), format!("{}; {becomes}", doubt.cause));
    }

    fn push(&mut self, severity: Severity, field: String, text: String) {
        let note = Note { severity, field, text };
        if self.notes.contains(&note) {
            return;
        }
        let same = self.notes.iter().filter(|notes| notes.severity == severity).count();
        if same < MOST {
            self.notes.push(note);
        } else {
            self.from.entry(severity).or_insert_with(|| note.field.clone());
            self.more.insert(note);
        }
    }

    /// Returns notes in the order of the object. If a severity has too many, its last note has the count of the others.
    pub(crate) fn finish(mut self) -> Vec<Note> {
        for (severity, field) in self.from {
            let count = self.more.iter().filter(|note| note.severity == severity).count();
            let what = match severity {
                Severity::Warning => "warnings",
                Severity::Error => "errors",
            };
            let text = format!("{what} left out from here on: {count}; fix the earlier ones first");
            self.notes.push(Note { severity, field, text });
        }
        self.notes
    }
}

/// The most notes of a severity that an object gets in full.
const MOST: usize = 50;
