//! GC removes attachments that the runtime no longer knows, even if their namespace is gone. It continues after errors
//! and reports all of them.
//!
//! The kernel is observed before the daemon is asked. Every link in this observation was reserved earlier, so the
//! daemon's answer covers it, and ADDs in progress are spared.

use crate::{
    attachment::Served,
    fault::{Code, Fault},
    flight,
    log::{Level, Log},
    netconf::NetConf,
    session::{Daemon, Session, remedy},
    tombstone,
};
use config_model::{HostEndMode, PodKey, Tombstone, causes, registry};
use ipamd_rpc::{Collect, Collected, PodAddress, RpcError};
use routing_netlink::{Socket, SocketError, With};
use routing_plan::{
    Action, Link, LinkKind, LinkRef, Observed, Op, Subject, disconnect,
    pod::{removal, removal_from_port, retire},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Timeout for a missing socket.
const PATIENCE: Duration = Duration::from_secs(1);
/// The daemon's deadline. It writes each release to its disk before it answers.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn gc(
    conf: &NetConf,
    daemon: &Daemon,
    valid: &BTreeSet<PodKey>,
    log: &Log,
) -> Result<Served, Fault> {
    let mut work = Work { conf, valid, failures: Vec::new() };
    let mut host = work.attempt(Socket::open());
    let before = host.as_mut().and_then(|host| work.attempt(host.observe(With::Nothing)));
    let (how, count) = match collect(conf, daemon, valid) {
        Ok(collected) => {
            ("released", work.remove_released(host.as_mut(), before.as_ref(), &collected))
        }
        Err(error) => {
            work.failures.push(daemon_failure(&error));
            ("tombstones", work.remove_without_daemon(host.as_mut(), before.as_ref()))
        }
    };
    for failure in &work.failures {
        log.line(Level::Warn, &failure.message, &[]);
    }
    let Some(fault) = together(work.failures) else {
        let fields = vec![("daemon", how.into()), ("removed", count.into())];
        return Ok(Served { stdout: Vec::new(), fields });
    };
    Err(fault)
}

fn collect(
    conf: &NetConf,
    daemon: &Daemon,
    valid: &BTreeSet<PodKey>,
) -> Result<Collected, RpcError> {
    let start = Instant::now();
    let session = Session::open(daemon, start + PATIENCE)?;
    let request = Collect { network: conf.network.clone(), valid: valid.clone() };
    session.collect(request, start + DEADLINE)
}

struct Work<'a> {
    conf: &'a NetConf,
    valid: &'a BTreeSet<PodKey>,
    failures: Vec<Fault>,
}

impl Work<'_> {
    /// Removes the interfaces that the daemon has just released: no other pod has their addresses yet. Returns their
    /// number.
    fn remove_released(
        &mut self,
        host: Option<&mut Socket>,
        before: Option<&Observed>,
        collected: &Collected,
    ) -> usize {
        let Collected { released, spared, failed } = collected;
        for (key, why) in failed {
            let message = format!("{key} is still reserved: {why}");
            self.failures.push(Fault::new(Code::TryAgainLater, message, AGAIN));
        }
        let count = released.len();
        let (Some(host), Some(before)) = (host, before) else { return count };
        let kept =
            |key: &PodKey| spared.iter().chain(failed.keys()).any(|spared| spared.covers(key));
        let seen_before: Vec<&Link> = self
            .stale(before)
            .filter(|link| link.group != registry::GROUP_REAP)
            .filter(|link| link.key().is_some_and(|key| !kept(&key)))
            .collect();
        let Some(now) = self.attempt(host.observe(With::Nothing)) else { return count };
        // A link that is gone by now, or was recreated, is not touched.
        let same = |link: &&Link| {
            let there = now.links.get(&link.index);
            there.is_some_and(|there| there.alias == link.alias && there.kind == link.kind)
        };
        let links: Vec<&Link> = seen_before.into_iter().filter(same).collect();
        let mut ops = Vec::new();
        let mut gone: BTreeSet<PodKey> = released.keys().cloned().collect();
        let mut free = BTreeSet::new();
        let bridged = HostEndMode::bridged(&self.conf.veth_prefix);
        let port = bridged.gateway_port().and_then(|name| now.link_named(name));
        for (key, addresses) in released {
            for address in addresses.iter().flat_map(PodAddress::all) {
                free.insert(address);
                let led = |link: &&&Link| now.routed_to(link.index).contains(&address);
                let own = links.iter().filter(|link| link.key().is_some_and(|k| key.covers(&k)));
                ops.extend(removal(address, own.clone().find(led).map(|link| link.index)));
                ops.extend(
                    port.into_iter().flat_map(|link| removal_from_port(address, link.index)),
                );
            }
        }
        ops.extend(disconnect(&now, links.iter().copied()));
        for link in links {
            // The daemon did not know this address: it may be another pod's by now.
            let own = now.routed_to(link.index).into_iter();
            let own = own.filter(|address| !free.contains(address));
            let own = own.filter(|address| !now.routed_past(*address, |dev| dev == link.index));
            ops.extend(own.flat_map(|address| removal(address, Some(link.index))));
            ops.push(retire(link));
            gone.extend(link.key().map(|key| base(&key, gone.iter())));
        }
        self.run(host, &ops);
        gone.len()
    }

    /// Works without the daemon: leaves each tombstone before it removes the links.
    fn remove_without_daemon(
        &mut self,
        host: Option<&mut Socket>,
        seen: Option<&Observed>,
    ) -> usize {
        let (Some(host), Some(seen)) = (host, seen) else { return 0 };
        let under_way = flight::sandboxes();
        let mut attachments: BTreeMap<PodKey, Vec<&Link>> = BTreeMap::new();
        for link in self.stale(seen) {
            let Some(key) = link.key() else { continue };
            if !under_way.contains(&key.container_id) {
                attachments.entry(key).or_default().push(link);
            }
        }
        // A tombstone of the first interface covers the further ones.
        let firsts: Vec<PodKey> =
            attachments.keys().filter(|key| key.number() == 0).cloned().collect();
        let mut of_first: BTreeMap<PodKey, Vec<&Link>> = BTreeMap::new();
        for (key, links) in attachments {
            of_first.entry(base(&key, firsts.iter())).or_default().extend(links);
        }
        let mut ops = Vec::new();
        let mut count = 0;
        for (key, links) in of_first {
            let addresses: BTreeSet<IpAddr> =
                links.iter().flat_map(|link| seen.routed_to(link.index)).collect();
            let word = Tombstone::new(key, None, addresses.into_iter().collect());
            if let Err(fault) = tombstone::leave(&self.conf.state_dir, &word) {
                self.failures.push(fault);
                continue;
            }
            ops.extend(disconnect(seen, links.iter().copied()));
            for link in links {
                let own = seen.routed_to(link.index).into_iter();
                let own =
                    own.filter(|address| !seen.routed_past(*address, |dev| dev == link.index));
                ops.extend(own.flat_map(|address| removal(address, Some(link.index))));
                let delete = Action::DeleteLink(LinkRef::from(link));
                ops.push(Op::new(Subject::Link(link.index), delete));
            }
            count += 1;
        }
        self.run(host, &ops);
        count
    }

    /// The host ends of this network's interfaces that are not in the list. Links without a key of ours are not touched.
    fn stale<'b>(&self, seen: &'b Observed) -> impl Iterator<Item = &'b Link> + use<'b, '_> {
        let (network, valid) = (&self.conf.network, self.valid);
        let stale = move |key: PodKey| {
            key.network == *network && !valid.iter().any(|valid| valid.covers(&key))
        };
        let made = |link: &&Link| matches!(link.kind, LinkKind::Veth | LinkKind::Vlan(_));
        let links = seen.links.values().filter(made);
        links.filter(move |link| link.key().is_some_and(&stale))
    }

    fn run(&mut self, host: &mut Socket, ops: &[Op]) {
        let Some(applied) = self.attempt(host.run(ops)) else { return };
        let refused = applied.refused.iter().map(|refused| {
            let message = format!("the kernel refused: {refused}");
            Fault::new(Code::KernelRefused, message, AGAIN)
        });
        self.failures.extend(refused);
    }

    fn attempt<T>(&mut self, outcome: Result<T, SocketError>) -> Option<T> {
        let fault = |error| Fault::new(Code::KernelRefused, causes(&error), AGAIN);
        outcome.map_err(|error| self.failures.push(fault(error))).ok()
    }
}

/// The key of the ADD that made this interface, if it is among these; itself if not.
fn base<'a>(key: &PodKey, mut firsts: impl Iterator<Item = &'a PodKey>) -> PodKey {
    firsts.find(|first| first.covers(key)).unwrap_or(key).clone()
}

fn daemon_failure(error: &RpcError) -> Fault {
    let message = format!(
        "{}; links were removed by their keys, with tombstones for the daemon; what is reserved \
         without a link is not",
        causes(error)
    );
    Fault::new(Code::TryAgainLater, message, remedy(error))
}

/// One fault for all: the code and the next step of the first, the messages of all.
fn together(failures: Vec<Fault>) -> Option<Fault> {
    let mut failures = failures.into_iter();
    let mut fault = failures.next()?;
    let more: Vec<String> = failures.map(|failure| failure.message).collect();
    if !more.is_empty() {
        fault.message = format!("{}; {}", fault.message, more.join("; "));
    }
    Some(fault)
}

const AGAIN: &str = "the runtime will repeat the GC; ferrule-ipamd removes what is left of pods";
