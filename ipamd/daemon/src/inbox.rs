//! The queue to the event loop. It is bounded, and each answer has its own channel.

use crate::{
    messages::{Input, Question},
    view::View,
};
use config_model::PodKey;
use ipamd_core::{Answer, PodView, Ticket};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{mpsc, oneshot};

/// The event loop has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is stopping")]
pub(crate) struct Ended;

/// Clones send to the same event loop.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Input>,
    tickets: Arc<AtomicU64>,
}

impl Inbox {
    pub(crate) fn open() -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self { sender, tickets: Arc::default() }, receiver)
    }

    pub(crate) async fn send(&self, input: Input) -> Result<(), Ended> {
        self.sender.send(input).await.map_err(|_| Ended)
    }

    /// Sends a request and waits for the answer. A dropped future of a Reserve sends [`Input::Abandoned`].
    pub(crate) async fn ask(&self, question: Question) -> Result<Answer, Ended> {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let abandon = matches!(question, Question::Reserve { .. });
        self.send(Input::Ask { ticket, question, reply }).await?;
        let mut guard = Abandon { sender: abandon.then(|| self.sender.clone()), ticket };
        let answer = answer.await.map_err(|_| Ended)?;
        guard.sender = None;
        Ok(answer)
    }

    pub(crate) async fn inspect(&self, key: PodKey) -> Result<Option<PodView>, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::Inspect { key, reply }).await?;
        answer.await.map_err(|_| Ended)
    }

    /// The whole state at one moment.
    ///
    /// # Errors
    /// If the event loop has stopped.
    pub(crate) async fn view(&self) -> Result<View, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::View(reply)).await?;
        answer.await.map_err(|_| Ended)
    }

    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

struct Abandon {
    sender: Option<mpsc::Sender<Input>>,
    ticket: Ticket,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        let gone = Input::Abandoned(self.ticket);
        if let Err(mpsc::error::TrySendError::Full(gone)) = sender.try_send(gone) {
            // The queue is full: a task waits for room. Outside a runtime there is no event loop either.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { sender.send(gone).await });
            }
        }
    }
}

/// Messages that wait in the queue. If it is full, senders wait.
const QUEUE: usize = 1024;
