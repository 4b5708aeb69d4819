//! Network load balancers of the lab: their verbs, their health checks, and the forwarding that follows.

use super::{Lab, LabError, blocking, names};
use crate::control::{BalancerOrder, BalancerSpec, BalancerView, Listener, TargetView};
use config_model::Span;
use lab_cloud::{Balancer, HealthCheck, HealthProbe};
use lab_fabric::{BALANCER_ADDRESSES, Forwarding};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::Notify,
    task::JoinSet,
};

/// All load balancers of a lab, by name.
#[derive(Default)]
pub(super) struct Balancers {
    all: Mutex<BTreeMap<String, Entry>>,
    changed: Notify,
}

struct Entry {
    address: Ipv4Addr,
    listeners: Vec<Listener>,
    balancer: Balancer,
}

/// A health check that is due.
struct DueCheck {
    name: String,
    node: String,
    address: Option<Ipv4Addr>,
    check: HealthCheck,
}

impl Balancers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lab {
    pub(crate) fn add_balancer(&self, spec: BalancerSpec) -> Result<BalancerView, LabError> {
        names::check("load balancer", &spec.name, 32)?;
        check(&spec)?;
        let nodes = match spec.targets.as_slice() {
            [] => self.nodes().keys().cloned().collect(),
            nodes => self.known(nodes)?,
        };
        let name = spec.name.clone();
        {
            let mut all = self.balancers.all();
            if all.contains_key(&name) {
                return Err(LabError::BalancerExists(name));
            }
            let taken: BTreeSet<Ipv4Addr> = all.values().map(|entry| entry.address).collect();
            let free = BALANCER_ADDRESSES.hosts().find(|address| !taken.contains(address));
            let address = free.ok_or(LabError::NoBalancerAddress)?;
            let mut balancer = Balancer::new(spec.check, spec.deregistration_delay);
            nodes.iter().for_each(|node| balancer.register(node, self.cloud.now()));
            all.insert(name.clone(), Entry { address, listeners: spec.listeners, balancer });
        }
        self.balancers.changed.notify_one();
        self.balancer_view(&name)
    }

    pub(crate) fn remove_balancer(&self, name: &str) -> Result<(), LabError> {
        let removed = self.balancers.all().remove(name);
        removed.ok_or_else(|| LabError::NoBalancer(name.to_owned()))?;
        self.balancers.changed.notify_one();
        Ok(())
    }

    pub(crate) fn order_balancer(
        &self,
        name: &str,
        order: BalancerOrder,
    ) -> Result<BalancerView, LabError> {
        let now = self.cloud.now();
        let (BalancerOrder::Register { nodes } | BalancerOrder::Deregister { nodes }) = &order;
        let nodes = match order {
            BalancerOrder::Register { .. } => self.known(nodes)?,
            // A node that was removed can still be a target.
            BalancerOrder::Deregister { .. } => nodes.clone(),
        };
        {
            let mut all = self.balancers.all();
            let entry = all.get_mut(name).ok_or_else(|| LabError::NoBalancer(name.to_owned()))?;
            for node in nodes {
                match order {
                    BalancerOrder::Register { .. } => entry.balancer.register(&node, now),
                    BalancerOrder::Deregister { .. } => {
                        if !entry.balancer.deregister(&node, now) {
                            return Err(LabError::NoTarget { balancer: name.to_owned(), node });
                        }
                    }
                }
            }
        }
        self.balancers.changed.notify_one();
        self.balancer_view(name)
    }

    pub(crate) fn balancer_views(&self) -> Vec<BalancerView> {
        let addresses = self.primary_addresses();
        let all = self.balancers.all();
        let views = all.iter().map(|(name, entry)| {
            let receivers = entry.balancer.receivers();
            let targets = entry.balancer.targets().map(|(node, state)| TargetView {
                node: node.to_owned(),
                address: addresses.get(node).copied(),
                state,
                receives: receivers.contains(&node),
            });
            BalancerView {
                name: name.clone(),
                address: entry.address,
                listeners: entry.listeners.clone(),
                check: entry.balancer.check().clone(),
                targets: targets.collect(),
            }
        });
        views.collect()
    }

    fn balancer_view(&self, name: &str) -> Result<BalancerView, LabError> {
        let found = self.balancer_views().into_iter().find(|view| view.name == name);
        found.ok_or_else(|| LabError::NoBalancer(name.to_owned()))
    }

    /// These names, if each one is a node's.
    fn known(&self, nodes: &[String]) -> Result<Vec<String>, LabError> {
        let all = self.nodes();
        match nodes.iter().find(|node| !all.contains_key(*node)) {
            Some(unknown) => Err(LabError::NoNode(unknown.clone())),
            None => Ok(nodes.to_vec()),
        }
    }

    /// The primary address of each instance that is not terminated, by node.
    fn primary_addresses(&self) -> BTreeMap<String, Ipv4Addr> {
        let truth = self.cloud.truth();
        let nodes = self.nodes();
        let of = |(name, entry): (&String, &Arc<super::nodes::NodeEntry>)| {
            let instance = truth.instances.iter().find(|of| of.id == entry.instance)?;
            Some((name.clone(), instance.enis.first()?.primary))
        };
        nodes.iter().filter_map(of).collect()
    }

    /// The checks that are due, and the forwarding of the present targets.
    fn balance_now(&self) -> (Vec<DueCheck>, Vec<Forwarding>) {
        let (now, addresses) = (self.cloud.now(), self.primary_addresses());
        let mut all = self.balancers.all();
        let (mut due, mut forwardings) = (Vec::new(), Vec::new());
        for (name, entry) in all.iter_mut() {
            entry.balancer.advance(now);
            for node in entry.balancer.start_checks(now) {
                let address = addresses.get(&node).copied();
                let check = entry.balancer.check().clone();
                due.push(DueCheck { name: name.clone(), node, address, check });
            }
            let receivers = entry.balancer.receivers();
            let targets = receivers.iter().filter_map(|node| addresses.get(*node).copied());
            let targets: Vec<Ipv4Addr> = targets.collect();
            forwardings.extend(entry.listeners.iter().map(|listener| Forwarding {
                address: entry.address,
                transport: listener.transport,
                port: listener.port,
                target_port: listener.target_port,
                targets: targets.clone(),
            }));
        }
        (due, forwardings)
    }

    /// The time until a check is due or a target's delay is over, if no verb changes a load balancer before.
    fn balance_pause(&self) -> Duration {
        let now = self.cloud.now();
        let all = self.balancers.all();
        let next = all.values().filter_map(|entry| entry.balancer.wake_at()).min();
        next.map_or(IDLE, |next| to_duration(next.since(now)).min(LONGEST_PAUSE))
    }

    /// Runs one check and records its result.
    async fn run_check(self: Arc<Self>, due: DueCheck) {
        let limit = to_duration(due.check.timeout);
        let outcome = match due.address {
            Some(address) => {
                let answer = self.probe(address, &due.check.probe);
                tokio::time::timeout(limit, answer)
                    .await
                    .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
            }
            None => Err(io::Error::other("the node has no address")),
        };
        if let Err(err) = &outcome {
            tracing::debug!(balancer = due.name, node = due.node, %err, "a health check failed");
        }
        if let Some(entry) = self.balancers.all().get_mut(&due.name) {
            entry.balancer.record(&due.node, outcome.is_ok());
        }
        self.balancers.changed.notify_one();
    }

    async fn probe(self: &Arc<Self>, address: Ipv4Addr, probe: &HealthProbe) -> io::Result<()> {
        let (HealthProbe::Tcp { port } | HealthProbe::Http { port, .. }) = probe;
        let lab = Arc::clone(self);
        let socket = blocking(move || lab.fabric.inside_vpc(TcpSocket::new_v4)).await;
        let socket = socket.map_err(io::Error::other)??;
        // An address of the router in the VPC, as the health checks of a load balancer come from its subnets.
        socket.bind((self.ec2_endpoint, 0).into())?;
        let mut stream = socket.connect(SocketAddr::from((address, *port))).await?;
        match probe {
            HealthProbe::Tcp { .. } => Ok(()),
            HealthProbe::Http { path, .. } => ask(&mut stream, address, path).await,
        }
    }
}

/// Checks targets and forwards connections to them until the task ends.
pub(crate) async fn balance(lab: Arc<Lab>) {
    let mut checks = JoinSet::new();
    let mut applied: Option<Vec<Forwarding>> = None;
    loop {
        let (due, forwardings) = lab.balance_now();
        for check in due {
            checks.spawn(Arc::clone(&lab).run_check(check));
        }
        while checks.try_join_next().is_some() {}
        let mut pause = lab.balance_pause();
        if applied.as_ref().is_some_and(|applied| *applied != forwardings)
            || applied.is_none() && !forwardings.is_empty()
        {
            let (of, wanted) = (Arc::clone(&lab), forwardings.clone());
            match blocking(move || of.fabric.balance(&wanted)).await {
                Ok(()) => applied = Some(forwardings),
                Err(err) => {
                    let err = LabError::from(err).chain();
                    tracing::error!(err, "load balancers do not follow their targets");
                    pause = pause.min(RETRY);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = lab.balancers.changed.notified() => {}
        }
    }
}

/// Sends a request, and fails unless the status is from 200 to 399.
async fn ask(stream: &mut TcpStream, host: Ipv4Addr, path: &str) -> io::Result<()> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') && head.len() < LONGEST_STATUS_LINE {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    match status(&String::from_utf8_lossy(&head)) {
        Some(200..=399) => Ok(()),
        Some(code) => Err(io::Error::other(format!("HTTP status {code}"))),
        None => Err(io::Error::other("no HTTP answer")),
    }
}

fn status(head: &str) -> Option<u16> {
    let line = head.lines().next()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// Checks the ports, the path and the times of a load balancer.
fn check(spec: &BalancerSpec) -> Result<(), LabError> {
    let refuse =
        |why: &str| Err(LabError::BadBalancer { name: spec.name.clone(), why: why.to_owned() });
    let ports: BTreeSet<_> = spec.listeners.iter().map(|of| (of.transport, of.port)).collect();
    if spec.listeners.is_empty() {
        return refuse("it has no listener; give --listener PORT:NODEPORT");
    }
    if ports.len() < spec.listeners.len() {
        return refuse("two listeners have one port; give each port once");
    }
    if spec.listeners.iter().any(|of| of.port == 0 || of.target_port == 0) {
        return refuse("a listener has the port 0; choose a port from 1 to 65535");
    }
    let HealthCheck { probe, interval, timeout, healthy, unhealthy } = &spec.check;
    let (HealthProbe::Tcp { port } | HealthProbe::Http { port, .. }) = probe;
    if *port == 0 {
        return refuse("the health check has the port 0; choose a port from 1 to 65535");
    }
    if let HealthProbe::Http { path, .. } = probe
        && (!path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        return refuse("the path of the health check is not of the form /PATH");
    }
    if *healthy == 0 || *unhealthy == 0 {
        return refuse("a threshold of the health check is 0; choose 1 or more");
    }
    if *interval < SHORTEST_INTERVAL || *timeout == Span(0) || timeout > interval {
        return refuse("the health check needs an interval from 100ms and a timeout within it");
    }
    Ok(())
}

fn to_duration(span: Span) -> Duration {
    Duration::from_millis(span.0)
}

/// The addresses of nodes are read again after this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Without targets.
const IDLE: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_millis(500);
const LONGEST_STATUS_LINE: usize = 1024;
const SHORTEST_INTERVAL: Span = Span::millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use lab_fabric::Transport;

    fn spec() -> BalancerSpec {
        let listener = Listener { port: 80, target_port: 30_080, transport: Transport::Tcp };
        BalancerSpec {
            name: "web".to_owned(),
            listeners: vec![listener],
            check: HealthCheck {
                probe: HealthProbe::Http { port: 32_000, path: "/healthz".to_owned() },
                interval: Span::seconds(1),
                timeout: Span::seconds(1),
                healthy: 2,
                unhealthy: 2,
            },
            deregistration_delay: Span::seconds(300),
            targets: Vec::new(),
        }
    }

    #[test]
    fn a_status_line_has_a_status() {
        assert_eq!(status("HTTP/1.1 503 Service Unavailable\r\n"), Some(503));
        assert_eq!(status("HTTP/1.0 200 OK"), Some(200));
        for bad in ["", "200 OK", "HTTP/1.1", "SSH-2.0-x 200"] {
            assert_eq!(status(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_load_balancer_that_cannot_work_is_refused_with_the_reason() {
        assert!(check(&spec()).is_ok());
        let with = |change: &dyn Fn(&mut BalancerSpec)| {
            let mut spec = spec();
            change(&mut spec);
            check(&spec).map_err(|err| err.to_string()).err().unwrap_or_default()
        };
        let twice = with(&|spec| spec.listeners.push(spec.listeners[0]));
        assert!(twice.contains("two listeners have one port"), "{twice}");
        let late = with(&|spec| spec.check.timeout = Span::seconds(2));
        assert!(late.contains("timeout within it"), "{late}");
        let split = with(&|spec| {
            spec.check.probe = HealthProbe::Http { port: 1, path: "/a b\r\nX: y".to_owned() };
        });
        assert!(split.contains("/PATH"), "{split}");
        let never = with(&|spec| spec.check.healthy = 0);
        assert!(never.contains("threshold"), "{never}");
    }
}
