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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use control_wire::proto;
    use datapath_rpc::{ServicesSource, ServicesStream, serve_services};
    use futures::stream;
    use runtime_socket::server::{Health, listen};
    use std::{future::pending, sync::Arc};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A daemon that sends these messages on each stream, and ends it.
    struct Daemon(Vec<wire::ServicesRead>);

    impl ServicesSource for Daemon {
        fn read(&self) -> ServicesStream {
            Box::pin(stream::iter(self.0.clone()))
        }
    }

    fn service(name: &str) -> Change {
        let of =
            proto::Service { name: name.into(), namespace: "shop".into(), ..Default::default() };
        proto::change::Of::Service(of).into()
    }

    fn message(names: &[&str], more: bool) -> wire::ServicesRead {
        wire::ServicesRead {
            kind: wire::ServicesKind::Service.into(),
            list: true,
            more,
            objects: names.iter().map(|name| service(name).encode_to_vec()).collect(),
            resource_version: if more { 0 } else { 7 },
            ..Default::default()
        }
    }

    async fn serve(socket: PathBuf, messages: Vec<wire::ServicesRead>) {
        let health = Health::starting().await;
        let incoming = listen(&socket).await.unwrap();
        serve_services(incoming, Arc::new(Daemon(messages)), &health, pending()).await.unwrap();
    }

    /// The next event, which is about Services.
    async fn next(events: &mut mpsc::Receiver<Event>) -> OwnRead {
        let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        let Event::ReadServices(read) = event else { panic!("{event:?}") };
        read
    }

    #[tokio::test]
    async fn an_agent_reads_while_it_follows_no_replica() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("services.sock");
        let (following, follows) = watch::channel(true);
        let (events, mut read) = mpsc::channel(8);
        let after = Duration::ZERO;
        let own = OwnServices { socket: socket.clone(), follows, events, after };
        tokio::spawn(own.run());
        let messages = vec![message(&["a", "b"], true), message(&["c"], false)];
        tokio::spawn(serve(socket, messages));
        tokio::task::yield_now().await;
        assert!(read.try_recv().is_err(), "it follows a replica");

        following.send_replace(false);
        let objects = vec![service("a"), service("b"), service("c")];
        let kind = ObjectKind::SERVICE;
        let all = OwnRead { kind, is_list: true, objects, removed: Vec::new(), version: Some(7) };
        // A stream that has ended is started again.
        for _ in 0..2 {
            assert_eq!(next(&mut read).await, all);
        }
        // The same after the next replica is lost.
        following.send_replace(true);
        following.send_replace(false);
        assert_eq!(next(&mut read).await, all);
        drop(following);
        while timeout(PATIENCE, read.recv()).await.unwrap().is_some() {}
    }

    #[test]
    fn objects_that_cannot_be_read_are_refused() {
        let mut unreadable = message(&[], false);
        unreadable.objects = vec![vec![255]];
        assert!(read(unreadable).unwrap_err().contains("unreadable"));
        let unknown = wire::ServicesRead { kind: 9, ..message(&[], false) };
        assert!(read(unknown).unwrap_err().contains("unknown kind"));
    }
}
