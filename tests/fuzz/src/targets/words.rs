//! Short texts: the trace context of the runtime, a tombstone, the alias of a link.

use config_model::{PodKey, Tombstone};
use ipamd_rpc::TraceParent;

/// A text that is a trace context or an alias of Ferrule is the same after it is written and read again.
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

/// A tombstone is the same after it is written and read again.
pub fn tombstone(data: &[u8]) {
    let Ok(stone) = serde_json::from_slice::<Tombstone>(data) else { return };
    let written = serde_json::to_vec(&stone).expect("text, numbers and lists");
    assert_eq!(serde_json::from_slice::<Tombstone>(&written).ok(), Some(stone));
}
