//! Host links between `config-model` and the wire.

use crate::wire;
use config_model::{HostEnd, HostLink};

pub(crate) fn to_wire(link: &HostLink) -> wire::Interface {
    let (host_end, port) = match &link.host_end {
        HostEnd::Routed => (wire::HostEnd::Routed, String::new()),
        HostEnd::Bridged { port } => (wire::HostEnd::Bridged, port.clone()),
    };
    wire::Interface {
        name: link.name.clone(),
        ifindex: link.ifindex,
        mac: link.mac.map(|mac| mac.0.to_vec()).unwrap_or_default(),
        addresses: link.addresses.iter().map(ToString::to_string).collect(),
        number: u32::from(link.number),
        table: link.table.map(|table| table.0),
        mark: link.mark.map(|mark| wire::Mark { value: mark.value, mask: mark.mask }),
        eni: link.eni.as_ref().map(ToString::to_string).unwrap_or_default(),
        host_end: host_end.into(),
        port,
    }
}

/// Reads a link. A host end of a kind that this agent does not know is an error: it could not be enforced.
#[cfg(feature = "server")]
pub(crate) fn from_wire(sent: wire::Interface) -> Result<HostLink, String> {
    use config_model::{EniId, Mac, Mark, TableId};

    let name = sent.name.clone();
    let bad = |field: &str, value: &dyn std::fmt::Debug| {
        Err(format!("interface {name}: {value:?} is not a valid {field}"))
    };
    let mac = match <[u8; 6]>::try_from(sent.mac.as_slice()) {
        Ok(bytes) => Some(Mac(bytes)),
        Err(_) if sent.mac.is_empty() => None,
        Err(_) => return bad("MAC address", &sent.mac),
    };
    let host_end = match wire::HostEnd::try_from(sent.host_end) {
        Ok(wire::HostEnd::Routed) => HostEnd::Routed,
        Ok(wire::HostEnd::Bridged) if !sent.port.is_empty() => HostEnd::Bridged { port: sent.port },
        Ok(wire::HostEnd::Bridged) => return bad("port of a bridge", &sent.port),
        Ok(wire::HostEnd::Unspecified) | Err(_) => return bad("host end", &sent.host_end),
    };
    if sent.ifindex == 0 || sent.name.is_empty() {
        return bad("interface number", &sent.ifindex);
    }
    let Ok(number) = u8::try_from(sent.number) else { return bad("number", &sent.number) };
    let addresses = sent.addresses.iter().map(|text| text.parse().map_err(|_| text));
    let addresses = match addresses.collect::<Result<_, _>>() {
        Ok(addresses) => addresses,
        Err(text) => return bad("address", text),
    };
    Ok(HostLink {
        name: sent.name,
        ifindex: sent.ifindex,
        mac,
        addresses,
        number,
        table: sent.table.map(TableId),
        mark: sent.mark.map(|mark| Mark { value: mark.value, mask: mark.mask }),
        eni: Some(sent.eni).filter(|id| !id.is_empty()).map(EniId::new),
        host_end,
    })
}
