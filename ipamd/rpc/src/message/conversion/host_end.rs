//! Modes of host ends on the wire. Plugin and daemon may be one release apart, so both ends check the mode. The daemon
//! refuses a caller that cannot build it. The plugin rejects a reply with a mode that it does not know.

use super::malformed;
use crate::{Malformed, wire};
use config_model::HostEndMode;

/// Modes that this release can build.
pub(crate) fn supported() -> Vec<i32> {
    [wire::HostEndMode::Routed, wire::HostEndMode::Bridged].map(Into::into).to_vec()
}

/// True if a caller that sent these modes can build the mode. Every release can build routed host ends.
#[cfg(feature = "server")]
pub(crate) fn is_supported(mode: &HostEndMode, sent: &[i32]) -> bool {
    let (number, _) = to_wire(mode.clone());
    *mode == HostEndMode::Routed || sent.contains(&number)
}

pub(super) fn to_wire(mode: HostEndMode) -> (i32, String) {
    match mode {
        HostEndMode::Routed => (wire::HostEndMode::Routed.into(), String::new()),
        HostEndMode::Bridged { gateway_port } => (wire::HostEndMode::Bridged.into(), gateway_port),
    }
}

pub(super) fn from_wire(mode: i32, gateway_port: String) -> Result<HostEndMode, Malformed> {
    match wire::HostEndMode::try_from(mode) {
        Ok(wire::HostEndMode::Routed) => Ok(HostEndMode::Routed),
        Ok(wire::HostEndMode::Bridged) if gateway_port.is_empty() => {
            Err(malformed("gateway port", gateway_port, "the name of a link"))
        }
        Ok(wire::HostEndMode::Bridged) => Ok(HostEndMode::Bridged { gateway_port }),
        Err(_) => Err(malformed(
            "mode of host ends",
            mode,
            "a mode that this release can build; install the plugin of the daemon's release",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn every_mode_survives_the_wire() {
        for mode in [HostEndMode::Routed, HostEndMode::bridged("eni")] {
            let (number, port) = to_wire(mode.clone());
            assert_eq!(from_wire(number, port).unwrap(), mode);
            #[cfg(feature = "server")]
            assert!(is_supported(&mode, &supported()));
        }
        assert_eq!(HostEndMode::bridged("eni").gateway_port(), Some("enigw0"));
    }

    #[test]
    fn an_unknown_mode_and_a_bridge_without_a_port_are_errors() {
        let unknown = from_wire(2, "enigw0".to_owned()).unwrap_err().to_string();
        assert!(unknown.contains("mode of host ends"), "{unknown}");
        assert!(from_wire(1, String::new()).is_err());
    }

    #[cfg(feature = "server")]
    #[test]
    fn an_older_caller_can_build_routed_host_ends_only() {
        assert!(is_supported(&HostEndMode::Routed, &[]));
        assert!(!is_supported(&HostEndMode::bridged("eni"), &[]));
        assert!(!is_supported(&HostEndMode::bridged("eni"), &[0, 2]));
    }
}
