//! Passages: runs of text that the rules apply to, with the line of every part.

use pulldown_cmark::{BrokenLink, CowStr, Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// The place of a passage within its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first paragraph of a doc comment.
    Doc,
    /// A comment that is no documentation.
    Comment,
    /// A paragraph of a page, or a later paragraph of a doc comment.
    Paragraph,
    /// The first paragraph of a list item.
    Item,
    /// A cell of a table's body.
    Cell,
    /// A cell of a table's head: a name of a column, not a sentence.
    HeaderCell,
    /// A heading of any level, without an antecedent.
    Heading,
    /// A message of a program. Its length is not bounded.
    Message,
}

impl Kind {
    /// Returns true if no earlier sentence can hold the antecedent of a pronoun.
    pub(crate) fn has_no_antecedent(self) -> bool {
        match self {
            Self::Doc | Self::Item | Self::Cell | Self::Heading => true,
            Self::Comment | Self::Paragraph | Self::HeaderCell | Self::Message => false,
        }
    }
}

/// One run of text, in which every inline code span is one word.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// The name of the item that a doc comment belongs to.
    pub(crate) item: Option<String>,
    /// Positions in `text`, ascending, each with the line from there on.
    lines: Vec<(usize, usize)>,
}

/// A position of `text` that stands for a space within inline code.
pub(crate) const CODE_SPACE: char = '\u{a0}';

impl Passage {
    fn new(kind: Kind, item: Option<&str>) -> Self {
        Self { kind, text: String::new(), item: item.map(str::to_owned), lines: Vec::new() }
    }

    pub(crate) fn message(text: &str, line: usize) -> Self {
        let mut passage = Self::new(Kind::Message, None);
        passage.push(text, line);
        passage
    }

    /// The line of the file at a position of the text.
    pub(crate) fn line_at(&self, position: usize) -> usize {
        let later = self.lines.partition_point(|(start, _)| *start <= position);
        later.checked_sub(1).and_then(|index| self.lines.get(index)).map_or(0, |(_, line)| *line)
    }

    fn push(&mut self, text: &str, line: usize) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }
}

/// A Markdown text with the file's line for each of its lines.
pub(crate) struct Markdown<'a> {
    pub(crate) text: &'a str,
    /// The line in the file of each line of `text`.
    pub(crate) lines: &'a [usize],
    /// The kind of a paragraph before any other block.
    pub(crate) first: Kind,
    pub(crate) item: Option<&'a str>,
}

/// Returns the passages of a Markdown text. Code blocks, HTML and front matter are left out.
pub(crate) fn passages(markdown: &Markdown<'_>) -> Vec<Passage> {
    let mut options = Options::empty();
    options.insert(Options::ENABLE_TABLES);
    options.insert(Options::ENABLE_STRIKETHROUGH);
    // A doc comment links to items by their names in brackets.
    let callback = |_: BrokenLink<'_>| Some((CowStr::from(""), CowStr::from("")));
    let parser = Parser::new_with_broken_link_callback(markdown.text, options, Some(callback));
    let mut reader = Reader::new(markdown);
    for (event, range) in parser.into_offset_iter() {
        reader.read(&event, &range);
    }
    reader.close();
    reader.passages
}

struct Reader<'a> {
    markdown: &'a Markdown<'a>,
    starts: Vec<usize>,
    open: Option<Passage>,
    passages: Vec<Passage>,
    in_code: bool,
    in_head: bool,
    /// The first paragraph of the present list item has not started yet.
    item_is_new: bool,
    is_first_block: bool,
}

impl<'a> Reader<'a> {
    fn new(markdown: &'a Markdown<'a>) -> Self {
        let newlines = markdown.text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            markdown,
            starts: std::iter::once(0).chain(newlines).collect(),
            open: None,
            passages: Vec::new(),
            in_code: false,
            in_head: false,
            item_is_new: false,
            is_first_block: true,
        }
    }

    fn line(&self, position: usize) -> usize {
        let index = self.starts.partition_point(|start| *start <= position).saturating_sub(1);
        self.markdown.lines.get(index).copied().unwrap_or_default()
    }

    fn open(&mut self, kind: Kind) {
        self.close();
        self.open = Some(Passage::new(kind, self.markdown.item));
    }

    fn close(&mut self) {
        if let Some(passage) = self.open.take()
            && !passage.text.trim().is_empty()
        {
            self.passages.push(passage);
        }
    }

    fn paragraph(&mut self) -> Kind {
        let is_first = std::mem::take(&mut self.is_first_block);
        match (std::mem::take(&mut self.item_is_new), is_first) {
            (true, _) => Kind::Item,
            (false, true) => self.markdown.first,
            (false, false) if self.markdown.first == Kind::Comment => Kind::Comment,
            (false, false) => Kind::Paragraph,
        }
    }

    fn text(&mut self, text: &str, range: &Range<usize>) {
        if self.in_code {
            return;
        }
        if self.open.is_none() {
            // The text of a tight list item has no paragraph of its own.
            let kind = self.paragraph();
            self.open(kind);
        }
        let line = self.line(range.start);
        if let Some(passage) = &mut self.open {
            passage.push(text, line);
        }
    }

    fn read(&mut self, event: &Event<'_>, range: &Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(*end),
            Event::Text(text) => self.text(text, range),
            Event::Code(code) => {
                let code = code.replace(' ', &CODE_SPACE.to_string());
                self.text(&format!("`{code}`"), range);
            }
            Event::SoftBreak | Event::HardBreak => self.text(" ", range),
            Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        if matches!(tag, Tag::CodeBlock(_)) {
            self.close();
            self.in_code = true;
            self.item_is_new = false;
        } else if matches!(tag, Tag::TableHead) {
            self.in_head = true;
        } else if matches!(tag, Tag::TableCell) {
            self.open(if self.in_head { Kind::HeaderCell } else { Kind::Cell });
        } else if matches!(tag, Tag::Heading { .. }) {
            self.open(Kind::Heading);
            self.is_first_block = false;
        } else if matches!(tag, Tag::Paragraph) {
            let kind = self.paragraph();
            self.open(kind);
        } else if matches!(tag, Tag::Item) {
            self.close();
            self.item_is_new = true;
            self.is_first_block = false;
        }
    }

    fn end(&mut self, end: TagEnd) {
        if matches!(end, TagEnd::CodeBlock) {
            self.in_code = false;
        } else if matches!(end, TagEnd::TableHead) {
            self.in_head = false;
            self.is_first_block = false;
        }
        let ends_passage = matches!(
            end,
            TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::TableCell
        );
        if ends_passage {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(Kind, String, usize)> {
        let lines: Vec<usize> = (10..).take(text.lines().count()).collect();
        let markdown = Markdown { text, lines: &lines, first: Kind::Doc, item: None };
        let found = passages(&markdown);
        found.into_iter().map(|p| (p.kind, p.text.clone(), p.line_at(0))).collect()
    }

    #[test]
    fn a_code_block_is_no_passage() {
        let found = read("Above.\n\n```text\nWho is told.\n```\n\nBelow.");
        let expected = [(Kind::Doc, "Above.", 10), (Kind::Paragraph, "Below.", 16)];
        assert_eq!(found, expected.map(|(kind, text, line)| (kind, text.to_owned(), line)));
    }

    #[test]
    fn cells_and_items_are_passages_of_their_own() {
        let found = read("- First\n  line.\n- Second.\n\n| a | b |\n|---|---|\n| c d | `e f` |\n");
        let expected = [
            (Kind::Item, "First line.", 10),
            (Kind::Item, "Second.", 12),
            (Kind::HeaderCell, "a", 14),
            (Kind::HeaderCell, "b", 14),
            (Kind::Cell, "c d", 16),
            (Kind::Cell, "`e\u{a0}f`", 16),
        ];
        assert_eq!(found, expected.map(|(kind, text, line)| (kind, text.to_owned(), line)));
    }

    #[test]
    fn a_link_counts_by_its_text() {
        let found = read("See [`Foo`] and [Bar].");
        assert_eq!(found.first().map(|(_, text, _)| text.as_str()), Some("See `Foo` and Bar."));
        let found = read("See [the page](https://example.com/tell).");
        assert_eq!(found.first().map(|(_, text, _)| text.as_str()), Some("See the page."));
    }

    #[test]
    fn a_position_on_a_later_line_has_that_line() {
        let lines = [3, 4];
        let markdown =
            Markdown { text: "One line\nanother.", lines: &lines, first: Kind::Doc, item: None };
        let found = passages(&markdown);
        let passage = found.first().expect("one passage");
        assert_eq!((passage.line_at(0), passage.line_at(12)), (3, 4));
    }
}
