//! Tests stand in lanes by what they need of the machine.
//!
//! A test that finds something missing prints a line `SKIP <test>: <reason>` and passes. A lane
//! that exists to run such tests fails when one of them skipped.

use crate::{
    binaries::{self, Binaries},
    book, cluster, demo,
    deps::{self, Need},
    generate, image,
    interrupt::Guard,
    layers,
    libtest::{Ran, Tests},
    neighbour, say, vm,
};
use anyhow::{Context as _, Result};
use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    time::Instant,
};

struct Lane {
    name: &'static str,
    what: &'static str,
    needs: &'static [Need],
    root: bool,
    run: fn(&mut Tally) -> Result<()>,
}

const LANES: &[Lane] = &[
    Lane {
        name: "lint",
        what: "format, generated files, layers; clippy of every crate; documentation",
        needs: &[Need::Linker],
        root: false,
        run: lint,
    },
    Lane {
        name: "pure",
        what: "cores and planners: tables, properties, laws; the policy model; schemas; fuzzers' corpus",
        needs: &[Need::Linker],
        root: false,
        run: |tally| {
            let pure = layers::pure_crates().collect::<Vec<_>>();
            let beside = ["config-crds", "tests-support", "tests-fuzz", "xtask"];
            cargo_test(tally, &[&pure[..], &beside].concat(), &[])?;
            // The same worlds every time: what is new is searched for without the seed.
            let seed = [("PROPTEST_RNG_SEED", OsStr::new("1"))];
            cargo_test(tally, &["tests-policy"], &seed)
        },
    },
    Lane {
        name: "sim",
        what: "simulated node lives, all that ever failed, planted faults; the pool beside its rival",
        needs: &[Need::Linker],
        root: false,
        run: |tally| cargo_test(tally, &["tests-sim", "tests-bench"], &[]),
    },
    Lane {
        name: "loopback",
        what: "adapters on loopback and unix sockets; boto3 and the EC2 SDK against the lab's EC2",
        needs: &[Need::Linker, Need::Python, Need::Prometheus, Need::Iproute, Need::Nft],
        root: false,
        run: |tally| {
            let crates = ["ipamd-rpc", "ipamd-cloud", "ipamd-daemon", "lab-server", "cni"];
            cargo_test(tally, &crates, &[])?;
            // By itself: beside the EC2 SDK its features would have that compiled anew.
            cargo_test(tally, &["control-rpc"], &[])
        },
    },
    Lane {
        name: "chart",
        what: "the chart: Helm's linter, every two values together before a real API server, a life of it; \
               its rules, runbooks and dashboard, by promtool; the pages' links, blocks and commands, and that they make a book",
        needs: &[Need::Linker, Need::Prometheus, Need::Go, Need::Iproute],
        root: false,
        run: |tally| {
            cargo_test(tally, &["tests-metrics"], &[])?;
            cargo_test(tally, &["tests-chart"], &[])?;
            let programs = with_binaries()?;
            let (xtask, helm) = (std::env::current_exe()?, cluster::program("helm")?);
            let env = [
                ("FERRULE_BIN_DIR", programs.dir.as_os_str()),
                ("FERRULE_XTASK", xtask.as_os_str()),
                ("FERRULE_HELM", helm.as_os_str()),
            ];
            cargo_test(tally, &["tests-docs"], &env)?;
            if !tally.ahead {
                book::build()?;
                tally.count("the book", true);
            }
            Ok(())
        },
    },
    Lane {
        name: "cluster",
        what: "against a real Kubernetes API server, built from its modules the first time",
        needs: &[Need::Linker, Need::Go, Need::Iproute, Need::Prometheus],
        root: false,
        run: |tally| {
            let crates = [
                "lab-programs",
                "lab-kubernetes",
                "tests-cluster",
                "ipamd-kube",
                "policy-kube",
                "control-controller",
                "cli",
            ];
            cargo_test(tally, &crates, &[])?;
            // By itself, as it is built alone.
            cargo_test(tally, &["datapath-agent"], &[])
        },
    },
    Lane {
        name: "netns",
        what: "real kernel in namespaces of its own: routing, plugin, fabric, doctor",
        needs: &[Need::Linker, Need::Iproute, Need::Nft, Need::Iptables],
        root: true,
        run: |tally| {
            let programs = with_binaries()?;
            let (plugin, cli) = (programs.plugin(), programs.cli());
            let env = [("FERRULE_CNI", plugin.as_os_str()), ("FERRULE_CLI", cli.as_os_str())];
            let crates = ["routing-netlink", "lab-fabric", "tests-netns"];
            cargo_test(tally, &crates, &env)
        },
    },
    Lane {
        name: "vm",
        what: "what this machine's kernel may lack: pods with branch ENIs on Debian's, under QEMU",
        needs: &[Need::Linker, Need::Iproute, Need::Machine],
        root: false,
        run: |tally| {
            let mut ran = Ran::default();
            vm::run("branch", |line| {
                say::note(line);
                ran.read(line);
            })?;
            anyhow::ensure!(ran.passed > 0 || !ran.failed.is_empty(), "no test ran in the machine");
            tally.add(ran);
            Ok(())
        },
    },
    Lane {
        name: "lab",
        what: "whole nodes: production daemon, plugin, simulated EC2, faults; the real amazon-vpc-cni",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Go,
            Need::Plugins,
            Need::Prometheus,
        ],
        root: true,
        run: |tally| in_labs(tally, "tests-lab", true, &[]),
    },
    Lane {
        name: "cri",
        what: "containerd and runc on a lab node: sandboxes by the hundred, restarts, spec versions",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Runtime,
            Need::Plugins,
            Need::Go,
        ],
        root: true,
        run: |tally| in_labs(tally, "tests-cri", false, &[]),
    },
    Lane {
        name: "whole",
        what: "a whole cluster in the lab: control plane, kubelets, runtimes, pods, Services",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Runtime,
            Need::Go,
            Need::Prometheus,
        ],
        root: true,
        run: |tally| {
            let archive = image::archive(binaries::Profile::Dev);
            if !tally.ahead {
                image::make(binaries::Profile::Dev, image::NAME, &archive)?;
            }
            let chart = generate::root().join("charts/ferrule");
            let env =
                [("FERRULE_IMAGE", archive.as_os_str()), ("FERRULE_CHART", chart.as_os_str())];
            in_labs(tally, "tests-whole", false, &env)
        },
    },
    Lane {
        name: "demo",
        what: "the demo, with its verdict",
        needs: &[Need::Linker, Need::Iproute, Need::Nft],
        root: true,
        run: |tally| {
            let code = demo::run(&demo::Args::default())?;
            tally.count("demo", code == ExitCode::SUCCESS);
            Ok(())
        },
    },
];

/// Lanes that run only when they are asked for.
const BY_NAME_ONLY: [&str; 2] = ["chart", "whole"];

impl Lane {
    fn is_by_name_only(&self) -> bool {
        BY_NAME_ONLY.contains(&self.name)
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The lanes to run; none means all but those that run by name only
    lanes: Vec<String>,
    /// Print the lanes and what each needs
    #[arg(long)]
    list: bool,
    /// Build what the lanes run, as far as the machine is ready for it, and run nothing
    #[arg(long, hide = true)]
    ahead: bool,
}

/// What came of the tests so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Tests that failed, and then passed by themselves.
    unsteady: Vec<String>,
    /// What tests said that failed.
    said: Vec<String>,
    /// Nothing runs: tests are built for those who come to them.
    ahead: bool,
}

impl Tally {
    fn count(&mut self, what: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(what.to_owned());
        }
    }

    fn add(&mut self, ran: Ran) {
        self.passed += ran.passed;
        self.skipped.extend(ran.skipped);
        if !(ran.failed.is_empty() && ran.unsteady.is_empty()) {
            self.said.extend(ran.said);
        }
        self.unsteady.extend(ran.unsteady);
        self.failed.extend(ran.failed.iter().map(|test| match test {
            Some(name) => format!("test {name} failed: see above"),
            None => "a test failed: see above".to_owned(),
        }));
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        for lane in LANES {
            let root = if lane.root { " (root)" } else { "" };
            let by_name = if lane.is_by_name_only() { " (by name only)" } else { "" };
            say::result(&format!("{:9} {}{root}{by_name}", lane.name, lane.what));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let names = || LANES.iter().map(|lane| lane.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.lanes.iter().find(|n| LANES.iter().all(|l| l.name != n.as_str())) {
        anyhow::bail!("no lane is named {unknown:?}; the lanes are {}", names());
    }
    let wanted = |lane: &&Lane| match args.lanes.is_empty() {
        true => !lane.is_by_name_only(),
        false => args.lanes.iter().any(|name| name == lane.name),
    };
    if args.ahead {
        build_ahead(LANES.iter().filter(wanted));
        return Ok(ExitCode::SUCCESS);
    }
    let mut tally = Tally::default();
    let mut ahead = None;
    for lane in LANES.iter().filter(wanted) {
        run_lane(lane, !args.lanes.is_empty(), &mut tally);
        if args.lanes.is_empty() && ahead.is_none() {
            ahead = Some(builder());
        }
    }
    if let Some(Ok(mut builder)) = ahead {
        builder.wait().context("wait for what builds ahead")?;
    }
    for skipped in &tally.skipped {
        say::note(&format!("skipped: {skipped}"));
    }
    // The beginning of a long log may be cut, so its end tells what failed and why.
    for said in &tally.said {
        say::note(said);
    }
    for unsteady in &tally.unsteady {
        say::note(&format!("unsteady: {unsteady} failed, and then passed by itself"));
    }
    for failed in &tally.failed {
        say::fail(failed);
    }
    let (passed, failed, skipped) = (tally.passed, tally.failed.len(), tally.skipped.len());
    let unsteady = match tally.unsteady.len() {
        0 => String::new(),
        count => format!(", {count} unsteady"),
    };
    say::result(&format!("{passed} passed, {failed} failed, {skipped} skipped{unsteady}"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds what later lanes need while earlier ones run: much of a test's time is waiting. It takes what is left of the
/// processors; each lane still builds for itself, and finds it done or waits for it.
fn builder() -> std::io::Result<Child> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(std::env::current_exe()?).args(["test", "--ahead"]);
    nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// What fails is left to the lane itself, which tells of it.
fn build_ahead<'a>(lanes: impl Iterator<Item = &'a Lane>) {
    let is_root = deps::need_root("test").is_ok();
    let may_run = |lane: &&Lane| !ALONE.contains(&lane.name) && (is_root || !lane.root);
    for lane in lanes.filter(may_run) {
        let _ = (lane.run)(&mut Tally { ahead: true, ..Tally::default() });
    }
}

/// Lanes that do not run tests of cargo's, and the first.
const ALONE: [&str; 3] = ["lint", "vm", "demo"];

/// Runs a lane, and tells how it went.
fn run_lane(lane: &Lane, asked_for: bool, tally: &mut Tally) {
    let (failed_before, started) = (tally.failed.len(), Instant::now());
    try_lane(lane, asked_for, tally);
    let took = say::took(started);
    match outcome(lane.name, tally.failed.len() - failed_before, &took) {
        Ok(text) => say::good(&text),
        Err(text) => say::fail(&text),
    }
}

/// How a lane ended, in a line.
fn outcome(lane: &str, failed: usize, took: &str) -> Result<String, String> {
    match failed {
        0 => Ok(format!("lane {lane} took {took}")),
        _ => Err(format!("lane {lane}: {failed} failed, in {took}")),
    }
}

fn try_lane(lane: &Lane, asked_for: bool, tally: &mut Tally) {
    say::step(&format!("lane {}: {}", lane.name, lane.what));
    if lane.root
        && let Err(err) = deps::need_root(&format!("test {}", lane.name))
    {
        // Who names a lane, or is CI, wants it run.
        let unwanted = asked_for || std::env::var_os("CI").is_some();
        let list = if unwanted { &mut tally.failed } else { &mut tally.skipped };
        list.push(format!("lane {}: {err}", lane.name));
        return;
    }
    let skipped_before = tally.skipped.len();
    if let Err(err) = deps::install(lane.needs).and_then(|()| (lane.run)(tally)) {
        tally.failed.push(format!("lane {}: {err:#}", lane.name));
    }
    // With root and its packages there, a lane has no excuse.
    let skipped = tally.skipped.len() - skipped_before;
    if skipped > 0 && (lane.root || std::env::var_os("CI").is_some()) {
        tally
            .failed
            .push(format!("lane {}: {skipped} tests skipped what it exists for", lane.name));
    }
}

fn lint(tally: &mut Tally) -> Result<()> {
    let step = |tally: &mut Tally, what: &str, args: &[&str]| -> Result<()> {
        let mut cargo = binaries::cargo();
        cargo.args(args).stdout(Stdio::from(std::io::stderr())).env("RUSTDOCFLAGS", "-D warnings");
        tally.count(what, cargo.status().with_context(|| format!("run {what}"))?.success());
        Ok(())
    };
    step(tally, "cargo fmt", &["fmt", "--all", "--check"])?;
    let generated = generate::check()?;
    tally.count("generated files", generated);
    tally.count("layers", layers::run()? == ExitCode::SUCCESS);
    step(
        tally,
        "cargo clippy",
        &["clippy", "--locked", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"],
    )?;
    step(tally, "cargo doc", &["doc", "--locked", "-q", "--workspace", "--no-deps"])
}

fn with_binaries() -> Result<Binaries> {
    binaries::build(binaries::Profile::Dev)
}

/// Runs the tests of a crate that makes labs; with the next release as well, if its tests upgrade.
fn in_labs(tally: &mut Tally, krate: &str, upgrades: bool, given: &[(&str, &OsStr)]) -> Result<()> {
    let programs = with_binaries()?;
    let next = upgrades.then(neighbour::build).transpose()?;
    if tally.ahead {
        return cargo_test(tally, &[krate], &[]);
    }
    // A folder of our own: whatever an interrupted or failed test leaves in it goes.
    let labs = PathBuf::from(format!("/run/ferrule-test-{}", std::process::id()));
    let _guard = Guard::folder(&programs, &labs)?;
    let mut env =
        vec![("FERRULE_BIN_DIR", programs.dir.as_os_str()), ("FERRULE_LAB_DIR", labs.as_os_str())];
    env.extend(given);
    env.extend(next.as_ref().map(|dir| ("FERRULE_NEXT_DIR", dir.as_os_str())));
    cargo_test(tally, &[krate], &env)
}

/// Runs the tests of these crates, shows their output, and counts. They share the machine with others, and some its
/// kernel: the few that fail are run again, by themselves.
fn cargo_test(tally: &mut Tally, crates: &[&str], env: &[(&str, &OsStr)]) -> Result<()> {
    let tests = Tests { crates, env };
    let is_built = tests.build()?;
    if tally.ahead {
        return Ok(());
    }
    anyhow::ensure!(is_built, "the tests of {} cannot be built", crates.join(", "));
    let mut ran = tests.run(&[])?;
    anyhow::ensure!(
        ran.passed > 0 || !ran.failed.is_empty(),
        "no test ran in {}",
        crates.join(", ")
    );
    if ran.failed.len() <= SECOND_CHANCES {
        for test in ran.named_failures() {
            say::step(&format!("{test} failed: once more, by itself"));
            let again = tests.run(&["--exact", &test, "--test-threads=1"])?;
            if again.passed > 0 && again.failed.is_empty() {
                ran.steady(&test);
            }
        }
    }
    tally.add(ran);
    Ok(())
}

/// More tests than these do not fail by chance.
const SECOND_CHANCES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_well_only_if_no_step_of_it_failed() {
        let lane = |run| Lane { name: "made-up", what: "steps", needs: &[], root: false, run };
        let failing = lane(|tally| {
            tally.count("one", true);
            tally.count("other", false);
            tally.count("third", true);
            Ok(())
        });
        let broken = lane(|_| anyhow::bail!("no compiler"));
        let well = lane(|tally| {
            tally.count("one", true);
            Ok(())
        });
        // What failed in lanes before is none of this one's.
        let mut tally = Tally { failed: vec!["earlier".to_owned()], ..Tally::default() };
        for (lane, failed) in [(&failing, 1), (&broken, 1), (&well, 0)] {
            let before = tally.failed.len();
            try_lane(lane, true, &mut tally);
            assert_eq!(tally.failed.len() - before, failed);
            assert_eq!(outcome(lane.name, failed, "1 s").is_ok(), failed == 0);
        }
        assert_eq!(tally.passed, 3);
        assert_eq!(outcome("lint", 2, "5 s"), Err("lane lint: 2 failed, in 5 s".to_owned()));
    }

    /// One that is misspelt would be run while others are, or with all.
    #[test]
    fn what_is_not_as_the_others_is_a_lane() {
        for name in ALONE.into_iter().chain(BY_NAME_ONLY) {
            assert!(LANES.iter().any(|lane| lane.name == name), "{name}");
        }
    }

    #[test]
    fn tests_that_failed_are_told_by_name_and_those_that_passed_alone_apart() {
        let mut tally = Tally::default();
        tally.add(Ran {
            passed: 15,
            failed: vec![Some("netlink::a_rule".to_owned()), None],
            unsteady: vec!["a_table".to_owned()],
            ..Ran::default()
        });
        let told = ["test netlink::a_rule failed", "a test failed"];
        assert_eq!(tally.failed, told.map(|text| format!("{text}: see above")));
        assert_eq!((tally.passed, tally.unsteady), (15, vec!["a_table".to_owned()]));
    }
}
