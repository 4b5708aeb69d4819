//! The fabric against the real kernel. Needs root, iproute2 and nftables; all else is its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the harness is this file")]

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

mod balancer;
mod cgroups;
mod contained;
mod groups;
mod internet;
mod ipv6;
mod lab;
mod nodes;
mod probes;
mod routing;
mod teardown;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = lab_fabric::enter::dispatch() {
        return code;
    }
    let tests: Vec<Test> = [
        routing::TESTS,
        groups::TESTS,
        internet::TESTS,
        balancer::TESTS,
        cgroups::TESTS,
        ipv6::TESTS,
        nodes::TESTS,
        contained::TESTS,
        probes::TESTS,
        teardown::TESTS,
    ]
    .concat();
    let args: Vec<String> = env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let [first, dir] = args.as_slice()
        && first == teardown::HOLD
    {
        return teardown::hold(dir);
    }
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP fabric: needs root");
        return ExitCode::SUCCESS;
    }
    lab::sweep();
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    run(&tests, &filters)
}

fn run(tests: &[Test], filters: &[&String]) -> ExitCode {
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in tests {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let begun = std::time::Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(test));
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({} ms)", begun.elapsed().as_millis());
        match outcome {
            Ok(()) => passed += 1,
            Err(_) => failed.push(name),
        }
    }
    // The format of libtest: programs that count tests read this line.
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {} failed", failed.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
