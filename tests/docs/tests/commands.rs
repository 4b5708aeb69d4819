//! Every command line of a page has only flags and subcommands of its program's help.

#![expect(clippy::print_stdout, reason = "a skip is reported on standard output")]

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

/// Returns the command for a program's name in pages; `None` if the test does not judge it or the program is missing.
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

/// Runs the command with `--help`; `None` if it fails.
fn help(words: &[String]) -> Option<Help> {
    let (program, below) = words.split_first()?;
    // `cargo xtask cluster --help` runs another program, which cargo builds.
    let output =
        Command::new(program).args(below).arg("--help").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| Help::of(&String::from_utf8_lossy(&output.stdout)))
}
