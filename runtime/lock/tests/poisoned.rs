//! Processes with a thread that panics under a lock.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where its premise fails, and its process reports a use of the state"
)]

use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Output},
    sync::{Arc, Mutex, RwLock},
    thread,
};

const CHILD: &str = "RUNTIME_LOCK_CHILD";
const SIGABRT: i32 = 6;

/// Runs a test of this program again, as a process of its own.
fn run(test: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "yes").output().unwrap()
}

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Checks that the process of this test was aborted with the message, before it used the state.
#[track_caller]
fn was_aborted(test: &str) {
    let ended = run(test);
    let (out, err) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.signal(), Some(SIGABRT), "{out}{err}");
    assert!(err.contains("half a change") && err.contains("cannot lock the state at"), "{err}");
    assert!(err.contains("poisoned.rs"), "the place of the call: {err}");
    assert!(!out.contains("the state was used"), "{out}");
}

#[test]
fn a_poisoned_mutex_ends_the_process() {
    if !is_child() {
        return was_aborted("a_poisoned_mutex_ends_the_process");
    }
    let state = Arc::new(Mutex::new(0));
    let other = Arc::clone(&state);
    let panicked = thread::spawn(move || {
        *runtime_lock::lock(&other) += 1;
        let _held = runtime_lock::lock(&other);
        panic!("half a change");
    });
    assert!(panicked.join().is_err());
    println!("the state was used: {}", runtime_lock::lock(&state));
}

#[test]
fn a_lock_poisoned_by_a_writer_ends_its_readers() {
    if !is_child() {
        return was_aborted("a_lock_poisoned_by_a_writer_ends_its_readers");
    }
    let state = Arc::new(RwLock::new(0));
    let other = Arc::clone(&state);
    let panicked = thread::spawn(move || {
        let _held = runtime_lock::write(&other);
        panic!("half a change");
    });
    assert!(panicked.join().is_err());
    println!("the state was used: {}", runtime_lock::read(&state));
}

#[test]
fn a_lock_without_a_panic_is_passed_on() {
    let state = Mutex::new(1);
    *runtime_lock::lock(&state) += 1;
    assert_eq!(*runtime_lock::lock(&state), 2);
}
