//! Network load balancers of the lab: their verbs, their health checks, and the forwarding that follows.

use super::{Lab, LabError, blocking, names};
use crate::control::{BalancerOrder, BalancerSpec, BalancerView, Listener, TargetView};
use config_model::Span;
use lab_cloud::{Balancer, HealthCheck, HealthProbe};
use lab_fabric::{BALANCER_ADDRESSES, BALANCER_ADDRESSES_V6, Forwarding};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
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
    /// `None` in a VPC without IPv6.
    address_v6: Option<Ipv6Addr>,
    listeners: Vec<Listener>,
    balancer: Balancer,
}

/// A health check that is due.
struct DueCheck {
    name: String,
    target: String,
    address: Option<IpAddr>,
    check: HealthCheck,
}

/// The kinds of targets in the API of Elastic Load Balancing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetKind {
    /// Names of nodes.
    Instance,
    Ip,
}

impl TargetKind {
    fn of(target: &str) -> Self {
        if target.parse::<IpAddr>().is_ok() { Self::Ip } else { Self::Instance }
    }
}

/// The addresses of nodes that are not terminated.
struct NodeAddresses(BTreeMap<String, Vec<IpAddr>>);

impl NodeAddresses {
    /// The addresses of a target: at most one of each family, of IPv4 first.
    fn of(&self, target: &str) -> Vec<IpAddr> {
        match target.parse() {
            Ok(address) => vec![address],
            Err(_) => self.0.get(target).cloned().unwrap_or_default(),
        }
    }
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
        let targets = match spec.targets.as_slice() {
            [] => self.nodes().keys().cloned().collect(),
            targets => self.known(targets)?,
        };
        let has_v6 = !self.cloud.truth().vpc_ipv6_cidrs.is_empty();
        let name = spec.name.clone();
        {
            let mut all = self.balancers.all();
            if all.contains_key(&name) {
                return Err(LabError::BalancerExists(name));
            }
            let taken: BTreeSet<Ipv4Addr> = all.values().map(|entry| entry.address).collect();
            let free = BALANCER_ADDRESSES.hosts().find(|address| !taken.contains(address));
            let address = free.ok_or(LabError::NoBalancerAddress)?;
            let address_v6 = has_v6.then(|| in_v6(address));
            let mut balancer = Balancer::new(spec.check, spec.deregistration_delay);
            targets.iter().for_each(|target| balancer.register(target, self.cloud.now()));
            let entry = Entry { address, address_v6, listeners: spec.listeners, balancer };
            all.insert(name.clone(), entry);
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
        let (BalancerOrder::Register { targets } | BalancerOrder::Deregister { targets }) = &order;
        let targets = match order {
            BalancerOrder::Register { .. } => self.known(targets)?,
            // A node that was removed can still be a target.
            BalancerOrder::Deregister { .. } => targets.clone(),
        };
        {
            let mut all = self.balancers.all();
            let entry = all.get_mut(name).ok_or_else(|| LabError::NoBalancer(name.to_owned()))?;
            for target in targets {
                match order {
                    BalancerOrder::Register { .. } => {
                        one_kind(entry.balancer.targets().map(|(of, _)| of).chain([&*target]))?;
                        entry.balancer.register(&target, now);
                    }
                    BalancerOrder::Deregister { .. } => {
                        if !entry.balancer.deregister(&target, now) {
                            return Err(LabError::NoTarget { balancer: name.to_owned(), target });
                        }
                    }
                }
            }
        }
        self.balancers.changed.notify_one();
        self.balancer_view(name)
    }

    pub(crate) fn balancer_views(&self) -> Vec<BalancerView> {
        let addresses = self.node_addresses();
        let all = self.balancers.all();
        let views = all.iter().map(|(name, entry)| {
            let receivers = entry.balancer.receivers();
            let targets = entry.balancer.targets().map(|(target, state)| TargetView {
                target: target.to_owned(),
                address: addresses.of(target).first().copied(),
                state,
                receives: receivers.contains(&target),
            });
            BalancerView {
                name: name.clone(),
                address: entry.address,
                address_v6: entry.address_v6,
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

    /// These targets, if all are names of nodes, or all are addresses in the VPC.
    fn known(&self, targets: &[String]) -> Result<Vec<String>, LabError> {
        one_kind(targets.iter().map(String::as_str))?;
        let all = self.nodes();
        let truth = self.cloud.truth();
        for target in targets {
            match target.parse() {
                Ok(IpAddr::V4(at)) if truth.vpc_cidrs.iter().any(|cidr| cidr.contains(&at)) => {}
                Ok(IpAddr::V6(at))
                    if truth.vpc_ipv6_cidrs.iter().any(|cidr| cidr.contains(&at)) => {}
                Ok(at) => return Err(LabError::TargetOutside(at)),
                Err(_) if all.contains_key(target) => {}
                Err(_) => return Err(LabError::NoNode(target.clone())),
            }
        }
        Ok(targets.to_vec())
    }

    fn node_addresses(&self) -> NodeAddresses {
        let truth = self.cloud.truth();
        let nodes = self.nodes();
        let of = |(name, entry): (&String, &Arc<super::nodes::NodeEntry>)| {
            let instance = truth.instances.iter().find(|of| of.id == entry.instance)?;
            let primary = instance.enis.first()?;
            let v6 = primary.ipv6_addresses.first().map(|at| IpAddr::V6(*at));
            let all = [IpAddr::V4(primary.primary)].into_iter().chain(v6);
            Some((name.clone(), all.collect()))
        };
        NodeAddresses(nodes.iter().filter_map(of).collect())
    }

    /// The checks that are due, and the forwarding of the present targets.
    fn balance_now(&self) -> (Vec<DueCheck>, Vec<Forwarding>) {
        let (now, addresses) = (self.cloud.now(), self.node_addresses());
        let mut all = self.balancers.all();
        let (mut due, mut forwardings) = (Vec::new(), Vec::new());
        for (name, entry) in all.iter_mut() {
            entry.balancer.advance(now);
            for target in entry.balancer.start_checks(now) {
                let address = addresses.of(&target).first().copied();
                let check = entry.balancer.check().clone();
                due.push(DueCheck { name: name.clone(), target, address, check });
            }
            let receivers = entry.balancer.receivers();
            let targets: Vec<IpAddr> = receivers.iter().flat_map(|of| addresses.of(of)).collect();
            let own = [IpAddr::V4(entry.address)];
            for address in own.into_iter().chain(entry.address_v6.map(IpAddr::V6)) {
                let is_of_family = |of: &&IpAddr| of.is_ipv4() == address.is_ipv4();
                let targets: Vec<IpAddr> = targets.iter().filter(is_of_family).copied().collect();
                forwardings.extend(entry.listeners.iter().map(|listener| Forwarding {
                    address,
                    transport: listener.transport,
                    port: listener.port,
                    target_port: listener.target_port,
                    targets: targets.clone(),
                }));
            }
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
            None => Err(io::Error::other("the target has no address")),
        };
        if let Err(err) = &outcome {
            tracing::debug!(balancer = due.name, target = due.target, %err, "a health check failed");
        }
        if let Some(entry) = self.balancers.all().get_mut(&due.name) {
            entry.balancer.record(&due.target, outcome.is_ok());
        }
        self.balancers.changed.notify_one();
    }

    async fn probe(self: &Arc<Self>, address: IpAddr, probe: &HealthProbe) -> io::Result<()> {
        let (HealthProbe::Tcp { port } | HealthProbe::Http { port, .. }) = probe;
        let lab = Arc::clone(self);
        let open = if address.is_ipv4() { TcpSocket::new_v4 } else { TcpSocket::new_v6 };
        let socket = blocking(move || lab.fabric.inside_vpc(open)).await;
        let socket = socket.map_err(io::Error::other)??;
        if address.is_ipv4() {
            // An address of the router in the VPC, as the health checks of a load balancer come from its subnets.
            socket.bind((self.ec2_endpoint, 0).into())?;
        }
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
async fn ask(stream: &mut TcpStream, host: IpAddr, path: &str) -> io::Result<()> {
    let host = SocketAddr::new(host, 80);
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

/// The address of IPv6 with the last part of an address of IPv4.
fn in_v6(address: Ipv4Addr) -> Ipv6Addr {
    let [.., last] = address.octets();
    (u128::from(BALANCER_ADDRESSES_V6.addr()) | u128::from(last)).into()
}

/// Refuses names of nodes beside addresses.
fn one_kind<'a>(targets: impl Iterator<Item = &'a str>) -> Result<(), LabError> {
    let mut kinds = targets.map(TargetKind::of);
    let first = kinds.next();
    if kinds.all(|kind| Some(kind) == first) { Ok(()) } else { Err(LabError::MixedTargets) }
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
