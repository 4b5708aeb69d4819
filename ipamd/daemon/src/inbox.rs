//! The one way to the event loop: messages into a bounded queue, answers by their own channel.

use crate::{repair::Seen, start::Beginning, view::View};
use config_model::{PodKey, PodName, Time};
use ipamd_core::{Answer, Cards, ClusterFact, Event, Limits, PodView, ReleaseCause, Ticket};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{mpsc, oneshot};

/// What the loop is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// A request that is answered under its ticket.
    Ask { ticket: Ticket, question: Question, reply: oneshot::Sender<Answer> },
    /// Whoever asked has gone.
    Abandoned(Ticket),
    /// What a key holds.
    Inspect { key: PodKey, reply: oneshot::Sender<Option<PodView>> },
    /// The core can be made now.
    Begin(Box<Beginning>),
    /// What a cloud call or a witness had to say.
    Cloud(Event),
    /// What the instance type allows; the loop began without.
    Limits(Limits),
    /// What Kubernetes tells.
    Cluster(ClusterFact),
    /// What a repair pass saw.
    Seen(Seen),
    /// The whole state.
    View(oneshot::Sender<View>),
    /// The process is about to end: who waits is answered now.
    Stopping,
    /// All requests have been answered: make the rest durable and end.
    Finish,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Reserve {
        key: PodKey,
        pod: PodName,
        cards: Cards,
        /// The uid of a pod that wants its branch ENI.
        branch: Option<String>,
        give_up_at: Time,
    },
    Confirm {
        key: PodKey,
        host_interface: String,
    },
    Release {
        key: PodKey,
        cause: ReleaseCause,
    },
}

impl Question {
    pub(crate) fn into_event(self, ticket: Ticket) -> Event {
        match self {
            Self::Reserve { key, pod, cards, branch, give_up_at } => {
                Event::Reserve { ticket, key, pod, cards, branch, give_up_at }
            }
            Self::Confirm { key, host_interface } => Event::Confirm { ticket, key, host_interface },
            Self::Release { key, cause } => Event::Release { ticket, key, cause },
        }
    }
}

/// The loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is stopping")]
pub(crate) struct Ended;

/// Sends to the loop. Clones send to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Input>,
    tickets: Arc<AtomicU64>,
}

impl Inbox {
    /// The two ends of the queue.
    pub(crate) fn open() -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self { sender, tickets: Arc::default() }, receiver)
    }

    pub(crate) async fn send(&self, input: Input) -> Result<(), Ended> {
        self.sender.send(input).await.map_err(|_| Ended)
    }

    /// Asks and waits. Dropping the future tells the loop that nobody waits any more.
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
    /// When the loop has ended.
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
            // The queue is full, so this one waits its turn elsewhere. Outside a runtime there is
            // no loop either.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { sender.send(gone).await });
            }
        }
    }
}

/// As many messages wait; more make their senders wait.
const QUEUE: usize = 1024;
