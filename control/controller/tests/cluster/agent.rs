//! An agent without a backend: it follows a replica, keeps a snapshot, and reports.

use crate::world::PATIENCE;
use control_rpc::{Follow, FollowError, StreamEvent, Trust};
use control_wire::{
    NodeSnapshot, Progress,
    proto::{AnnounceRequest, Hello, How, Realized, ReportRequest},
};
use kube::api::DynamicObject;
use std::net::SocketAddr;
use tests_eventually::eventually_async;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;

/// The DNS name of the certificate.
pub(crate) const NAME: &str = "ferrule-controller";

pub(crate) struct Agent {
    pub(crate) token: String,
    pub(crate) trust: Trust,
    pub(crate) held: NodeSnapshot,
    pub(crate) reports_to: String,
    /// The node serves Services.
    pub(crate) serves: bool,
    follow: Option<Follow>,
}

pub(crate) fn trust(bundle: &str) -> Trust {
    Trust::new(bundle.as_bytes(), NAME).unwrap()
}

impl Agent {
    pub(crate) fn new(token: String, bundle: &str) -> Self {
        let (held, reports_to) = (NodeSnapshot::default(), String::new());
        Self { token, trust: trust(bundle), held, reports_to, serves: false, follow: None }
    }

    /// Opens a stream at a replica.
    pub(crate) async fn begin(&mut self, at: SocketAddr) -> Result<How, FollowError> {
        self.begin_with(at, self.held.hello(false, self.serves)).await
    }

    /// Opens a stream at a replica that may have read less than the node holds.
    pub(crate) async fn begin_behind(&mut self, at: SocketAddr) -> Result<How, FollowError> {
        self.begin_with(at, Hello { take_behind: true, ..hello(&self.held) }).await
    }

    async fn begin_with(&mut self, at: SocketAddr, hello: Hello) -> Result<How, FollowError> {
        let follow = Follow::begin(at, &self.trust, &self.token, hello).await?;
        self.held.start_stream(&follow.welcome().epoch);
        let how = follow.welcome().how();
        self.follow = Some(follow);
        Ok(how)
    }

    /// Opens a stream, with retries while the replica's watch of pods is behind.
    pub(crate) async fn begins(&mut self, at: SocketAddr) -> How {
        eventually_async("the stream to start", PATIENCE, async || self.begin(at).await).await
    }

    /// Applies updates until the condition is true.
    pub(crate) async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let last = Instant::now() + PATIENCE;
        while !so(self) {
            let received = timeout_at(last, self.receive()).await;
            let received = received
                .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}: {:?}", self.held));
            received.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }

    /// Applies updates until the stream ends.
    pub(crate) async fn over(&mut self) -> FollowError {
        let last = Instant::now() + PATIENCE;
        loop {
            match timeout_at(last, self.receive()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => panic!("the stream does not end"),
            }
        }
    }

    /// Reports policies: each name, and the error if the policy is not in force.
    pub(crate) async fn report(&mut self, full: bool, of: &[(&str, &str)]) -> Result<(), Status> {
        let find = |name: &str| {
            let mut all = self.held.policies.values();
            all.find(|policy| policy.key.name == name).unwrap().clone()
        };
        let realized = of.iter().map(|(name, error)| {
            let policy = find(name);
            let (uid, generation) = (policy.uid.clone(), policy.generation);
            Realized { uid, generation, error: (*error).to_owned(), gone: false }
        });
        let report =
            ReportRequest { full, realized: realized.collect(), ..ReportRequest::default() };
        self.follow.as_mut().unwrap().report(report).await
    }

    /// Reports with retries: a replica may accept reports a moment after nodes learn its address.
    pub(crate) async fn reports(&mut self, full: bool, of: &[(&str, &str)]) {
        let report = async || self.report(full, of).await;
        eventually_async("the report to be accepted", PATIENCE, report).await;
    }

    /// Announces a pod's address.
    pub(crate) async fn announce(
        &mut self,
        pod: &DynamicObject,
        at: [u8; 4],
    ) -> Result<(), Status> {
        let meta = pod.metadata.clone();
        let request = AnnounceRequest {
            uid: meta.uid.unwrap(),
            namespace: meta.namespace.unwrap(),
            name: meta.name.unwrap(),
            addresses: vec![at.to_vec()],
        };
        self.follow.as_mut().unwrap().announce(request).await
    }

    async fn receive(&mut self) -> Result<(), FollowError> {
        let follow = self.follow.as_mut().unwrap();
        match follow.receive().await? {
            StreamEvent::Part(part) => {
                if let Progress::Applied(_) = self.held.receive(part).unwrap() {
                    // The stream may have ended; the next receive returns that.
                    let _ = timeout(PATIENCE, follow.acknowledge(self.held.generation)).await;
                }
            }
            StreamEvent::Bookmark(bookmark) => {
                self.held.apply_bookmark(&bookmark);
                self.reports_to = bookmark.reports_to;
            }
        }
        Ok(())
    }

    /// Returns the names of the policies in the snapshot.
    pub(crate) fn policies(&self) -> Vec<String> {
        let policies = self.held.policies.values();
        let mut names: Vec<String> = policies.map(|policy| policy.key.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns the names of the pods in the snapshot.
    pub(crate) fn pods(&self) -> Vec<String> {
        let mut names: Vec<String> = self.held.pods.values().map(|pod| pod.name.clone()).collect();
        names.sort();
        names
    }
}

pub(crate) fn hello(held: &NodeSnapshot) -> Hello {
    held.hello(false, false)
}
