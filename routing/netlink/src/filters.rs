//! BPF programs that somebody has attached to a link by a filter of its clsact queue.

use crate::{Socket, SocketError, encode::Request};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};
use routing_plan::{Errno, IfIndex};

/// Which packets of a link a filter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Those that the link receives: of a host veth, what its pod sends.
    Ingress,
    /// Those that the link sends.
    Egress,
}

/// A filter that is a BPF program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BpfFilter {
    /// The link.
    pub dev: IfIndex,
    /// Which way.
    pub side: Side,
    /// Its chain; what nobody jumps to is in chain 0.
    pub chain: u32,
    /// Its place among the link's filters.
    pub priority: u16,
    /// The ethertype of the packets that it sees, 3 for all.
    pub protocol: u16,
    /// Its number among those of its priority.
    pub handle: u32,
    /// What whoever attached it calls it.
    pub name: String,
    /// The program's number in the kernel.
    pub program: Option<u32>,
}

impl Socket {
    /// The programs on one side of a link; none if the link or its queue is gone.
    ///
    /// # Errors
    /// The kernel refuses, or the list keeps changing.
    pub fn bpf_filters(&mut self, dev: IfIndex, side: Side) -> Result<Vec<BpfFilter>, SocketError> {
        let request =
            Request::new(RouteNetlinkMessage::GetTrafficFilter(message(dev, side)), NLM_F_DUMP);
        let answers = self.list(FILTERS, &request, |errno| GONE.contains(&errno))?;
        Ok(answers.iter().filter_map(|answer| filter_in(answer, dev, side)).collect())
    }

    /// Takes a program off its link; false if it is gone already.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_bpf_filter(&mut self, filter: &BpfFilter) -> Result<bool, SocketError> {
        let mut message = message(filter.dev, filter.side);
        message.header.handle = filter.handle.into();
        message.header.info = u32::from(filter.priority) << 16 | u32::from(filter.protocol.to_be());
        message.attributes =
            vec![TcAttribute::Kind(TcFilterBpf::KIND.to_owned()), TcAttribute::Chain(filter.chain)];
        let request = Request::new(RouteNetlinkMessage::DelTrafficFilter(message), 0);
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
    // The kernel has them as int, and no link has a number so high.
    let mut message = TcMessage::with_index(i32::try_from(dev.0).unwrap_or(i32::MAX));
    let minor = match side {
        Side::Ingress => TcHandle::MIN_INGRESS,
        Side::Egress => TcHandle::MIN_EGRESS,
    };
    message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor };
    message
}

fn filter_in(answer: &RouteNetlinkMessage, dev: IfIndex, side: Side) -> Option<BpfFilter> {
    let RouteNetlinkMessage::NewTrafficFilter(told) = answer else { return None };
    let handle = u32::from(told.header.handle);
    let kind = told.attributes.iter().find_map(|attribute| {
        let TcAttribute::Kind(kind) = attribute else { return None };
        Some(kind.as_str())
    });
    // The filters of one priority come after a message that stands for all of them.
    if kind != Some(TcFilterBpf::KIND) || handle == 0 {
        return None;
    }
    let [priority, protocol] = halves(told.header.info);
    let protocol = u16::from_be(protocol);
    let (chain, name, program) = (0, String::new(), None);
    let mut filter = BpfFilter { dev, side, chain, priority, protocol, handle, name, program };
    for attribute in &told.attributes {
        if let TcAttribute::Chain(chain) = attribute {
            filter.chain = *chain;
        }
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
    Some(filter)
}

fn halves(info: u32) -> [u16; 2] {
    let [a, b, c, d] = info.to_be_bytes();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

const FILTERS: &str = "filters";
/// The link or the filter is not there.
const GONE: [Errno; 2] = [Errno::ENOENT, Errno::ENODEV];
