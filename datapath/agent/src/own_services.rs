//! Services from the API server while the agent follows no replica of the controller. The daemon reads them: the agent has no
//! access to the API server.

use crate::{clock::draw, event::Event};
use control_wire::{ObjectKind, proto::Change};
use datapath_node::OwnRead;
use datapath_rpc::{read_services, wire};
use prost::Message as _;
use service_objects::ObjectName;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

/// The task that reads them.
pub(crate) struct OwnServices {
    /// The daemon's socket.
    pub(crate) socket: PathBuf,
    /// True while a replica is followed.
    pub(crate) follows: watch::Receiver<bool>,
    pub(crate) events: mpsc::Sender<Event>,
    /// The time without a replica after which the agent reads, without its random part.
    pub(crate) after: Duration,
}

impl OwnServices {
    /// Runs until the agent ends.
    pub(crate) async fn run(mut self) {
        while self.follows.wait_for(|follows| !follows).await.is_ok() {
            // All nodes lose the controller at once.
            let spread = u64::try_from(self.after.as_millis()).unwrap_or(u64::MAX).max(1);
            let pause = self.after + Duration::from_millis(draw() % spread);
            let mut follows = self.follows.clone();
            tokio::select! {
                () = sleep(pause) => {}
                followed = follows.wait_for(|follows| *follows) => match followed {
                    Ok(_) => continue,
                    Err(_) => return,
                },
            }
            tracing::warn!(
                seconds = pause.as_secs(),
                "no replica of the controller is followed; the daemon reads Services at the API server for this node"
            );
            tokio::select! {
                () = self.read() => {}
                followed = follows.wait_for(|follows| *follows) => match followed {
                    Ok(_) => tracing::info!("a replica of the controller sends Services again"),
                    Err(_) => return,
                },
            }
        }
    }

    /// Reads until this future is dropped.
    async fn read(&self) {
        let mut logged = None;
        loop {
            let Err(why) = self.follow().await;
            if logged.as_ref() != Some(&why) {
                tracing::warn!(
                    why,
                    "cannot read Services; the node keeps those that it has, and tries again"
                );
                logged = Some(why);
            }
            sleep(AGAIN).await;
        }
    }

    /// Passes on what the daemon reads, until the stream ends. The error is the cause.
    async fn follow(&self) -> Result<std::convert::Infallible, String> {
        let stream = read_services(&self.socket, Instant::now() + ANSWER).await;
        let mut stream = stream.map_err(|error| config_model::causes(&error))?;
        // The parts of a list so far.
        let mut begun: Option<OwnRead> = None;
        loop {
            let message = stream.message().await.map_err(|status| status.message().to_owned())?;
            let message = message.ok_or("the daemon has ended the stream")?;
            let more = message.more;
            let part = read(message)?;
            let whole = match begun.take() {
                Some(mut whole) if whole.kind == part.kind => {
                    whole.objects.extend(part.objects);
                    whole.removed.extend(part.removed);
                    OwnRead { version: part.version, ..whole }
                }
                Some(_) => return Err("the daemon has sent an incomplete list".to_owned()),
                None => part,
            };
            if more {
                begun = Some(whole);
            } else if self.events.send(Event::ReadServices(whole)).await.is_err() {
                return Err("the agent exits".to_owned());
            }
        }
    }
}

/// Decodes a message of the daemon.
fn read(message: wire::ServicesRead) -> Result<OwnRead, String> {
    let kind = match message.kind() {
        wire::ServicesKind::Service => ObjectKind::SERVICE,
        wire::ServicesKind::Slice => ObjectKind::SLICE,
        wire::ServicesKind::Unspecified => {
            return Err("the daemon has sent objects of an unknown kind".to_owned());
        }
    };
    let objects = message.objects.iter().map(|object| Change::decode(object.as_slice()));
    let objects = objects.collect::<Result<_, _>>();
    Ok(OwnRead {
        kind,
        is_list: message.list,
        objects: objects
            .map_err(|error| format!("the daemon has sent an unreadable object: {error}"))?,
        removed: message
            .removed
            .into_iter()
            .map(|of| ObjectName::new(of.namespace, of.name))
            .collect(),
        version: Some(message.resource_version).filter(|version| *version > 0),
    })
}

/// The time without a replica after which an agent reads Services itself, without its random part.
pub(crate) const AFTER: Duration = Duration::from_secs(15);
/// The longest wait for the daemon's answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause after a failed stream.
const AGAIN: Duration = Duration::from_secs(1);
