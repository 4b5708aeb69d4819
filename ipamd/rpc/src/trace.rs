//! The trace that a call is part of: W3C's `traceparent`, from the runtime to the daemon's log.

use std::{fmt, str::FromStr};
use tonic::metadata::{MetadataMap, MetadataValue};

/// A valid `traceparent`. W3C's specification requires that an invalid one counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(String);

/// The text is no `traceparent` by W3C's specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent: <version>-<trace id>-<parent id>-<flags> in lower-case hex digits")]
pub struct NoTraceParent;

impl TraceParent {
    /// The trace's ID, in 32 hex digits.
    pub fn trace_id(&self) -> &str {
        &self.0[TRACE_ID]
    }
}

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    /// Version 00 has exactly these four fields. Later versions may add some.
    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let mut fields = text.split('-');
        let mut hex = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            field.bytes().all(is_hex).then_some(field)
        };
        let all = (hex(2), hex(32), hex(16), hex(2));
        let (Some(version), Some(trace), Some(parent), Some(_)) = all else {
            return Err(NoTraceParent);
        };
        let zero = |field: &str| field.bytes().all(|byte| byte == b'0');
        let more = fields.next().is_some();
        if version == "ff" || (version == "00" && more) || zero(trace) || zero(parent) {
            return Err(NoTraceParent);
        }
        Ok(Self(text[..LENGTH].to_owned()))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of the metadata field, as in HTTP.
const FIELD: &str = "traceparent";
/// The length of the four fields with their separators.
const LENGTH: usize = 55;
const TRACE_ID: std::ops::Range<usize> = 3..35;

pub(crate) fn put(trace: &TraceParent, metadata: &mut MetadataMap) {
    if let Ok(value) = MetadataValue::try_from(trace.0.as_str()) {
        metadata.insert(FIELD, value);
    }
}

/// Returns the span for the log lines of a request; without a trace an empty one.
#[cfg(feature = "server")]
pub(crate) fn span(metadata: &MetadataMap) -> tracing::Span {
    let told = metadata.get(FIELD).and_then(|value| value.to_str().ok()?.parse().ok());
    match told {
        // The level `error` keeps the span at every log level.
        Some::<TraceParent>(trace) => tracing::error_span!("request", trace_id = trace.trace_id()),
        None => tracing::Span::none(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_traceparent_names_its_trace() {
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!((parent.trace_id(), parent.to_string()), (TRACE, text.clone()));
        let later: TraceParent = text.replacen("00", "01", 1).parse().unwrap();
        assert_eq!(later.trace_id(), TRACE);
        let longer: TraceParent = format!("01-{TRACE}-b7ad6b7169203331-01-more").parse().unwrap();
        assert_eq!(longer, later, "what a version to come adds is left out");
    }

    #[test]
    fn an_invalid_traceparent_is_refused() {
        for text in [
            "",
            "00",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c\n-b7ad6b7169203331-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(NoTraceParent), "{text:?}");
        }
    }
}
