//! The values of the chart `charts/ferrule`: what each is, what it defaults to, whose it is and what comes of it.
//!
//! One [`table()`] names every value; the environment's settings come from `config-settings`. From both are written
//! `values.yaml`, `values.schema.json`, the configuration schema of the form for EKS add-ons and the reference page
//! ([`files`]). Where amazon-vpc-cni's chart has a value, its key and meaning hold here too.
//!
//! This crate renders nothing: Helm does, from the templates. `tests/chart` holds both to a real API server.

mod addon;
mod env;
mod page;
mod schema;
mod table;
mod values;

pub use env::{Idle, OTHERS, given_by_chart, idle};
pub use table::{Effect, Origin, Shape, Value, table};

/// Each file that is generated here, by its path under the repository's root, with its text.
pub fn files() -> Vec<(&'static str, String)> {
    vec![
        ("charts/ferrule/values.yaml", values::text()),
        ("charts/ferrule/values.schema.json", schema::text()),
        ("charts/addon/configuration-schema.json", addon::text()),
        ("charts/ferrule/templates/_told.tpl", values::told()),
        ("docs/guide/values.md", page::text()),
    ]
}
