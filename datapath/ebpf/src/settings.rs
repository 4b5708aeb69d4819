//! The settings of the backend, as the programs read them.

use config_settings::{Connections, Timeouts};
use datapath_abi::Settings;

/// The row of the map `settings`, with this number of rows in `flows`.
pub(crate) fn settings(connections: &Connections, flows: u32) -> Settings {
    let Connections { share, timeouts, .. } = *connections;
    let Timeouts {
        tcp_syn,
        tcp,
        tcp_fin,
        tcp_reset,
        udp,
        udp_replied,
        icmp,
        sctp_init,
        sctp,
        fragment,
    } = timeouts;
    // The order of `enum timeout` in `tables.h`.
    let timeouts =
        [tcp_syn, tcp, tcp_fin, tcp_reset, udp, udp_replied, icmp, sctp_init, sctp, fragment];
    Settings {
        timeouts: timeouts.map(|time| time.0.saturating_mul(1_000_000)),
        flows_of_pod: u64::from(flows) * u64::from(share) / 100,
        keeps_half_open: false,
        has_fast_path: connections.services && connections.fast_path,
    }
}
