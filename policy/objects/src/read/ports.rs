//! Protocols and ports.

use super::names::is_port_name;
use super::tree::{At, Doubt, Notes};
use crate::{PortRange, Protocol, TargetPort};
use serde_json::Value;

/// `protocol`; absent is TCP.
pub(super) fn protocol(item: &At<'_>) -> Result<Protocol, Doubt> {
    let Some(at) = item.get("protocol") else { return Ok(Protocol::Tcp) };
    match at.text()? {
        "TCP" => Ok(Protocol::Tcp),
        "UDP" => Ok(Protocol::Udp),
        "SCTP" => Ok(Protocol::Sctp),
        other => Err(at.doubt(format!("`{other}` is no protocol with ports: TCP, UDP, SCTP"))),
    }
}

/// `port` and `endPort`.
pub(super) fn target(item: &At<'_>, notes: &mut Notes) -> Result<Option<TargetPort>, Doubt> {
    let end = item.get("endPort");
    let Some(port) = item.get("port") else {
        return match end {
            None => Ok(None),
            Some(end) => Err(end.doubt("it needs a `port`")),
        };
    };
    if port.value.is_string() {
        return match end {
            None => Ok(Some(TargetPort::Named(port_name(&port)?))),
            Some(end) => Err(end.doubt("it needs a `port` that is a number")),
        };
    }
    Ok(Some(TargetPort::Numbers(range(&port, end.as_ref(), notes)?)))
}

/// From one port to the other, or one.
pub(super) fn range(
    first: &At<'_>,
    last: Option<&At<'_>>,
    notes: &mut Notes,
) -> Result<PortRange, Doubt> {
    let start = number(first)?;
    let Some(last) = last else { return Ok(PortRange { first: start, last: start }) };
    let end = number(last)?;
    if end < start {
        return Err(last.doubt(format!("the range ends at {end}, before it starts at {start}")));
    }
    if end == start {
        notes.warn(last, format!("a range of one port, {start}"));
    }
    Ok(PortRange { first: start, last: end })
}

pub(super) fn number(at: &At<'_>) -> Result<u16, Doubt> {
    let number = at.integer()?;
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(at.doubt(format!("{number} is no port: 1 to 65535"))),
    }
}

/// The name of a container's port.
pub(super) fn port_name(at: &At<'_>) -> Result<String, Doubt> {
    let name = at.text()?;
    if is_port_name(name) {
        return Ok(name.to_owned());
    }
    let hint = if name.parse::<u16>().is_ok() { "; a number goes without quotes" } else { "" };
    Err(at.doubt(format!("no container port can have the name `{name}`{hint}")))
}

/// A number between 0 and 255.
pub(super) fn small(at: &At<'_>) -> Result<u8, Doubt> {
    let number = at.integer()?;
    u8::try_from(number).map_err(|_| at.doubt(format!("{number} is not within 0 to 255")))
}

/// A port that is a number or a name, as containers and Services write it.
pub(super) fn is_name(at: &At<'_>) -> bool {
    matches!(at.value, Value::String(_))
}
