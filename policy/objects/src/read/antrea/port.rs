//! `ports` and `protocols`.

pub(super) use crate::read::ports::small;
use crate::read::ports::{protocol, range, target};
use crate::read::tree::{At, Doubt, Notes};
use crate::{AntreaPort, Icmp};

pub(super) fn all(rule: &At<'_>, notes: &mut Notes) -> Result<Vec<AntreaPort>, Doubt> {
    let mut ports = Vec::new();
    for item in rule.items("ports")? {
        ports.push(transport(&item, notes)?);
    }
    for item in rule.items("protocols")? {
        ports.push(AntreaPort::Icmp(icmp(&item)?));
    }
    Ok(ports)
}

fn transport(at: &At<'_>, notes: &mut Notes) -> Result<AntreaPort, Doubt> {
    at.only(&["protocol", "port", "endPort", "sourcePort", "sourceEndPort"])?;
    let source = match (at.get("sourcePort"), at.get("sourceEndPort")) {
        (None, None) => None,
        (None, Some(end)) => return Err(end.doubt("it needs a `sourcePort`")),
        (Some(first), last) => Some(range(&first, last.as_ref(), notes)?),
    };
    Ok(AntreaPort::Transport { protocol: protocol(at)?, port: target(at, notes)?, source })
}

fn icmp(at: &At<'_>) -> Result<Icmp, Doubt> {
    if at.get("igmp").is_some() {
        return Err(at.doubt("`igmp` is not supported"));
    }
    at.only(&["icmp"])?;
    let at = at.get("icmp").ok_or_else(|| at.lacks("icmp"))?;
    at.only(&["icmpType", "icmpCode"])?;
    let number = |key| at.get(key).map(|at| small(&at)).transpose();
    Ok(Icmp { kind: number("icmpType")?, code: number("icmpCode")? })
}
