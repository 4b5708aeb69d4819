//! The benchmark of streams terminates at a hundredth of its sizes, and reports every figure.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use serde_json::Value;
use std::process::Command;

#[test]
fn the_benchmark_reports_every_figure() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench-stream"));
    bench.args(["--small", "--events", "3", "--churn", "2", "--output", "json"]);
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["bench"], "stream");
    let figures = run["figures"].as_array().unwrap();
    for agents in [1_000, 5_000] {
        for what in [
            "all_connected",
            "first_bytes_a_node",
            "memory_an_agent",
            "connect_work_an_agent",
            "event_to_the_last_p50",
            "event_to_the_last_p99",
            "event_bytes_a_node",
            "event_work",
            "churn_events",
            "churn_behind_p50",
            "churn_behind_p99",
            "churn_bytes_a_node",
            "churn_work_an_event",
            "resync_all",
            "resync_bytes_a_node",
            "resync_work_an_agent",
        ] {
            let name = format!("agents_{agents}_{what}");
            let found = figures.iter().find(|figure| figure["name"] == name.as_str());
            let found = found.unwrap_or_else(|| panic!("the figure {name} is missing"));
            assert!(found["value"].is_number(), "{found}");
            if what.contains("bytes") || what.contains("work") {
                assert!(found["value"].as_f64().unwrap() > 0.0, "{found}");
            }
        }
    }
}
