//! The messages to the event loop and their payloads.

use crate::{checkpoint::Writer, view::View};
use config_model::{EniId, InstanceId, PodKey, PodName, Time};
use ipamd_cloud::Cloud;
use ipamd_core::{
    Answer, Cards, CloudFault, ClusterFact, Core, Event, Limits, Notice, PodView, PoolConfig,
    ReleaseCause, Ticket,
};
use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};
use tokio::sync::oneshot;

/// A message to the event loop.
#[derive(Debug)]
pub(crate) enum Input {
    /// A request that is answered under its ticket.
    Ask { ticket: Ticket, question: Question, reply: oneshot::Sender<Answer> },
    /// The client of this request has disconnected.
    Abandoned(Ticket),
    /// Asks for the reservation of a key.
    Inspect { key: PodKey, reply: oneshot::Sender<Option<PodView>> },
    /// The start is complete: the loop gets its core.
    Start(Box<StartState>),
    /// A cloud call completed, or a witness reported ENIs.
    Cloud(Event),
    /// The limits of the instance type, if they were unknown at the start.
    Limits(Limits),
    /// News from Kubernetes.
    Cluster(ClusterFact),
    /// A repair pass completed.
    Repaired(RepairOutcome),
    /// Asks for the whole state.
    View(oneshot::Sender<View>),
    /// The process is about to exit: waiting requests are answered now.
    Stopping,
    /// All requests have been answered: make the rest durable and return.
    Finish,
}

/// A request of the plugin.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Reserve {
        key: PodKey,
        pod: PodName,
        cards: Cards,
        /// The UID of a pod that uses its branch ENI.
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

/// The state with which the event loop starts to serve.
pub(crate) struct StartState {
    pub(crate) core: Core,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) instance: InstanceId,
    pub(crate) limits: Limits,
    /// The instance type whose limits are unknown, and the error of the EC2 call.
    pub(crate) unknown_limits: Option<(String, CloudFault)>,
    pub(crate) targets: PoolConfig,
    pub(crate) writer: Writer,
    /// Notices from the start.
    pub(crate) notices: Vec<Notice>,
    /// Keys with a tombstone: the plugin could not deliver their DEL.
    pub(crate) tombstoned: Vec<PodKey>,
}

impl fmt::Debug for StartState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartState").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The news from a repair pass for the address book.
#[derive(Debug)]
pub(crate) struct RepairOutcome {
    /// The start of the observation.
    pub(crate) started: Time,
    /// Addresses that appear in the kernel.
    pub(crate) in_use: BTreeSet<IpAddr>,
    /// ENIs whose host networking is complete since this pass.
    pub(crate) ready: Vec<EniId>,
    /// ENIs whose host networking cannot be completed, and the cause.
    pub(crate) not_ready: Vec<(EniId, String)>,
    /// Pods whose host veth is missing since this pass, and the missing object.
    pub(crate) disconnected: Vec<(PodKey, String)>,
}
