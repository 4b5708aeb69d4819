//! Runs iptables and nft: observes netfilter, and changes it in whole transactions.
//!
//! [`routing_plan::nat`] decides what to change. Reads use `iptables-save`, because `iptables -S` creates the table
//! that it lists. Writes use `iptables-restore` and `nft -f`, which apply everything or nothing.

mod command;

pub use command::{Failure, FailureCause};

use command::Program;
use routing_plan::Family;
use routing_plan::nat::{
    Backend, Change, Netfilter, Tables, egress,
    iptables::{self, Saved},
    nftables::{self, Listed, PREDECESSOR, TABLE},
    source_check, sources,
};

/// The node's netfilter tools.
#[derive(Clone, Debug)]
pub struct Tools {
    legacy: Option<Variant>,
    nft: Option<Variant>,
    nftables: Option<Program>,
}

/// The programs of one variant of iptables.
#[derive(Clone, Debug)]
struct Variant {
    save: Program,
    restore: Program,
}

/// Cause of a failed observation or change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The output of the tool cannot be parsed.
    #[error("cannot parse the output of {tool}: {cause}")]
    Unreadable { tool: &'static str, cause: String },
    /// The node has no such tool.
    #[error("the node has no {}; install it, or set FERRULE_NAT_BACKEND to another", .0.name())]
    Missing(Backend),
}

impl Tools {
    /// A node without tools: observations are empty, and a change is an error.
    pub fn none() -> Self {
        Self { legacy: None, nft: None, nftables: None }
    }

    /// Searches `PATH`.
    pub async fn find() -> Self {
        Self {
            legacy: Variant::find("iptables-legacy-save", "iptables-legacy-restore").await,
            nft: Variant::find("iptables-nft-save", "iptables-nft-restore").await,
            nftables: Program::find("nft").await,
        }
    }

    /// Observes the state of netfilter.
    ///
    /// # Errors
    /// A tool failed, or its output cannot be parsed.
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

    pub fn has_nft(&self) -> bool {
        self.nftables.is_some()
    }

    /// The table with the marks of single addresses; `None` if it does not exist or the node has no `nft`.
    ///
    /// # Errors
    /// `nft` failed, or its output cannot be parsed.
    pub async fn sources(&self) -> Result<Option<Listed>, Error> {
        match &self.nftables {
            Some(nft) => listed(nft, "ip", sources::TABLE).await,
            None => Ok(None),
        }
    }

    /// The table with the check of pods' source addresses; `None` if it does not exist or the node has no `nft`.
    ///
    /// # Errors
    /// `nft` failed, or its output cannot be parsed.
    pub async fn source_check(&self) -> Result<Option<Listed>, Error> {
        match &self.nftables {
            Some(nft) => listed(nft, "inet", source_check::TABLE).await,
            None => Ok(None),
        }
    }

    /// The tables that translate pods' addresses of the other family, as far as they exist. Without `nft` there are
    /// none.
    ///
    /// # Errors
    /// `nft` failed, or its output cannot be parsed.
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

    /// Applies one transaction.
    ///
    /// # Errors
    /// The tool failed or is missing. The state is unchanged then.
    pub async fn apply(&self, change: &Change) -> Result<(), Error> {
        let missing = || Error::Missing(change.backend);
        let restore = |variant: &Option<Variant>| {
            variant.as_ref().map(|variant| variant.restore.clone()).ok_or_else(missing)
        };
        let (program, args) = match change.backend {
            // The wait for another writer's lock, in seconds.
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

/// Reads one of our tables; `None` if it does not exist.
async fn listed(nft: &Program, family: &str, table: &str) -> Result<Option<Listed>, Error> {
    let names = nft.run(LIST_TABLES, "").await?;
    let there = names_table(&names, family, table);
    if there { read(nft, family, table).await.map(Some) } else { Ok(None) }
}

/// `nft` reports a missing table with the same error as other faults, so the names are listed first.
const LIST_TABLES: &[&str] = &["list", "tables"];

fn names_table(names: &str, family: &str, table: &str) -> bool {
    names.lines().any(|line| line.trim() == format!("table {family} {table}"))
}

async fn read(nft: &Program, family: &str, table: &str) -> Result<Listed, Error> {
    let text = nft.run(&["-j", "list", "table", family, table], "").await?;
    nftables::parse(&text)
        .map_err(|cause| Error::Unreadable { tool: nft.name(), cause: cause.to_string() })
}
