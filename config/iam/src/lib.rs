//! The calls to EC2 that the code makes, and the IAM policies that allow them.
//!
//! [`grants`] is the table of the calls: on which resources EC2 checks each, in which modes it is
//! made, and what an operator sees without it. [`policy`] makes a document of it, and [`files`]
//! writes them all below `docs/iam`, with their page `docs/guide/iam.md`; `cargo xtask generate`
//! keeps those up to date. The table cannot disagree with the code for long: `tests/sim` puts each
//! call of its simulated lives to these documents.

mod document;
mod grant;
mod page;
mod policy;

pub use document::{Conditions, Document, Statement, Wanted};
pub use grant::{Grant, Mode, Resource, Seen, grants};
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
