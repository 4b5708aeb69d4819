//! The policy journal: snapshots, deltas and started pods on disk, written by a thread of its own.
//!
//! A disk that refuses costs only the newest records of the file. The agent continues from memory, and the file is
//! rewritten when the disk works again.

use crate::event::Event;
use control_wire::NodeSnapshot;
use datapath_node::{
    LocalPod,
    store::{self, Record, Replayed},
};
use runtime_journal::{Backoff, Folder, Journal, Layout, Opened};
pub(crate) use runtime_journal::{DiskFolder, OpenError};
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Orders that wait for the disk. If there are more, the whole state is written instead.
const ORDERS: usize = 64;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);
const LAYOUT: Layout = Layout { name: "policy", short: 4 << 20 };

/// The whole state of the node.
pub(crate) type Image = (Arc<NodeSnapshot>, Arc<BTreeMap<String, LocalPod>>);

/// The contents of the file at the start.
#[derive(Debug)]
pub(crate) struct Restored {
    /// The state before any damage.
    pub(crate) replayed: Replayed,
    /// The damage, if any.
    pub(crate) damage: Option<FileDamage>,
}

/// A reason why the file is not whole.
#[derive(Debug)]
pub(crate) struct FileDamage {
    pub(crate) cause: String,
    /// A power cut alone explains it. Otherwise the next rewrite keeps the file aside.
    pub(crate) is_torn_tail: bool,
}

/// Reads the journal. It accepts records after the first image.
pub(crate) fn open<F: Folder>(folder: F) -> Result<(Journal<Record, F>, Restored), OpenError> {
    let Opened { mut journal, records, damage, .. } = Journal::open(folder, LAYOUT)?;
    let replayed = store::replay(records);
    let damage = match (&replayed.stopped, damage) {
        (Some(cause), _) => {
            journal.distrust();
            Some(FileDamage { cause: cause.clone(), is_torn_tail: false })
        }
        (None, Some(damage)) => {
            let is_torn_tail = damage.is_torn_tail();
            Some(FileDamage { cause: damage.to_string(), is_torn_tail })
        }
        (None, None) => None,
    };
    Ok((journal, Restored { replayed, damage }))
}

enum Order {
    Append(Vec<Record>),
    Write(Image),
}

/// Hands records to the writer's thread. It never waits for the disk.
#[derive(Debug)]
pub(crate) struct Store {
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
    /// Records were left out: the writer needs an image.
    lagging: bool,
}

impl Store {
    /// Starts the thread.
    pub(crate) fn start<F: Folder>(
        journal: Journal<Record, F>,
        events: mpsc::Sender<Event>,
    ) -> io::Result<Self> {
        let (orders, taken) = sync_channel(ORDERS);
        let writer =
            Writer { journal, events, refused: None, image_requested: false, reported: false };
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || writer.run(&taken))?;
        Ok(Self { orders, thread, lagging: true })
    }

    /// Appends the records, unless an image is due anyway.
    pub(crate) fn append(&mut self, records: Vec<Record>) {
        if !self.lagging && self.orders.try_send(Order::Append(records)).is_err() {
            self.lagging = true;
        }
    }

    /// The writer needs an image.
    pub(crate) fn request_image(&mut self) {
        self.lagging = true;
    }

    /// Hands over an image if the writer needs one and the queue has room.
    pub(crate) fn catch_up(&mut self, image: impl FnOnce() -> Image) {
        if self.lagging
            && !matches!(self.orders.try_send(Order::Write(image())), Err(TrySendError::Full(_)))
        {
            self.lagging = false;
        }
    }

    /// Returns true if [`Self::catch_up`] must be called again soon.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lagging
    }

    /// Waits until all orders are written or the disk has refused them.
    pub(crate) fn finish(self) {
        drop(self.orders);
        let _ = self.thread.join();
    }
}

struct Writer<F: Folder> {
    journal: Journal<Record, F>,
    events: mpsc::Sender<Event>,
    refused: Option<Refused>,
    /// The image has not arrived yet.
    image_requested: bool,
    /// The agent knows that the disk refuses, and not yet that it works again.
    reported: bool,
}

/// The disk has refused.
#[derive(Clone, Copy)]
struct Refused {
    next_attempt: Instant,
    pause: Duration,
    backoff: Backoff,
}

impl<F: Folder> Writer<F> {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.refused {
                // Orders that arrive meanwhile must not delay the attempt.
                Some(Refused { next_attempt, .. }) => {
                    orders.recv_timeout(next_attempt.saturating_duration_since(Instant::now()))
                }
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(first) => self.execute(first, orders),
                Err(RecvTimeoutError::Timeout) => self.retry(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Executes the order and all that wait behind it, with one sync.
    fn execute(&mut self, first: Order, orders: &Receiver<Order>) {
        let (mut image, mut records) = (None, Vec::new());
        for order in std::iter::once(first).chain(orders.try_iter().take(ORDERS)) {
            match order {
                Order::Append(more) => records.extend(more),
                Order::Write(all) => {
                    image = Some(all);
                    records.clear();
                }
            }
        }
        let written = match image {
            Some((held, local)) => {
                self.image_requested = false;
                let rewritten = self.rewrite(&store::image(&held, &local));
                rewritten.and_then(|()| self.journal.append(&records, true))
            }
            // The next image contains these records.
            None if self.refused.is_some() => return,
            None => self.journal.append(&records, true),
        };
        match written {
            Ok(()) => {
                if self.refused.take().is_some() {
                    tracing::info!(
                        file = %self.journal.path().display(),
                        "the policy journal is written again"
                    );
                }
                // Sent again until the agent has received it.
                self.reported = self.reported && !self.send(Event::Disk(None));
                if self.journal.is_long() && !self.image_requested {
                    self.request_image();
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn rewrite(&mut self, records: &[Record]) -> io::Result<()> {
        if let Some(aside) = self.journal.rewrite(records)? {
            let file = aside.display();
            tracing::warn!(%file, "kept the damaged policy journal aside; check the disk");
        }
        Ok(())
    }

    fn failed(&mut self, error: &io::Error) {
        let path = self.journal.path();
        let why = format!("cannot write {}: {error}", path.display());
        if self.refused.is_none() {
            tracing::error!(
                error = why,
                "cannot write the policy journal: the agent continues from memory, and a restart without a \
                 controller would start from an older state; free space in the folder, or set \
                 FERRULE_AGENT_STATE_DIR"
            );
        }
        let backoff = self.refused.map(|refused| refused.backoff);
        let mut backoff = backoff.unwrap_or_else(|| Backoff::new(PAUSE_FIRST, PAUSE_LAST));
        let pause = backoff.pause();
        self.refused = Some(Refused { next_attempt: Instant::now() + pause, pause, backoff });
        self.reported = true;
        self.send(Event::Disk(Some(why)));
    }

    /// Requests an image for the next attempt, and schedules another request in case this one is lost.
    fn retry(&mut self) {
        if let Some(refused) = &mut self.refused {
            refused.next_attempt = Instant::now() + refused.pause;
        }
        self.request_image();
    }

    fn request_image(&mut self) {
        self.image_requested = self.send(Event::RequestImage);
    }

    /// Returns true if the agent's queue had room.
    fn send(&self, event: Event) -> bool {
        self.events.try_send(event).is_ok()
    }
}
