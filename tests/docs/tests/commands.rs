//! Every command line of a page is one that its program understands, by that program's own help.

#![expect(clippy::print_stdout, reason = "a skip is told on standard output")]

use anyhow::Result;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};
use tests_docs::{
    command::{Help, commands, judge},
    pages,
};

/// How a program is called here, by its name in pages; `None` for one that is not ours to judge, or is
/// not there.
fn caller(name: &str, programs: Option<&PathBuf>) -> Option<Vec<String>> {
    let path = |path: PathBuf| path.is_file().then(|| vec![path.display().to_string()]);
    match name {
        "ferrule" | "ferrule-lab" | "ferrule-ipamd" | "ferrule-controller" | "ferrule-agent" => {
            path(programs?.join(name))
        }
        "kubectl-ferrule" => path(programs?.join("ferrule")),
        "xtask" => path(std::env::var_os("FERRULE_XTASK")?.into()),
        "helm" => path(std::env::var_os("FERRULE_HELM")?.into()),
        _ => None,
    }
}

#[test]
fn every_command_of_the_pages_is_known_to_its_program() -> Result<()> {
    let programs = std::env::var_os("FERRULE_BIN_DIR").map(PathBuf::from);
    if programs.is_none() {
        println!(
            "SKIP every_command_of_the_pages_is_known_to_its_program: FERRULE_BIN_DIR is not set; \
             `cargo xtask test` sets it"
        );
        return Ok(());
    }
    let mut helps: BTreeMap<Vec<String>, Option<Help>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for page in pages()? {
        for block in page.blocks.iter().filter(|block| ["sh", "bash"].contains(&&*block.language)) {
            for mut words in commands(&block.text) {
                if words.starts_with(&["cargo".to_owned(), "xtask".to_owned()]) {
                    words.remove(0);
                }
                if words.starts_with(&["kubectl".to_owned(), "ferrule".to_owned()]) {
                    words.remove(0);
                }
                let name = words.remove(0);
                let Some(call) = caller(&name, programs.as_ref()) else { continue };
                *seen.entry(name.clone()).or_default() += 1;
                let ask = |below: &[String]| {
                    let whole = [&call[..], below].concat();
                    helps.entry(whole.clone()).or_insert_with(|| help(&whole)).clone()
                };
                if let Err(fault) = judge(&words, ask) {
                    let path = page.path.display();
                    wrong.push(format!(
                        "{path}:{}: {name} {}: {fault}",
                        block.line,
                        words.join(" ")
                    ));
                }
            }
        }
    }
    println!("commands by program: {seen:?}");
    assert!(seen.get("ferrule").is_some_and(|count| *count > 5), "{seen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What `--help` says, if it is understood.
fn help(words: &[String]) -> Option<Help> {
    let (program, below) = words.split_first()?;
    // `cluster` of the project's own commands hands its help to another program, built by cargo.
    let output =
        Command::new(program).args(below).arg("--help").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| Help::of(&String::from_utf8_lossy(&output.stdout)))
}
