//! `Debug` of a world that broke a law: one object per line, without empty fields.

use super::Scenario;
use std::fmt;

const EMPTY: &[&str] = &[
    "namespace: \"\"",
    "uid: \"\"",
    "labels: {}",
    "annotations: {}",
    "created: \"\"",
    "generation: 0",
    "doubt: None",
    "name: None",
    "action: None",
    "logging: None",
    "why: \"scenario up\"",
    "ingress: []",
    "egress: []",
    "peers: []",
    "ports: []",
    "protocols: []",
    "services: []",
    "applied_to: []",
    "except: []",
    "host_network: false",
    "phase: Live",
    "namespaces: None",
    "pods: None",
    "source: None",
];

const SHORTER: &[(&str, &str)] = &[
    ("{ , ", "{ "),
    (", , ", ", "),
    (", }", " }"),
    ("Selector { requirements: {} }", "all"),
    ("Selector { requirements: ", "Selector "),
    ("Requirement { key: ", "{ "),
    ("operator: ", ""),
    ("Subject { selects: ", "Subject { "),
    ("  ", " "),
];

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for object in &self.objects {
            write!(f, "\n  - {}", shorten(format!("{object:?}")))?;
        }
        writeln!(f, "\n  names: {:?}", self.names)
    }
}

pub(super) fn shorten(mut text: String) -> String {
    for empty in EMPTY {
        text = text.replace(empty, "");
    }
    loop {
        let before = text.len();
        for (long, short) in SHORTER {
            text = text.replace(long, short);
        }
        if text.len() == before {
            return text;
        }
    }
}
