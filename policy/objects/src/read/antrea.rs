//! Antrea's kinds.

mod group;
mod peer;
mod port;
mod subject;

pub(super) use group::group;

use super::tree::{At, Doubt, Notes};
use super::{becomes, is_silent, unknown};
use crate::{
    AntreaAction, AntreaEntry, AntreaPolicy, AntreaRule, Logging, Meta, Named, PolicyType, Read,
    Tier, Unknown,
};
use std::collections::BTreeSet;
use subject::Level;

/// Of the cluster or of a namespace: some fields differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Cluster,
    Namespace,
}

pub(super) fn tier(meta: Meta, spec: &At<'_>, notes: &mut Notes) -> Tier {
    if let Err(doubt) = spec.only(&["priority", "description"]) {
        notes.warn(spec, format!("{}; it is not read", doubt.cause));
    }
    let priority = match spec.get("priority").ok_or_else(|| spec.lacks("priority")) {
        Ok(at) => port::small(&at),
        Err(doubt) => Err(doubt),
    };
    let priority = match priority {
        Ok(priority) => Read::Known(priority),
        Err(doubt) => {
            notes.fail(&doubt, "policies of this tier count as of `application`");
            Read::Unknown(Unknown { why: doubt.why(), name: None, action: None })
        }
    };
    Tier { meta, priority }
}

pub(super) fn policy(meta: Meta, scope: Scope, spec: &At<'_>, notes: &mut Notes) -> AntreaPolicy {
    let odd = spec.only(&["tier", "priority", "appliedTo", "ingress", "egress"]).err();
    let mut whole = odd.clone();
    let tier = tier_name(spec).unwrap_or_else(|doubt| {
        whole.get_or_insert(doubt);
        APPLICATION.to_owned()
    });
    let priority = priority(spec, notes).unwrap_or_else(|doubt| {
        whole.get_or_insert(doubt);
        f64::MIN
    });
    if let Some(doubt) = &whole {
        notes.fail(
            doubt,
            match (&odd, is_silent(spec)) {
                (Some(_), _) => "the policy denies all traffic of its subject in both directions",
                (None, true) => "the policy has no rule, and does nothing",
                (None, false) => {
                    "no rule of the policy is understood: Allow allows nothing, others deny all"
                }
            },
        );
    }
    let applied_to = subject::all(spec, scope, Level::Policy, odd.as_ref(), notes);
    let (namespace, alone) = (meta.namespace.clone(), applied_to.is_empty());
    let reader = Reader { scope, namespace, odd, whole, alone };
    let ingress = reader.entries(spec, PolicyType::Ingress, notes);
    let egress = reader.entries(spec, PolicyType::Egress, notes);
    applied_twice(spec, notes);
    let of_rules = ingress.iter().chain(&egress).filter(|entry| !entry.applied_to.is_empty());
    match (applied_to.is_empty(), of_rules.count()) {
        (true, count) if count < ingress.len() + egress.len() || count == 0 => {
            notes.warn(
                spec,
                "neither the policy nor each rule has an appliedTo: rules without one apply to no pod",
            );
        }
        (false, 1..) => {
            notes.warn(
                spec,
                "both the policy and rules have an appliedTo: a rule's own holds for it",
            );
        }
        _ => {}
    }
    AntreaPolicy { meta, tier, priority, applied_to, ingress, egress }
}

fn tier_name(spec: &At<'_>) -> Result<String, Doubt> {
    let name = spec.get("tier").map_or(Ok(""), |at| at.text())?;
    Ok(match name {
        "" => APPLICATION.to_owned(),
        "Emergency" | "SecurityOps" | "NetworkOps" | "Platform" | "Application" | "Baseline" => {
            name.to_ascii_lowercase()
        }
        other => other.to_owned(),
    })
}

fn priority(spec: &At<'_>, notes: &mut Notes) -> Result<f64, Doubt> {
    let at = spec.get("priority").ok_or_else(|| spec.lacks("priority"))?;
    let priority = at.value.as_f64().filter(|number| number.is_finite());
    let priority = priority.ok_or_else(|| at.doubt("it is no number within 1 to 10000"))?;
    if !(1.0..=10_000.0).contains(&priority) {
        // Most digits of a huge number carry no information.
        let shown =
            if priority.abs() < 1e15 { priority.to_string() } else { format!("{priority:e}") };
        notes.warn(&at, format!("{shown} is not within 1 to 10000: API servers refuse it"));
    }
    Ok(priority)
}

fn applied_twice(spec: &At<'_>, notes: &mut Notes) {
    let mut names = BTreeSet::new();
    for key in ["ingress", "egress"] {
        for item in spec.items(key).into_iter().flatten() {
            let Some(at) = item.get("name") else { continue };
            let name = at.value.as_str().unwrap_or_default();
            if !name.is_empty() && !names.insert(name.to_owned()) {
                notes.warn(&at, format!("another rule is called `{name}` too"));
            }
        }
    }
}

/// Context for reading every rule of a policy.
struct Reader {
    scope: Scope,
    namespace: String,
    /// Reason why the spec is not understood as a whole.
    odd: Option<Doubt>,
    whole: Option<Doubt>,
    /// True if the policy itself has no subjects.
    alone: bool,
}

impl Reader {
    fn entries(&self, spec: &At<'_>, direction: PolicyType, notes: &mut Notes) -> Vec<AntreaEntry> {
        let key = match direction {
            PolicyType::Ingress => "ingress",
            PolicyType::Egress => "egress",
        };
        let mut entries: Vec<_> = match spec.items(key) {
            Ok(items) => items.map(|item| self.entry(&item, direction, notes)).collect(),
            Err(doubt) => {
                notes.fail(&doubt, becomes(None));
                vec![self.lost(&doubt, notes)]
            }
        };
        // A part that is not understood may be rules.
        entries.extend(self.odd.as_ref().map(|doubt| self.lost(doubt, notes)));
        entries
    }

    /// A rule that denies all.
    fn lost(&self, doubt: &Doubt, notes: &mut Notes) -> AntreaEntry {
        let unknown = Unknown { why: doubt.why(), name: None, action: None };
        let all = self.alone.then(|| subject::all_pods(self.scope, doubt, notes));
        AntreaEntry { applied_to: all.into_iter().collect(), rule: Read::Unknown(unknown) }
    }

    fn entry(&self, at: &At<'_>, direction: PolicyType, notes: &mut Notes) -> AntreaEntry {
        // Beside an appliedTo of the policy a rule has none of its own, however it is written.
        let odd = at.only(fields(direction).1).err().filter(|_| self.alone);
        let level = match direction {
            PolicyType::Ingress => Level::Ingress,
            PolicyType::Egress => Level::Egress,
        };
        let applied_to = subject::all(at, self.scope, level, odd.as_ref(), notes);
        let rule = match (self.rule(at, direction, notes), &self.whole) {
            (Ok(rule), None) => Read::Known(rule),
            (_, Some(doubt)) => Read::Unknown(unknown(at, doubt)),
            (Err(doubt), None) => {
                notes.fail(&doubt, becomes(Some(at)));
                Read::Unknown(unknown(at, &doubt))
            }
        };
        AntreaEntry { applied_to, rule }
    }

    fn rule(
        &self,
        at: &At<'_>,
        direction: PolicyType,
        notes: &mut Notes,
    ) -> Result<AntreaRule, Doubt> {
        let (side, known) = fields(direction);
        at.only(known)?;
        let action = action(at, notes)?;
        if at.items("l7Protocols")?.len() > 0 {
            return Err(at.doubt("`l7Protocols` is not supported"));
        }
        let read = |item| peer::peer(&item, self.scope, direction, notes);
        let peers = at.items(side)?.map(read).collect::<Result<Vec<_>, _>>()?;
        let ports = port::all(at, notes)?;
        let services = match direction {
            PolicyType::Ingress => Vec::new(),
            PolicyType::Egress => self.services(at)?,
        };
        let other = !peers.is_empty() || !ports.is_empty();
        if other && !services.is_empty() {
            return Err(at.doubt("`toServices` goes with neither `to` nor ports nor protocols"));
        }
        let logging = logging(at)?;
        Ok(AntreaRule { name: name(at)?, action, peers, ports, services, logging })
    }

    fn services(&self, at: &At<'_>) -> Result<Vec<Named>, Doubt> {
        let own = (self.scope == Scope::Namespace).then_some(self.namespace.as_str());
        let mut services = Vec::new();
        for item in at.items("toServices")? {
            item.only(&["name", "namespace", "scope"])?;
            in_this_cluster(&item)?;
            services.push(named(&item, own)?);
        }
        Ok(services)
    }
}

/// Field of the peers, and the other fields that a rule may have.
fn fields(direction: PolicyType) -> (&'static str, &'static [&'static str]) {
    match direction {
        PolicyType::Ingress => ("from", &FIELDS[..9]),
        PolicyType::Egress => ("to", &FIELDS[1..]),
    }
}

fn action(at: &At<'_>, notes: &mut Notes) -> Result<AntreaAction, Doubt> {
    let at = at.get("action").ok_or_else(|| at.lacks("action"))?;
    match at.text()? {
        "Allow" => Ok(AntreaAction::Allow),
        "Drop" => Ok(AntreaAction::Drop),
        "Reject" => Ok(AntreaAction::Reject),
        "Pass" => Ok(AntreaAction::Pass),
        "Deny" => {
            notes.warn(&at, "Antrea calls it Drop, and API servers refuse Deny");
            Ok(AntreaAction::Drop)
        }
        other => Err(at.doubt(format!("`{other}` is no action: Allow, Drop, Reject, Pass"))),
    }
}

fn name(at: &At<'_>) -> Result<Option<String>, Doubt> {
    let name = at.get("name").map(|at| at.text().map(str::to_owned)).transpose()?;
    Ok(name.filter(|name| !name.is_empty()))
}

fn logging(at: &At<'_>) -> Result<Option<Logging>, Doubt> {
    let label = at.get("logLabel").map_or(Ok(""), |at| at.text())?.to_owned();
    let on = at.get("enableLogging").map_or(Ok(false), |at| at.flag())?;
    Ok(on.then_some(Logging { label }))
}

/// `name` and `namespace`; the latter may be left out where there is one of its own.
fn named(at: &At<'_>, own: Option<&str>) -> Result<Named, Doubt> {
    let name = at.get("name").ok_or_else(|| at.lacks("name"))?.word()?.to_owned();
    let namespace = match (at.get("namespace"), own) {
        (Some(at), _) => at.word()?,
        (None, Some(own)) => own,
        (None, None) => return Err(at.lacks("namespace")),
    };
    Ok(Named { namespace: namespace.to_owned(), name })
}

/// `scope`: what reaches beyond the cluster is not supported.
fn in_this_cluster(at: &At<'_>) -> Result<(), Doubt> {
    match at.get("scope").map(|at| at.text().map(|text| (at.path(), text))).transpose()? {
        None | Some((_, "" | "Cluster")) => Ok(()),
        Some((field, other)) => {
            Err(Doubt { field, cause: format!("scope `{other}` is not supported") })
        }
    }
}

const APPLICATION: &str = "application";

/// The fields of an ingress rule, all but the last two; of an egress rule, all but the first.
const FIELDS: [&str; 11] = [
    "from",
    "action",
    "name",
    "ports",
    "protocols",
    "l7Protocols",
    "enableLogging",
    "logLabel",
    "appliedTo",
    "to",
    "toServices",
];
