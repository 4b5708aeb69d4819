//! Lines of a watch.

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use std::{io, pin::Pin};

/// Maximum length of a line in bytes. No object in etcd is as large.
const LONGEST: usize = 16 << 20;

/// Lines of a response body.
pub(crate) struct WatchLines {
    from: Pin<Box<dyn AsyncBufRead + Send>>,
    partial: Vec<u8>,
}

impl WatchLines {
    pub(crate) fn new(from: impl AsyncBufRead + Send + 'static) -> Self {
        Self { from: Box::pin(from), partial: Vec::new() }
    }

    /// Returns the next line; `None` at the end. The future is cancel-safe: a drop loses no data.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let there = self.from.fill_buf().await?;
            if there.is_empty() {
                // A truncated last line is dropped.
                return Ok(None);
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(there.len());
            if self.partial.len() + taken > LONGEST {
                return Err(io::Error::other(format!("a line is longer than {LONGEST} bytes")));
            }
            self.partial.extend_from_slice(&there[..taken]);
            self.from.consume_unpin(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.partial)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use futures::{TryStreamExt as _, stream};

    fn lines(chunks: &[&str]) -> WatchLines {
        let chunks: Vec<io::Result<Vec<u8>>> =
            chunks.iter().map(|chunk| Ok(chunk.as_bytes().to_vec())).collect();
        WatchLines::new(stream::iter(chunks).into_async_read())
    }

    #[tokio::test]
    async fn lines_do_not_depend_on_chunks_and_a_truncated_last_line_is_dropped() {
        let mut lines = lines(&["a", "b\nc", "\n\nd", "e"]);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(all, ["ab", "c", ""]);
    }

    #[tokio::test]
    async fn an_endless_line_is_an_error_with_bounded_memory() {
        let chunk = "x".repeat(1 << 20);
        let mut lines = lines(&[chunk.as_str(); 17]);
        assert!(lines.next().await.is_err());
    }
}
