//! Finds the parts of a world that their authors probably did not intend.
//!
//! Each finding names the object, the field, the problem and the next step. The lint never changes a
//! verdict. A finding about a shadowed rule or a Pass without effect holds in every world with these policies.
//! A finding about a part that matches nothing holds for the current world.

mod addresses;
mod cover;
mod empty;
mod foreign;
mod missing;
mod order;
mod passes;

#[cfg(test)]
mod tests;

pub use foreign::Foreign;

use crate::{Direction, Policy, PolicyKey, Rule, World};
use policy_objects::{Kind, Meta, Note, Severity};
use serde::Serialize;
use std::{cmp::Reverse, fmt};

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub check: Check,
    pub object: ObjectName,
    /// The field, such as `spec.ingress[0]`; empty if it is the object as a whole.
    pub field: String,
    /// The problem, its effect, and the next step.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// A note from reading the object.
    Reading,
    /// A kind that Ferrule does not enforce.
    NotEnforced,
    /// A group, a tier or a Service that is not there or cannot be used.
    Missing,
    /// A priority that two policies have, or a number that two tiers have.
    Tie,
    /// A rule that never decides.
    Shadowed,
    /// A Pass that does not do what its author may think.
    Pass,
    MatchesNothing,
    /// An address that several pods have.
    Address,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectName {
    /// Kind and group: `NetworkPolicy`, `Tier.crd.antrea.io`.
    pub kind: String,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    pub name: String,
}

/// Findings outside the objects of a world.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// Notes from reading objects.
    pub notes: Vec<(ObjectName, Note)>,
    /// Objects of kinds that are not read.
    pub foreign: Vec<Foreign>,
}

/// All findings, the worst first, then by object.
pub fn lint(world: &World, aside: &Aside) -> Vec<Finding> {
    let mut findings: Vec<Finding> = aside.notes.iter().map(reading).collect();
    findings.extend(aside.foreign.iter().map(not_enforced));
    missing::look(world, &mut findings);
    order::look(world, &mut findings);
    passes::look(world, &mut findings);
    empty::look(world, &mut findings);
    addresses::look(world, &mut findings);
    findings.sort_by(|one, other| one.key().cmp(&other.key()));
    findings.dedup();
    findings
}

fn reading((object, note): &(ObjectName, Note)) -> Finding {
    Finding {
        severity: note.severity,
        check: Check::Reading,
        object: object.clone(),
        field: note.field.clone(),
        text: note.text.clone(),
    }
}

fn not_enforced(foreign: &Foreign) -> Finding {
    let Foreign { kind, namespace, name, .. } = foreign;
    let (namespace, name) = (namespace.clone(), name.clone());
    let kind = match foreign.group() {
        "" => kind.clone(),
        group => format!("{kind}.{group}"),
    };
    Finding {
        severity: Severity::Error,
        check: Check::NotEnforced,
        field: String::new(),
        text: format!("it is not enforced: {}", foreign.next()),
        object: ObjectName { kind, namespace, name },
    }
}

impl Finding {
    fn key(&self) -> impl Ord + '_ {
        (Reverse(self.severity), &self.object, steps(&self.field), self.check, &self.text)
    }

    fn of(policy: &Policy, severity: Severity, check: Check, text: String) -> Self {
        let object = ObjectName::of_policy(&policy.key);
        Self { severity, check, object, field: String::new(), text }
    }

    fn of_rule(policy: &Policy, rule: &Rule, check: Check, text: String) -> Self {
        let field = field(rule);
        Self { field, ..Self::of(policy, Severity::Warning, check, text) }
    }
}

impl ObjectName {
    /// The name of an object of a kind.
    pub fn new(kind: Kind, meta: &Meta) -> Self {
        Self {
            kind: kind.text().to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        }
    }

    fn of_policy(key: &PolicyKey) -> Self {
        let PolicyKey { kind, namespace, name } = key.clone();
        Self { kind: kind.text().to_owned(), namespace, name }
    }
}

/// A field's steps, so that the second item of a list is before the tenth.
fn steps(field: &str) -> Vec<(u32, &str)> {
    let step = |step| -> (u32, &str) {
        let item = str::split_once(step, ']')
            .and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        item.unwrap_or((0, step))
    };
    field.split('[').map(step).collect()
}

/// A rule as its object's field.
fn field(rule: &Rule) -> String {
    let direction = match rule.direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    };
    format!("spec.{direction}[{}]", rule.index)
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = (self.kind.escape_debug(), self.name.escape_debug());
        match self.namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {}/{name}", namespace.escape_debug()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.object)?;
        match self.field.as_str() {
            "" => write!(f, ": {}", self.text),
            field => write!(f, " {field}: {}", self.text),
        }
    }
}
