//! Tests are grouped in lanes by what they need of the machine.
//!
//! One build makes the test programs of all wanted lanes. The lanes then run one after another. A lane runs several
//! programs side by side where its tests allow that. A test that misses something prints a line
//! `SKIP <test>: <reason>` and passes. A lane that exists to run such tests fails if a test skips.

mod lint;

use crate::{
    binaries::{self, Binaries},
    book, bpf, cluster, demo,
    deps::{self, Need},
    generate, image,
    interrupt::{self, Guard},
    layers,
    libtest::Ran,
    next_release,
    programs::{self, Built, Run, Targets, TestProgram, variable},
    say,
    vm::{self, Suite},
};
use anyhow::{Context as _, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

struct Lane {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    root: bool,
    tests: Tests,
    /// Number of test programs that run at a time: more than the processors, where tests mostly wait.
    side_by_side: usize,
    /// The test programs that run before the others, each without another one beside it.
    alone: &'static [&'static str],
    run: fn(&mut Session) -> Result<()>,
}

/// The crates whose tests a lane runs.
enum Tests {
    /// None, and the lane runs only if it is named.
    ByNameOnly,
    /// These, and the lane runs only if it is named.
    NamedOnly(&'static [&'static str]),
    Of(&'static [&'static str]),
    /// The pure crates, and these.
    PureAnd(&'static [&'static str]),
    /// All of the crates if the lane is named, else this part.
    Long {
        crates: &'static [&'static str],
        smoke: &'static [Part],
    },
}

/// A part of a crate's tests.
struct Part {
    krate: &'static str,
    target: &'static str,
    /// Tests whose names contain this text.
    filter: &'static str,
}

const LANES: &[Lane] = &[
    Lane {
        name: "pure",
        about: "cores and planners: tables, properties, laws; the policy model; schemas; fuzzers' corpus",
        needs: &[Need::Linker],
        root: false,
        tests: Tests::PureAnd(&[
            "config-crds",
            "tests-eventually",
            "tests-support",
            "tests-fuzz",
            "tests-datapath",
            "tests-policy",
            "tests-service",
            "xtask",
        ]),
        side_by_side: 2,
        alone: &[],
        // The same worlds every time: new ones are searched for without the seed.
        run: |session| session.test(&[variable("PROPTEST_RNG_SEED", "1")]),
    },
    Lane {
        name: "sim",
        about: "simulated node lives, all that ever failed, planted faults; the pool beside its rival",
        needs: &[Need::Linker],
        root: false,
        tests: Tests::Of(&["tests-sim", "tests-bench"]),
        side_by_side: 2,
        alone: &[],
        run: |session| session.test(&[]),
    },
    Lane {
        name: "loopback",
        about: "adapters on loopback and unix sockets; boto3 and the EC2 SDK against the lab's EC2",
        needs: &[Need::Linker, Need::Python, Need::Prometheus, Need::Iproute, Need::Nft],
        root: false,
        tests: Tests::Of(&[
            "runtime-apiserver",
            "runtime-journal",
            "runtime-limiter",
            "runtime-lock",
            "runtime-process",
            "runtime-socket",
            "install-disk",
            "ipamd-rpc",
            "ipamd-npa",
            "datapath-rpc",
            "ipamd-cloud",
            "ipamd-daemon",
            "lab-server",
            "cni",
            "control-rpc",
        ]),
        side_by_side: 3,
        alone: &[],
        run: |session| session.test(&[]),
    },
    Lane {
        name: "chart",
        about: "the chart: Helm's linter, every two values together before a real API server, a life of it; \
                its rules, runbooks and dashboard, by promtool; the pages' links, blocks and commands, and the book",
        needs: &[Need::Linker, Need::Prometheus, Need::Go, Need::Iproute],
        root: false,
        tests: Tests::Long {
            crates: &["tests-metrics", "tests-chart", "tests-docs"],
            smoke: &[
                Part { krate: "tests-metrics", target: "", filter: "" },
                Part { krate: "tests-chart", target: "helm", filter: "" },
                Part { krate: "tests-docs", target: "pages", filter: "" },
                Part { krate: "tests-docs", target: "commands", filter: "" },
            ],
        },
        side_by_side: 2,
        alone: &[],
        run: chart,
    },
    Lane {
        name: "cluster",
        about: "against a real Kubernetes API server, built from its modules the first time",
        needs: &[Need::Linker, Need::Go, Need::Iproute, Need::Prometheus, Need::Faketime],
        root: false,
        tests: Tests::Of(&[
            "lab-programs",
            "lab-kubernetes",
            "tests-cluster",
            "ipamd-kube",
            "policy-kube",
            "control-controller",
            "cli",
            "datapath-agent",
        ]),
        side_by_side: 3,
        alone: &[],
        run: |session| {
            let agent = session.binaries()?.dir.join("ferrule-agent");
            session.test(&[variable("FERRULE_AGENT", agent)])
        },
    },
    Lane {
        name: "netns",
        about: "real kernel in namespaces of its own: routing, plugin, fabric, doctor, eBPF programs",
        needs: &[Need::Linker, Need::Iproute, Need::Nft, Need::Iptables, Need::Clang, Need::Go],
        root: true,
        tests: Tests::Of(&[
            "routing-netlink",
            "datapath-netlink",
            "datapath-conntrack",
            "datapath-sockets",
            "datapath-ebpf",
            "lab-fabric",
            "tests-netns",
        ]),
        side_by_side: 2,
        alone: &[],
        run: |session| {
            let programs = session.binaries()?;
            let agent = lab_programs::Program::network_policy_agent()?;
            session.test(&[
                variable("FERRULE_CNI", programs.plugin()),
                variable("FERRULE_CLI", programs.cli()),
                variable("FERRULE_BPF", bpf::object()?),
                variable("FERRULE_NETWORK_POLICY_AGENT", agent.path()),
            ])
        },
    },
    Lane {
        name: "vm",
        about: "Debian's kernels 6.1 and 6.12 under QEMU: eBPF programs, SCTP, pods with branch ENIs, nodes of the lab without cgroup v1",
        needs: &[Need::Linker, Need::Iproute, Need::Nft, Need::Clang, Need::Machine],
        root: false,
        tests: Tests::Long {
            crates: &["tests-netns", "lab-fabric"],
            smoke: &[
                Part { krate: "tests-netns", target: EBPF, filter: "verifier" },
                Part { krate: "tests-netns", target: BRANCH, filter: "branch" },
                Part { krate: "lab-fabric", target: FABRIC, filter: "cgroup" },
            ],
        },
        side_by_side: 1,
        alone: &[],
        run: machines,
    },
    Lane {
        name: "lab",
        about: "whole nodes: production daemon, plugin, simulated EC2, faults; the real amazon-vpc-cni",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Go,
            Need::Plugins,
            Need::Prometheus,
            Need::Clang,
            Need::Faketime,
        ],
        root: true,
        tests: Tests::Of(&["tests-lab"]),
        side_by_side: 2,
        alone: &["kubernetes"],
        run: |session| {
            let next = next_release::build()?;
            session.test_in_labs(vec![
                variable("FERRULE_NEXT_DIR", next),
                variable("FERRULE_BPF", bpf::object()?),
            ])
        },
    },
    Lane {
        name: "cri",
        about: "containerd and runc on a lab node: sandboxes by the hundred, restarts, spec versions",
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
        tests: Tests::Of(&["tests-cri"]),
        side_by_side: 1,
        alone: &[],
        run: |session| session.test_in_labs(Vec::new()),
    },
    Lane {
        name: "whole",
        about: "a whole cluster in the lab: control plane, kubelets, runtimes, pods, Services",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Runtime,
            Need::Go,
            Need::Prometheus,
            Need::Clang,
        ],
        root: true,
        tests: Tests::Long {
            crates: &["tests-whole"],
            smoke: &[Part {
                krate: "tests-whole",
                target: "cluster",
                filter: "pods_services_and_names_answer_with_nftables",
            }],
        },
        side_by_side: 1,
        alone: &[],
        run: whole,
    },
    Lane {
        name: "conformance",
        about: "upstream's tests of policies, Services and the network on whole clusters",
        needs: &[
            Need::Linker,
            Need::Iproute,
            Need::Nft,
            Need::Iptables,
            Need::Runtime,
            Need::Go,
            Need::Clang,
        ],
        root: true,
        tests: Tests::NamedOnly(&["tests-conformance"]),
        side_by_side: 1,
        alone: &[],
        run: whole,
    },
    Lane {
        name: "demo",
        about: "the demo, with its verdict",
        needs: &[Need::Linker, Need::Iproute, Need::Nft],
        root: true,
        tests: Tests::Of(&[]),
        side_by_side: 1,
        alone: &[],
        run: |session| {
            session.binaries()?;
            let code = demo::run(&demo::Args::default())?;
            session.tally.count("demo", code == ExitCode::SUCCESS);
            Ok(())
        },
    },
    // Last: the other lanes need what is built already, and this one compiles everything once more.
    Lane {
        name: "lint",
        about: "format, generated files, layers, prose; clippy of every crate; documentation; dependencies",
        needs: &[Need::Linker],
        root: false,
        tests: Tests::Of(&[]),
        side_by_side: 1,
        alone: &[],
        run: |session| lint::run(session.tally),
    },
    Lane {
        name: "alone",
        about: "each crate compiles alone, without features that other crates ask for",
        needs: &[Need::Linker],
        root: false,
        tests: Tests::ByNameOnly,
        side_by_side: 1,
        alone: &[],
        run: |session| lint::each_crate_alone(session.tally),
    },
];

/// Large states are work of the agent, which takes minutes on a translated processor. Lane `netns` has them all.
const EBPF_ON_MACHINES: &str = "--include-ignored --skip each_planted_fault --skip takeover \
    --skip 1500_intervals --skip without_10000_others --skip a_first_state_replaces \
    --skip a_full_map_grows --skip a_link_that_keeps_programs";

/// The test programs that run on a machine.
const EBPF: &str = "ebpf";
const BRANCH: &str = "plugin";
/// The nodes of the lab, whose cgroups differ without version 1.
const FABRIC: &str = "fabric";

fn machines(session: &mut Session) -> Result<()> {
    let (plugin, object) = (binaries::plugin()?, bpf::object()?);
    let programs = [EBPF, BRANCH].map(|name| session.programs.tests("tests-netns", Some(name)));
    let [Some(ebpf), Some(branch)] = programs.each_ref().map(|of| of.first()) else {
        anyhow::bail!("the tests of tests-netns were not built: see above");
    };
    let fabric = session.programs.tests("lab-fabric", Some(FABRIC));
    let fabric = fabric.first().context("the tests of lab-fabric were not built: see above")?;
    let suites = [
        Suite {
            name: FABRIC,
            executable: fabric.executable(),
            arguments: "each_program_of_a_node a_node_has_its_cgroup the_cgroup_of_a_node_goes",
            files: BTreeMap::new(),
        },
        Suite {
            name: EBPF,
            executable: ebpf.executable(),
            arguments: if session.is_smoke { "verifier" } else { EBPF_ON_MACHINES },
            files: [("FERRULE_BPF", object.as_path())].into(),
        },
        Suite {
            name: BRANCH,
            executable: branch.executable(),
            arguments: "branch --ignored",
            files: [("FERRULE_CNI", plugin.as_path())].into(),
        },
    ];
    // Each machine has one processor.
    let machine = |release: &'static str| {
        let mut ran = Ran::default();
        let result = vm::run(release, &suites, |line| {
            say::note(&format!("{release}: {line}"));
            ran.read(line);
        });
        for test in ran.failed.iter_mut().flatten() {
            *test += &format!(" on the kernel of {release}");
        }
        (release, ran, result)
    };
    let ended = thread::scope(|scope| {
        let machines = vm::RELEASES.map(|release| scope.spawn(move || machine(release)));
        machines.map(ScopedJoinHandle::join)
    });
    for machine in ended {
        let Ok((release, ran, result)) = machine else {
            session.tally.failed.push("a machine: its thread panicked".to_owned());
            continue;
        };
        session.tally.add(ran);
        if let Err(error) = result {
            session.tally.failed.push(format!("the kernel of {release}: {error:#}"));
        }
    }
    Ok(())
}

fn chart(session: &mut Session) -> Result<()> {
    let programs = session.binaries()?;
    let (xtask, helm) = (std::env::current_exe()?, cluster::program("helm")?);
    session.test(&[
        variable("FERRULE_BIN_DIR", &programs.dir),
        variable("FERRULE_XTASK", xtask),
        variable("FERRULE_HELM", helm),
    ])?;
    if !session.is_smoke {
        book::build()?;
        session.tally.count("the book", true);
    }
    Ok(())
}

fn whole(session: &mut Session) -> Result<()> {
    if session.is_smoke {
        return session.test_in_labs(Vec::new());
    }
    let archive = image::archive(binaries::Profile::Dev);
    image::make(binaries::Profile::Dev, image::NAME, &archive)?;
    let chart = generate::root().join("charts/ferrule");
    session.test_in_labs(vec![variable("FERRULE_IMAGE", archive), variable("FERRULE_CHART", chart)])
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The lanes to run, each in full; without a name all lanes, the long ones as a smoke test
    lanes: Vec<String>,
    /// Print the lanes and their requirements
    #[arg(long)]
    list: bool,
    /// Fail if a test is unsteady: it failed, and passed when it ran alone
    #[arg(long)]
    steady: bool,
}

/// The results so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Tests that failed, and passed when they ran alone.
    unsteady: Vec<String>,
    /// Error lines of failed and unsteady tests.
    errors: Vec<String>,
}

impl Tally {
    fn count(&mut self, step: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(step.to_owned());
        }
    }

    fn add(&mut self, ran: Ran) {
        self.passed += ran.passed;
        self.skipped.extend(ran.skipped);
        self.errors.extend(ran.errors);
        self.unsteady.extend(ran.unsteady);
        self.failed.extend(ran.failed.iter().map(|test| match test {
            Some(name) => format!("test {name} failed: see above"),
            None => "a test program failed: see above".to_owned(),
        }));
    }

    fn print(&self) {
        for skipped in &self.skipped {
            say::note(&format!("skipped: {skipped}"));
        }
        // The beginning of a long log may be cut, so the errors are repeated at its end.
        for error in &self.errors {
            say::note(error);
        }
        for unsteady in &self.unsteady {
            say::note(&format!("unsteady: {unsteady} failed, and passed when it ran alone"));
        }
        for failed in &self.failed {
            say::fail(failed);
        }
        let (passed, failed, skipped) = (self.passed, self.failed.len(), self.skipped.len());
        let unsteady = match self.unsteady.len() {
            0 => String::new(),
            count => format!(", {count} unsteady"),
        };
        say::result(&format!("{passed} passed, {failed} failed, {skipped} skipped{unsteady}"));
    }
}

/// A lane while it runs.
struct Session<'a> {
    lane: &'a Lane,
    is_smoke: bool,
    programs: &'a Built,
    tally: &'a mut Tally,
}

impl Session<'_> {
    /// The programs of a node, which the first caller builds.
    fn binaries(&self) -> Result<Binaries> {
        binaries::build(binaries::Profile::Dev)
    }

    /// Runs the lane's tests with these variables.
    fn test(&mut self, env: &[(&str, OsString)]) -> Result<()> {
        for (args, programs) in self.lane.selected(self.is_smoke, self.programs)? {
            let args: Vec<&str> = args.into_iter().collect();
            let (side_by_side, alone) = (self.lane.side_by_side, self.lane.alone);
            let ran = Run { programs, env, args: &args, side_by_side, alone }.run()?;
            anyhow::ensure!(ran.passed > 0 || !ran.failed.is_empty(), "no test ran");
            self.tally.add(ran);
        }
        Ok(())
    }

    /// Runs the lane's tests, whose labs are in a folder of this run's own: it is removed in the end.
    fn test_in_labs(&mut self, mut env: Vec<(&str, OsString)>) -> Result<()> {
        let programs = self.binaries()?;
        let labs = PathBuf::from(format!("/run/ferrule-test-{}", std::process::id()));
        let _guard = Guard::folder(&programs, &labs)?;
        env.push(variable("FERRULE_BIN_DIR", &programs.dir));
        env.push(variable("FERRULE_LAB_DIR", &labs));
        self.test(&env)
    }
}

impl Lane {
    fn is_long(&self) -> bool {
        matches!(self.tests, Tests::Long { .. })
    }

    /// The crates whose tests are built for it.
    fn crates(&self, is_smoke: bool) -> BTreeSet<&'static str> {
        match &self.tests {
            Tests::ByNameOnly => BTreeSet::new(),
            Tests::NamedOnly(crates) => crates.iter().copied().collect(),
            Tests::Of(crates) => crates.iter().copied().collect(),
            Tests::PureAnd(crates) => layers::pure_crates().chain(crates.iter().copied()).collect(),
            Tests::Long { smoke, .. } if is_smoke => smoke.iter().map(|part| part.krate).collect(),
            Tests::Long { crates, .. } => crates.iter().copied().collect(),
        }
    }

    /// Its test programs, each group with the filter of libtest that they run with.
    fn selected(
        &self,
        is_smoke: bool,
        built: &Built,
    ) -> Result<Vec<(Option<&'static str>, Vec<TestProgram>)>> {
        let some = |krate: &str, target: Option<&str>| {
            let programs = built.tests(krate, target);
            anyhow::ensure!(!programs.is_empty(), "the tests of {krate} were not built: see above");
            Ok(programs)
        };
        if let (Tests::Long { smoke, .. }, true) = (&self.tests, is_smoke) {
            let selected = smoke.iter().map(|part| {
                let target = (!part.target.is_empty()).then_some(part.target);
                let filter = (!part.filter.is_empty()).then_some(part.filter);
                Ok((filter, some(part.krate, target)?))
            });
            return selected.collect();
        }
        let programs = self.crates(is_smoke).into_iter().map(|krate| some(krate, None));
        let programs: Vec<Vec<TestProgram>> = programs.collect::<Result<_>>()?;
        Ok(vec![(None, programs.concat())])
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        for lane in LANES {
            let root = if lane.root { " (root)" } else { "" };
            let long = match lane.tests {
                Tests::Long { .. } => " (in full by name only)",
                Tests::ByNameOnly | Tests::NamedOnly(_) => " (by name only)",
                Tests::Of(_) | Tests::PureAnd(_) => "",
            };
            say::result(&format!("{:9} {}{root}{long}", lane.name, lane.about));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let names = || LANES.iter().map(|lane| lane.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.lanes.iter().find(|n| LANES.iter().all(|l| l.name != n.as_str())) {
        anyhow::bail!("no lane is named {unknown:?}; the lanes are {}", names());
    }
    interrupt::install()?;
    let is_named = !args.lanes.is_empty();
    let is_wanted = |lane: &&Lane| match is_named {
        true => args.lanes.iter().any(|name| name == lane.name),
        false => !matches!(lane.tests, Tests::ByNameOnly | Tests::NamedOnly(_)),
    };
    let (mut tally, mut times) = (Tally::default(), Vec::new());
    let mut lanes = Vec::new();
    for lane in LANES.iter().filter(is_wanted) {
        if may_run(lane, is_named, &mut tally) {
            lanes.push(lane);
        }
    }
    let started = Instant::now();
    let built = build(&lanes, is_named, &mut tally)?;
    times.push(("build", started.elapsed()));
    for lane in lanes {
        let started = Instant::now();
        let is_smoke = lane.is_long() && !is_named;
        run_lane(Session { lane, is_smoke, programs: &built, tally: &mut tally });
        times.push((lane.name, started.elapsed()));
    }
    for (name, took) in &times {
        say::note(&format!("{name:9} {:>6.1} min", took.as_secs_f64() / 60.0));
    }
    let sum: Duration = times.iter().map(|(_, took)| *took).sum();
    say::note(&format!("{:9} {:>6.1} min", "all", sum.as_secs_f64() / 60.0));
    tally.print();
    let unsteady = args.steady && !tally.unsteady.is_empty();
    Ok(if tally.failed.is_empty() && !unsteady { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the test programs of all lanes in one go. With several lanes the programs of a node come out of it too.
fn build(lanes: &[&Lane], is_named: bool, tally: &mut Tally) -> Result<Built> {
    let crates = lanes.iter().flat_map(|lane| lane.crates(lane.is_long() && !is_named));
    let crates: BTreeSet<&str> = crates.collect();
    if crates.is_empty() {
        return Ok(Built::default());
    }
    deps::install(&[Need::Linker])?;
    let targets = if is_named { Targets::Tests } else { Targets::TestsAndPrograms };
    let built = programs::build(&crates, targets)?;
    tally.count("every test compiles", built.is_complete());
    if targets == Targets::TestsAndPrograms && built.is_complete() {
        binaries::take(built.programs())?;
    }
    Ok(built)
}

/// Returns true if the process has the rights that the lane needs.
fn may_run(lane: &Lane, is_named: bool, tally: &mut Tally) -> bool {
    if !lane.root {
        return true;
    }
    let Err(err) = deps::need_root(&format!("test {}", lane.name)) else { return true };
    // A lane that is named is wanted, and so is every lane in CI.
    let is_wanted = is_named || std::env::var_os("CI").is_some();
    let list = if is_wanted { &mut tally.failed } else { &mut tally.skipped };
    list.push(format!("lane {}: {err}", lane.name));
    false
}

/// Runs a lane, and prints its result.
fn run_lane(session: Session) {
    let Session { lane, is_smoke, programs, tally } = session;
    let (failed_before, started) = (tally.failed.len(), Instant::now());
    try_lane(Session { lane, is_smoke, programs, tally });
    let took = say::took(started);
    match outcome(lane.name, tally.failed.len() - failed_before, &took) {
        Ok(text) => say::good(&text),
        Err(text) => say::fail(&text),
    }
}

/// The result of a lane, in a line.
fn outcome(lane: &str, failed: usize, took: &str) -> Result<String, String> {
    match failed {
        0 => Ok(format!("lane {lane} took {took}")),
        _ => Err(format!("lane {lane}: {failed} failed, in {took}")),
    }
}

fn try_lane(session: Session) {
    let Session { lane, is_smoke, programs, tally } = session;
    let part = if is_smoke { " (smoke test)" } else { "" };
    say::step(&format!("lane {}{part}: {}", lane.name, lane.about));
    let skipped_before = tally.skipped.len();
    let result = deps::install(lane.needs)
        .and_then(|()| (lane.run)(&mut Session { lane, is_smoke, programs, tally }));
    if let Err(err) = result {
        tally.failed.push(format!("lane {}: {err:#}", lane.name));
    }
    // With root and its packages a lane must not skip.
    let skipped = tally.skipped.len() - skipped_before;
    if skipped > 0 && (lane.root || std::env::var_os("CI").is_some()) {
        tally
            .failed
            .push(format!("lane {}: {skipped} tests skipped what it exists for", lane.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_good_only_if_every_step_of_it_passed() {
        let lane = |run| Lane {
            name: "made-up",
            about: "steps",
            needs: &[],
            root: false,
            tests: Tests::Of(&[]),
            side_by_side: 1,
            alone: &[],
            run,
        };
        let failing = lane(|session| {
            session.tally.count("one", true);
            session.tally.count("other", false);
            session.tally.count("third", true);
            Ok(())
        });
        let broken = lane(|_| anyhow::bail!("no compiler"));
        let good = lane(|session| {
            session.tally.count("one", true);
            Ok(())
        });
        // A failure of an earlier lane is not counted for this one.
        let mut tally = Tally { failed: vec!["earlier".to_owned()], ..Tally::default() };
        let programs = Built::default();
        for (lane, failed) in [(&failing, 1), (&broken, 1), (&good, 0)] {
            let before = tally.failed.len();
            try_lane(Session { lane, is_smoke: false, programs: &programs, tally: &mut tally });
            assert_eq!(tally.failed.len() - before, failed);
            assert_eq!(outcome(lane.name, failed, "1 s").is_ok(), failed == 0);
        }
        assert_eq!(tally.passed, 3);
        assert_eq!(outcome("lint", 2, "5 s"), Err("lane lint: 2 failed, in 5 s".to_owned()));
    }

    #[test]
    fn a_lane_whose_tests_were_not_built_fails() {
        let lane = LANES.iter().find(|lane| lane.name == "sim").expect("the lane sim");
        let mut tally = Tally::default();
        let programs = Built::default();
        try_lane(Session { lane, is_smoke: false, programs: &programs, tally: &mut tally });
        assert_eq!(tally.failed.len(), 1, "{:?}", tally.failed);
    }

    /// A misspelled program would run beside the others.
    #[test]
    fn a_program_that_runs_alone_exists() {
        let tests = generate::root().join("tests");
        for lane in LANES {
            for name in lane.alone {
                let is_there = lane.crates(false).iter().any(|krate| {
                    let folder = tests.join(krate.trim_start_matches("tests-")).join("tests");
                    folder.join(name).is_dir() || folder.join(format!("{name}.rs")).exists()
                });
                assert!(is_there, "{}: {name}", lane.name);
            }
        }
    }

    /// A misspelled crate of a smoke test would fail only in CI.
    #[test]
    fn a_smoke_test_is_part_of_its_lane() {
        for lane in LANES {
            if let Tests::Long { crates, smoke } = &lane.tests {
                assert!(!smoke.is_empty(), "{}", lane.name);
                assert!(smoke.iter().all(|part| crates.contains(&part.krate)), "{}", lane.name);
            }
        }
    }

    /// A crate that no lane lists would never be tested in CI.
    #[test]
    fn every_crate_with_tests_is_in_a_lane() {
        let tested: BTreeSet<&str> = LANES.iter().flat_map(|lane| lane.crates(false)).collect();
        let metadata = cargo_metadata::MetadataCommand::new()
            .current_dir(generate::root())
            .no_deps()
            .exec()
            .expect("the workspace's metadata");
        let has_tests = |package: &&cargo_metadata::Package| {
            let folder = package.manifest_path.parent().expect("a folder");
            walk(folder.as_std_path()).iter().any(|file| {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                text.contains("#[test]") || text.contains("#[tokio::test")
            })
        };
        let forgotten: Vec<_> = metadata
            .workspace_packages()
            .into_iter()
            .filter(|package| !tested.contains(package.name.as_str()))
            .filter(has_tests)
            .map(|package| package.name.to_string())
            .collect();
        assert_eq!(forgotten, Vec::<String>::new(), "add them to a lane");
    }

    /// The Rust files of a crate, without those of crates in folders below it.
    fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.join("Cargo.toml").exists() {
                files.extend(walk(&path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
        files
    }

    #[test]
    fn failed_tests_are_counted_by_name_and_unsteady_ones_apart() {
        let mut tally = Tally::default();
        tally.add(Ran {
            passed: 15,
            failed: vec![Some("netlink::a_rule".to_owned()), None],
            unsteady: vec!["a_table".to_owned()],
            ..Ran::default()
        });
        let failed = ["test netlink::a_rule failed", "a test program failed"];
        assert_eq!(tally.failed, failed.map(|text| format!("{text}: see above")));
        assert_eq!((tally.passed, tally.unsteady), (15, vec!["a_table".to_owned()]));
    }
}
