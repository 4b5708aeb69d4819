#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::log::{Form, Log};
use config_settings::LogLevel;
use std::collections::BTreeMap;
use tracing_subscriber::layer::SubscriberExt as _;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let size = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
    };
    entries.map(size).collect()
}

#[test]
fn a_full_file_is_rotated_and_all_files_together_are_bounded() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("log/ipamd.log");
    let log = LogFile::open_with_limit(&path, 1000).unwrap();
    let line = |number: u32| format!("{number:099}\n").into_bytes();
    for number in 0..1000 {
        log.line(&line(number));
        let sizes = sizes(path.parent().unwrap());
        assert!(sizes.len() <= 4 && sizes.values().all(|size| *size <= 1000), "{sizes:?}");
    }
    let names: Vec<String> = sizes(path.parent().unwrap()).into_keys().collect();
    assert_eq!(names, ["ipamd.log", "ipamd.log.1", "ipamd.log.2", "ipamd.log.3"]);
    // The files have the last lines, whole and in order.
    let text: Vec<u8> = ["ipamd.log.3", "ipamd.log.2", "ipamd.log.1", "ipamd.log"]
        .iter()
        .flat_map(|name| fs::read(path.with_file_name(name)).unwrap())
        .collect();
    assert_eq!(text, (960..1000).flat_map(line).collect::<Vec<u8>>());
}

#[test]
fn a_log_file_is_not_for_all_readers_also_after_an_upgrade() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ipamd.log");
    fs::write(&path, "of an earlier release\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let log = LogFile::open_with_limit(&path, 10).unwrap();
    assert_eq!(mode(&path), 0o640);
    log.line(b"a line\n");
    assert_eq!([mode(&path), mode(&numbered(&path, 1))], [0o640; 2]);
    // A stricter mode stays.
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    LogFile::open(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_removed_file_is_opened_again_and_the_rotated_ones_stay() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ipamd.log");
    let log = LogFile::open_with_limit(&path, 100).unwrap();
    let line = [&[b'a'; 99][..], b"\n"].concat();
    for _ in 0..3 {
        log.line(&line);
    }
    let before = sizes(home.path());
    fs::remove_file(&path).unwrap();
    log.line(b"the next line\n");
    assert_eq!(fs::read(&path).unwrap(), b"the next line\n");
    let kept = |sizes: &BTreeMap<String, u64>| {
        sizes.iter().filter(|(name, _)| *name != "ipamd.log").count()
    };
    assert_eq!(kept(&sizes(home.path())), kept(&before));
}

#[test]
fn a_device_is_neither_rotated_nor_changed() {
    let before = mode(Path::new("/dev/null"));
    let log = LogFile::open_with_limit(Path::new("/dev/null"), 0).unwrap();
    log.line(b"a line\n");
    assert_eq!(mode(Path::new("/dev/null")), before);
    assert!(!numbered(Path::new("/dev/null"), 1).exists());
}

#[test]
fn the_formatter_passes_each_line_in_one_call() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ipamd.log");
    let log = LogFile::open_with_limit(&path, 1).unwrap();
    let lines = Log { ours: &["runtime_process"], level: LogLevel::Info, form: Form::Json };
    let subscriber = tracing_subscriber::registry().with(lines.lines(log));
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(text = "x".repeat(10_000), "a long line");
        tracing::info!("a short line");
    });
    // Each line fills a file.
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    assert_eq!(read(&numbered(&path, 1))["message"], "a long line");
    assert_eq!(read(&path)["message"], "a short line");
}
