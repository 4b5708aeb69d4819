//! Responses as trees, with the element names of EC2's XML.

/// A piece of an EC2 response, ready to be printed.
///
/// `Fields` become one element each, `Set` becomes an `<item>` per member, `Text` is escaped text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A leaf.
    Text(String),
    /// Named elements, in EC2's order.
    Fields(Vec<(&'static str, Document)>),
    /// A list: each member is an `<item>`.
    Set(Vec<Document>),
}

impl crate::Response {
    /// The elements inside of `<ActionResponse>`, after `<requestId>`.
    pub fn document(&self, epoch_unix_ms: u64) -> Document {
        todo!("{epoch_unix_ms}")
    }
}
