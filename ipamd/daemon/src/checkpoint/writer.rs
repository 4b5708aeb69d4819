//! Who makes records durable: what waits for the disk does so on a thread of its own, the rest is
//! written at once.

use super::{
    journal::Journal,
    ledger::{Ledger, needs_sync},
};
use ipamd_core::{Checkpoint, Record};
use ipamd_node::Durable;
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;

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

/// A handle on the journal and its thread. One batch is under way at a time.
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    inline: Arc<dyn Inline>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    /// Append these and make them durable.
    Write(Vec<Record>),
    /// So many records count in the sum, and appending them failed with this.
    Recover(u64, io::Error),
    /// The journal has grown long.
    Compact,
}

impl Writer {
    /// Starts the thread. `sum` is what the journal's records add up to.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(journal: impl Journal, sum: Checkpoint) -> io::Result<Self> {
        let (jobs, incoming) = sync_channel(JOBS);
        let (tell, progress) = watch::channel(Progress::default());
        let shared = Shared { ledger: Mutex::new(Ledger::new(journal, sum)), tell };
        let shared = Arc::new(shared);
        let worker = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || worker.work(incoming))?;
        Ok(Self { jobs: Some(jobs), inline: shared, progress, thread: Some(thread) })
    }

    /// Takes a batch; to be called only when the batch before is durable. What need not wait for
    /// the disk is durable on return, unless the disk is in trouble.
    pub fn write(&self, batch: Vec<Record>) {
        let job = if needs_sync(&batch) {
            Job::Write(batch)
        } else {
            match self.inline.write(batch) {
                Some(job) => job,
                None => return,
            }
        };
        if let Some(jobs) = &self.jobs {
            // The thread ends only after this sender is dropped.
            let _ = jobs.send(job);
        }
    }

    /// Where to watch how far it is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Waits until all that was handed over is durable. Blocks.
    pub fn finish(mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("progress", &self.progress).finish_non_exhaustive()
    }
}

/// Writing without the thread, whatever the journal is.
trait Inline: Send + Sync {
    /// Writes a batch that waits for no sync; gives back what is left to the thread.
    fn write(&self, batch: Vec<Record>) -> Option<Job>;
}

struct Shared<J> {
    ledger: Mutex<Ledger<J>>,
    tell: watch::Sender<Progress>,
}

impl<J: Journal> Inline for Shared<J> {
    fn write(&self, batch: Vec<Record>) -> Option<Job> {
        // The thread is busy: it takes this batch next, and nobody waits here for the disk.
        let Ok(mut ledger) = self.ledger.try_lock() else { return Some(Job::Write(batch)) };
        if let Err(e) = ledger.append(&batch) {
            return Some(Job::Recover(number(&batch), e));
        }
        self.written(number(&batch));
        ledger.is_long().then_some(Job::Compact)
    }
}

impl<J: Journal> Shared<J> {
    fn work(&self, incoming: Receiver<Job>) {
        for job in incoming {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            match job {
                Job::Write(batch) => {
                    if let Err(e) = ledger.append(&batch) {
                        self.rewrite_until_it_works(&mut ledger, &e);
                    }
                    self.written(number(&batch));
                }
                Job::Recover(records, e) => {
                    self.rewrite_until_it_works(&mut ledger, &e);
                    self.written(records);
                }
                Job::Compact => {}
            }
            if ledger.is_long()
                && let Err(e) = ledger.rewrite()
            {
                self.rewrite_until_it_works(&mut ledger, &e);
                self.tell.send_modify(|progress| progress.trouble = None);
            }
        }
    }

    fn written(&self, records: u64) {
        self.tell.send_modify(|progress| {
            progress.durable.0 += records;
            progress.writes += 1;
            progress.trouble = None;
        });
    }

    /// After a failed write or sync nothing is known of the end of the file, so all of it is
    /// written anew, elsewhere, until that works.
    fn rewrite_until_it_works(&self, ledger: &mut Ledger<J>, first: &io::Error) {
        let mut trouble = first.to_string();
        let mut pause = RETRY_FIRST;
        loop {
            let text = format!("the checkpoint cannot be written: {trouble}");
            self.tell.send_modify(|progress| progress.trouble = Some(text));
            match ledger.rewrite() {
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
}

fn number(batch: &[Record]) -> u64 {
    u64::try_from(batch.len()).unwrap_or(u64::MAX)
}

/// A batch, and a compaction that came before it.
const JOBS: usize = 2;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);
