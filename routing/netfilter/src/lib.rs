//! Runs iptables and nft: observes netfilter, and changes it by whole transactions.
//!
//! Decides nothing: what to change is [`routing_plan::nat`]'s to say. Reads go by `iptables-save`
//! and not by `iptables -S`, which makes the table that it is asked for; writes go by
//! `iptables-restore` and `nft -f`, which do all or nothing.

mod command;

pub use command::{Failure, Why};

use command::Program;
use routing_plan::Family;
use routing_plan::nat::{
    Backend, Change, Netfilter, Tables, egress,
    iptables::{self, Saved},
    nftables::{self, Listed, PREDECESSOR, TABLE},
    sources,
};

/// The tools that the node has.
#[derive(Clone, Debug)]
pub struct Tools {
    legacy: Option<Variant>,
    nft: Option<Variant>,
    nftables: Option<Program>,
}

/// One variant of iptables.
#[derive(Clone, Debug)]
struct Variant {
    save: Program,
    restore: Program,
}

/// Why netfilter could not be observed or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// What the tool printed is not understood.
    #[error("cannot read what {tool} printed: {cause}")]
    Unreadable {
        /// Which.
        tool: &'static str,
        /// What of it.
        cause: String,
    },
    /// The node has no such tool.
    #[error("the node has no {}; install it, or set FERRULE_NAT_BACKEND to another", .0.name())]
    Missing(Backend),
}

impl Tools {
    /// Those of a node that has none: nothing is observed, and nothing can be changed.
    pub fn none() -> Self {
        Self { legacy: None, nft: None, nftables: None }
    }

    /// Looks on the search path.
    pub async fn find() -> Self {
        Self {
            legacy: Variant::find("iptables-legacy-save", "iptables-legacy-restore").await,
            nft: Variant::find("iptables-nft-save", "iptables-nft-restore").await,
            nftables: Program::find("nft").await,
        }
    }

    /// What netfilter does now.
    ///
    /// # Errors
    /// A tool failed, or printed what is not understood: then nothing is known.
    pub async fn observe(&self) -> Result<Netfilter, Error> {
        let mut seen = Netfilter::default();
        for (variant, saved) in [(&self.legacy, &mut seen.legacy), (&self.nft, &mut seen.nft)] {
            if let Some(variant) = variant {
                *saved = Some(variant.saved().await?);
            }
        }
        if let Some(nft) = &self.nftables {
            seen.nftables = Some(tables(nft).await?);
        }
        Ok(seen)
    }

    /// Whether the node has `nft`.
    pub fn has_nft(&self) -> bool {
        self.nftables.is_some()
    }

    /// The table of the marks of single addresses, if it is there. Without `nft` it is not.
    ///
    /// # Errors
    /// `nft` failed, or printed what is not understood: then nothing is known.
    pub async fn sources(&self) -> Result<Option<Listed>, Error> {
        match &self.nftables {
            Some(nft) => listed(nft, sources::TABLE).await,
            None => Ok(None),
        }
    }

    /// The tables that translate pods' addresses of the other family, where they are there. Without
    /// `nft` they are not.
    ///
    /// # Errors
    /// `nft` failed, or printed what is not understood: then nothing is known.
    pub async fn egress(&self) -> Result<egress::Tables, Error> {
        let mut tables = egress::Tables::default();
        let Some(nft) = &self.nftables else { return Ok(tables) };
        let names = nft.run(LIST_TABLES, "").await?;
        for (family, there) in [(Family::V4, &mut tables.v4), (Family::V6, &mut tables.v6)] {
            let word = egress::word(family);
            if names_table(&names, word, egress::TABLE) {
                *there = Some(read(nft, word, egress::TABLE).await?);
            }
        }
        Ok(tables)
    }

    /// Carries out one transaction.
    ///
    /// # Errors
    /// The tool failed or is missing: then nothing has changed.
    pub async fn apply(&self, change: &Change) -> Result<(), Error> {
        let missing = || Error::Missing(change.backend);
        let restore = |variant: &Option<Variant>| {
            variant.as_ref().map(|variant| variant.restore.clone()).ok_or_else(missing)
        };
        let (program, args) = match change.backend {
            // Another writer's lock is waited for, in seconds.
            Backend::IptablesLegacy => (restore(&self.legacy)?, &["--noflush", "-w", "10"][..]),
            Backend::IptablesNft => (restore(&self.nft)?, &["--noflush"][..]),
            Backend::Nftables => (self.nftables.clone().ok_or_else(missing)?, &["-f", "-"][..]),
        };
        program.run(args, &change.script).await?;
        Ok(())
    }
}

impl Variant {
    async fn find(save: &'static str, restore: &'static str) -> Option<Self> {
        Some(Self { save: Program::find(save).await?, restore: Program::find(restore).await? })
    }

    async fn saved(&self) -> Result<Saved, Error> {
        let text = self.save.run(&[], "").await?;
        iptables::parse(&text)
            .map_err(|cause| Error::Unreadable { tool: self.save.name(), cause: cause.to_string() })
    }
}

async fn tables(nft: &Program) -> Result<Tables, Error> {
    let names = nft.run(LIST_TABLES, "").await?;
    let ours = names_table(&names, "ip", TABLE);
    let ours = if ours { Some(read(nft, "ip", TABLE).await?) } else { None };
    Ok(Tables { ours, predecessor: names_table(&names, "ip", PREDECESSOR) })
}

/// A table of ours, if it is there.
async fn listed(nft: &Program, table: &str) -> Result<Option<Listed>, Error> {
    let names = nft.run(LIST_TABLES, "").await?;
    if names_table(&names, "ip", table) { read(nft, "ip", table).await.map(Some) } else { Ok(None) }
}

/// Of a table that is not there `nft` says an error, and so do other faults: so names come first.
const LIST_TABLES: &[&str] = &["list", "tables"];

fn names_table(names: &str, family: &str, table: &str) -> bool {
    names.lines().any(|line| line.trim() == format!("table {family} {table}"))
}

async fn read(nft: &Program, family: &str, table: &str) -> Result<Listed, Error> {
    let text = nft.run(&["-j", "list", "table", family, table], "").await?;
    nftables::parse(&text)
        .map_err(|cause| Error::Unreadable { tool: nft.name(), cause: cause.to_string() })
}
