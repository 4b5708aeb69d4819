//! Files of the repository, and the passages in them.

use super::passage::{Kind, Markdown, Passage, passages};
use anyhow::{Context as _, Result, ensure};
use std::{fs, path::Path, process::Command};

/// Returns every file that git tracks or would add, relative to the root, in git's order.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot start git; install it")?;
    let stderr = String::from_utf8_lossy(&listed.stderr);
    ensure!(
        listed.status.success(),
        "cannot list the files of {}: {}",
        root.display(),
        stderr.trim()
    );
    let text = String::from_utf8(listed.stdout).context("cannot read a file name: not UTF-8")?;
    Ok(text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Reads a tracked file. Returns `None` if it is removed from the working tree or is not text.
pub(crate) fn read(root: &Path, path: &str) -> Option<String> {
    fs::read(root.join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// Returns the passages of a file, or none if its language is not checked.
pub(crate) fn passages_of(path: &str, text: &str) -> Vec<Passage> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map_or(name, |(_, extension)| extension) {
        "md" => page(text),
        "rs" | "proto" => comments(text, "//"),
        "toml" | "sh" | "Containerfile" => comments(text, "#"),
        "yaml" | "tpl" if path.starts_with("charts/") => comments(text, "#"),
        _ => Vec::new(),
    }
}

fn page(text: &str) -> Vec<Passage> {
    let lines: Vec<usize> = (1..=text.lines().count()).collect();
    passages(&Markdown { text, lines: &lines, first: Kind::Paragraph, item: None })
}

/// A run of comment lines of one kind.
struct Run<'a> {
    marker: &'a str,
    lines: Vec<usize>,
    text: String,
}

/// Returns the passages of all comments. A run of lines with the same marker is one Markdown text.
fn comments(text: &str, start: &str) -> Vec<Passage> {
    let all: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut run: Option<Run<'_>> = None;
    for (index, line) in all.iter().enumerate() {
        let comment = own_line(line, start);
        let continues =
            run.as_ref().zip(comment).is_some_and(|(run, (marker, _))| run.marker == marker);
        if !continues && let Some(ended) = run.take() {
            let item = all.get(index..).and_then(item_after);
            found.extend(passages_of_run(&ended, item));
        }
        if let Some((marker, body)) = comment {
            let run = run.get_or_insert(Run { marker, lines: Vec::new(), text: String::new() });
            run.lines.push(index + 1);
            run.text.push_str(body.strip_prefix(' ').unwrap_or(body));
            run.text.push('\n');
        } else if let Some(body) = trailing(line, start) {
            let run = Run { marker: start, lines: vec![index + 1], text: body.to_owned() };
            found.extend(passages_of_run(&run, None));
        }
    }
    if let Some(ended) = run {
        found.extend(passages_of_run(&ended, None));
    }
    found
}

fn passages_of_run(run: &Run<'_>, item: Option<&str>) -> Vec<Passage> {
    let first = if run.marker.len() == 3 { Kind::Doc } else { Kind::Comment };
    passages(&Markdown { text: &run.text, lines: &run.lines, first, item })
}

/// Splits a line that is only a comment into its marker and its text.
fn own_line<'a>(line: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    let line = line.trim_start();
    let body = line.strip_prefix(start)?;
    let is_shebang = start == "#" && body.starts_with(['!', '#', ':']);
    if is_shebang || body.starts_with("//") {
        return None;
    }
    let is_doc = start == "//" && body.starts_with(['/', '!']);
    Some(line.split_at(start.len() + usize::from(is_doc)))
}

/// Returns the comment behind code on the same line, unless a quote is open before it.
fn trailing<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let before = format!(" {start} ");
    let (code, body) = line.split_once(before.as_str())?;
    let quotes = code.replace("'\"'", "").replace("\\\"", "").matches('"').count();
    (!code.trim().is_empty() && quotes % 2 == 0 && !code.contains('\'')).then_some(body)
}

/// Returns the name of the item that the first line of code declares.
fn item_after<'a>(lines: &[&'a str]) -> Option<&'a str> {
    const KEYWORDS: [&str; 15] = [
        "pub", "fn", "struct", "enum", "const", "static", "type", "trait", "mod", "async", "let",
        "message", "optional", "repeated", "mut",
    ];
    let is_code = |line: &&&str| !line.is_empty() && !line.starts_with("#[");
    let trimmed: Vec<&str> = lines.iter().take(6).map(|line| line.trim_start()).collect();
    let line = *trimmed.iter().find(is_code)?;
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        None => line,
    };
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| !word.is_empty() && !KEYWORDS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Vec<(Kind, usize, String)> {
        let found = passages_of(path, text);
        found.into_iter().map(|p| (p.kind, p.line_at(0), p.text)).collect()
    }

    #[test]
    fn comments_of_rust_are_doc_comments_and_others() {
        let source =
            "//! A crate.\n\nfn f() {\n    // Plain.\n    g(); // Behind.\n    h(\"a // b\");\n}\n";
        let expected = [
            (Kind::Doc, 1, "A crate."),
            (Kind::Comment, 4, "Plain."),
            (Kind::Comment, 5, "Behind."),
        ];
        assert_eq!(
            read("a.rs", source),
            expected.map(|(kind, line, text)| (kind, line, text.to_owned()))
        );
    }

    #[test]
    fn a_doc_comment_knows_its_item() {
        let source = "/// Text.\n#[derive(Debug)]\npub(crate) struct PodKey;\n";
        let found = passages_of("a.rs", source);
        assert_eq!(found.first().and_then(|p| p.item.as_deref()), Some("PodKey"));
    }

    #[test]
    fn only_the_yaml_of_charts_is_read() {
        let yaml = "# Comment.\nkey: value # Behind.\n";
        assert_eq!(read("charts/a/values.yaml", yaml).len(), 2);
        assert_eq!(read("docs/a.yaml", yaml).len(), 0);
    }
}
