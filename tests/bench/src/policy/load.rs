//! Reading a data set.

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

/// What becomes of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// They are read by `serde_json` into types by derive and dropped, page by page: the plain parse.
    Plain,
    /// Our own reader lends them, and they are dropped.
    OwnReader,
    /// All groups and spans are computed.
    Groups,
}

/// What was read.
#[derive(Debug)]
pub struct Loaded {
    /// All groups and spans; without any but for [`What::Groups`].
    pub index: Index,
    /// Time of reading and indexing, without the transfer of the pages.
    pub took: Duration,
    /// The part of it that this process ran, and did not wait for others to let it.
    pub ran: Duration,
    /// Number of bytes of the pages.
    pub bytes: u64,
    /// Number of objects in the pages.
    pub objects: usize,
}

/// Reads all pages.
///
/// # Errors
/// If they cannot be read, or an object of them.
pub fn load(from: &mut impl Read, what: What) -> Result<Loaded> {
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
        loaded.objects += one(&mut loaded.index, kind[0], &page, what)?;
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

fn one(index: &mut Index, kind: u8, page: &[u8], what: What) -> Result<usize> {
    if what == What::Plain {
        return reference::read(kind, page);
    }
    let keep = what == What::Groups;
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
        _ => bail!("a page of no kind"),
    };
    fault.context("read an object")?;
    Ok(read.context("read a page")?.items)
}
