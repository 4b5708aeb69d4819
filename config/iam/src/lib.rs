//! The calls to EC2 that the code makes, and the IAM policies that allow them.
//!
//! [`grants`] is the table of the calls. It has the resources on which EC2 checks each, the modes that make it,
//! and the effect for an operator if it is missing. [`policy`] makes a document from it. [`files`]
//! writes all documents below `docs/iam`, with their page `docs/guide/iam.md`; `cargo xtask generate`
//! keeps those up to date. `tests/sim` checks each call of its simulations against these documents, so a difference
//! between the table and the code fails a test.

mod document;
mod grant;
mod page;
mod policy;

pub use document::{ConditionValue, Conditions, Document, Statement};
pub use grant::{Coverage, Grant, Mode, Resource, grants};
pub use policy::{
    ACCOUNT, CLUSTER, CLUSTER_OF_SESSION, REGION, Scope, TAG_CLUSTER, TAG_KEYS, VPC, policy,
};

use std::path::PathBuf;

/// Every file that is written from the table: the policies, and the page that explains them.
pub fn files() -> Vec<(PathBuf, String)> {
    let documents = Mode::ALL.iter().flat_map(|mode| {
        Scope::ALL.iter().map(|scope| (file(*mode, *scope), policy(*mode, *scope).text()))
    });
    let mut files: Vec<(PathBuf, String)> = documents.collect();
    files.push(("docs/guide/iam.md".into(), page::page()));
    files
}

pub fn file(mode: Mode, scope: Scope) -> PathBuf {
    let name = match scope {
        Scope::Account => format!("node-{}.json", mode.name()),
        Scope::Cluster | Scope::Session => format!("node-{}-{}.json", mode.name(), scope.name()),
    };
    PathBuf::from("docs/iam").join(name)
}
