//! The filters of a link's clsact queue, among them BPF programs.

use crate::{Socket, SocketError, encode::Request};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};
use routing_plan::{Errno, IfIndex};
use std::{
    collections::BTreeSet,
    os::fd::{AsRawFd as _, BorrowedFd},
};

/// The direction of the packets that a filter processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Packets that the link receives; on a host veth these are the packets that its pod sends.
    Ingress,
    /// Packets that the link sends.
    Egress,
}

/// A filter that is a BPF program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BpfFilter {
    pub dev: IfIndex,
    pub side: Side,
    /// Its chain. The kernel runs chain 0; the others only if a filter jumps there.
    pub chain: u32,
    /// Its position among the link's filters.
    pub priority: u16,
    /// The ethertype of the packets that it processes; 3 means all.
    pub protocol: u16,
    /// Its number among the filters of the same priority.
    pub handle: u32,
    /// The name that the attaching program chose.
    pub name: String,
    /// The kernel's id of the program.
    pub program: Option<u32>,
}

/// A priority of a link whose filters are of another kind than BPF, such as `u32` or `flower`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherFilters {
    pub kind: String,
    pub chain: u32,
    pub priority: u16,
}

/// The filters on one side of a link, in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    pub bpf: Vec<BpfFilter>,
    pub others: Vec<OtherFilters>,
}

impl Socket {
    /// The programs on one side of a link; empty if the link or its queue does not exist.
    ///
    /// # Errors
    /// The kernel refuses, or the list changed during each read.
    pub fn bpf_filters(&mut self, dev: IfIndex, side: Side) -> Result<Vec<BpfFilter>, SocketError> {
        Ok(self.filters(dev, side)?.bpf)
    }

    /// All filters on one side of a link; empty if the link or its queue does not exist.
    ///
    /// # Errors
    /// The kernel refuses, or the list changed during each read.
    pub fn filters(&mut self, dev: IfIndex, side: Side) -> Result<Filters, SocketError> {
        let request =
            Request::new(RouteNetlinkMessage::GetTrafficFilter(message(dev, side)), NLM_F_DUMP);
        self.list(
            FILTERS,
            &request,
            |errno| GONE.contains(&errno),
            |filters: &mut Filters, answer| filters.add(&answer, dev, side),
        )
    }

    /// Adds a queue `clsact` to a link. Returns false if the kernel refuses: the link has this queue or another one that
    /// excludes it, or no longer exists.
    ///
    /// # Errors
    /// The socket fails.
    pub fn add_clsact(&mut self, dev: IfIndex) -> Result<bool, SocketError> {
        let mut message = TcMessage::with_index(number(dev));
        message.header.parent = TcHandle::CLSACT;
        message.header.handle = TcHandle { minor: 0, ..TcHandle::CLSACT };
        message.attributes = vec![TcAttribute::Kind(CLSACT.to_owned())];
        let body = RouteNetlinkMessage::NewQueueDiscipline(message);
        let answers = self.send(&[Request::new(body, NLM_F_CREATE | NLM_F_EXCL)])?;
        Ok(answers.errors.is_empty())
    }

    /// The links with a queue that can delay or drop packets.
    ///
    /// # Errors
    /// The kernel refuses, or the list changed during each read.
    pub fn queued_links(&mut self) -> Result<BTreeSet<IfIndex>, SocketError> {
        let body = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        self.list(
            QUEUES,
            &Request::new(body, NLM_F_DUMP),
            |_| false,
            |links: &mut BTreeSet<IfIndex>, answer| {
                let RouteNetlinkMessage::NewQueueDiscipline(queue) = answer else { return };
                let is_plain = |of: &TcAttribute| {
                    matches!(of, TcAttribute::Kind(kind) if [CLSACT, NOQUEUE].contains(&&**kind))
                };
                if !queue.attributes.iter().any(is_plain)
                    && let Ok(index) = u32::try_from(queue.header.index)
                {
                    links.insert(IfIndex(index));
                }
            },
        )
    }

    /// Adds filters with one send, each with the program of its descriptor. Returns false if the kernel refuses one of them:
    /// the others may be there.
    ///
    /// # Errors
    /// The socket fails.
    pub fn add_bpf_filters(
        &mut self,
        filters: &[(BpfFilter, BorrowedFd<'_>)],
    ) -> Result<bool, SocketError> {
        if filters.is_empty() {
            return Ok(true);
        }
        let requests: Vec<_> = filters
            .iter()
            .map(|(filter, program)| {
                let mut message = message_of(filter);
                let number =
                    u32::try_from(program.as_raw_fd()).expect("descriptors are not negative");
                message.attributes.push(TcAttribute::Options(vec![
                    TcOption::Bpf(TcFilterBpfOption::ProgFd(number)),
                    TcOption::Bpf(TcFilterBpfOption::ProgName(filter.name.clone())),
                    TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
                ]));
                let body = RouteNetlinkMessage::NewTrafficFilter(message);
                Request::new(body, NLM_F_CREATE | NLM_F_EXCL)
            })
            .collect();
        Ok(self.send(&requests)?.errors.is_empty())
    }

    /// Removes a program from its link; false if it is already gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_bpf_filter(&mut self, filter: &BpfFilter) -> Result<bool, SocketError> {
        let body = RouteNetlinkMessage::DelTrafficFilter(message_of(filter));
        let request = Request::new(body, 0);
        let answers = self.send(&[request])?;
        match answers.errors.first_key_value() {
            None => Ok(true),
            Some((_, errno)) if GONE.contains(errno) => Ok(false),
            Some((_, &errno)) => {
                Err(SocketError::DeleteFilter { name: filter.name.clone(), dev: filter.dev, errno })
            }
        }
    }
}

fn message(dev: IfIndex, side: Side) -> TcMessage {
    let mut message = TcMessage::with_index(number(dev));
    let minor = match side {
        Side::Ingress => TcHandle::MIN_INGRESS,
        Side::Egress => TcHandle::MIN_EGRESS,
    };
    message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor };
    message
}

fn message_of(filter: &BpfFilter) -> TcMessage {
    let mut message = message(filter.dev, filter.side);
    message.header.handle = filter.handle.into();
    message.header.info = u32::from(filter.priority) << 16 | u32::from(filter.protocol.to_be());
    message.attributes =
        vec![TcAttribute::Kind(TcFilterBpf::KIND.to_owned()), TcAttribute::Chain(filter.chain)];
    message
}

/// The kernel uses int; no link has a higher number.
fn number(dev: IfIndex) -> i32 {
    i32::try_from(dev.0).unwrap_or(i32::MAX)
}

/// The kind of a queue for filters of both directions.
const CLSACT: &str = "clsact";
/// The kind of the queue that virtual links have by default.
const NOQUEUE: &str = "noqueue";

impl Filters {
    fn add(&mut self, answer: &RouteNetlinkMessage, dev: IfIndex, side: Side) {
        let RouteNetlinkMessage::NewTrafficFilter(sent) = answer else { return };
        let [priority, protocol] = halves(sent.header.info);
        let protocol = u16::from_be(protocol);
        let (mut kind, mut chain) = ("", 0);
        for attribute in &sent.attributes {
            if let TcAttribute::Kind(of) = attribute {
                kind = of;
            }
            if let TcAttribute::Chain(of) = attribute {
                chain = *of;
            }
        }
        // Before the filters of one priority comes a message about the priority as a whole.
        match (kind == TcFilterBpf::KIND, u32::from(sent.header.handle)) {
            (true, 0) | (false, 1..) => {}
            (false, 0) => self.others.push(OtherFilters { kind: kind.to_owned(), chain, priority }),
            (true, handle) => {
                let (name, program) = (String::new(), None);
                let filter =
                    BpfFilter { dev, side, chain, priority, protocol, handle, name, program };
                self.bpf.push(with_program(filter, &sent.attributes));
            }
        }
    }
}

/// Adds the name and the id of the program.
fn with_program(mut filter: BpfFilter, attributes: &[TcAttribute]) -> BpfFilter {
    for attribute in attributes {
        let TcAttribute::Options(options) = attribute else { continue };
        for option in options {
            if let TcOption::Bpf(TcFilterBpfOption::ProgName(name)) = option {
                filter.name.clone_from(name);
            }
            if let TcOption::Bpf(TcFilterBpfOption::ProgId(id)) = option {
                filter.program = Some(*id);
            }
        }
    }
    filter
}

fn halves(info: u32) -> [u16; 2] {
    let [a, b, c, d] = info.to_be_bytes();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

const FILTERS: &str = "filters";
const QUEUES: &str = "queues";
/// The link or the filter does not exist.
const GONE: [Errno; 2] = [Errno::ENOENT, Errno::ENODEV];
