//! Replay of the whole corpus.

use std::{collections::BTreeSet, fs, path::Path};
use tests_fuzz::TARGETS;

#[test]
fn every_property_holds_for_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        let inputs = fs::read_dir(&folder).expect("each target has a folder in the corpus");
        let mut tried = 0;
        for input in inputs {
            let path = input.expect("a file of the corpus").path();
            let bytes = fs::read(&path).expect("a file of the corpus");
            // The last line of a failure's output is its input.
            eprintln!("{}", path.display());
            (target.run)(&bytes);
            tried += 1;
        }
        assert!(tried > 0, "{} is empty", folder.display());
    }
}

#[test]
fn the_corpus_has_no_folder_without_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders = fs::read_dir(corpus).expect("the corpus");
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.expect("a folder").file_name().to_string_lossy().into_owned())
        .collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
    assert_eq!(folders, targets);
}
