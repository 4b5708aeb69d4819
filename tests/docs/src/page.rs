//! A parser of the Markdown that the pages use.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub path: PathBuf,
    /// The names of the headings in links.
    pub anchors: BTreeSet<String>,
    pub links: Vec<Link>,
    /// The fenced blocks of code.
    pub blocks: Vec<Block>,
    /// The numbers from 1 of lines that are code by indentation only, without a language.
    pub indented: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of its line, from 1.
    pub line: usize,
    /// The target as written.
    pub to: String,
}

/// A fenced block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of its first line, from 1.
    pub line: usize,
    /// The language; empty if there is none.
    pub language: String,
    /// The content, without the indentation of the block.
    pub text: String,
}

impl Page {
    /// Parses a text.
    pub fn of(path: PathBuf, text: &str) -> Self {
        let mut page = Self {
            path,
            anchors: BTreeSet::new(),
            links: Vec::new(),
            blocks: Vec::new(),
            indented: Vec::new(),
        };
        let (mut in_list, mut after_blank) = (false, true);
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        let mut open: Option<(usize, Block)> = None;
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            let bare = line.trim_start();
            if let Some((indent, block)) = &mut open {
                if bare.trim_end() == FENCE {
                    page.blocks.extend(open.take().map(|(_, block)| block));
                } else {
                    let own = line.len() - bare.len();
                    block.text.push_str(line.get(own.min(*indent)..).unwrap_or_default());
                    block.text.push('\n');
                }
            } else if let Some(language) = bare.strip_prefix(FENCE) {
                let language = language.trim().to_owned();
                let block = Block { line: number, language, text: String::new() };
                open = Some((line.len() - bare.len(), block));
            } else {
                if !line.is_empty() && !line.starts_with(' ') {
                    in_list = is_item(line);
                }
                if line.starts_with(CODE) && after_blank && !in_list {
                    page.indented.push(number);
                }
                if let Some(heading) = heading(line) {
                    let name = anchor(heading);
                    let before = named.entry(name.clone()).or_default();
                    let unique = if *before == 0 { name } else { format!("{name}-{before}") };
                    *before += 1;
                    page.anchors.insert(unique);
                }
                let to = links(line).into_iter().map(|to| Link { line: number, to });
                page.links.extend(to);
            }
            after_blank = bare.is_empty();
        }
        page
    }
}

/// Returns true for the first line of a list item.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
}

/// Returns the text of a heading; `None` for other lines.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then_some(text)?.strip_prefix(' ')
}

/// Returns a heading's name in links, by the rules of GitHub and mdbook.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Returns the targets of the links of a line. Links in backticks do not count.
fn links(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Every second part is code.
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len() % 2 == 1;
    let mut text = String::new();
    for (at, piece) in parts.iter().enumerate() {
        text.push_str(if at % 2 == 1 && closed { "code" } else { piece });
    }
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let Some((to, after)) = after.split_once(')') else { break };
        found.push(to.to_owned());
        rest = after;
    }
    found
}

const FENCE: &str = "```";
const CODE: &str = "    ";

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::of(PathBuf::new(), text)
    }

    #[test]
    fn an_anchor_is_the_name_that_links_use() {
        assert_eq!(anchor(" `ferrule-ipamd install`: the node"), "ferrule-ipamd-install-the-node");
        let twice = page("# Back\ntext\n## Back\n#hash\n```\n# no heading\n```\n");
        assert_eq!(twice.anchors.into_iter().collect::<Vec<_>>(), ["back", "back-1"]);
    }

    #[test]
    fn links_are_found_outside_code() {
        let parsed = page("see [`x`](a.md#b), [c](d) and `[e](f)`\n```\n[g](h)\n```\n");
        let links: Vec<_> = parsed.links.iter().map(|link| link.to.as_str()).collect();
        assert_eq!(links, ["a.md#b", "d"]);
    }

    #[test]
    fn a_block_in_a_list_loses_the_indentation_of_the_list_alone() {
        let parsed = page("1. so\n\n   ```yaml\n   a:\n     b: 1\n   ```\n");
        let [block] = &parsed.blocks[..] else { panic!("{:?}", parsed.blocks) };
        assert_eq!((&*block.language, &*block.text, block.line), ("yaml", "a:\n  b: 1\n", 3));
    }

    #[test]
    fn indented_code_is_found_except_in_lists() {
        let parsed = page("so\n\n    ls\n\n1. one\n\n    goes on\n\n```\n\n    a: 1\n```\n");
        assert_eq!(parsed.indented, [3]);
    }
}
