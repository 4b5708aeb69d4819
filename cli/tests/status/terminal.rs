//! `ferrule status` on a terminal, repeated, and until no trouble remains.

use super::{ferrule, status, text};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use nix::{
    pty::{Winsize, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
};

/// The nodes are `n1` and `n2` with trouble and `f1` without.
pub(crate) async fn all(client: &Client, viewer: &Path) {
    a_filter_and_a_format_change_the_output(viewer);
    a_terminal_is_redrawn_with_colors_within_its_width(viewer);
    output_to_a_pipe_is_repeated_without_escape_sequences(viewer);
    a_terminal_shows_progress_on_a_line_that_disappears(viewer);
    a_wait_ends_with_the_last_trouble_or_its_timeout(client, viewer).await;
}

fn a_filter_and_a_format_change_the_output(viewer: &Path) {
    let printed = text(&status(viewer, &["--trouble"]).stdout);
    assert!(
        printed.starts_with("3 nodes: 0 good, 2 with trouble, 1 without Ferrule\n"),
        "{printed}"
    );
    assert!(printed.contains("\nn1 ") && !printed.contains("\nf1 "), "{printed}");
    let output = status(viewer, &["-o", "yaml"]);
    let document: Value = serde_saphyr::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(document["summary"]["withTrouble"], 2, "{document}");
    assert_eq!(document["nodes"][2]["troubles"][0]["kind"], "missing", "{document}");
    let colored = text(&status(viewer, &["--color", "always"]).stdout);
    assert!(colored.contains("\x1b[1m\x1b[31mTROUBLE\x1b[0m"), "{colored:?}");
}

fn a_terminal_is_redrawn_with_colors_within_its_width(viewer: &Path) {
    let (code, seen) = on_a_terminal(&mut command(viewer, &["--watch", "1"]));
    assert_eq!(code, Some(1), "the code of the last output: {seen:?}");
    assert!(seen.starts_with("\x1b[2J\x1b[H"), "{seen:?}");
    assert!(seen.contains("\x1b[1m\x1b[31m2 with trouble\x1b[0m"), "{seen:?}");
    let rows = seen.lines().skip_while(|line| !line.starts_with("NODE")).skip(1);
    let narrow: Vec<&str> = rows.take_while(|line| !line.contains("\x1b[J")).collect();
    let continued = |line: &&str| line.starts_with(' ');
    assert!(narrow.iter().any(continued), "a wide cell is wrapped: {narrow:?}");

    let mut plain = command(viewer, &["--watch", "1"]);
    let (_, seen) = on_a_terminal(plain.env("NO_COLOR", "1"));
    assert!(seen.contains("\x1b[H") && !seen.contains("\x1b[31m"), "{seen:?}");
}

/// Runs the command on a terminal of 80 columns until it has drawn twice, then interrupts it.
fn on_a_terminal(command: &mut Command) -> (Option<i32>, String) {
    let size = Winsize { ws_row: 60, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    command.env("TERM", "xterm").stdout(terminal.slave).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut master = File::from(terminal.master);
    let mut seen = String::new();
    let mut bytes = [0; 4096];
    while seen.matches("\x1b[H").count() < 2 {
        let length = master.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    interrupt(&child);
    (child.wait().unwrap().code(), seen.replace("\r\n", "\n"))
}

fn output_to_a_pipe_is_repeated_without_escape_sequences(viewer: &Path) {
    let mut command = command(viewer, &["--watch=1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut seen, mut blocks) = (String::new(), 0);
    while blocks < 2 {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the command has ended: {seen}");
        blocks += usize::from(line.ends_with(", every 1 s\n"));
        seen.push_str(&line);
    }
    assert!(seen.contains("TROUBLE  n2: ") && !seen.contains('\x1b'), "{seen:?}");
    // The pipe has no reader for the next block.
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

fn a_terminal_shows_progress_on_a_line_that_disappears(viewer: &Path) {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = command(viewer, &["--node", "n2", "--wait", "3"]);
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // The terminal ends with its last writer.
    drop(command);
    let mut seen = Vec::new();
    // The end of a terminal is an error.
    let _ = File::from(terminal.master).read_to_end(&mut seen);
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains(" waiting: 1 node: 0 good, 1 with trouble"), "{seen:?}");
    assert!(seen.ends_with("\r\x1b[2K"), "the line is cleared: {seen:?}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

async fn a_wait_ends_with_the_last_trouble_or_its_timeout(client: &Client, viewer: &Path) {
    let output = ferrule("status", viewer, &["--node", "n2", "--wait", "1"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(printed.contains("TROUBLE  n2: DaemonSet ferrule: "), "{printed}");

    let mut command = command(viewer, &["--node", "n2", "--wait"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "waiting: 1 node: 0 good, 1 with trouble\n");
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let label =
        json!({ "metadata": { "labels": { "eks.amazonaws.com/compute-type": "fargate" } } });
    nodes.patch("n2", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).starts_with("1 node: 0 good, 1 without Ferrule\n"));
}

fn command(viewer: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.arg("status").args(more).arg("--kubeconfig").arg(viewer);
    command.env_remove("KUBECONFIG").env_remove("NO_COLOR");
    command
}

/// Sends SIGINT, like Ctrl-C.
fn interrupt(child: &Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
}
