//! The checkpoint's writer. A batch that waits for the disk is written by a thread; any other batch is written at once
//! by the caller.

use ipamd_core::{Checkpoint, Record};
use ipamd_node::Durable;
use runtime_journal::{Backoff, Folder, Journal};
use std::{
    fmt, io,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::watch;

/// The progress of the writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub durable: Durable,
    /// The last error of the disk, until a write succeeds. Replies wait until then.
    pub trouble: Option<String>,
    /// The number of appends.
    pub writes: u64,
}

/// The handle of the journal and its thread. One batch is written at a time.
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    inline: Arc<dyn Inline>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    /// Append these durably.
    Write(Vec<Record>),
    /// The append of this many records failed with this error. The sum includes them.
    Recover(u64, io::Error),
    /// The journal is due for a compaction.
    Compact,
}

impl Writer {
    /// Starts the thread. The journal was rewritten, and `sum` is the sum of its records.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start<F: Folder>(journal: Journal<Record, F>, sum: Checkpoint) -> io::Result<Self> {
        let (jobs, incoming) = sync_channel(JOBS);
        let (progress_sender, progress) = watch::channel(Progress::default());
        let shared = Shared { state: Mutex::new(JournalState { journal, sum }), progress_sender };
        let shared = Arc::new(shared);
        let worker = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || worker.work(incoming))?;
        Ok(Self { jobs: Some(jobs), inline: shared, progress, thread: Some(thread) })
    }

    /// Writes a batch. The batch before must be durable. A batch that needs no sync is durable on return, unless the
    /// disk refuses.
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

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Blocks until all batches are durable.
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

/// Writes without the thread; hides the type of the folder.
trait Inline: Send + Sync {
    /// Writes a batch that needs no sync. Returns the rest of the work for the thread.
    fn write(&self, batch: Vec<Record>) -> Option<Job>;
}

struct Shared<F: Folder> {
    state: Mutex<JournalState<F>>,
    progress_sender: watch::Sender<Progress>,
}

/// A journal and the sum of its records, from which it can be rewritten.
pub(super) struct JournalState<F: Folder> {
    pub(super) journal: Journal<Record, F>,
    pub(super) sum: Checkpoint,
}

impl<F: Folder> JournalState<F> {
    /// The sum includes the batch even if the write fails; [`JournalState::rewrite`] must come next then.
    pub(super) fn append(&mut self, batch: &[Record]) -> io::Result<()> {
        batch.iter().for_each(|record| self.sum.apply(record));
        self.journal.append(batch, needs_sync(batch))
    }

    pub(super) fn rewrite(&mut self) -> io::Result<()> {
        self.journal.rewrite(&self.sum.compact()).map(drop)
    }
}

/// Returns whether the batch must be on disk before anything that depends on it leaves the daemon.
fn needs_sync(batch: &[Record]) -> bool {
    batch.iter().any(Record::outlives_the_boot)
}

impl<F: Folder> Inline for Shared<F> {
    fn write(&self, batch: Vec<Record>) -> Option<Job> {
        // The thread is busy and takes this batch next. The caller must not wait for the disk.
        let Ok(mut state) = self.state.try_lock() else { return Some(Job::Write(batch)) };
        if let Err(e) = state.append(&batch) {
            return Some(Job::Recover(number(&batch), e));
        }
        self.written(number(&batch));
        state.journal.is_long().then_some(Job::Compact)
    }
}

impl<F: Folder> Shared<F> {
    fn work(&self, incoming: Receiver<Job>) {
        for job in incoming {
            let mut state = runtime_lock::lock(&self.state);
            match job {
                Job::Write(batch) => {
                    if let Err(e) = state.append(&batch) {
                        self.rewrite_until_it_works(&mut state, &e);
                    }
                    self.written(number(&batch));
                }
                Job::Recover(records, e) => {
                    self.rewrite_until_it_works(&mut state, &e);
                    self.written(records);
                }
                Job::Compact => {}
            }
            if state.journal.is_long()
                && let Err(e) = state.rewrite()
            {
                self.rewrite_until_it_works(&mut state, &e);
                self.progress_sender.send_modify(|progress| progress.trouble = None);
            }
        }
    }

    fn written(&self, records: u64) {
        self.progress_sender.send_modify(|progress| {
            progress.durable.0 += records;
            progress.writes += 1;
            progress.trouble = None;
        });
    }

    /// Rewrites the journal until that succeeds: the end of the file is unknown after a failed write or sync.
    fn rewrite_until_it_works(&self, state: &mut JournalState<F>, first: &io::Error) {
        let mut trouble = first.to_string();
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LAST);
        loop {
            let text = format!("cannot write the checkpoint: {trouble}");
            self.progress_sender.send_modify(|progress| progress.trouble = Some(text));
            match state.rewrite() {
                Ok(()) => return,
                Err(e) => trouble = e.to_string(),
            }
            // The daemon stopped, so no reply waits.
            if self.progress_sender.is_closed() {
                return;
            }
            thread::sleep(backoff.pause());
        }
    }
}

fn number(batch: &[Record]) -> u64 {
    u64::try_from(batch.len()).unwrap_or(u64::MAX)
}

/// A batch, and a compaction before it.
const JOBS: usize = 2;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);
