//! The thread that makes records durable, a batch at a time.

use super::{
    frame,
    journal::{Journal, image},
};
use ipamd_core::{Checkpoint, Record};
use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;

/// How many records are durable, of all that were ever handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable(pub u64);

/// How far the writer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is durable.
    pub durable: Durable,
    /// Why it does not get on; replies wait until it does.
    pub trouble: Option<String>,
    /// Writes so far, replacements not counted.
    pub writes: u64,
}

/// A handle on the writing thread. One batch is under way at a time.
#[derive(Debug)]
pub struct Writer {
    batches: Option<SyncSender<Vec<Record>>>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `sum` is what the journal's records add up to.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(journal: impl Journal, sum: Checkpoint) -> io::Result<Self> {
        let (batches, incoming) = sync_channel(1);
        let (tell, progress) = watch::channel(Progress::default());
        let compacted = journal.size();
        let state = State { journal, sum, compacted, tell };
        let thread =
            thread::Builder::new().name("checkpoint".to_owned()).spawn(|| state.run(incoming))?;
        Ok(Self { batches: Some(batches), progress, thread: Some(thread) })
    }

    /// Hands over a batch; to be called only when the batch before is durable.
    pub fn write(&self, batch: Vec<Record>) {
        if let Some(batches) = &self.batches {
            // The thread ends only after this sender is dropped, and takes one batch at a time.
            let _ = batches.send(batch);
        }
    }

    /// Where to watch how far it is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Waits until all that was handed over is durable. Blocks.
    pub fn finish(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct State<J> {
    journal: J,
    sum: Checkpoint,
    compacted: usize,
    tell: watch::Sender<Progress>,
}

impl<J: Journal> State<J> {
    fn run(mut self, incoming: Receiver<Vec<Record>>) {
        for batch in incoming {
            let mut bytes = Vec::new();
            for record in &batch {
                frame::encode(record, &mut bytes);
                self.sum.apply(record);
            }
            let sync = batch.iter().any(Record::outlives_the_boot);
            if let Err(e) = self.journal.append(&bytes, sync) {
                self.replace_until_it_works(&e);
            }
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            self.tell.send_modify(|progress| {
                progress.durable.0 += count;
                progress.writes += 1;
                progress.trouble = None;
            });
            self.compact_if_worthwhile();
        }
    }

    /// After a failed write or sync nothing is known of the end of the file, so all of it is
    /// written anew, elsewhere, until that works.
    fn replace_until_it_works(&mut self, first: &io::Error) {
        let mut trouble = first.to_string();
        let mut pause = RETRY_FIRST;
        loop {
            let text = format!("the checkpoint cannot be written: {trouble}");
            self.tell.send_modify(|progress| progress.trouble = Some(text));
            match self.replace() {
                Ok(()) => return,
                Err(e) => trouble = e.to_string(),
            }
            // Nobody waits for the answer any more: the daemon is gone.
            if self.tell.is_closed() {
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(RETRY_LAST);
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        let bytes = image(&self.sum.compact());
        self.journal.replace(&bytes)?;
        self.compacted = bytes.len();
        Ok(())
    }

    /// The file may grow to some multiple of its shortest form, so the cost of shortening it is a
    /// constant for each record.
    fn compact_if_worthwhile(&mut self) {
        let bound = COMPACT_FLOOR.max(self.compacted.saturating_mul(COMPACT_FACTOR));
        if self.journal.size() > bound
            && let Err(e) = self.replace()
        {
            self.replace_until_it_works(&e);
            self.tell.send_modify(|progress| progress.trouble = None);
        }
    }
}

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);
const COMPACT_FLOOR: usize = 256 * 1024;
const COMPACT_FACTOR: usize = 4;
