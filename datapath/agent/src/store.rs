//! What is held, on the disk: a file of records, written by a thread of its own. A disk that refuses costs the file's
//! newest records and nothing else: the agent goes on from memory, and the file is written anew when that works again.

mod ledger;
#[cfg(test)]
mod power;

pub(crate) use ledger::{Found, Ledger};
pub(crate) use runtime_journal::{DiskFolder, OpenError};

use crate::event::Event;
use control_wire::NodeSnapshot;
use datapath_node::{LocalPod, store::Record};
use runtime_journal::Folder;
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

/// Orders that wait for the disk; if there are more, all that is held is written instead.
const ORDERS: usize = 64;
/// After a disk that refused; doubled up to [`PAUSE_LAST`].
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);
/// A file of this size and several times that of all that is held is written anew.
const LONG: usize = 4 << 20;
const TIMES: usize = 4;

/// All that is held.
pub(crate) type Image = (Arc<NodeSnapshot>, Arc<BTreeMap<String, LocalPod>>);

enum Order {
    Append(Vec<Record>),
    Write(Image),
}

/// Hands what is to be kept to the thread.
#[derive(Debug)]
pub(crate) struct Store {
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
    /// Records were left out: the file is to be written anew.
    lagging: bool,
}

impl Store {
    /// Begins to write.
    pub(crate) fn start<F: Folder>(
        ledger: Ledger<F>,
        events: mpsc::Sender<Event>,
    ) -> io::Result<Self> {
        let (orders, taken) = sync_channel(ORDERS);
        let writer = Writer { ledger, events, refused: None, asked: false, ill: false };
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || writer.run(&taken))?;
        Ok(Self { orders, thread, lagging: true })
    }

    /// Keeps these. Never waits for the disk.
    pub(crate) fn keep(&mut self, records: Vec<Record>) {
        // What is to be written anew has them.
        if !self.lagging && self.orders.try_send(Order::Append(records)).is_err() {
            self.lagging = true;
        }
    }

    /// All that is held is to be written.
    pub(crate) fn wants_image(&mut self) {
        self.lagging = true;
    }

    /// Hands over all that is held, if that is wanted and there is room.
    pub(crate) fn catch_up(&mut self, image: impl FnOnce() -> Image) {
        if self.lagging
            && !matches!(self.orders.try_send(Order::Write(image())), Err(TrySendError::Full(_)))
        {
            self.lagging = false;
        }
    }

    /// Whether [`Self::catch_up`] is to be called again soon.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lagging
    }

    /// Waits until what was handed over is written, or the disk has refused it.
    pub(crate) fn finish(self) {
        drop(self.orders);
        let _ = self.thread.join();
    }
}

struct Writer<F: Folder> {
    ledger: Ledger<F>,
    events: mpsc::Sender<Event>,
    /// The disk has refused: the next attempt is then, after this pause.
    refused: Option<(Instant, Duration)>,
    /// All that is held was asked for and has not come yet.
    asked: bool,
    /// The agent was told that the disk refuses, and not yet that it does no more.
    ill: bool,
}

impl<F: Folder> Writer<F> {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.refused {
                // Orders that come meanwhile must not put the attempt off.
                Some((at, _)) => orders.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(first) => self.carry_out(first, orders),
                Err(RecvTimeoutError::Timeout) => self.ask_again(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes what waits behind it as well: one sync serves all.
    fn carry_out(&mut self, first: Order, orders: &Receiver<Order>) {
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
                self.asked = false;
                let written = self.ledger.write(&held, &local);
                written.and_then(|()| self.ledger.append(&records))
            }
            // What a file that is damaged has behind the damage is nothing.
            None if self.refused.is_some() => return,
            None => self.ledger.append(&records),
        };
        match written {
            Ok(()) => {
                if self.refused.take().is_some() {
                    tracing::info!(file = %self.ledger.path().display(), "what is held is on the disk again");
                }
                // Told until it is heard.
                self.ill = self.ill && !self.tell(Event::Disk(None));
                if self.ledger.size() > LONG.max(self.ledger.written() * TIMES) && !self.asked {
                    self.ask();
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let path = self.ledger.path();
        let why = format!("cannot write {}: {error}", path.display());
        if self.refused.is_none() {
            tracing::error!(
                error = why,
                "what this node is told of policy is not on the disk: the agent goes on from memory, and \
                 a restart without a controller would begin with what was written before. Make room in \
                 the folder, or set FERRULE_AGENT_STATE_DIR"
            );
        }
        let pause = self.refused.map_or(PAUSE_FIRST, |(_, pause)| (pause * 2).min(PAUSE_LAST));
        self.refused = Some((Instant::now() + pause, pause));
        self.ill = true;
        self.tell(Event::Disk(Some(why)));
    }

    /// It is time for another attempt. One that is not heard is made after another pause.
    fn ask_again(&mut self) {
        self.refused = self.refused.map(|(_, pause)| (Instant::now() + pause, pause));
        self.ask();
    }

    fn ask(&mut self) {
        self.asked = self.tell(Event::WantImage);
    }

    /// Whether it was heard: the agent may be busy, or end.
    fn tell(&self, event: Event) -> bool {
        self.events.try_send(event).is_ok()
    }
}
