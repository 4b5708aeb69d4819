//! Reader of a data set.

use super::reference;
use anyhow::{Context as _, Result, bail};
use policy_core::{
    compile,
    index::{Event, Index},
};
use policy_objects::page::{self, PolicyItem};
use std::{
    io::Read,
    time::{Duration, Instant},
};

/// The work that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadMode {
    /// Parses with `serde_json` into derived types and drops them page by page: the plain parse.
    Plain,
    /// Parses with the production reader and drops the borrowed objects.
    OwnReader,
    /// Computes all groups and spans.
    Groups,
}

#[derive(Debug)]
pub struct Loaded {
    /// All groups and spans. Empty except with [`LoadMode::Groups`].
    pub index: Index,
    /// Time of parsing and indexing, without the transfer of the pages.
    pub took: Duration,
    /// Share of `took` in which this process ran.
    pub ran: Duration,
    /// Number of bytes of the pages.
    pub bytes: u64,
    pub objects: usize,
}

/// Reads all pages.
///
/// # Errors
/// If a page or an object cannot be read.
pub fn load(from: &mut impl Read, mode: LoadMode) -> Result<Loaded> {
    let none = Duration::ZERO;
    let mut loaded =
        Loaded { index: Index::new(SEED), took: none, ran: none, bytes: 0, objects: 0 };
    let mut page = Vec::new();
    let mut kind = [0];
    while from.read(&mut kind).context("read a page")? > 0 {
        let mut length = [0; 8];
        from.read_exact(&mut length).context("read a page")?;
        let length = u64::from_le_bytes(length);
        page.resize(usize::try_from(length)?, 0);
        from.read_exact(&mut page).context("read a page")?;
        let (started, ran) = (Instant::now(), ran()?);
        loaded.objects += one(&mut loaded.index, kind[0], &page, mode)?;
        loaded.add(started, ran)?;
        loaded.bytes += length;
    }
    let (started, ran) = (Instant::now(), ran()?);
    loaded.index.loaded();
    loaded.add(started, ran)?;
    Ok(loaded)
}

impl Loaded {
    fn add(&mut self, started: Instant, before: Duration) -> Result<()> {
        self.took += started.elapsed();
        self.ran += ran()?.saturating_sub(before);
        Ok(())
    }
}

/// Run time of the first thread of this process.
fn ran() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").context("read schedstat")?;
    let nanos = text.split_whitespace().next().context("schedstat is empty")?;
    Ok(Duration::from_nanos(nanos.parse().context("read schedstat")?))
}

const SEED: u64 = 0x5eed;

fn one(index: &mut Index, kind: u8, page: &[u8], mode: LoadMode) -> Result<usize> {
    if mode == LoadMode::Plain {
        return reference::read(kind, page);
    }
    let keep = mode == LoadMode::Groups;
    let mut fault = Ok(());
    let read = match kind {
        0 => page::namespaces(page, |item| match item {
            Ok(namespace) if keep => index.load(Event::NamespaceView(&namespace)),
            Ok(_) => {}
            Err(error) => fault = Err(error),
        }),
        1 => page::pods(page, |item| match item {
            Ok(pod) if keep => index.load(Event::PodView(&pod)),
            Ok(_) => {}
            Err(error) => fault = Err(error),
        }),
        2 => page::network_policies(page, |item| match item {
            Ok(PolicyItem::Borrowed(policy)) if keep => index.load(Event::PolicyView(&policy)),
            Ok(PolicyItem::Read(parsed)) if keep => {
                if let Some(policy) = compile(&parsed.object) {
                    index.load(Event::Policy(&policy));
                }
            }
            Ok(_) => {}
            Err(error) => fault = Err(error),
        }),
        _ => bail!("the page has an unknown kind"),
    };
    fault.context("read an object")?;
    Ok(read.context("read a page")?.items)
}
