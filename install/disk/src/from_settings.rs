//! The daemon's settings as the plugin receives them.

use config_settings::Settings;
use install_plan::Conflist;

/// The conflist that goes with these settings.
pub fn conflist(settings: &Settings) -> Conflist {
    Conflist {
        cni_version: None,
        mtu: settings.pod_mtu,
        veth_prefix: settings.veth_prefix.clone(),
        // The plugin's own limit: kubelet gives a sandbox four minutes.
        add_wait: (settings.add_wait.0 / 1000).min(ADD_WAIT_MAX),
        socket: settings.socket.clone(),
        state_dir: settings.state_dir.clone(),
        log_file: settings.plugin_log_file.clone(),
        log_level: settings.plugin_log_level.clone(),
        bandwidth: settings.bandwidth,
        chained: settings.chained_plugins.clone(),
        taken_over: false,
    }
}

const ADD_WAIT_MAX: u64 = 180;
