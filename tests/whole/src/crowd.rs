//! Clients of a Service by the dozen, and the times at which the Service loses its endpoints.

use crate::{
    Cluster, Pod,
    traffic::{Client, inside, terminate},
};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tests_eventually::{PATIENCE, within};
use tests_lab::Lab;

/// Running clients of one kind, in one process. A drop stops them.
pub struct Crowd {
    /// The clients and their server, for messages.
    title: String,
    process: Option<Child>,
}

/// The requests of a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests<'a> {
    /// One line on a connection of its own.
    Short,
    /// One line after the other on a connection. A server that ends closes the connection after a last answer, and the client opens
    /// another one.
    Long,
    /// Numbered datagrams, each port for this time.
    Datagrams { port_life: &'a str },
    /// Questions to a DNS server for the addresses of a name, each from another port and once only.
    Questions { name: &'a str },
}

/// The results of a crowd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CrowdReport {
    pub clients: u64,
    pub sent: u64,
    pub answered: u64,
    /// The number of connections that a server closed in good order.
    pub closed: u64,
    /// The Unix times in milliseconds of the first and the last answered request of each server.
    pub hosts: BTreeMap<String, [u64; 2]>,
    /// The number of all failures. `failures` has the first 200.
    pub failed: u64,
    pub failures: Vec<Failure>,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    pub client: u64,
    /// The Unix time of the request in milliseconds.
    pub at: u64,
    /// The server of the answer before it to the same port of the client. Empty if there is none.
    pub host: String,
    pub cause: String,
}

impl Crowd {
    /// Starts clients in a pod's network namespace.
    ///
    /// # Errors
    /// If a program is missing, or the pod's namespace is not found.
    pub fn between(from: &Pod, to: &str, requests: Requests<'_>, size: Size<'_>) -> Result<Self> {
        Self::start(inside(from)?, &from.name, to, requests, size)
    }

    /// As [`Crowd::between`], from the client outside the VPC.
    ///
    /// # Errors
    /// If a program is missing.
    pub fn outside(lab: &Lab, to: &str, requests: Requests<'_>, size: Size<'_>) -> Result<Self> {
        Self::start(Client::Outside(lab).probe()?, "outside", to, requests, size)
    }

    fn start(
        mut probe: Command,
        from: &str,
        to: &str,
        requests: Requests<'_>,
        size: Size<'_>,
    ) -> Result<Self> {
        let (kind, more) = match requests {
            Requests::Short => ("short", "0s"),
            Requests::Long => ("long", "0s"),
            Requests::Datagrams { port_life } => ("udp", port_life),
            Requests::Questions { name } => ("dns", name),
        };
        let title = format!("{kind} from {from} to {to}");
        let process = probe
            .args(["crowd", kind, to, &size.clients.to_string(), size.pace, more])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start {title}"))?;
        Ok(Self { title, process: Some(process) })
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    /// Stops the clients. Clients with datagrams wait ten seconds for the last answers.
    ///
    /// # Errors
    /// If the process has exited before, or prints no results.
    pub fn end(mut self) -> Result<CrowdReport> {
        let title = self.title.clone();
        let mut process = self.process.take().context("the crowd has ended already")?;
        let has_ended = process.try_wait().with_context(|| title.clone())?;
        ensure!(has_ended.is_none(), "the process of {title} has exited: {has_ended:?}");
        terminate(&process)?;
        let output = process.wait_with_output().with_context(|| title.clone())?;
        serde_json::from_slice(&output.stdout).with_context(|| format!("the results of {title}"))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The number of clients, and the time between two requests of a client, such as `50ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<'a> {
    pub clients: u32,
    pub pace: &'a str,
}

/// A request that failed for another reason than the end of its server within the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub failure: Failure,
    /// The time from the removal of the endpoint to the request. `None` if the endpoint of the last answer was not removed.
    pub after_removal: Option<i64>,
}

impl fmt::Display for Loss {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { client, at, host, cause } = &self.failure;
        write!(to, "client {client} at {at} ms, after an answer of {host:?}: {cause}")?;
        match self.after_removal {
            Some(ms) => write!(to, "; {ms} ms after the removal of its endpoint"),
            None => write!(to, "; its endpoint was not removed"),
        }
    }
}

impl CrowdReport {
    /// Returns the failures that the bound does not excuse. A request may fail until this time after the removal of the endpoint
    /// that answered before it.
    pub fn losses(&self, removals: &Removals, bound: Duration) -> Vec<Loss> {
        let bound = i64::try_from(bound.as_millis()).unwrap_or(i64::MAX);
        let losses = self.failures.iter().map(|failure| Loss {
            failure: failure.clone(),
            after_removal: removals
                .of(&failure.host)
                .map(|removed| difference(failure.at, removed)),
        });
        losses
            .filter(|loss| loss.after_removal.is_none_or(|after| after < 0 || after >= bound))
            .collect()
    }

    /// Returns the number of servers with an answer whose endpoints were removed.
    pub fn removed_servers(&self, removals: &Removals) -> usize {
        self.hosts.keys().filter(|host| removals.of(host).is_some()).count()
    }

    /// Returns the longest time from the removal of an endpoint to a request that it answered, in milliseconds. `None` if no removed
    /// endpoint has answered later.
    pub fn longest_use(&self, removals: &Removals) -> Option<i64> {
        let uses = self.hosts.iter().filter_map(|(host, [_, last])| {
            removals.of(host).map(|removed| difference(*last, removed))
        });
        uses.filter(|after| *after > 0).max()
    }
}

fn difference(later: u64, earlier: u64) -> i64 {
    i64::try_from(later).unwrap_or(i64::MAX) - i64::try_from(earlier).unwrap_or(i64::MAX)
}

/// The Unix times in milliseconds at which a watch of EndpointSlices showed pods as not ready any longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    slices: BTreeMap<String, BTreeSet<String>>,
    removed: BTreeMap<String, u64>,
}

impl Removals {
    fn of(&self, pod: &str) -> Option<u64> {
        self.removed.get(pod).copied()
    }

    pub fn len(&self) -> usize {
        self.removed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty()
    }

    /// Reads an event of a watch. `at` is the time at which it was received, so a removal is never too early.
    fn read(&mut self, event: &Value, at: u64) {
        let slice = &event["object"];
        let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let ready = slice["endpoints"].as_array().into_iter().flatten().filter(|endpoint| {
            event["type"] != "DELETED" && endpoint["conditions"]["ready"] != false
        });
        let pods = ready.filter_map(|of| of["targetRef"]["name"].as_str()).map(str::to_owned);
        let before = self.slices.insert(name, pods.collect()).unwrap_or_default();
        let now: BTreeSet<&String> = self.slices.values().flatten().collect();
        let gone: Vec<String> = before.into_iter().filter(|pod| !now.contains(pod)).collect();
        for pod in gone {
            self.removed.entry(pod).or_insert(at);
        }
    }
}

/// A watch of the EndpointSlices of a Service.
pub struct EndpointWatch {
    kubectl: Child,
    reader: Option<JoinHandle<()>>,
    removals: Arc<Mutex<Removals>>,
}

impl EndpointWatch {
    /// Starts the watch.
    ///
    /// # Errors
    /// If kubectl cannot be started.
    pub fn start(cluster: &Cluster, namespace: &str, service: &str) -> Result<Self> {
        let label = format!("kubernetes.io/service-name={service}");
        let mut command = cluster.command(&[
            "-n",
            namespace,
            "get",
            "endpointslices",
            "-l",
            &label,
            "--watch",
            "--output-watch-events",
            "-o",
            "json",
        ]);
        let mut kubectl = command.stdout(Stdio::piped()).spawn().context("cannot start kubectl")?;
        let output = kubectl.stdout.take().context("kubectl has no standard output")?;
        let removals = Arc::<Mutex<Removals>>::default();
        let shared = removals.clone();
        let reader = std::thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(output).into_iter::<Value>();
            for event in events.map_while(Result::ok) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                shared.lock().unwrap_or_else(PoisonError::into_inner).read(&event, now);
            }
        });
        Ok(Self { kubectl, reader: Some(reader), removals })
    }

    /// Waits until the watch has read the first EndpointSlice.
    ///
    /// # Errors
    /// After a timeout.
    pub fn has_begun(&self) -> Result<()> {
        within("the EndpointSlices of the Service", PATIENCE, || {
            !self.removals.lock().unwrap_or_else(PoisonError::into_inner).slices.is_empty()
        })?;
        Ok(())
    }

    /// Stops the watch and returns the removals.
    ///
    /// # Errors
    /// If the watch has ended before.
    pub fn end(mut self) -> Result<Removals> {
        let has_ended = self.kubectl.try_wait().context("cannot wait for kubectl")?;
        ensure!(has_ended.is_none(), "the watch of EndpointSlices has ended: {has_ended:?}");
        self.stop();
        Ok(self.removals.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn stop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for EndpointWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, pods: &[(&str, bool)]) -> Value {
        let endpoint = |(name, ready): &(&str, bool)| json!({ "targetRef": { "name": name }, "conditions": { "ready": ready } });
        let endpoints: Vec<Value> = pods.iter().map(endpoint).collect();
        json!({ "type": kind, "object": { "metadata": { "name": "web-1" }, "endpoints": endpoints } })
    }

    #[test]
    fn an_endpoint_is_removed_when_it_is_not_ready_any_longer() {
        let mut removals = Removals::default();
        removals.read(&event("ADDED", &[("a", true), ("b", true), ("c", false)]), 1);
        removals.read(&event("MODIFIED", &[("a", true), ("b", false), ("c", true)]), 2);
        removals.read(&event("MODIFIED", &[("a", true), ("c", true)]), 3);
        removals.read(&event("DELETED", &[("a", true), ("c", true)]), 4);
        let expected = [("b", 2), ("a", 4), ("c", 4)].map(|(pod, at)| (pod.to_owned(), at));
        assert_eq!(removals.removed, expected.into());
    }

    #[test]
    fn only_datagrams_within_the_bound_may_be_lost() {
        let mut removals = Removals::default();
        removals.read(&event("ADDED", &[("a", true), ("b", true)]), 1_000);
        removals.read(&event("MODIFIED", &[("b", true)]), 2_000);
        let failure = |host: &str, at| Failure {
            client: 0,
            at,
            host: host.to_owned(),
            cause: "no answer".to_owned(),
        };
        let failures = vec![
            failure("a", 1_999),
            failure("a", 2_000),
            failure("a", 2_999),
            failure("a", 3_000),
            failure("b", 2_500),
            failure("", 2_500),
        ];
        let report = CrowdReport {
            clients: 1,
            sent: 9,
            answered: 3,
            closed: 0,
            hosts: [("a".to_owned(), [1_000, 2_700]), ("b".to_owned(), [1_000, 4_000])].into(),
            failed: 6,
            failures,
        };
        let losses = report.losses(&removals, Duration::from_secs(1));
        let found: Vec<_> =
            losses.iter().map(|loss| (loss.failure.at, loss.after_removal)).collect();
        assert_eq!(found, [(1_999, Some(-1)), (3_000, Some(1_000)), (2_500, None), (2_500, None)]);
        assert_eq!(report.longest_use(&removals), Some(700));
    }
}
