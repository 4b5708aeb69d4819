//! Addresses and their ranges.

use super::tree::{At, Doubt, Notes};
use crate::{Block, Cidr};
use std::net::{IpAddr, Ipv4Addr};

/// A range, masked; what is odd about it is noted.
pub(super) fn cidr(at: &At<'_>, notes: &mut Notes) -> Result<Cidr, Doubt> {
    let text = at.text()?;
    let (cidr, oddity) = parse(text)
        .ok_or_else(|| at.doubt(format!("`{text}` is no range of addresses such as 10.0.0.0/8")))?;
    if let Some(oddity) = oddity {
        notes.warn(at, format!("`{text}` {oddity}; it is read as {cidr}, write that"));
    }
    Ok(cidr)
}

/// `ipBlock`.
pub(super) fn block(at: &At<'_>, notes: &mut Notes) -> Result<Block, Doubt> {
    at.only(&["cidr", "except"])?;
    let range = cidr(&at.get("cidr").ok_or_else(|| at.lacks("cidr"))?, notes)?;
    let mut except = Vec::new();
    let items = at.items("except")?;
    if items.len() >= MANY {
        notes.warn(at, format!("{} exceptions are enforced, at a cost", items.len()));
    }
    for item in items {
        let hole = cidr(&item, notes)?;
        if hole.contains(&range) {
            notes.warn(&item, format!("{hole} leaves nothing of {range}"));
        } else if !range.contains(&hole) {
            notes.warn(&item, format!("{hole} is not within {range} and takes nothing away"));
        }
        except.push(hole);
    }
    except.sort_unstable();
    except.dedup();
    Ok(Block { cidr: range, except })
}

/// An address; one of IPv4 within IPv6 is the one of IPv4.
pub(super) fn address(at: &At<'_>) -> Result<IpAddr, Doubt> {
    let text = at.text()?;
    let address: IpAddr = text.parse().map_err(|_| at.doubt(format!("`{text}` is no address")))?;
    Ok(address.to_canonical())
}

/// A range that nothing is odd about.
pub(crate) fn plain_cidr(text: &str) -> Option<Cidr> {
    parse(text).filter(|(_, oddity)| oddity.is_none()).map(|(cidr, _)| cidr)
}

fn parse(text: &str) -> Option<(Cidr, Option<&'static str>)> {
    let (address, length) = text.split_once('/')?;
    if !(1..=3).contains(&length.len()) || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let zeros = length.len() > 1 && length.starts_with('0');
    let length: u8 = length.parse().ok()?;
    let (address, zeros) = match address.parse() {
        Ok(address) => (address, zeros),
        Err(_) => (IpAddr::V4(with_zeros(address)?), true),
    };
    let (address, length, mapped) = match address {
        IpAddr::V4(_) => (address, length, false),
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            None => (address, length, false),
            Some(four) => (IpAddr::V4(four), length.checked_sub(96)?, true),
        },
    };
    let written = Cidr::new(address, length).ok()?;
    let cidr = written.trunc();
    let oddity = match (mapped, zeros, written != cidr) {
        (true, ..) => Some("writes IPv4 within IPv6"),
        (_, true, _) => Some("has leading zeros"),
        (_, _, true) => Some("has bits beyond its length"),
        _ => None,
    };
    Some((cidr, oddity))
}

/// Older API servers took leading zeros for decimal.
fn with_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// So many exceptions of one block are worth a word.
pub(crate) const MANY: usize = 1_000;
