//! Words of the code that were renamed and must not return.

/// This file, the only one that may contain the old words.
pub(crate) const PATH: &str = "xtask/src/prose/renamed.rs";

/// The old and the new word. The old one is looked for as a whole word in every tracked text file except this one.
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("config_folder", "runtime_journal"),
    ("config_listen", "runtime_process"),
    ("config_meter", "runtime_process"),
    ("config_apiserver", "runtime_apiserver"),
    ("policy_hub", "control_hub"),
    ("policy_wire", "control_wire"),
    ("policy_rpc", "control_rpc"),
    ("policy_status", "control_status"),
    ("policy_controller", "control_controller"),
    ("policy_view", "view_policy"),
    ("ipamd_view", "view_node"),
    ("cli_cluster", "view_cluster"),
];
