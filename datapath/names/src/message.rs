//! DNS messages.

use domain::{
    base::{
        Message,
        iana::{Class, Opcode},
    },
    rdata::{A, Aaaa, Cname},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The addresses in a DNS answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name that was asked for, in lower case and without a dot at its end.
    pub name: String,
    /// The addresses at the end of the name's chain of CNAME records.
    pub addresses: BTreeSet<IpAddr>,
    /// Seconds for which all of these records are valid.
    pub lifetime: u32,
}

impl Answer {
    /// An answer without a name and addresses.
    pub fn none() -> Self {
        Self { name: String::new(), addresses: BTreeSet::new(), lifetime: 0 }
    }
}

/// The message is no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("it is no complete DNS message")]
    Malformed,
    #[error("it is no answer to one question")]
    NotAnAnswer,
    #[error("it has more than {RECORDS_MAX} records")]
    TooManyRecords,
    #[error("its chain of CNAME records has more than {CHAIN_MAX} names")]
    TooLong,
}

/// The most records of an answer. A message of 64 KiB can have some thousands.
const RECORDS_MAX: usize = 512;
/// Common resolvers follow at most 11 records.
const CHAIN_MAX: usize = 16;

/// Reads the addresses of the name that a message was asked for. Records of names outside the chain do not count.
/// A message without addresses, as for a name that does not exist, has none.
///
/// # Errors
/// If the message is no complete answer to one question.
pub fn read(message: &[u8]) -> Result<Answer, MessageError> {
    let message = Message::from_octets(message).map_err(|_| MessageError::Malformed)?;
    let header = message.header();
    if !header.qr() || header.opcode() != Opcode::QUERY {
        return Err(MessageError::NotAnAnswer);
    }
    let question = message.sole_question().map_err(|_| MessageError::NotAnAnswer)?;
    if question.qclass() != Class::IN {
        return Err(MessageError::NotAnAnswer);
    }
    let asked = text(question.qname());
    if message.is_error() {
        return Ok(Answer { name: asked, addresses: BTreeSet::new(), lifetime: 0 });
    }
    let mut found: BTreeMap<String, Records> = BTreeMap::new();
    for (count, record) in message.answer().map_err(|_| MessageError::Malformed)?.enumerate() {
        let record = record.map_err(|_| MessageError::Malformed)?;
        if count >= RECORDS_MAX {
            return Err(MessageError::TooManyRecords);
        }
        if record.class() != Class::IN {
            continue;
        }
        let lifetime = record.ttl().as_secs();
        let owner = text(&record.owner());
        let mut add = |address: IpAddr| {
            let of = found.entry(owner.clone()).or_default();
            of.addresses.insert(address);
            of.lifetime = of.lifetime.min(lifetime);
        };
        if let Some(a) = record.to_record::<A>().map_err(|_| MessageError::Malformed)? {
            add(a.data().addr().into());
        } else if let Some(aaaa) =
            record.to_record::<Aaaa>().map_err(|_| MessageError::Malformed)?
        {
            add(aaaa.data().addr().into());
        } else if let Some(cname) =
            record.to_record::<Cname<_>>().map_err(|_| MessageError::Malformed)?
        {
            let target = text(cname.data().cname());
            found.entry(owner).or_default().target.get_or_insert((target, lifetime));
        }
    }
    let (mut name, mut lifetime) = (asked.clone(), u32::MAX);
    for _ in 0..CHAIN_MAX {
        let Some(records) = found.remove(&name) else {
            return Ok(Answer { name: asked, addresses: BTreeSet::new(), lifetime: 0 });
        };
        match records.target {
            Some((target, of_alias)) => (name, lifetime) = (target, lifetime.min(of_alias)),
            None => {
                let lifetime = lifetime.min(records.lifetime);
                return Ok(Answer { name: asked, addresses: records.addresses, lifetime });
            }
        }
    }
    Err(MessageError::TooLong)
}

/// The records of one name.
struct Records {
    addresses: BTreeSet<IpAddr>,
    lifetime: u32,
    target: Option<(String, u32)>,
}

impl Default for Records {
    fn default() -> Self {
        Self { addresses: BTreeSet::new(), lifetime: u32::MAX, target: None }
    }
}

/// A name in lower case and without a dot at its end. Bytes that are no letters are escaped, dots within labels too.
fn text(name: &impl std::fmt::Display) -> String {
    let mut text = name.to_string();
    text.make_ascii_lowercase();
    text
}
