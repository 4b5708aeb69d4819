//! A blocking netlink socket that sends a whole batch at once.

use crate::{
    encode,
    encode::Request,
    lists::{DUMP_TRIES, List, With, link_in, lists},
    reply::{LeftOut, Reply, Unreadable},
};
use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};
use routing_plan::{
    Action, Applied, Errno, Execution, Family, IfIndex, Link, LinkAddr, Observed, Op, pod::VethPair,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::Duration,
};

/// A blocking netlink socket of one network namespace.
pub struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
    lenient: bool,
    left_out: LeftOut,
}

/// Cause of a failure of the socket itself. Refusals by the kernel are results, not errors.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The socket cannot be opened.
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    /// The messages cannot be sent.
    #[error("cannot send to the kernel")]
    Send(#[source] io::Error),
    /// The answer cannot be received.
    #[error("cannot receive the kernel's answer")]
    Receive(#[source] io::Error),
    /// The answer cannot be read.
    #[error("cannot parse the kernel's answer")]
    Decode(#[from] Unreadable),
    /// A list changed during each read.
    #[error("the kernel's list of {0} changed {DUMP_TRIES} times while it was read")]
    Interrupted(&'static str),
    /// The kernel refused to list something.
    #[error("cannot list {what}: {errno}")]
    List { what: &'static str, errno: Errno },
    /// The kernel refused to remove a program from its link.
    #[error("cannot remove the program {name} from link {}: {errno}", dev.0)]
    DeleteFilter {
        /// Name of the filter.
        name: String,
        /// The link.
        dev: IfIndex,
        errno: Errno,
    },
    /// The kernel refused to delete a table.
    #[error("cannot delete the nftables table {name}: {errno}")]
    DeleteTable { name: String, errno: Errno },
    /// The kernel refused to resolve a neighbor.
    #[error("cannot resolve a neighbor: {errno}")]
    Resolve { errno: Errno },
    /// The kernel refused to create the pair of links.
    #[error("cannot create the links {host} and {pod}: {errno}")]
    CreateVeth {
        /// The host end.
        host: String,
        /// The pod's end.
        pod: String,
        /// EEXIST if either name or the host end's number is taken.
        errno: Errno,
    },
}

/// Maximum repetitions of a deletion until the kernel finds nothing more to delete.
pub(crate) const PURGE_ROUNDS: usize = 16;
/// The kernel fills at most 32 KiB with one part of a list.
const RECEIVE_BYTES: usize = 64 * 1024;
/// The neighbors of one send.
const BATCH: usize = 64;
/// Wait before a list that changed is read again; the n-th wait is n times as long.
const DUMP_PAUSE: Duration = Duration::from_millis(5);
/// linux/socket.h
const MSG_TRUNC: i32 = 0x20;

impl Socket {
    /// Opens a socket in the namespace of the calling thread. [`crate::Netns::socket`] opens one elsewhere.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> Result<Self, SocketError> {
        let open = || {
            let mut inner = netlink_sys::Socket::new(NETLINK_ROUTE)?;
            inner.bind_auto()?;
            inner.connect(&SocketAddr::new(0, 0))?;
            inner.set_cap_ack(true)?;
            inner.set_netlink_get_strict_chk(true)?;
            Ok(inner)
        };
        let inner = open().map_err(SocketError::Open)?;
        let buffer = Vec::with_capacity(RECEIVE_BYTES);
        Ok(Self { inner, sequence: 0, buffer, lenient: false, left_out: None })
    }

    /// Leaves out objects that cannot be parsed.
    #[cfg(feature = "daemon")]
    pub(crate) fn open_lenient() -> Result<Self, SocketError> {
        Ok(Self { lenient: true, ..Self::open()? })
    }

    /// The cause of the last object that was left out since the last call.
    #[cfg(feature = "daemon")]
    pub(crate) fn left_out(&mut self) -> LeftOut {
        self.left_out.take()
    }

    /// Creates both ends of a veth pair with one message, each in its final namespace. The host end is here and up; the
    /// pod's end is in `pod` and down.
    ///
    /// # Errors
    /// The kernel refuses, or the socket fails.
    pub fn create_veth(&mut self, pair: &VethPair, pod: BorrowedFd<'_>) -> Result<(), SocketError> {
        let answers = self.send(&[encode::create_veth(pair, pod)])?;
        match answers.errors.first_key_value() {
            None => Ok(()),
            Some((_, errno)) => Err(SocketError::CreateVeth {
                host: pair.host.name.clone(),
                pod: pair.pod.name.clone(),
                errno: *errno,
            }),
        }
    }

    /// The number of the link with this name, if it exists. Unlike a netlink message, this call does not wait for the
    /// lock that a change of any link on the machine holds.
    ///
    /// # Errors
    /// The kernel refuses, or the name is not valid.
    pub fn index_of(&self, name: &str) -> Result<Option<IfIndex>, SocketError> {
        match rustix::net::netdevice::name_to_index(&self.inner, name) {
            Ok(index) => Ok(Some(IfIndex(index))),
            Err(rustix::io::Errno::NODEV) => Ok(None),
            Err(errno) => {
                Err(SocketError::List { what: "links", errno: Errno(errno.raw_os_error()) })
            }
        }
    }

    /// The link with this name, if it exists.
    ///
    /// # Errors
    /// The kernel refuses, or the socket fails.
    pub fn link_named(&mut self, name: &str) -> Result<Option<Link>, SocketError> {
        if self.index_of(name)?.is_none() {
            return Ok(None);
        }
        let answers = self.send(&[encode::get_link(name)])?;
        match answers.errors.first_key_value() {
            None => Ok(answers.objects.iter().find_map(link_in)),
            Some((_, &Errno::ENODEV)) => Ok(None),
            Some((_, &errno)) => Err(SocketError::List { what: "links", errno }),
        }
    }

    /// Applies all operations with one send. The kernel processes them in order and continues after refusals. Unlike
    /// the daemon's executor, a refusal stops no subject: the caller undoes a failed batch as a whole.
    ///
    /// # Errors
    /// The socket fails. The result contains the kernel's refusals.
    ///
    /// # Panics
    /// On an operation that is not a netlink message ([`Action::WriteSysctl`], [`Action::SetIpv6`]). Batches contain
    /// none.
    pub fn run(&mut self, ops: &[Op]) -> Result<Applied, SocketError> {
        let mut batch = Batch::new(ops);
        while let Some(requests) = batch.round() {
            let answers = self.send(requests)?;
            batch.take(&answers.errors);
        }
        Ok(batch.finish())
    }

    /// Lets the kernel resolve neighbors by ARP or neighbor discovery, as before a packet to each. Does not wait for their
    /// answers.
    ///
    /// # Errors
    /// The kernel refuses a neighbor, for example because the link is down. The others are resolved. Or the socket fails.
    pub fn resolve(&mut self, neighbors: &[(IfIndex, IpAddr)]) -> Result<(), SocketError> {
        let mut refused = None;
        for some in neighbors.chunks(BATCH) {
            let requests: Vec<_> =
                some.iter().map(|(dev, address)| encode::resolve(*dev, *address)).collect();
            let answers = self.send(&requests)?;
            refused = refused.or_else(|| answers.errors.first_key_value().map(|(_, errno)| *errno));
        }
        refused.map_or(Ok(()), |errno| Err(SocketError::Resolve { errno }))
    }

    /// Observes the whole namespace.
    ///
    /// # Errors
    /// A list cannot be read, or changed during each read.
    pub fn observe(&mut self, with: With) -> Result<Observed, SocketError> {
        let mut observed = Observed::default();
        for list in lists(with) {
            observed.append(self.dump(list)?);
        }
        Ok(observed)
    }

    /// Every route of both families, and nothing else. Newer kernels read routes without their network lock.
    ///
    /// # Errors
    /// The list cannot be read, or changed during each read.
    pub fn routes(&mut self) -> Result<Observed, SocketError> {
        let mut observed = self.dump(List::Routes(Family::V4))?;
        observed.append(self.dump(List::Routes(Family::V6))?);
        Ok(observed)
    }

    /// The routes of both families to one link, and nothing else.
    ///
    /// # Errors
    /// The list cannot be read, or changed during each read.
    pub fn routes_to(&mut self, dev: IfIndex) -> Result<Observed, SocketError> {
        let mut observed = Observed::default();
        for family in [Family::V4, Family::V6] {
            let list = List::Routes(family);
            observed.append(self.list(
                list.name(),
                &encode::dump_routes_to(family, dev),
                |errno| list.is_absent(errno) || errno == Errno::ENODEV,
                |observed, object| list.add(observed, &object),
            )?);
        }
        observed.routes.retain(|route| route.dev == Some(dev));
        Ok(observed)
    }

    /// Every address of one family.
    ///
    /// # Errors
    /// The list cannot be read, or changed during each read.
    pub fn addresses(&mut self, family: Family) -> Result<Vec<LinkAddr>, SocketError> {
        Ok(self.dump(List::Addresses(family))?.addresses)
    }

    fn dump(&mut self, list: List) -> Result<Observed, SocketError> {
        self.list(
            list.name(),
            &list.request(),
            |errno| list.is_absent(errno),
            |observed, object| list.add(observed, &object),
        )
    }

    /// Reads a whole list, and adds each object with `add`. A refusal for which `is_absent` is true means an empty list.
    pub(crate) fn list<T: Default>(
        &mut self,
        what: &'static str,
        request: &Request,
        is_absent: impl Fn(Errno) -> bool,
        add: impl Fn(&mut T, RouteNetlinkMessage),
    ) -> Result<T, SocketError> {
        for round in 0..DUMP_TRIES {
            thread::sleep(DUMP_PAUSE.saturating_mul(round));
            self.sequence = self.sequence.wrapping_add(1);
            let message = request.message(self.sequence, false);
            self.transmit(&[message])?;
            let answers = self.receive(self.sequence, 1, &add)?;
            if let Some(&errno) = answers.errors.get(&0) {
                return if is_absent(errno) {
                    Ok(T::default())
                } else {
                    Err(SocketError::List { what, errno })
                };
            }
            if !answers.interrupted {
                return Ok(answers.objects);
            }
        }
        Err(SocketError::Interrupted(what))
    }

    /// Sends all messages at once and requests an acknowledgment of the last one only. The kernel processes them in
    /// order before the send returns, and reports failures anyway, so one receive is usually enough.
    pub(crate) fn send(
        &mut self,
        requests: &[Request],
    ) -> Result<Reply<Vec<RouteNetlinkMessage>>, SocketError> {
        let first = self.sequence.wrapping_add(1);
        let count = u32::try_from(requests.len()).expect("a batch has a handful of messages");
        self.sequence = self.sequence.wrapping_add(count);
        let numbered = (first..).zip(requests);
        let messages: Vec<_> = numbered
            .map(|(number, request)| request.message(number, number == self.sequence))
            .collect();
        self.transmit(&messages)?;
        self.receive(first, count, Vec::push)
    }

    fn transmit(
        &mut self,
        messages: &[NetlinkMessage<RouteNetlinkMessage>],
    ) -> Result<(), SocketError> {
        let padded = |message: &NetlinkMessage<_>| message.buffer_len().next_multiple_of(4);
        let mut bytes = vec![0; messages.iter().map(padded).sum()];
        let mut at = 0;
        for message in messages {
            message.serialize(&mut bytes[at..at + message.buffer_len()]);
            at += padded(message);
        }
        self.inner.send(&bytes, 0).map(drop).map_err(SocketError::Send)
    }

    /// Receives everything up to the answer to the last of `count` messages.
    fn receive<T: Default>(
        &mut self,
        first: u32,
        count: u32,
        add: impl Fn(&mut T, RouteNetlinkMessage),
    ) -> Result<Reply<T>, SocketError> {
        let mut reply = Reply::to(first, count);
        if self.lenient {
            reply.leave_out();
        }
        loop {
            self.buffer.clear();
            // With MSG_TRUNC the kernel returns the length of the datagram, even if the buffer is shorter.
            let received = loop {
                match self.inner.recv(&mut self.buffer, MSG_TRUNC) {
                    Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                    other => break other.map_err(SocketError::Receive)?,
                }
            };
            let datagram = self.buffer.get(..received).ok_or(Unreadable::Datagram(received))?;
            if reply.read(datagram, &add)? {
                self.left_out = reply.left_out().or(self.left_out.take());
                return Ok(reply);
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// A batch in progress, with the operation of each message of a round.
struct Batch<'a> {
    ops: &'a [Op],
    execution: Execution,
    waiting: Vec<usize>,
    purged: BTreeSet<usize>,
    owners: Vec<usize>,
    requests: Vec<Request>,
    rounds: usize,
}

impl<'a> Batch<'a> {
    fn new(ops: &'a [Op]) -> Self {
        Self {
            ops,
            execution: Execution::default(),
            waiting: (0..ops.len()).collect(),
            purged: BTreeSet::new(),
            owners: Vec::new(),
            requests: Vec::new(),
            rounds: 0,
        }
    }

    fn round(&mut self) -> Option<&[Request]> {
        if self.waiting.is_empty() {
            return None;
        }
        self.rounds += 1;
        self.owners.clear();
        self.requests.clear();
        for &at in &self.waiting {
            match encode::means(&self.ops[at].action) {
                encode::Means::One(request) => {
                    self.owners.push(at);
                    self.requests.push(request);
                }
                encode::Means::UntilGone(request) => {
                    // Two copies in one round: the second usually finds nothing left, which saves a round.
                    let again = request.clone();
                    self.owners.extend([at, at]);
                    self.requests.extend([request, again]);
                }
                encode::Means::File { .. } => unreachable!("a batch is made of messages"),
            }
        }
        Some(&self.requests)
    }

    fn take(&mut self, errors: &BTreeMap<u32, Errno>) {
        let mut last: BTreeMap<usize, Result<(), Errno>> = BTreeMap::new();
        for (place, &owner) in (0..).zip(&self.owners) {
            let answer = errors.get(&place).map_or(Ok(()), |&errno| Err(errno));
            let purge = matches!(self.ops[owner].action, Action::PurgeRules(_));
            if purge && answer.is_ok() {
                self.purged.insert(owner);
            }
            last.insert(owner, answer);
        }
        self.waiting.clear();
        for (owner, answer) in last {
            let op = &self.ops[owner];
            let purged = self.purged.contains(&owner);
            match answer {
                Ok(()) if purged && self.rounds < PURGE_ROUNDS => self.waiting.push(owner),
                Err(Errno::ENOENT) if purged => drop(self.execution.record(op, Ok(()))),
                answer => drop(self.execution.record(op, answer)),
            }
        }
    }

    fn finish(self) -> Applied {
        self.execution.finish()
    }
}
