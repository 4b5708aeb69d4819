#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::sync::Barrier;

/// A folder of its own, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("ferrule-cni-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_line_is_one_json_object_with_its_context() {
    let folder = Folder::new("line");
    let path = folder.0.join("deeper/plugin.log");
    let log = Log::open(&Destination::File(path.clone()), Level::Info).with("verb", "ADD");
    log.line(Level::Debug, "not asked for", &[]);
    log.line(Level::Warn, "two\nlines", &[("pod", "a/b".into())]);
    let lines = lines(&path);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["msg"], "two\nlines");
    assert_eq!((&lines[0]["verb"], &lines[0]["pod"]), (&"ADD".into(), &"a/b".into()));
    assert_eq!(lines[0]["level"], "warn");
}

#[test]
fn a_log_that_cannot_be_opened_is_silent() {
    for path in ["/proc/no/such/plugin.log", "/"] {
        Log::open(&Destination::File(path.into()), Level::Info).line(Level::Error, "x", &[]);
    }
    assert_eq!(Destination::of("stdout"), Destination::Stderr);
    let default = Destination::File(Destination::DEFAULT_FILE.into());
    assert_eq!((Destination::of(""), Destination::of("canary")), (default.clone(), default));
}

#[test]
fn a_full_log_is_turned_over_once_by_many_writers_and_loses_no_line() {
    const WRITERS: usize = 16;
    const LINES: usize = 20;
    let folder = Folder::new("full");
    let path = folder.0.join("plugin.log");
    fs::write(&path, "{}\n".repeat(1000)).unwrap();
    let start = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (path, start) = (&path, &start);
            scope.spawn(move || {
                start.wait();
                // No process writes its first line before all of them have found the file full.
                let file = Destination::File(path.clone());
                let log = Log::open_with_limit(&file, Level::Info, 3000);
                start.wait();
                for number in 0..LINES {
                    log.line(
                        Level::Info,
                        "line",
                        &[("writer", writer.into()), ("n", number.into())],
                    );
                }
            });
        }
    });
    let (old, new) = (lines(&numbered(&path, 1)), lines(&path));
    assert_eq!(old.len() + new.len(), 1000 + WRITERS * LINES);
    assert!(old.len() >= 1000, "the full file is the one that was moved");
}

#[test]
fn only_so_many_old_files_are_kept() {
    let folder = Folder::new("kept");
    let path = folder.0.join("plugin.log");
    for round in 0..6 {
        let log = Log::open_with_limit(&Destination::File(path.clone()), Level::Info, 1);
        log.line(Level::Info, "round", &[("n", round.into())]);
    }
    let rounds: Vec<u64> =
        [path.clone(), numbered(&path, 1), numbered(&path, 2), numbered(&path, 3)]
            .iter()
            .map(|path| lines(path)[0]["n"].as_u64().unwrap())
            .collect();
    assert_eq!(rounds, [5, 4, 3, 2]);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 4);
}

#[test]
fn a_fifo_in_place_of_the_log_does_not_hold_up_the_verb() {
    let folder = Folder::new("fifo");
    let path = folder.0.join("plugin.log");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    Log::open(&Destination::File(path), Level::Info).line(Level::Error, "x", &[]);
}

#[test]
fn a_runaway_text_is_cut_between_characters() {
    let text = "é".repeat(TEXT_MAX);
    assert_eq!(clipped(&text).len(), TEXT_MAX);
    assert_eq!(clipped("short"), "short");
}
