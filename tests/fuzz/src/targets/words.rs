//! Small texts: a trace that the runtime hands on, a tombstone, a link's alias.

use config_model::{PodKey, Tombstone};
use ipamd_rpc::TraceParent;

/// What is a trace or one of our aliases is the same when it is written and read again.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(trace) = text.parse::<TraceParent>() {
        assert_eq!(trace.trace_id().len(), 32);
        assert_eq!(trace.to_string().parse().as_ref(), Ok(&trace));
    }
    if let Some(key) = PodKey::from_alias(text) {
        assert_eq!(key.alias(), text);
    }
}

/// A tombstone is the same when it is written and read again.
pub fn tombstone(data: &[u8]) {
    let Ok(stone) = serde_json::from_slice::<Tombstone>(data) else { return };
    let written = serde_json::to_vec(&stone).expect("text, numbers and lists");
    assert_eq!(serde_json::from_slice::<Tombstone>(&written).ok(), Some(stone));
}
