//! EC2's way of writing XML: text elements, and `<item>` for each member of a set.

use quick_xml::{Writer, escape::escape, events::BytesEnd, events::BytesStart, events::Event};
use std::fmt::Display;

/// The namespace of every answer of this version of the API.
pub(super) const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// A document that is being written.
pub(super) struct Xml {
    out: Writer<Vec<u8>>,
}

impl Xml {
    /// A whole document with one root element; `attributes` are the root's.
    pub(super) fn document(
        root: &str,
        attributes: &[(&str, &str)],
        body: impl FnOnce(&mut Self),
    ) -> Vec<u8> {
        let mut xml =
            Self { out: Writer::new(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_vec()) };
        let start = BytesStart::new(root).with_attributes(attributes.iter().copied());
        xml.write(Event::Start(start));
        body(&mut xml);
        xml.write(Event::End(BytesEnd::new(root)));
        xml.out.into_inner()
    }

    /// `<name>…</name>` around what `body` writes.
    pub(super) fn within(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        self.write(Event::Start(BytesStart::new(name)));
        body(self);
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// `<name>value</name>`.
    pub(super) fn text(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.within(name, |xml| {
            xml.write(Event::Text(quick_xml::events::BytesText::from_escaped(escape(
                value.as_str(),
            ))));
        });
    }

    fn write(&mut self, event: Event<'_>) {
        self.out.write_event(event).expect("writing to memory does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_escapes_are_written_as_ec2_writes_them() {
        let bytes = Xml::document("R", &[("xmlns", NAMESPACE)], |xml| {
            xml.text("a", "x<&>\"y");
            xml.within("tagSet", |xml| xml.within("item", |xml| xml.text("key", "k")));
            xml.within("empty", |_| {});
        });
        let text = String::from_utf8(bytes).expect("UTF-8");
        let root = format!("<R xmlns=\"{NAMESPACE}\">");
        assert!(text.contains(&root), "{text}");
        assert!(text.contains("<a>x&lt;&amp;&gt;"), "{text}");
        assert!(text.ends_with("<tagSet><item><key>k</key></item></tagSet><empty></empty></R>"));
    }
}
