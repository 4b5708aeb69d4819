//! The results of `ferrule check` in the format of JUnit, which CI systems show.

use crate::output::plain;
use anyhow::{Context as _, Result, anyhow};
use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};
use view_cluster::{Failure, Matrix, Row};

/// A file that is opened before the test, so that a wrong path ends the command early. An earlier result stays until
/// there is a new one.
pub(super) struct Report<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Report<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| {
            anyhow!(
                "cannot create {}: {error}; name a file with --junit that you can write, in a folder that exists",
                path.display()
            )
        });
        Ok(Self { path, file: file? })
    }

    pub(super) fn write(self, matrix: &Matrix) -> Result<()> {
        self.replace(document(matrix))
    }

    /// Writes one case with the reason why the tests could not run.
    pub(super) fn write_error(self, why: &str) -> Result<()> {
        self.replace(error_document(why))
    }

    fn replace(mut self, document: io::Result<Vec<u8>>) -> Result<()> {
        let document = document.context("cannot encode the results")?;
        let written = self.truncate().and_then(|()| self.file.write_all(&document));
        written.map_err(|error| {
            anyhow!(
                "cannot write {}: {error}; name a file on another file system with --junit, or use -o json",
                self.path.display()
            )
        })
    }

    /// Pipes and terminals have no length.
    fn truncate(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }
}

/// Each node is a class, and each tested column is a case of it.
fn document(matrix: &Matrix) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let cases: usize = matrix.rows.iter().map(|row| row.cells.len()).sum();
    let errors = matrix.failures.iter().filter(|it| it.column.is_none()).count();
    let bad = |row: &Row| row.cells.values().filter(|(good, all)| good < all).count();
    let failures: usize = matrix.rows.iter().map(bad).sum();
    let counts = [
        ("tests", (cases + errors).to_string()),
        ("failures", failures.to_string()),
        ("errors", errors.to_string()),
    ];
    let counts = counts.iter().map(|(name, count)| (*name, count.as_str()));
    let suite = writer
        .create_element("testsuite")
        .with_attribute(("name", "ferrule check"))
        .with_attributes(counts);
    suite.write_inner_content(|writer| {
        matrix.rows.iter().try_for_each(|row| node(writer, row, &matrix.failures))
    })?;
    let mut document = writer.into_inner();
    document.push(b'\n');
    Ok(document)
}

fn error_document(why: &str) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suite = writer
        .create_element("testsuite")
        .with_attribute(("name", "ferrule check"))
        .with_attributes([("tests", "1"), ("failures", "0"), ("errors", "1")]);
    let text = plain(why);
    let message = text.replace('\n', " ");
    suite.write_inner_content(|writer| {
        let case = writer
            .create_element("testcase")
            .with_attributes([("classname", "ferrule check"), ("name", "run")]);
        let inner = |writer: &mut Writer<Vec<u8>>| {
            let error = writer.create_element("error").with_attribute(("message", &*message));
            error.write_text_content(BytesText::new(&text)).map(drop)
        };
        case.write_inner_content(inner).map(drop)
    })?;
    let mut document = writer.into_inner();
    document.push(b'\n');
    Ok(document)
}

fn node(writer: &mut Writer<Vec<u8>>, row: &Row, failures: &[Failure]) -> std::io::Result<()> {
    let of_node = || failures.iter().filter(|failure| failure.from == row.node);
    for failure in of_node().filter(|failure| failure.column.is_none()) {
        case(writer, &row.node, "probe", &[("error", failure)])?;
    }
    for column in row.cells.keys() {
        let failed = of_node().filter(|failure| failure.column == Some(*column));
        let failed: Vec<_> = failed.map(|failure| ("failure", failure)).collect();
        case(writer, &row.node, column.name(), &failed)?;
    }
    Ok(())
}

fn case(
    writer: &mut Writer<Vec<u8>>,
    node: &str,
    name: &str,
    failed: &[(&str, &Failure)],
) -> std::io::Result<()> {
    let element =
        writer.create_element("testcase").with_attributes([("classname", node), ("name", name)]);
    let [(kind, first), more @ ..] = failed else {
        return element.write_empty().map(drop);
    };
    let line = |failure: &Failure| {
        plain(&format!("{}: {}", failure.tried, failure.said)).replace('\n', " ")
    };
    let others: String = more.iter().map(|(_, failure)| format!("{}\n", line(failure))).collect();
    let text = format!("{}\n{others}next: {}", line(first), first.next_step);
    let message = line(first);
    let inner = |writer: &mut Writer<Vec<u8>>| {
        let failure = writer.create_element(*kind).with_attribute(("message", message.as_str()));
        failure.write_text_content(BytesText::new(&text)).map(drop)
    };
    element.write_inner_content(inner).map(drop)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use view_cluster::{Column, How, Outcome, Site, Try};

    #[test]
    fn an_earlier_result_stays_until_the_reason_of_a_failed_run_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("junit.xml");
        std::fs::write(&path, "an earlier result\n".repeat(100)).unwrap();
        let report = Report::open(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("an earlier result"));
        report.write_error("cannot create <pods>:\nrefused").unwrap();
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="ferrule check" tests="1" failures="0" errors="1">
  <testcase classname="ferrule check" name="run">
    <error message="cannot create &lt;pods&gt;: refused">cannot create &lt;pods&gt;:
refused</error>
  </testcase>
</testsuite>
"#;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/junit.xml"), folder.path().to_owned()] {
            let error = Report::open(&path).err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot create {}: ", path.display())), "{error}");
            assert!(error.contains("; name a file with --junit"), "{error}");
        }
        let full = Report::open(Path::new("/dev/full")).unwrap();
        let error = full.write_error("refused").unwrap_err().to_string();
        assert!(error.starts_with("cannot write /dev/full: No space left"), "{error}");
        assert!(error.contains("; name a file on another file system"), "{error}");
    }

    #[test]
    fn each_column_of_a_node_is_a_case_with_its_failures() {
        let site = |node: &str| Site { node: node.to_owned(), ..Site::default() };
        let tried = |column, good, said: &str| {
            let what = Try { how: How::Http, to: "10.0.0.1:80".to_owned() };
            (column, what, Outcome { good, said: said.to_owned(), ..Outcome::default() })
        };
        let mut matrix = Matrix::default();
        let of_n1 = vec![
            tried(Column::SameNode, true, ""),
            tried(Column::Service, false, "<refused> & \"closed\"\x1b"),
            tried(Column::Service, false, "no answer"),
        ];
        matrix.add(&site("n1"), Ok(of_n1));
        matrix.add(&site("n2"), Err("the node has no probe pod".to_owned()));
        let text = String::from_utf8(document(&matrix).unwrap()).unwrap();
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="ferrule check" tests="3" failures="1" errors="1">
  <testcase classname="n1" name="same-node"/>
  <testcase classname="n1" name="service">
    <failure message="HTTP to 10.0.0.1:80: &lt;refused&gt; &amp; &quot;closed&quot;\u{1b}">HTTP to 10.0.0.1:80: &lt;refused&gt; &amp; &quot;closed&quot;\u{1b}
HTTP to 10.0.0.1:80: no answer
next: with FERRULE_SERVICES=ebpf run `ferrule service` on the node; otherwise check that kube-proxy runs there, and its log</failure>
  </testcase>
  <testcase classname="n2" name="probe">
    <error message="its probe: the node has no probe pod">its probe: the node has no probe pod
next: run kubectl describe on the pod; `ferrule status` shows the node&apos;s problems</error>
  </testcase>
</testsuite>
"#;
        assert_eq!(text, expected);
    }
}
