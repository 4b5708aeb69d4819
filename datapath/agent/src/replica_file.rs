//! The controller's replicas: the addresses in the file that the daemon writes.

use crate::{event::Event, ready_replicas::Ready};
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};
use tokio::{fs, sync::mpsc, time::sleep};

/// Interval at which the file is read. Changes are rare, and the file has a line for each replica.
const LOOK: Duration = Duration::from_secs(1);
/// Number of failed reads before the first report: the daemon starts beside the agent.
const TOLERATED: u32 = 5;

/// The reader of the file.
pub(crate) struct ReplicaFile {
    pub(crate) path: PathBuf,
    pub(crate) ready: Ready,
    pub(crate) events: mpsc::Sender<Event>,
}

impl ReplicaFile {
    /// Reads the file forever. A failure is logged and reported, and the known replicas stay.
    pub(crate) async fn follow(self) {
        let (mut known, mut logged, mut failures) = (None, String::new(), 0);
        loop {
            match self.read().await {
                Ok(replicas) => {
                    (failures, logged) = (0, String::new());
                    if known.as_ref() != Some(&replicas) {
                        self.ready.set(&replicas);
                        known = Some(replicas);
                    }
                }
                Err(why) => {
                    failures += 1;
                    if failures >= TOLERATED && why != logged {
                        tracing::warn!(why, "cannot find the controller's replicas; trying again");
                        logged.clone_from(&why);
                    }
                    let is_open =
                        known.is_some() || self.events.send(Event::NotListed(why)).await.is_ok();
                    if !is_open {
                        return;
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn read(&self) -> Result<BTreeSet<SocketAddr>, String> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path).await.map_err(|error| {
            format!("cannot read {path}: {error}; check that ferrule-ipamd runs and watches the controller's replicas")
        })?;
        parse(&text).map_err(|line| format!("cannot read {path}: {line:?} is no address"))
    }
}

/// Returns the addresses, or the first line that is none.
fn parse(text: &str) -> Result<BTreeSet<SocketAddr>, String> {
    text.lines().map(|line| line.parse().map_err(|_| line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_address() {
        let at = |text: &str| text.parse().expect("an address");
        let both = BTreeSet::from([at("10.0.0.1:61690"), at("[fd00::1]:61690")]);
        assert_eq!(parse("10.0.0.1:61690\n[fd00::1]:61690\n"), Ok(both));
        assert_eq!(parse(""), Ok(BTreeSet::new()));
        assert_eq!(parse("10.0.0.1:61690\nhere\n"), Err("here".to_owned()));
    }
}
