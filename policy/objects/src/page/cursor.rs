//! From item to item.

use super::scan::{Scan, Text};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

/// Metadata of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its items' `apiVersion`.
    pub api_version: String,
    /// Its own `kind`, such as `PodList`.
    pub kind: String,
    /// Continuation token of the next page; empty if this is the last.
    pub next: String,
    /// Version of the list.
    pub resource_version: String,
    /// Number of items on the page.
    pub items: usize,
}

/// Reasons why a page was not read to its end. Earlier items were already passed to the caller.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The page is truncated or not JSON.
    #[error("the page cannot be parsed behind byte {offset}, where {items} items were read")]
    NotJson {
        offset: usize,
        /// Number of items before the error.
        items: usize,
        #[source]
        source: serde_json::Error,
    },
    /// A list has something else there.
    #[error("the page is no list at byte {offset}, where {items} items were read")]
    NoList {
        offset: usize,
        /// Number of items before the error.
        items: usize,
    },
    /// The object has no items: perhaps the server refused the request.
    #[error("the page has no items: it is a `{kind}`")]
    NoItems { kind: String },
}

/// A place in a page.
pub(super) struct Cursor<'p> {
    page: &'p [u8],
    text: Text<'p>,
    offset: usize,
    items: usize,
}

impl<'p> Cursor<'p> {
    /// At the start.
    pub(super) fn new(page: &'p [u8]) -> Self {
        Self { page, text: Text::new(page), offset: 0, items: 0 }
    }

    /// Goes through the page; `item` reads the next item of it.
    pub(super) fn walk(
        mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), PageError>,
    ) -> Result<Page, PageError> {
        let mut page = Page::default();
        let mut listed = false;
        self.expect(b'{')?;
        let mut more = self.peek() != Some(b'}');
        while more {
            let key: String = self.take()?;
            self.expect(b':')?;
            match key.as_str() {
                "apiVersion" => page.api_version = self.take::<Option<_>>()?.unwrap_or_default(),
                "kind" => page.kind = self.take::<Option<_>>()?.unwrap_or_default(),
                "metadata" => {
                    let meta: Value = self.take()?;
                    let text = |key| meta.get(key).and_then(Value::as_str).unwrap_or_default();
                    page.next = text("continue").to_owned();
                    page.resource_version = text("resourceVersion").to_owned();
                }
                "items" if listed => return Err(self.no_list()),
                "items" => {
                    listed = true;
                    self.list(&mut item)?;
                }
                _ => {
                    self.take::<IgnoredAny>()?;
                }
            }
            more = self.goes_on(b'}')?;
        }
        if self.peek().is_some() {
            return Err(self.no_list());
        }
        page.items = self.items;
        if listed { Ok(page) } else { Err(PageError::NoItems { kind: page.kind }) }
    }

    fn list(
        &mut self,
        item: &mut impl FnMut(&mut Self) -> Result<(), PageError>,
    ) -> Result<(), PageError> {
        if self.peek() == Some(b'n') {
            return self.take::<()>();
        }
        self.expect(b'[')?;
        if self.peek() == Some(b']') {
            return self.expect(b']');
        }
        loop {
            item(self)?;
            self.items += 1;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// The next value, which ends the page if it cannot be parsed.
    pub(super) fn take<T: Deserialize<'p>>(&mut self) -> Result<T, PageError> {
        self.parse().map_err(|source| PageError::NotJson {
            offset: self.offset,
            items: self.items,
            source,
        })
    }

    /// The next value as one that is not odd; else the place is kept.
    pub(super) fn attempt<V>(
        &mut self,
        view: impl FnOnce(&mut Scan<'p>) -> Option<V>,
    ) -> Option<V> {
        let mut scan = Scan::at(self.text, self.offset);
        let view = view(&mut scan)?;
        self.offset = scan.offset();
        Some(view)
    }

    fn parse<T: Deserialize<'p>>(&mut self) -> Result<T, serde_json::Error> {
        let rest = self.page.get(self.offset..).unwrap_or_default();
        let mut values = Deserializer::from_slice(rest).into_iter();
        match values.next() {
            Some(value) => {
                let value = value?;
                self.offset += values.byte_offset();
                Ok(value)
            }
            // The input is at its end: the same error as for half a value.
            None => serde_json::from_slice(b""),
        }
    }

    fn goes_on(&mut self, end: u8) -> Result<bool, PageError> {
        if self.peek() == Some(b',') {
            self.expect(b',')?;
            return Ok(true);
        }
        self.expect(end)?;
        Ok(false)
    }

    fn expect(&mut self, byte: u8) -> Result<(), PageError> {
        if self.peek() != Some(byte) {
            return Err(self.no_list());
        }
        self.offset += 1;
        Ok(())
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.page.get(self.offset) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.offset += 1;
        }
        None
    }

    fn no_list(&self) -> PageError {
        PageError::NoList { offset: self.offset, items: self.items }
    }
}
